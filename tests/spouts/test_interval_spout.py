"""IntervalSpout's definition and planning, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from txbatch import Count, Interval, IntervalSpout, Topology, TransactionalState
from txbatch.core.coordinator import plan_batch
from txbatch.core.errors import DefinitionError, TransientError
from txbatch.core.ledger import Head
from txbatch.core.transaction import Metadata, Run

FIELDS = "sale timestamp, shop string"
DAY = Interval(datetime(2026, 1, 1, 5, tzinfo=UTC), datetime(2026, 1, 2, 5, tzinfo=UTC))


def plan(root: Path, interval: Interval | None = DAY) -> Metadata | None:
    topology = Topology("sales")
    stream = topology.new_stream("in", IntervalSpout(root, FIELDS, time="sale", pattern="*.csv"))
    stream.group_by("shop").persistent_aggregate(TransactionalState("sales"), sales=Count())
    metadata = plan_batch(topology, Head("sales", 1, None, (), None, {}), Run("run", interval=interval))
    return metadata and metadata["streams"]["in"]["plan"]


def test_the_plan_is_the_interval_and_the_files_with_their_sizes(tmp_path: Path) -> None:
    for name in ("b.csv", "deep/a.csv", "_half.csv", ".tmp/c.csv", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    interval = ["2026-01-01T05:00:00+00:00", "2026-01-02T05:00:00+00:00"]
    files = {name: [len(name), (tmp_path / name).stat().st_mtime_ns] for name in ("b.csv", "deep/a.csv")}
    assert plan(tmp_path) == {"interval": interval, "files": files}
    assert plan(tmp_path / "b.csv") == {"interval": interval, "files": {"b.csv": files["b.csv"]}}


def test_a_folder_of_three_years_of_hours_is_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"year={hour // 8_760}/part-{hour:06}-0123456789abcdef.csv" for hour in range(28_800)]
    stat = tmp_path.stat()
    monkeypatch.setattr("txbatch.spouts.interval.files_below", lambda *_: names)
    monkeypatch.setattr(Path, "stat", lambda *_, **__: stat)
    planned = plan(tmp_path)
    assert planned is not None
    assert list(planned["files"]) == names


@pytest.mark.parametrize("name", ["", "_half.csv"])
def test_a_root_without_a_file_is_no_empty_day(tmp_path: Path, name: str) -> None:
    (tmp_path / "_half.csv").touch()
    with pytest.raises(TransientError, match=r"has no file to read; a name that begins with '_' or '\.' is hidden"):
        plan(tmp_path / name)


def test_a_run_without_an_interval_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch()
    with pytest.raises(DefinitionError, match="run 'run' has no data interval; trigger it with a logical date"):
        plan(tmp_path, None)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"time": "shop"}, "time='shop' is no timestamp among the fields"),
        ({"time": "missing"}, "time='missing' is no timestamp among the fields"),
        ({"format": "xml"}, "format 'xml' is not one of csv, json, parquet"),
        ({"options": {"Mode": "PERMISSIVE"}}, "option 'Mode' is not taken: the first record that does not fit"),
        (
            {"options": {"modifiedAfter": "2026-01-01"}},
            "option 'modifiedAfter' is not taken: it would leave records out",
        ),
    ],
)
def test_what_is_refused_when_it_is_defined(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DefinitionError, match=complaint):
        IntervalSpout("/sales", FIELDS, **{"time": "sale", **arguments})


def test_its_identity_is_its_root_and_time() -> None:
    spout = IntervalSpout("/sales", FIELDS, time="sale")
    assert spout.identity == {"spout": "IntervalSpout", "root": "/sales", "time": "sale"}
    assert spout.by_interval
