"""Late records that an attempt meets while it reads real files, by Spark: beside its own records, in one scan (R17, R24)."""

from __future__ import annotations

import gzip
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from spark.emitting import Emitter

from txbatch import Count, Interval, IntervalSpout, Sum, Topology, TransactionalState
from txbatch.core.batch.came_late import Late, Look
from txbatch.core.batch.manifest import Manifest
from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Metadata, Run
from txbatch.core.protocol import planning
from txbatch.core.protocol.ledger import Head
from txbatch.core.protocol.lookback import LookFacts, look_of
from txbatch.core.records.time_buckets import micros_of
from txbatch.spouts import interval as interval_spout
from txbatch.storage.staging import AttemptFolder

pytestmark = pytest.mark.rule("R17", "R24")
FIELDS = "at timestamp, shop string, price int"
DAY = timedelta(days=1)
FIRST = datetime(2024, 1, 1, tzinfo=UTC)


def day(number: int) -> Interval:
    return Interval(FIRST + (number - 1) * DAY, FIRST + number * DAY)


def sales(root: Path, **options: Any) -> Topology:
    topology = Topology("sales")
    stream = topology.new_stream("in", IntervalSpout(root, FIELDS, time="at", **options))
    stream.group_by("shop").persistent_aggregate(TransactionalState("sales"), sales=Count(), turnover=Sum("price"))
    return topology


def planned(topology: Topology, number: int) -> Metadata:
    head, run = Head("sales", 1, None, (), None, {}), Run("test", interval=day(number))
    found = planning.plan_batch(topology, head, run)
    assert found is not None
    return found


def looking(topology: Topology, before: Metadata, now: Metadata, days: int) -> Look:
    """The look of an attempt: the intervals of so many days are at the positions 1, 2, 3 ..."""
    intervals = ((n, micros_of(day(n).start), micros_of(day(n).end)) for n in range(1, days + 1))
    facts = LookFacts(BatchPlan.from_json(before), tuple(intervals))
    look = look_of(topology, BatchPlan.from_json(now), facts)
    assert look is not None
    return look


def emitted(emitter: Emitter, topology: Topology, look: Look, *plans: Metadata) -> list[Manifest]:
    """The manifests of attempts of which the first looks; of several, by one job."""
    driver, folders = emitter.folders(topology, plans)
    first = folders[0]
    first.write_assignment(replace(first.read_assignment(), look=look))
    assert driver.emit_all([each.uri for each in folders]), [_error(each) for each in folders]
    return [each.read_manifest() for each in folders]


def _error(folder: AttemptFolder) -> Any:
    return folder.read_error()


def lines(*days: str) -> str:
    return "".join(f"2024-01-{each}T10:00:00Z,s,1\n" for each in days)


def test_late_records_of_new_and_grown_files_are_counted_by_interval_and_file(emitter: Emitter, tmp_path: Path) -> None:
    root = tmp_path / "in"
    (root / "deep").mkdir(parents=True)
    (root / "a.csv").write_text(lines("01", "01", "02"))
    topology = sales(root)
    before = planned(topology, 2)
    with (root / "a.csv").open("a") as file:
        file.write(lines("01", "02", "03", "09"))
    (root / "deep" / "x [1].csv").write_text(lines("01", "01", "02", "03"))
    with gzip.open(root / "z.csv.gz", "wt") as packed:
        packed.write(lines("02", "03"))
    now = planned(topology, 3)
    (manifest,) = emitted(emitter, topology, looking(topology, before, now, 2), now)
    size = len(lines("01", "01", "02"))
    assert manifest.came_late == {
        "in": {
            1: {"a.csv": Late(1, size), "deep/x [1].csv": Late(2, 0)},
            2: {"a.csv": Late(1, size), "deep/x [1].csv": Late(1, 0), "z.csv.gz": Late(1, 0)},
        }
    }
    assert manifest.records == 3, "its own"


