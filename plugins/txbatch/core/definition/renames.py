"""The names before of a renamed topology, and of renamed streams and states (R23)."""

from __future__ import annotations

from dataclasses import replace

from txbatch.core.definition.redefinition import (
    InPlace,
    NeedsRebuild,
    Redefinition,
    RenameState,
    RenameStream,
    RenameTopology,
)
from txbatch.core.definition.stored import StoredTopology
from txbatch.core.topology.topology import Topology


def topology_renamed(topology: Topology, known: StoredTopology, was: str) -> Redefinition:
    apart = sorted(f"{name!r} in database {state.database!r}" for name, state in known.states.items() if state.database)
    what = f"topology {topology.name!r} was {was!r}"
    if apart:
        return NeedsRebuild(f"{what}: the database of state {apart[0]} keeps the name {was!r}")
    return InPlace(what, RenameTopology(was))


def by_name(known: StoredTopology, was: str, topology: Topology) -> StoredTopology:
    """Return the ledger's facts about a renamed topology, from the facts by the name before."""
    owners = {state: topology.name if owner == was else owner for state, owner in known.owners.items()}
    return replace(known, owners=owners, was=was)


def renamed(topology: Topology, known: StoredTopology) -> tuple[StoredTopology, list[InPlace]]:
    """Return the ledger's facts by the new names of streams and states, with the renamings."""
    now = {aggregate.state.name: aggregate.state for aggregate in topology.aggregates}
    names = {
        state.was: state.name
        for state in now.values()
        if state.was is not None and state.was in known.states and state.was not in now
        if state.name not in known.owners and state.database is None and known.states[state.was].database is None
    }
    known, found = _streams_renamed(topology, known)
    if not names:
        return known, found
    found += [InPlace(f"state {name!r} was {was!r}", RenameState(name, was)) for was, name in names.items()]
    counted = known.committed and (known.committed[0], [names.get(state, state) for state in known.committed[1]])
    states = {names.get(name, name): state for name, state in known.states.items()}
    owners = {names.get(name, name): owner for name, owner in known.owners.items()}
    return replace(known, states=states, owners=owners, committed=counted), found


def _streams_renamed(topology: Topology, known: StoredTopology) -> tuple[StoredTopology, list[InPlace]]:
    now = {name: stream.roots[0].was for name, stream in topology.streams.items()}
    steps = [
        RenameStream(name, was)
        for name, was in now.items()
        if was is not None and was in known.streams and was not in now and name not in known.streams
    ]
    if not steps:
        return known, []
    names = {step.was: step.stream for step in steps}
    streams = {names.get(name, name): stream for name, stream in known.streams.items()}
    states = {
        name: replace(state, streams=state.streams and sorted(names.get(each, each) for each in state.streams))
        for name, state in known.states.items()
    }
    watermarks = {names.get(name, name): each for name, each in known.watermarks.items()}
    found = [InPlace(f"stream {step.stream!r} was {step.was!r}", step) for step in steps]
    return replace(known, streams=streams, states=states, watermarks=watermarks), found
