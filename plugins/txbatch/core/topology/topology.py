"""Topology: spout → operations → state. Pure data until a run uses the topology."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from txbatch.core.errors import (
    InvalidArgument,
    InvalidName,
    InvalidRetention,
    MissingPart,
    UnknownName,
)
from txbatch.core.records.fields import checked_name, parse_fields, unique
from txbatch.core.sources.identity import check_identity, how_it_reads
from txbatch.core.sources.spout import Spout
from txbatch.core.state.checks import check_folders, check_tables
from txbatch.core.state.keep import Keep
from txbatch.core.state.state import check_reports
from txbatch.core.topology.kept_windows import check_folds
from txbatch.core.topology.late import kept_aside
from txbatch.core.topology.look_up import StateQuery, StaticState
from txbatch.core.topology.merge_and_join import join, merged
from txbatch.core.topology.nodes import Arguments, Source
from txbatch.core.topology.numbered import streams_of
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.topology.quarantine import QuarantineState, check_limit, quarantine_of
from txbatch.core.topology.query_stream import QueryStream
from txbatch.core.topology.stream import Stream
from txbatch.core.topology.walks import per_batch, queries
from txbatch.core.topology.watermarked import watermarks_of
from txbatch.core.windows.watermark import Watermark

if TYPE_CHECKING:
    from txbatch.core.records.declared import Fields

_TOPOLOGY_NAME = re.compile(r"[A-Za-z0-9_.-]+")


def checked_topology_name(name: str) -> str:
    """Return a name that can be a dag_id and a folder, and is no option of a command. DefinitionError for any other name."""
    checked_name(name, "topology")
    if not _TOPOLOGY_NAME.fullmatch(name):
        raise InvalidName(f"topology {name!r}: a name has letters, digits, '_', '-' and '.' only, as a dag_id has")
    if name.startswith("-") or not name.strip("."):
        raise InvalidName(f"topology {name!r}: a name does not begin with '-' and is not made of dots alone")
    return name


@dataclass
class Topology:
    """A named definition. `max_pending` batches may be emitted ahead of the commit (Trident's max.spout.pending, R6).

    `was` is the former name of a topology with history (R23). `keep` is the part of the past that you can query and restate
    after `txbatch gc`: without `keep`, all of the past (R22). Without `show_records` no error shows a value of a record.
    `quarantine` is the number of records of a batch that may fail: failed records are kept in `report.<name>_quarantine`, all
    others count.
    """

    name: str
    max_pending: int = 1
    streams: dict[str, Stream] = field(default_factory=dict)
    aggregates: list[PersistentAggregate] = field(default_factory=list)
    static_states: dict[str, StaticState] = field(default_factory=dict)
    was: str | None = None
    keep: Keep | None = None
    show_records: bool = True
    quarantine: int | None = None
    query_streams: dict[str, QueryStream] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checked_topology_name(self.name)
        if type(self.max_pending) is not int or self.max_pending < 1:
            raise InvalidArgument(f"topology {self.name!r}: max_pending must be at least 1, a whole number")
        if not isinstance(self.keep, Keep | None):
            raise InvalidRetention(f"topology {self.name!r}: keep={self.keep!r} is no policy; write keep=Keep(days=90)")
        check_limit(self.name, self.quarantine)
        if type(self.show_records) is not bool:
            raise InvalidArgument(f"topology {self.name!r}: show_records={self.show_records!r}; write True or False")

    def new_stream(self, name: str, spout: Spout, was: str | None = None) -> Stream:
        """Return a stream of the spout's batches. `was` is the former name of a stream with planned batches (R23)."""
        checked_name(name, "stream")
        unique([*self.streams, name], "stream")
        check_identity(name, spout)
        stream = Stream(self, Source(name, parse_fields(spout.fields), spout, was, self.show_records))
        self.streams[name] = stream
        self._renew_quarantine()
        return stream

    def merge(self, *streams: Stream, name: str) -> Stream:
        """Return a stream of the records of several streams, after their own operations.

        Fields have their names in the first stream. The weakest kind counts.
        """
        checked_name(name, "stream")
        unique([*self.streams, name], "stream")
        return merged(name, streams)

    def join(self, left: Stream, right: Stream, *, on: str | Sequence[str], how: str = "inner", name: str) -> Stream:
        """Return a stream of the records of two streams in one batch that are equal in the fields `on`; the result has `on`
        once.

        `how` is inner, left, right or full: the side whose records stay without a match, with nulls for the other side's
        fields. A null key matches nothing. A stream without records in the batch is an empty side.
        """
        checked_name(name, "stream")
        unique([*self.streams, name], "stream")
        return join(name, left, right, on, how)

    def new_query_stream(self, name: str, fields: Fields) -> QueryStream:
        """Return a stream of questions with these fields, which `ask` answers without Spark: Trident's DRPC stream.

        The answer to a question is the records of the last operation of the definition. No batch reads a query stream.
        """
        checked_name(name, "query stream")
        unique([*self.query_streams, name], "query stream")
        stream = QueryStream(self, Arguments(name, parse_fields(fields), self.show_records))
        self.query_streams[name] = stream
        return stream

    def query_stream(self, name: str) -> QueryStream:
        """Return the query stream of this name, up to its last operation so far; UnknownName names the existing query streams."""
        if name not in self.query_streams:
            known = ", ".join(self.query_streams) or "none: define one by new_query_stream"
            raise UnknownName(f"topology {self.name!r} has no query stream {name!r}; it has {known}")
        return self.query_streams[name]

    def new_static_state(self, static: StaticState) -> StaticState:
        """Add a table to look values up in, by `state_query`."""
        unique([*self.static_states, static.name], "static state")
        self.static_states[static.name] = static
        return static

    def add(self, aggregate: PersistentAggregate) -> None:
        """Add a persistent aggregate, with the aggregate that keeps its late records; a state has exactly one aggregate."""
        aggregates = [*self.aggregates, aggregate, *kept_aside(aggregate)]
        unique((each.state.name for each in aggregates), "state")
        check_reports([each.state for each in aggregates])
        self.aggregates[:] = aggregates
        self._renew_quarantine()

    def _renew_quarantine(self) -> None:
        """Let the last state be the quarantine of all streams and aggregates defined by now."""
        own = [each for each in self.aggregates if not isinstance(each.state, QuarantineState)]
        if self.quarantine is not None and own:
            sources = tuple(root for stream in self.streams.values() for root in stream.roots)
            kept = quarantine_of(self.name, QuarantineState(self.name, self.quarantine, self.was), sources, own)
            unique([*(each.state.name for each in own), kept.state.name], "state")
            self.aggregates[:] = [*own, kept]

    @property
    def by_interval(self) -> bool:
        """True if a run finds its batch again by interval (R2)."""
        return any(stream.spout.by_interval for stream in self.streams.values())

    @property
    def per_batch(self) -> bool:
        """True if a state counts results of single batches: exactly once, but the results depend on where batches end."""
        return any(per_batch(aggregate.stream) for aggregate in self.aggregates)

    @property
    def queries(self) -> tuple[StateQuery, ...]:
        """The look-ups of the records of all states."""
        return tuple(query for aggregate in self.aggregates for query in queries(aggregate.stream))

    @property
    def looked_up(self) -> Mapping[str, StaticState]:
        """The static states in which records are looked up, by name."""
        states = (query.state for query in self.queries)
        return {state.name: state for state in states if isinstance(state, StaticState)}

    @property
    def watermarks(self) -> Mapping[str, Watermark]:
        """The watermarks by stream, without streams that have no watermark; DefinitionError for a stream with two watermarks."""
        return watermarks_of(self.name, (aggregate.stream for aggregate in self.aggregates))

    @property
    def numbered(self) -> frozenset[str]:
        """The streams with numbered records; DefinitionError if batches are planned ahead."""
        return streams_of(self.name, (aggregate.stream for aggregate in self.aggregates), self.max_pending)

    @property
    def closes(self) -> bool:
        """True if windows of a state close (R26)."""
        return any(aggregate.closes for aggregate in self.aggregates)

    @property
    def behind(self) -> Mapping[str, int]:
        """How far records may be behind the start of their interval, for streams by interval with a watermark (R25)."""
        made = {name for aggregate in self.aggregates for name in aggregate.of_another_time}
        spouts = {name: self.streams[name].spout for name in self.watermarks}
        return {
            name: self.watermarks[name].behind(None if name in made else getattr(spout, "time", None))
            for name, spout in spouts.items()
            if spout.by_interval
        }

    @property
    def parameters(self) -> tuple[str, ...]:
        """The run's parameters that choose data, as the spouts declare them (R2)."""
        return tuple(sorted({name for stream in self.streams.values() for name in stream.spout.parameters}))

    @property
    def source(self) -> Mapping[str, Any]:
        """The source identity that the ledger keeps with txid 1 (R2), with the spout's kind and way of reading."""
        spouts = {name: stream.spout for name, stream in self.streams.items()}
        return {
            name: {**spout.identity, "kind": str(spout.kind), "reads": how_it_reads(spout)}
            for name, spout in spouts.items()
        }

    def check(self) -> Topology:
        """Refuse a definition that has nothing to run."""
        if not self.aggregates:
            raise MissingPart(f"topology {self.name!r} ends in no state; end a stream with persistent_aggregate(...)")
        check_tables(aggregate.state for aggregate in self.aggregates)
        check_folders(aggregate.state for aggregate in self.aggregates)
        check_folds(self.name, self.aggregates, self.keep)
        _ = self.watermarks, self.numbered  # of each stream one; none where batches are planned ahead
        return self
