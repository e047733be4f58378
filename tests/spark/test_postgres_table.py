"""The rows of a table through Spark: what was planned is emitted, by any number of tasks, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from source_tables import VARIABLE, Shop, shop_in
from spark.emitting import Emitter

from txbatch import Count, OpaqueState, Sum, Topology
from txbatch.core.batch.transaction import Run
from txbatch.core.errors import Incomplete
from txbatch.core.protocol import planning
from txbatch.core.protocol.ledger import Head

Emit = Callable[..., Any]


@pytest.fixture
def shop(databases: Callable[[str], str]) -> Iterator[Shop]:
    with shop_in(databases("shop"), before=range(7)) as made:
        yield made


def turnover(shop: Shop, **options: Any) -> Topology:
    topology = Topology("turnover")
    sales = topology.new_stream("in", shop.spout(**options))
    sales.group_by("shop").persistent_aggregate(OpaqueState("turnover"), sales=Count(), amount=Sum("amount"))
    return topology


def plan(topology: Topology) -> Any:
    return planning.plan_batch(topology, Head(topology.name, 1, None, (), None, {}), Run("test"))


def test_a_table_is_counted(shop: Shop, emit: Emit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txbatch.spouts.tables.stretches.ROWS_PER_TASK", 1000)
    shop.ask("INSERT INTO shop.sale SELECT n, 's' || n % 3, 0.5 FROM generate_series(1001, 4000) n")
    emitted = emit(turnover(shop))
    assert emitted.read() == {"shop.sale": 3000, "shop.sale@before": 7}
    counted = {key: int(values[0]) for (key,), values in emitted.partials["turnover"].items()}
    told = shop.ask("SELECT shop, count(*) FROM shop.sale GROUP BY 1")
    assert counted == dict(told)


def test_rows_that_went_since_the_plan_are_missed(shop: Shop, emit: Emit) -> None:
    shop.insert(1000, 1001)
    topology = turnover(shop)
    planned = plan(topology)
    shop.ask("UPDATE shop.sale SET shop = 'other' WHERE id = 1000")
    assert emit(topology, planned).read()["shop.sale"] == 2  # as many; the next plan tells that they are others
    shop.ask("DELETE FROM shop.sale WHERE id = 1000")
    with pytest.raises(Incomplete, match=r"'shop\.sale' was planned with 2 records, 1 were read"):
        emit(topology, planned)


def test_a_bad_value_is_named_by_table_key_and_field(shop: Shop, emitter: Emitter) -> None:
    shop.ask("ALTER TABLE shop.sale ALTER amount TYPE numeric")
    shop.ask(
        "INSERT INTO shop.sale SELECT n, 's', CASE n WHEN 71 THEN 'NaN'::numeric ELSE 1 END FROM generate_series(50, 99) n"
    )
    topology = turnover(shop)
    (folder,) = emitter.alone(topology, [plan(topology)])
    error = folder.read_error()
    assert error is not None
    assert error["kind"] == "terminal"
    told = "shop.sale, id=71, amount: 'NaN' is no decimal(12,2); mend the row, or declare the field a string"
    assert told in error["message"]


def test_a_source_that_is_away_is_tried_again(shop: Shop, emitter: Emitter, monkeypatch: pytest.MonkeyPatch) -> None:
    topology = turnover(shop)
    planned = plan(topology)
    monkeypatch.setenv(VARIABLE, "postgresql://reader:heron@127.0.0.1:1/shop")
    (folder,) = emitter.alone(topology, [planned])
    assert folder.read_error() == {
        "kind": "transient",
        "message": "TX201 (try again): source 'shop' does not answer (Connection refused); try again",
    }
