"""What a topology guarantees, state by state (R11)."""

from __future__ import annotations

from typing import Any

from txbatch.core.persistent_aggregate import EXACTLY_ONCE, PersistentAggregate
from txbatch.core.topology import Topology


def guarantees(topology: Topology) -> list[dict[str, Any]]:
    """One row per state: its stream, the spouts behind it, both kinds, what they give together, and where it is kept."""
    return [_guarantee(aggregate) for aggregate in topology.aggregates]


def _guarantee(aggregate: PersistentAggregate) -> dict[str, Any]:
    stream, state = aggregate.stream, aggregate.state
    exactly_once = (stream.kind, state.kind) in EXACTLY_ONCE
    return {
        "stream": stream.name,
        "spout": ", ".join(type(root.spout).__name__ for root in stream.roots),
        "spout_kind": str(stream.kind),
        "state": state.name,
        "state_kind": str(state.kind),
        "guarantee": "exactly once" if exactly_once else "at least once",
        "database": state.database or "the ledger's",
    }
