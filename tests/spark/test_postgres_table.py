"""The rows of a table through Spark: what was planned is emitted, by any number of tasks, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from source_tables import Shop, shop_in

from txbatch import Count, OpaqueState, Sum, Topology
from txbatch.core.batch.transaction import Run
from txbatch.core.errors import BadRecord, Incomplete
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


@pytest.mark.parametrize(
    "change", ["DELETE FROM shop.sale WHERE id = 1000", "UPDATE shop.sale SET id = 9 WHERE id = 1000"]
)
def test_rows_that_went_since_the_plan_are_missed(shop: Shop, emit: Emit, change: str) -> None:
    shop.insert(1000, 1001)
    topology = turnover(shop)
    planned = plan(topology)
    shop.ask(change)
    if change.startswith("UPDATE"):
        assert emit(topology, planned).read()["shop.sale"] == 2  # the number is the same; the next plan tells
        return
    with pytest.raises(Incomplete, match="was planned with 2 records, and 1 was read"):
        emit(topology, planned)


def test_a_bad_value_is_named_from_within_spark(shop: Shop, emit: Emit) -> None:
    shop.ask("ALTER TABLE shop.sale ALTER amount TYPE numeric")
    shop.ask("INSERT INTO shop.sale VALUES (71, 's', 'NaN')")
    with pytest.raises(BadRecord, match=r"shop\.sale, id=71, amount: 'NaN' is no decimal\(12,2\); mend the row"):
        try:
            emit(turnover(shop))
        except BadRecord:
            raise
        except Exception as error:
            from txbatch.spark.failures import in_our_words

            raise in_our_words(error) from error
