"""What the ledger stores of a topology's definition: its streams, its states and their columns (R23)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from txbatch.core.batch.transaction import Metadata
from txbatch.core.records.fields import parse_fields
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.topology.topology import Topology
from txbatch.core.topology.walks import per_batch, windows

# Marks a watermark that a stream had, where those of streams are kept.
_DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class StreamDefinition:
    """The identity and kind of a stream's spout, and the types of its fields; None: stored before they were kept."""

    source: Metadata
    fields: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class StateDefinition:
    """What a state is. `columns` are its keys and values with their types, `streams` those it counts; None: as above.

    `since` says of values that joined later from which txid on they count, `joined` the same of the state.
    """

    kind: str
    contributions: bool
    database: str | None
    columns: Metadata
    streams: Sequence[str] | None
    since: Mapping[str, int] = field(default_factory=dict)
    joined: int = 1

    def uncounted(self, aggregate: PersistentAggregate, position: int) -> frozenset[str]:
        """Return the columns of values that joined after this position; all of them where the state did."""
        late = {value for value in aggregate.aggregates if position < max(self.joined, self.since.get(value, 1))}
        return frozenset(column.name for column in aggregate.columns if column.value in late)


@dataclass(frozen=True, slots=True)
class KnownTopology:
    """What a ledger knows of a topology: its definition, and how far its history goes.

    `txid` is its newest that was not aborted, `committed` the newest that was committed, with the states that it counted;
    both None before the first. `owners` says to which topology a state's name belongs. `planned` says whether there are batches
    at all: what is aborted can still be given up, and is of the source that it was planned from. `counted` says whether any of
    them is committed, be it one that was given up or counted again, `read` the same of those that were not given up. `was` is
    the name by which all this is known, where that is not the topology's. `watermarks` are those of its streams, as they are
    stored (R25).
    """

    job: str
    by_interval: bool
    streams: Mapping[str, StreamDefinition]
    states: Mapping[str, StateDefinition]
    owners: Mapping[str, str]
    txid: int | None
    committed: tuple[int, Collection[str]] | None
    planned: bool = False
    was: str | None = None
    watermarks: Mapping[str, Metadata] = field(default_factory=dict)
    counted: bool = False
    read: bool = False

    def counts(self, state: str) -> bool:
        """True if the state is the topology's, and its newest committed txid counted it, or came before the state joined."""
        if state not in self.states or self.committed is None:
            return state in self.states
        txid, counted = self.committed
        return state in counted or txid < self.states[state].joined


def state_definition(aggregate: PersistentAggregate) -> StateDefinition:
    """A state as it is defined now."""
    state = aggregate.state
    roots = sorted(root.name for root in aggregate.stream.roots)
    return StateDefinition(str(state.kind), state.contributions, state.database, columns(aggregate), roots)


def stream_fields(topology: Topology) -> dict[str, dict[str, str]]:
    """The fields of each stream with their types, as its spout gives them."""
    return {
        name: {field.name: field.type for field in parse_fields(stream.spout.fields)}
        for name, stream in topology.streams.items()
    }


def stream_watermarks(topology: Topology, known: KnownTopology) -> dict[str, dict[str, Any]]:
    """The watermarks of its streams, and those that were dropped since there are batches: their marks are of that time."""
    stored = {} if known.txid is None else known.watermarks
    now = {name: says.to_json() for name, says in topology.watermarks.items()}
    names = {stream.roots[0].was: name for name, stream in topology.streams.items() if name not in stored}
    kept = {names.get(name, name): says for name, says in stored.items()}
    return {name: {**says, _DROPPED: True} for name, says in kept.items()} | now


def stream_definitions(
    source: Mapping[str, Metadata], fields: Mapping[str, Mapping[str, str]] | None
) -> dict[str, StreamDefinition]:
    """The streams of a topology, as a ledger keeps them; `fields` None: stored before they were kept."""
    return {name: StreamDefinition(identity, (fields or {}).get(name)) for name, identity in source.items()}


def columns(aggregate: PersistentAggregate) -> dict[str, Any]:
    """Keys and values with their types, and the aggregate of each value, as a ledger keeps them.

    Of a state that counts results of single batches also the operations that make them; of one by windows which these are, and
    of sessions what their end is called; of one that keeps records their fields, which say what a row's key is made of.
    """
    values = [[column.name, column.partial.type, str(column.partial.merge)] for column in aggregate.columns]
    keys = [[key.name, key.type] for key in aggregate.keys]
    aggregates = {name: each.described for name, each in aggregate.aggregates.items()}
    remove = {"remove": True} if aggregate.removable else {}
    operations = per_batch(aggregate.stream)
    within = {"batch": list(operations)} if operations else {}
    cut = [window.described for window in windows(aggregate.stream)]
    by_window: dict[str, Any] = {"windows": cut} if cut else {}
    if aggregate.sessions:
        by_window["sessions"] = aggregate.sessions.end_name
    rows = {"rows": [[field.name, field.type] for field in aggregate.rows_of]} if aggregate.state.appends else {}
    prune = {"prune": True} if aggregate.state.prune else {}
    return {"keys": keys, "values": values, "aggregates": aggregates, **remove, **within, **by_window, **rows, **prune}
