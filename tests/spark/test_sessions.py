"""Sessions by Spark: those of one batch are those of Spark's own session_window, but that no record is lost (R27)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from spark.conftest import plan

from txbatch import Count, FixedBatchSpout, OpaqueState, Topology, session_window
from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Assignment, TransactionAttempt
from txbatch.core.errors import BadRecord
from txbatch.core.protocol.bulk import reason_against
from txbatch.core.records.fields import Field
from txbatch.core.records.time_buckets import micros_of
from txbatch.direct.emitter import emit_batch
from txbatch.spark.frames import of_rows

pytestmark = pytest.mark.rule("R27")
FIELDS = "at timestamp, user string, n int"
DAY = datetime(2026, 10, 25, tzinfo=UTC)
FIRST, LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)


def records() -> list[tuple[Any, ...]]:
    """Of many a gap apart to the microsecond, of some at one time, of the first moments and the last."""
    random, found = Random(14), [(each, "x", 1) for each in (FIRST, LAST, FIRST + timedelta(seconds=30))]
    for _ in range(400):
        at = DAY + timedelta(seconds=random.randrange(0, 9_000, 15), microseconds=random.choice([0, 0, 1]))
        found.append((at, random.choice("xyz"), random.randrange(9)))
    return found


def topology_of(*rows: tuple[Any, ...], late: str | None = None) -> Topology:
    topology = Topology("t")
    stream = topology.new_stream("in", FixedBatchSpout(FIELDS, 1_000, *rows))
    stream = stream if late is None else stream.with_watermark("at", "1 hour", late=late)
    grouped = stream.group_by(session_window("at", "30 seconds"), "user")
    grouped.persistent_aggregate(OpaqueState("sessions"), visits=Count())
    return topology


def in_memory(topology: Topology, metadata: Mapping[str, Any]) -> tuple[Any, dict[str, dict[Any, Any]]]:
    assignment = Assignment("t", TransactionAttempt(1, 1), "token", metadata, "code")
    manifest, partials = emit_batch(topology, assignment)
    return manifest, {name: dict(rows) for name, rows in partials.items()}


def test_a_batch_has_the_sessions_of_one_pass(spark: SparkSession, emit: Callable[..., Any]) -> None:
    topology = topology_of(*records())
    found = emit(topology).partials["sessions"]
    frame = of_rows(spark, [Field("at", "timestamp"), Field("user", "string"), Field("n", "int")], records())
    frame.createOrReplaceTempView("visits")
    by_spark = spark.sql(
        "SELECT user, min(at) AS start, max(at) AS last, count(1) AS visits FROM visits "
        "GROUP BY user, session_window(at, '30 seconds')"
    )
    rows = by_spark.toArrow().to_pylist()
    expected = {(row["user"], row["start"]): (row["last"], row["visits"]) for row in rows}
    assert found == expected
    assert len(found) > 20
    metadata = plan(topology)
    assert metadata is not None
    assert found == in_memory(topology, metadata)[1]["sessions"]


@pytest.mark.rule("R25")
@pytest.mark.parametrize("late", ["merge", "drop", "side"])
def test_what_is_late_is_a_piece_of_its_own(emit: Callable[..., Any], late: str) -> None:
    topology, mark = topology_of(*records(), late=late), DAY + timedelta(seconds=4_000, microseconds=1)
    metadata = plan(topology)
    assert metadata is not None
    marked = replace(BatchPlan.from_json(metadata), watermark={"in": micros_of(mark)}).to_json()
    found, (manifest, expected) = emit(topology, marked), in_memory(topology, marked)
    assert found.partials["sessions"] == expected["sessions"]
    staged, in_memory_ = found.manifest.states["sessions"], manifest.states["sessions"]
    number = sum(at < mark for at, *_ in records())
    assert staged.late == in_memory_.late == number > 100
    assert staged.kept == len(records()) - (0 if late == "merge" else number)
    if late == "side":
        assert len(found.partials["sessions_late"]) == number
    assert reason_against(topology) is not None


def test_a_null_time_is_refused(emit: Callable[..., Any]) -> None:
    with pytest.raises(BadRecord, match="key 'session_start' is null"):
        emit(topology_of(*records(), (None, "x", 1)))