def test_a_large_file_is_looked_at_in_its_pieces(
    emitter: Emitter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By several tasks, of which one ends within a line of the part that was counted; scanned twice, and kept."""
    root = tmp_path / "in"
    root.mkdir()
    (root / "a.csv").write_text(lines(*["01"] * 1000))
    topology = sales(root)
    before = planned(topology, 2)
    with (root / "a.csv").open("a") as file:
        file.write(lines(*["01", "02"] * 2000))
    now = planned(topology, 3)
    monkeypatch.setattr("txbatch.formats.scan.TASK_BYTES_MIN", 10_001)
    monkeypatch.setattr("txbatch.formats.scan.TASK_BYTES_MAX", 10_001)
    for kept in (interval_spout.KEPT_BYTES, 1):
        monkeypatch.setattr(interval_spout, "KEPT_BYTES", kept)
        (manifest,) = emitted(emitter, topology, looking(topology, before, now, 2), now)
        since = len(lines(*["01"] * 1000))
        assert manifest.came_late == {"in": {1: {"a.csv": Late(2000, since)}, 2: {"a.csv": Late(2000, since)}}}


@pytest.mark.parametrize("format_", ["json", "parquet"])
def test_other_formats(emitter: Emitter, spark: SparkSession, tmp_path: Path, format_: str) -> None:
    root = tmp_path / "in"
    times = [day(number).start for number in (1, 2, 2, 3)]

    def write(name: str) -> None:
        frame = spark.createDataFrame([(at, "s", 1) for at in times], FIELDS).coalesce(1)
        frame.write.format(format_).save(str(root / name))

    write("first")
    topology = sales(root, format=format_)
    before = planned(topology, 2)
    write("second")
    now = planned(topology, 3)
    (manifest,) = emitted(emitter, topology, looking(topology, before, now, 2), now)
    assert manifest.came_late is not None
    found = manifest.came_late["in"]
    assert {position: [late.records for late in files.values()] for position, files in found.items()} == {
        1: [1],
        2: [2],
    }
    assert all(name.startswith("second/part-") for files in found.values() for name in files)
    assert manifest.records == 2


def test_a_parquet_file_by_days(emitter: Emitter, spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "in"

    def write(name: str, *days: int) -> None:
        rows = [(day(number).start.date(), "s", 1) for number in days]
        spark.createDataFrame(rows, "at date, shop string, price int").coalesce(1).write.parquet(str(root / name))

    topology = Topology("sales")
    fields = "at date, shop string, price int"
    stream = topology.new_stream("in", IntervalSpout(root, fields, time="at", format="parquet"))
    stream.group_by("shop").persistent_aggregate(TransactionalState("sales"), sales=Count())
    write("first", 1)
    before = planned(topology, 2)
    write("second", 1, 2, 3)
    now = planned(topology, 3)
    (manifest,) = emitted(emitter, topology, looking(topology, before, now, 2), now)
    assert manifest.came_late is not None
    assert {position: [late.records for late in of.values()] for position, of in manifest.came_late["in"].items()} == {
        1: [1],
        2: [1],
    }


def test_of_batches_of_one_job_the_first_says_what_came(emitter: Emitter, tmp_path: Path) -> None:
    root = tmp_path / "in"
    root.mkdir()
    (root / "a.csv").write_text(lines("01"))
    topology = sales(root)
    before = planned(topology, 2)
    (root / "x.csv").write_text(lines("01", "02", "02", "03", "04"))
    plans = [planned(topology, number) for number in (3, 4)]
    first, second = emitted(emitter, topology, looking(topology, before, plans[0], 2), *plans)
    assert first.came_late == {"in": {1: {"x.csv": Late(1, 0)}, 2: {"x.csv": Late(2, 0)}}}
    assert second.came_late is None
    assert (first.records, second.records) == (1, 1)


def test_nothing_came(emitter: Emitter, tmp_path: Path) -> None:
    root = tmp_path / "in"
    root.mkdir()
    (root / "a.csv").write_text(lines("01"))
    topology = sales(root)
    before = planned(topology, 2)
    assert looking(topology, before, before, 2) == Look()
    (root / "b.csv").write_text(lines("03"))
    now = planned(topology, 3)
    for look in (Look(), looking(topology, before, now, 2)):
        (manifest,) = emitted(emitter, topology, look, now)
        assert (manifest.came_late, manifest.records) == ({}, 1)


def test_a_bad_field_of_a_late_record_does_not_fail_the_run_that_meets_it(emitter: Emitter, tmp_path: Path) -> None:
    root = tmp_path / "in"
    root.mkdir()
    (root / "a.csv").write_text(lines("01"))
    topology = sales(root)
    before = planned(topology, 2)
    (root / "x.csv").write_text("2024-01-01T10:00:00Z,s,much\n" + lines("03"))
    now = planned(topology, 3)
    (manifest,) = emitted(emitter, topology, looking(topology, before, now, 2), now)
    assert manifest.came_late == {"in": {1: {"x.csv": Late(1, 0)}}}
