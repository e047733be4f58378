"""The rows of a table through Spark: what was planned is emitted, by any number of tasks, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from source_tables import VARIABLE, Shop, shop_in
from spark.emitting import Emitter
from sqlalchemy import make_url

from txbatch import Topology, TransactionAttempt
from txbatch.core.batch.transaction import Run
from txbatch.core.errors import Incomplete
from txbatch.core.protocol import planning
from txbatch.core.protocol.ledger import Head

Emit = Callable[..., Any]


@pytest.fixture
def shop(databases: Callable[[str], str]) -> Iterator[Shop]:
    with shop_in(databases("shop"), before=range(7)) as made:
        yield made


def turnover(shop: Shop) -> Topology:
    """The job of docs/spouts.md."""
    page = Path(__file__).parents[2] / "docs" / "spouts.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    (job,) = (block for block in blocks if " PostgresSpout(" in block)
    names: dict[str, Any] = {"__name__": "turnover"}
    exec(job, names)
    topology = names["topology"]
    assert isinstance(topology, Topology)
    return topology


def plan(topology: Topology) -> Any:
    return planning.plan_batch(topology, Head(topology.name, 1, None, (), None, {}), Run("test"))


def test_a_table_is_counted(shop: Shop, emit: Emit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txbatch.spouts.tables.stretches.ROWS_PER_TASK", 1000)
    shop.ask("INSERT INTO shop.sale SELECT n, 's' || n % 3, 0.5 FROM generate_series(1001, 4000) n")
    emitted = emit(turnover(shop))
    assert emitted.read("sales") == {"shop.sale": 3000, "shop.sale@before": 7}
    counted = {key: int(values[0]) for (key,), values in emitted.partials["sales_by_shop"].items()}
    told = shop.ask("SELECT shop, count(*) FROM shop.sale GROUP BY 1")
    assert counted == dict(told)


def test_rows_that_went_since_the_plan_are_missed(shop: Shop, emit: Emit) -> None:
    shop.insert(1000, 1001)
    topology = turnover(shop)
    planned = plan(topology)
    shop.ask("UPDATE shop.sale SET shop = 'other' WHERE id = 1000")
    assert emit(topology, planned).read("sales")["shop.sale"] == 2  # as many; the next plan tells that they are others
    shop.ask("DELETE FROM shop.sale WHERE id = 1000")
    with pytest.raises(Incomplete, match=r"'shop\.sale' was planned with 2 records, 1 were read"):
        emit(topology, planned)


def test_a_bad_value_is_named_and_no_credentials_are_shown(
    shop: Shop, emitter: Emitter, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """By table, key and field; whether the attempt fails or not. tests/cli looks into the event log, and at processes."""
    secret = "heron-umbrella-42"  # nothing that Spark would redact
    monkeypatch.setenv(VARIABLE, make_url(shop.url).set(password=secret).render_as_string(hide_password=False))
    topology = turnover(shop)
    (counted,) = emitter.alone(topology, [plan(topology)])
    assert counted.read_manifest().records == 7
    shop.ask("ALTER TABLE shop.sale ALTER amount TYPE numeric")
    shop.ask(
        "INSERT INTO shop.sale SELECT n, 's', CASE n WHEN 71 THEN 'NaN'::numeric ELSE 1 END FROM generate_series(50, 99) n"
    )
    planned = plan(topology)
    assert secret not in json.dumps(planned)
    (failed,) = emitter.alone(topology, [planned])
    error = failed.read_error()
    assert error is not None
    assert error["kind"] == "terminal"
    told = "shop.sale, id=71, amount: 'NaN' is no decimal(12,2); mend the row, or declare the field a string"
    assert told in error["message"]
    files = [file for file in emitter.root.rglob("*") if file.is_file()]
    assert len(files) > 6
    assert [file for file in files if secret.encode() in file.read_bytes()] == []
    frame = (
        topology.streams["sales"]
        .spout.emitter()
        .emit_batch(emitter.spark, TransactionAttempt(1, 1), planned["streams"]["sales"])
    )
    frame.explain(True)
    captured = capfd.readouterr()
    assert "mapInArrow" in captured.out or "MapInArrow" in captured.out
    assert secret not in captured.out + captured.err + repr(topology.streams["sales"].spout.identity)


def test_a_source_that_is_away_is_tried_again(shop: Shop, emitter: Emitter, monkeypatch: pytest.MonkeyPatch) -> None:
    topology = turnover(shop)
    planned = plan(topology)
    monkeypatch.setenv(VARIABLE, "postgresql://reader:heron@127.0.0.1:1/shop")
    (folder,) = emitter.alone(topology, [planned])
    assert folder.read_error() == {
        "kind": "transient",
        "message": "TX224 (try again): source 'shop' does not answer (Connection refused); try again",
    }
