"""Draw docs/images/closing.svg: watermark, closed_to and late records over a run in memory of which one partition is away.

`python -m bench.programs.closing`: twelve hours of views, a batch each ten minutes, of which three are in flight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from txbatch import Count, OpaqueState, Topology, window
from txbatch.core.batch.transaction import Batch, Run
from txbatch.core.protocol import coordinator
from txbatch.core.records.time_buckets import micros_of
from txbatch.direct.emitter import emit_batch
from txbatch.memory.ledger import MemoryLedger
from txbatch.testing import FeederPartitionedSpout

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "closing.svg"
BEGIN, STEP, HOURS = datetime(2026, 1, 5, tzinfo=UTC), timedelta(minutes=10), 12
AWAY = (timedelta(hours=4), timedelta(hours=6, minutes=30))
IN_FLIGHT = 3


@dataclass
class Course:
    """What there is to draw, in hours since the beginning, each with when it was: at a commit, and when a record was read."""

    watermark: list[tuple[float, float]] = field(default_factory=list)
    closed_to: list[tuple[float, float]] = field(default_factory=list)
    in_time: list[tuple[float, float]] = field(default_factory=list)
    late: list[tuple[float, float]] = field(default_factory=list)


def hours(micros: int) -> float:
    """Return a time in hours since the beginning."""
    return (micros - micros_of(BEGIN)) / 3_600_000_000


def _hours(at: datetime) -> float:
    return hours(micros_of(at))


def arriving(random: Random, now: datetime) -> Iterator[tuple[datetime]]:
    """Yield the times of a partition's next records: most within the delay, one in thirty far behind it."""
    for _ in range(6):
        ago = random.uniform(60, 300) if random.random() < 1 / 30 else random.uniform(0, 28)
        yield (max(BEGIN, now - timedelta(minutes=ago)),)


def course() -> Course:
    """Run it: a batch is planned each ten minutes, and committed two later."""
    spout, topology, found = (
        FeederPartitionedSpout("at timestamp", kind="opaque"),
        Topology("views", IN_FLIGHT),
        Course(),
    )
    stream = topology.new_stream("views", spout).with_watermark("at", "30 minutes")
    stream.group_by(window("at", "1 hour")).persistent_aggregate(OpaqueState("hourly"), views=Count())
    random, now, kept = Random(14), BEGIN, list[tuple[datetime]]()
    ledger, in_flight = MemoryLedger(lease_seconds=7200, clock=lambda: now), list[tuple[Batch, Any]]()
    ledger.register(topology, "views.py")
    while now < BEGIN + timedelta(hours=HOURS):
        now += STEP
        spout.feed(*arriving(random, now), partition="a")
        kept += arriving(random, now)
        if AWAY[0] <= now - BEGIN < AWAY[1]:
            spout.take_away("b")
        else:
            spout.give_back("b")
            spout.feed(*kept, partition="b")
            kept = []
        planned = coordinator.initialize_transaction(ledger, topology, Run(f"{now}"))
        assert isinstance(planned, Batch), planned
        in_flight.append(_emitted(ledger, topology, planned, found))
        if len(in_flight) == IN_FLIGHT:
            batch, partials = in_flight.pop(0)
            ledger.commit(topology, batch, partials)
            times = ledger.tables.times[batch.topology, batch.txid]
            for line, of in ((found.watermark, times.watermark), (found.closed_to, times.closed_to)):
                line.extend((_hours(now), hours(each)) for each in (of or {}).values())
    return found


def _emitted(ledger: MemoryLedger, topology: Topology, batch: Batch, found: Course) -> tuple[Batch, Any]:
    """Emit a batch, and note what it read."""
    assignment = ledger.start_attempt(batch, Run(batch.lease_run or ""), "code")
    manifest, partials = emit_batch(topology, assignment)
    (aggregate,) = topology.aggregates
    late_before = aggregate.late_before(batch.plan.watermark)
    planned_at = _hours(ledger.clock())
    for (at,) in topology.streams["views"].spout.batch({"partitions": batch.plan.streams["views"].ranges}):  # type: ignore[attr-defined]
        (start,) = window("at", "1 hour").starts(at)
        late = start is not None and late_before is not None and micros_of(start) < late_before
        (found.late if late else found.in_time).append((planned_at, _hours(at)))
    return ledger.record_manifests([(assignment, manifest)])[0], partials


def draw(found: Course, target: Path) -> None:
    """The course, as SVG."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "txbatch"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 5.5))
    axes.axvspan(*(each / timedelta(hours=1) for each in AWAY), color="0.92", label="a partition is away")
    axes.plot(*zip(*found.in_time, strict=True), ".", markersize=3, color="0.6", label="records in time")
    axes.plot(*zip(*found.late, strict=True), "x", markersize=6, color="tab:red", label="late records")
    axes.step(*zip(*found.watermark, strict=True), where="post", color="tab:blue", label="watermark")
    axes.step(*zip(*found.closed_to, strict=True), where="post", color="tab:green", linestyle="--", label="closed_to")
    axes.set(xlabel="hours, by the clock", ylabel="hours, event time", xlim=(0, HOURS), ylim=(0, HOURS))
    axes.set(xticks=range(HOURS + 1), yticks=range(HOURS + 1))
    axes.grid(axis="y", color="0.9", linewidth=0.6)
    axes.set_title("Windows of an hour, a delay of 30 minutes, three batches in flight")
    axes.legend(loc="upper left")
    figure.tight_layout()
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    draw(course(), PICTURE)
