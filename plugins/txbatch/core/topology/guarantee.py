"""Guarantees of a topology, state by state (R11)."""

from __future__ import annotations

from typing import Any

from txbatch.core.topology.checks import EXACTLY_ONCE
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.topology.topology import Topology
from txbatch.core.topology.walks import per_batch, windows
from txbatch.core.topology.watermarked import watermarks


def guarantees(topology: Topology) -> list[dict[str, Any]]:
    """Return one row per state.

    A row has the stream, the spouts behind the stream, the kinds of spout and state, their guarantee together, and the
    database. `counts` has the operations that count per batch; None if numbers do not depend on where batches end. `windows`
    has the windows; None without windows. `watermark` has the watermarks by which records of the windows are late.
    """
    return [_guarantee(aggregate, topology.by_interval) for aggregate in topology.aggregates]


def _guarantee(aggregate: PersistentAggregate, by_interval: bool) -> dict[str, Any]:
    stream, state = aggregate.stream, aggregate.state
    exactly_once = (stream.kind, state.kind) in EXACTLY_ONCE and not aggregate.counts_again
    return {
        "stream": stream.name,
        "spout": ", ".join(type(root.spout).__name__ for root in stream.roots),
        "spout_kind": str(stream.kind),
        "state": state.name,
        "state_kind": f"{state.kind}, rows" if state.appends else str(state.kind),
        "guarantee": "exactly once" if exactly_once else "at least once",
        "database": state.database or "the ledger's",
        "counts": _counts(aggregate, by_interval),
        "windows": "; ".join(each.described for each in windows(stream)) or None,
        "watermark": "; ".join(dict.fromkeys(map(str, watermarks(stream).values()))) or None,
    }


def _counts(aggregate: PersistentAggregate, by_interval: bool) -> str | None:
    """Return the operations with results of a single batch, rather than of all records together."""
    operations = "; ".join(per_batch(aggregate.stream))
    return f"per {'interval' if by_interval else 'batch'}: {operations}" if operations else None
