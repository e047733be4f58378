"""The stored definition of a topology: the streams, and the states with columns (R23)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from txbatch.core.batch.transaction import Metadata
from txbatch.core.records.fields import parse_fields
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.topology.topology import Topology
from txbatch.core.topology.walks import per_batch, windows

# Marks a dropped watermark among the stored watermarks of streams.
_DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class StreamDefinition:
    """The identity and kind of a stream's spout, and the types of the fields; None if stored by a version without types."""

    source: Metadata
    fields: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class StateDefinition:
    """The definition of a state. `columns` are the keys and values with types, `streams` the counted streams.

    If stored by a version without streams, `streams` is None. `since` has the first counting txid of each value that joined
    later, `joined` the first counting txid of the state.
    """

    kind: str
    contributions: bool
    database: str | None
    columns: Metadata
    streams: Sequence[str] | None
    since: Mapping[str, int] = field(default_factory=dict)
    joined: int = 1

    def uncounted(self, aggregate: PersistentAggregate, position: int) -> frozenset[str]:
        """Return the columns of values that joined after a position; all columns if the state joined after."""
        late = {value for value in aggregate.aggregates if position < max(self.joined, self.since.get(value, 1))}
        return frozenset(column.name for column in aggregate.columns if column.value in late)


@dataclass(frozen=True, slots=True)
class StoredTopology:
    """A ledger's facts about a topology: the definition, and how far history goes.

    `txid` is the newest txid, without aborted ones. `committed` is the newest committed txid, with the states counted. Both are
    None before the first. `owners` has the topology of each state's name. `planned` is True if the topology has batches, even
    aborted ones: an aborted batch can still be given up, and belongs to the source of the plan. `counted` is True if a
    batch is committed, even a skipped or restated one; `read` leaves skipped ones out. If the topology was renamed, `was` is
    the name before. `watermarks` has the stored watermarks by stream (R25).
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
        """True if the topology has the state, unless the newest committed txid should have counted the state and did not."""
        if state not in self.states or self.committed is None:
            return state in self.states
        txid, counted = self.committed
        return state in counted or txid < self.states[state].joined


def state_definition(aggregate: PersistentAggregate) -> StateDefinition:
    """Return the present definition of a state."""
    state = aggregate.state
    roots = sorted(root.name for root in aggregate.stream.roots)
    return StateDefinition(str(state.kind), state.contributions, state.database, columns(aggregate), roots)


def stream_fields(topology: Topology) -> dict[str, dict[str, str]]:
    """Return the fields of each stream, with the spout's types."""
    return {
        name: {field.name: field.type for field in parse_fields(stream.spout.fields)}
        for name, stream in topology.streams.items()
    }


def stream_watermarks(topology: Topology, known: StoredTopology) -> dict[str, dict[str, Any]]:
    """Return the streams' watermarks, and watermarks dropped since the first batch, since marks by the dropped ones remain."""
    stored = {} if known.txid is None else known.watermarks
    now = {name: says.to_json() for name, says in topology.watermarks.items()}
    names = {stream.roots[0].was: name for name, stream in topology.streams.items() if name not in stored}
    kept = {names.get(name, name): says for name, says in stored.items()}
    return {name: {**says, _DROPPED: True} for name, says in kept.items()} | now


def stream_definitions(
    source: Mapping[str, Metadata], fields: Mapping[str, Mapping[str, str]] | None
) -> dict[str, StreamDefinition]:
    """Return the stored streams of a topology; if stored by a version without fields, `fields` is None."""
    return {name: StreamDefinition(identity, (fields or {}).get(name)) for name, identity in source.items()}


def columns(aggregate: PersistentAggregate) -> dict[str, Any]:
    """Return the keys and values with types, and the aggregate of each value, as JSON for the ledger.

    If a state counts results of single batches, the operations for the results are added. If a state counts by windows, the
    windows are added, and for sessions the name of the end. If a state keeps records, the fields are added: a row's key
    depends on the fields.
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
