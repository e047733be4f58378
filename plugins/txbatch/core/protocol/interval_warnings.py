"""A run's warnings about intervals with late records, or with records for closed windows (R25, R26)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Batch, BatchKind, BatchStatus, Interval, Run
from txbatch.core.protocol.ledger import Ledger
from txbatch.core.topology.kept_windows import describe_time
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.topology.topology import Topology
from txbatch.core.topology.watermarked import watermarks
from txbatch.core.windows.watermark import MERGE
from txbatch.core.windows.window import lasting


def of_planned(ledger: Ledger, topology: Topology, planned: Sequence[tuple[Batch, Run]]) -> Iterator[str]:
    """Yield warnings if intervals were planned after later intervals: their records may count in closed windows (R26)."""
    if not planned or not topology.by_interval or not topology.closes:
        return
    closed_to = ledger.closed_to(topology.name)
    for batch, run in planned:
        if batch.status is BatchStatus.PLANNED and run.interval is not None:
            yield from of_closed(topology, run.interval, batch.plan, closed_to)


def of_closed(topology: Topology, interval: Interval, plan: BatchPlan, closed_to: Mapping[str, int]) -> Iterator[str]:
    """Yield warnings, by state, if an interval comes after later intervals: some records may be in closed windows."""
    for aggregate in (each for each in topology.aggregates if each.closes and each.state.name in closed_to):
        mark, closed, window = aggregate.watermark_of(plan.watermark), closed_to[aggregate.state.name], aggregate.window
        if mark is not None and window is not None and window.first_open(mark) < window.first_open(closed):
            yield (
                f"{topology.name}: interval {interval} comes after later ones: windows of state {aggregate.state.name!r} "
                f"are closed up to {describe_time(closed)}, and what it counts in these is a change alone, which "
                "emit='final' does not hand on; count the oldest first, or read changes"
            )


def of_first(topology: Topology, batch: Batch, late: Mapping[str, int]) -> Iterator[str]:
    """Yield warnings, by state, if the first interval of a topology left late records out."""
    if batch.kind is not BatchKind.ORDINARY or batch.prev_txid is not None or not topology.by_interval:
        return
    for aggregate in topology.aggregates:
        number = late.get(aggregate.state.name, 0)
        if number and aggregate.late != MERGE:
            records = "1 record" if number == 1 else f"{number:,} records"
            yield (
                f"{topology.name}: txid {batch.txid}, the first, left {records} out of state {aggregate.state.name!r}: late is "
                f"what had ended by the start of the interval, less the delay of {_delay(aggregate)}; if they are to count, say "
                f"late='merge', and `txbatch rebuild {topology.name}`; or give with_watermark a longer delay, "
                f"`txbatch drop {topology.name}` and run it again"
            )


def _delay(aggregate: PersistentAggregate) -> str:
    return " and ".join(dict.fromkeys(lasting(each.delay) for each in watermarks(aggregate.stream).values()))
