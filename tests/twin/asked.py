"""What changes, rebuilds and retention ask of the tables in memory before they begin."""

from __future__ import annotations

from txbatch.core.upstream.upstream import UpstreamReader
from txbatch.memory.stored import Counting
from txbatch.memory.tables import Tables


def rebuilding(tables: Tables, topology: str) -> Counting | None:
    """The rebuild of a topology that runs; None when none does."""
    running = (each for each in tables.rebuilds.values() if each.rebuild.topology == topology and each.swapped is None)
    return next(running, None)


def replaced_generations(tables: Tables, topology: str) -> list[int]:
    """Return the rebuilds whose replaced generation is there, by their numbers."""
    of = ((number, each) for number, each in tables.rebuilds.items() if each.rebuild.topology == topology)
    return [number for number, each in of if each.swapped is not None and not each.dropped]


def looked_up(tables: Tables) -> list[UpstreamReader]:
    """Return which states open batches look up in, with the cuts that they need."""
    return [
        UpstreamReader(
            batch.topology, state, tables.states[state].topology, frozenset([cut["txid"]]), opened=frozenset([0])
        )
        for batch in tables.batches.values()
        for state, cut in (() if batch.status.final else batch.plan.as_of.items())
        if state in tables.states
    ]
