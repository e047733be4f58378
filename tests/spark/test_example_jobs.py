"""The example jobs by Spark, with their own SQL and sources."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from txbatch import Interval, Topology
from txbatch.core.batch.plan import BatchPlan, Range, Ranges
from txbatch.core.batch.transaction import Run
from txbatch.core.protocol import planning
from txbatch.core.protocol.ledger import Head
from txbatch.launch.job_file import load_job
from txbatch.storage.staging import AttemptFolder

JOBS = Path(__file__).parents[2] / "jobs"
DAY = Interval(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))


def written(folder: Path, **files: str) -> None:
    """Files, named by folder and name, with `__` between them."""
    for name, content in files.items():
        path = folder / name.replace("__", "/")
        path = path.with_name(path.name.replace("_", "."))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def job(name: str) -> Topology:
    topology = load_job(str(JOBS / f"{name}.py")).topology
    for module in [each for each in sys.modules if each.startswith("txbatch_job_")]:
        cloudpickle.register_pickle_by_value(sys.modules[module])  # as that of a submitted job, which is __main__, is
    return topology


def test_top_words_takes_what_was_exported(emit: Callable[..., Any], tmp_path: Path) -> None:
    """Nulls, a state without changes, and a word of another script."""
    topology, folder = job("top_words"), AttemptFolder((tmp_path / "an attempt").as_uri())
    stream, planned = topology.streams["changes"], Ranges({"word_count": Range(0, 4)})
    metadata = BatchPlan({"changes": planned}).to_json()
    rows = [("the", None, 150, 1), ("größe", 99, 100, 2), ("a", 120, 20, 3), ("gone", 1, None, 4)]
    folder.write_export(0, stream.fields, rows)
    found = emit(topology, metadata, exports={"changes": folder.export_uri(0)})
    assert found.read("changes") == {"word_count": 4}
    assert found.partials["top_words"] == {
        ("the",): (1, 150, False, True),
        ("größe",): (2, 100, False, True),
        ("a",): (None, None, True, False),
        ("gone",): (None, None, True, False),
    }
    ranks = {1: -1, 20: 1, 99: -1, 100: 1, 120: -1, 150: 1}
    assert found.partials["word_ranks"] == {(count,): (words,) for count, words in ranks.items()}
    folder.write_export(0, stream.fields, [])
    nothing = emit(topology, metadata, exports={"changes": folder.export_uri(0)})
    assert (nothing.read("changes"), nothing.partials["top_words"]) == ({"word_count": 0}, {})


def test_busy_hours_takes_what_was_exported(emit: Callable[..., Any], tmp_path: Path) -> None:
    topology, folder = job("busy_hours"), AttemptFolder((tmp_path / "an attempt").as_uri())
    stream, planned = topology.streams["closed"], Ranges({"hourly": Range(0, 9)})
    starts = [DAY.start + timedelta(hours=hour) for hour in (10, 34, 11)]
    rows = [(start, start + timedelta(hours=1), "home", 7 + n, 0, n + 3) for n, start in enumerate(starts)]
    folder.write_export(0, stream.fields, rows)
    found = emit(topology, BatchPlan({"closed": planned}).to_json(), exports={"closed": folder.export_uri(0)})
    assert found.partials["busy_hours"] == {(10, "home"): (2, 15, 8), (11, "home"): (1, 9, 9)}
    assert sorted(row[:4] for row in found.partials["closed_hours"].values()) == sorted(row[:4] for row in rows)


def test_reach_looks_up_in_the_graph(emit: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REACH_FOLDER", str(tmp_path / "in"))
    written(
        tmp_path / "in",
        follows__one_csv="ann,cid\nann,dan\nbob,dan\n",
        shares__monday_txt="x ann\nx bob\ny nobody\n",
    )
    assert emit(job("reach")).partials["reached"] == {("x", "cid"): (1,), ("x", "dan"): (2,)}


def test_visits_go_on_from_batch_to_batch(emit: Callable[..., Any]) -> None:
    found = emit(job("sessions")).partials["sessions"]
    assert sum(views for _, views, *_ in found.values()) == 200
    assert all(start <= end <= newest for (_, start), (end, _, _, newest) in found.items())
    assert 0 < sum(bought for *_, bought, _ in found.values()) < 200


def test_orders_are_joined(emit: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERS_FOLDER", str(tmp_path / "in"))
    written(
        tmp_path / "in",
        shops__all_csv="Soho,London\n",
        orders__a_csv="order_id,shop,ordered_at\n1,Soho,2026-01-01T09:00:00Z\n2,Rome,2026-01-02T09:00:00Z\n",
        lines__a_csv="order_id,item,quantity,price,sold_at\n1,nut,3,1.50,2026-01-01T09:00:00Z\n9,nut,1,1.50,2026-01-01T10:00:00Z\n"
        "1,cog,many,1.50,2026-01-01T11:00:00Z\n",
    )
    topology = job("orders")
    head = Head(topology.name, 1, None, (), None, {})
    found = emit(topology, planning.plan_batch(topology, head, Run("test", interval=DAY)))
    assert found.partials["turnover"] == {("London",): (1, Decimal("4.50")), ("unknown",): (1, Decimal("1.50"))}
    rows = sorted((item, shop) for _, item, _, _, shop, _ in found.partials["order_lines"].values() if shop)
    assert rows == [("nut", "Soho")]
    ((stream, _, operation, error, data),) = found.partials["orders_quarantine"].values()
    assert (stream, operation) == ("lines", "1. map parsed")
    assert "invalid literal for int() with base 10: 'many'" in error
    assert '"item": "cog"' in data


def test_views_count_in_their_hour_and_in_a_day_of_new_york(emit: Callable[..., Any]) -> None:
    """Those of the first batch, which has views of the first day alone: most of them before New York's midnight."""
    topology = job("hourly")
    first = topology.streams["views"].spout.batch({"start": 0, "end": 200})
    midnight, hours = datetime(2026, 10, 31, 4, tzinfo=UTC), Counter[tuple[Any, ...]]()
    for at, page, arrived in first:
        hour = at.replace(minute=0, second=0)
        hours[hour, page] += 1
        hours[hour, page, "late"] += arrived >= hour + timedelta(hours=1)
    emitted = emit(topology).partials
    assert {key: values[:2] for key, values in emitted["hourly"].items()} == {
        key: (views, hours[*key, "late"]) for key, views in hours.items() if len(key) == 2
    }
    assert sum(values[1] for values in emitted["hourly"].values()) > 0
    days = Counter(midnight - timedelta(days=at < midnight) for at, *_ in first)
    assert emitted["daily"] == {(day,): (views,) for day, views in days.items()}
