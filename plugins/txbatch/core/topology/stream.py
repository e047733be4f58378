"""Stream: records with named fields, from a spout or merged from other streams, and the operations on streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from txbatch.core.aggregates.aggregator import CombinerAggregator
from txbatch.core.aggregates.reducer import ReducerAggregator
from txbatch.core.errors import InvalidFunction, InvalidWindow, MissingPart, OutOfPlace
from txbatch.core.records.fields import Field, parse_fields, unique
from txbatch.core.records.functions import check_callable, check_condition, check_function, check_number, check_python
from txbatch.core.records.where import Condition
from txbatch.core.sources.spout import Spout, SpoutKind
from txbatch.core.state.append import ROW_KEYS, AppendState, check_appends, values_of
from txbatch.core.state.state import State
from txbatch.core.topology.checks import check_aggregate
from txbatch.core.topology.grouped import GroupedStream
from txbatch.core.topology.look_up import How, LiveState, StateQuery, StaticState, checked_how
from txbatch.core.topology.nodes import (
    Distinct,
    Each,
    Filter,
    FlatMap,
    Function,
    Lookup,
    Map,
    Merged,
    Node,
    Peek,
    Project,
    Repartition,
    Source,
    Step,
    Transform,
    Windowed,
)
from txbatch.core.topology.numbered import numbered
from txbatch.core.topology.owner import Owner
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.topology.quarantine import quarantines
from txbatch.core.topology.walks import origin_of
from txbatch.core.topology.watermarked import add_watermark, check_window, timed_by_plan
from txbatch.core.windows.session_window import SessionWindow
from txbatch.core.windows.timed import Timed

if TYPE_CHECKING:
    from txbatch.core.records.declared import Fields


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """A sequence of records with named fields: a place in its topology. An operation makes a new stream and leaves this one."""

    topology: Owner
    node: Node

    @property
    def name(self) -> str:
        """The name given to the stream; operations keep the name."""
        return self.node.name

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of the records."""
        return self.node.fields

    @property
    def spout(self) -> Spout:
        """The spout of a stream; DefinitionError for a merged or joined stream, and for a query stream."""
        origin = origin_of(self.node)
        if not isinstance(origin, Source):
            how = "merged" if isinstance(origin, Merged) else "joined"
            told = f"is {how} and has several spouts; ask its roots" if origin.roots else "has questions, and no spout"
            raise OutOfPlace(f"stream {self.name!r} {told}")
        return origin.spout

    @property
    def roots(self) -> tuple[Source, ...]:
        """The sources of the stream."""
        return self.node.roots

    @property
    def kind(self) -> SpoutKind:
        """The kind of the spout; the weakest kind, if streams are merged (R11)."""
        return self.node.kind

    def with_watermark(self, time: str, delay: str, *, late: str = "merge") -> Stream:
        """Limit how far records come behind the latest time: `with_watermark("ts", "1 hour")`, before any operation.

        The watermark is the largest time so far, less the delay. A window has ended once the watermark has passed the window's
        end. With `late="merge"` a record of an ended window counts like any other record, with `"drop"` the record is left
        out, with `"side"` the record is a row of the state `<state>_late`. Each batch has its number of late records. If
        streams are merged, each stream has its own watermark, by its field in the place of `time`, and the least watermark
        counts.

        Raises DefinitionError for a field that is no timestamp of the source, for a delay that is no length, and for another
        policy.
        """
        return replace(self, node=add_watermark(self.node, time, delay, late))

    def with_processing_time(self, name: str = "planned_at") -> Stream:
        """Append the time at which the batch was planned, by the ledger's clock.

        `window("planned_at", "1 minute")` is then of processing time. Before any operation. The plan has the time, and all
        attempts and restates of a batch have the same time. A window closes with the first commit of a batch that was planned
        after the window's end.

        Raises DefinitionError for a field that is already present, and if the stream has a watermark.
        """
        return replace(self, node=timed_by_plan(self.node, name))

    def numbered(self, name: str = "number") -> Stream:
        """Append each record's number in the stream, from 0 on: windows by count are `number - number % 100`.

        Batches are numbered in the order in which batches commit; in a batch records are numbered in the order of all fields.
        A retry repeats the numbers. A restate must have as many records, or is refused. Before any operation but a watermark,
        with max_pending=1.

        Raises DefinitionError for a field that is already present, and after another operation.
        """
        return self.then(numbered(self.node, name))

    def filter(self, condition: Condition, *, on_error: str | None = None) -> Stream:
        """Keep the records for which the condition is true (null is not).

        In all operations, `on_error="fail"` fails the batch if a Python function fails for a record, also if the topology has
        a quarantine.
        """
        check_condition(self.of("filter"), condition)
        return self.then(
            Filter(self.name, self.fields, self.node, condition, self._quarantines("filter", on_error, condition))
        )

    def each(self, function: Function, fields: Fields, *, on_error: str | None = None) -> Stream:
        """Append fields, computed from each record. A Python function returns one value, or a tuple of several values.

        If the function returns a list of values or tuples, the record goes on once for each element, and not at all for an
        empty list.
        """
        appended = parse_fields(fields)
        check_function(self.of("each"), function, appended)
        quarantined = self._quarantines("each", on_error, function)
        return self.then(Each(self.name, self.fields + appended, self.node, function, quarantined))

    def map(self, function: Function, fields: Fields, *, on_error: str | None = None) -> Stream:
        """Replace each record by another record."""
        made = parse_fields(fields)
        check_function(self.of("map"), function, made)
        return self.then(Map(self.name, made, self.node, function, self._quarantines("map", on_error, function)))

    def flat_map(self, function: Function, fields: Fields, *, on_error: str | None = None) -> Stream:
        """Replace each record by several or none: an array in SQL (of structs for several fields), an iterable in Python."""
        check_function(self.of("flat_map"), function, None)
        quarantined = self._quarantines("flat_map", on_error, function)
        return self.then(FlatMap(self.name, parse_fields(fields), self.node, function, quarantined))

    def transform(self, function: Callable[[Any], Any], fields: Fields | None = None) -> Stream:
        """Apply Spark code from DataFrame to DataFrame, record by record. The result has these fields, or unchanged fields."""
        if not callable(function):
            raise InvalidFunction(f"{self.of('transform')} {function!r} is no function; give one of a DataFrame")
        check_callable(self.of("transform"), function)
        made = self.fields if fields is None else parse_fields(fields)
        return self.then(Transform(self.name, made, self.node, function))

    def peek(self, function: Callable[[Mapping[str, Any]], object], *, on_error: str | None = None) -> Stream:
        """Show each record to a function, for example to log the record; the record is unchanged.

        The function is called in every attempt, for each state behind the stream: effects of the function happen as often.
        """
        check_python(self.of("peek"), function)
        quarantined = self._quarantines("peek", on_error, function)
        return self.then(Peek(self.name, self.fields, self.node, function, quarantined))

    def repartition(self, number: int, *names: str) -> Stream:
        """Spread the records over `number` partitions of Spark, by fields if any are named. Results do not change."""
        check_number(self.of("repartition"), number)
        by = tuple(self.field(name) for name in names)
        return self.then(Repartition(self.name, self.fields, self.node, number, by))

    def distinct(self) -> Stream:
        """Keep each different record of the batch once."""
        return self.then(Distinct(self.name, self.fields, self.node))

    def min_by(self, name: str) -> Stream:
        """Keep the batch's record with the least value of this field, not null; of equal records the least by all fields."""
        return GroupedStream(self, ()).min_by(name)

    def max_by(self, name: str) -> Stream:
        """Keep the batch's record with the greatest value of this field, not null; of equal records the least by all fields."""
        return GroupedStream(self, ()).max_by(name)

    def first_n(self, number: int, by: str, *, descending: bool = False) -> Stream:
        """Keep the batch's first records by a field, nulls last; equal records are ordered by all fields, least first."""
        return GroupedStream(self, ()).first_n(number, by, descending=descending)

    def project(self, *names: str) -> Stream:
        """Keep only the named fields."""
        if not names:
            raise MissingPart(f"stream {self.name!r}: project needs at least one field")
        return self.then(Project(self.name, tuple(self.field(name) for name in names), self.node))

    def state_query(
        self,
        state: StaticState | LiveState | PersistentAggregate,
        *keys: str,
        fields: Sequence[str] | None = None,
        how: str = "left",
        many: bool = False,
    ) -> Stream:
        """Append fields of a static or a live state (all but the keys, or the named fields), looked up by common keys.

        If the state has no such key, the fields are null; with `how="inner"` the record is left out. A null key is in no
        state. With `many` the record goes on once for each row of its key. Without `many`, a key with two rows is an error.

        A query stream can also look values up in states of its topology: `state` is then the result of `persistent_aggregate`.
        """
        by = checked_how(how, self.of("state_query"))
        if isinstance(state, PersistentAggregate):
            return self.live_query(state, keys, fields, by)
        if isinstance(state, StaticState) and self.topology.static_states.get(state.name) is not state:
            raise OutOfPlace(f"stream {self.name!r}: {state!r} is not of this topology; use new_static_state first")
        query = StateQuery(state, tuple(self.field(key) for key in keys), fields, by, many)
        return self.then(Lookup(self.name, self.fields + query.values, self.node, query))

    def live_query(
        self, state: PersistentAggregate, keys: Sequence[str], fields: Sequence[str] | None, how: How
    ) -> Stream:
        """Refuse, since values of a changing state belong to no batch: every attempt would see other values."""
        raise OutOfPlace(
            f"{self.of('state_query')}: state {state.state.name!r} changes with every batch, and an attempt would see other "
            "values than the one before; ask it by a query stream (new_query_stream), or name it as a LiveState, as of a txid"
        )

    def group_by(self, *by: str | Timed) -> GroupedStream[Stream]:
        """Group for `persistent_aggregate`, or for operations per batch; the start of a `window` is a field from here on.

        The start of a `session_window` is the last key: sessions of a key stand together.
        """
        if not by:
            raise MissingPart(f"stream {self.name!r}: group_by needs at least one field")
        windows = [each for each in by if isinstance(each, Timed)]
        if len(windows) > 1:
            raise InvalidWindow(f"{self.of('group_by')}: {len(windows)} windows; group by one of them")
        by = tuple(sorted(by, key=lambda each: isinstance(each, SessionWindow)))
        names = [each if isinstance(each, str) else each.name for each in by]
        unique(names, "key")
        stream = self
        for window in windows:
            window.check(self.of("group_by"), self.fields)
            check_window(self.of("group_by"), self.node, window)
            stream = self.then(Windowed(self.name, (*self.fields, window.field), self.node, window))
        return GroupedStream(stream, tuple(stream.field(name) for name in names))

    def aggregate(self, **aggregates: CombinerAggregator | ReducerAggregator) -> Stream:
        """Make one record of the whole batch, with a value per keyword; also of no records: a count is 0 then, a sum null."""
        return GroupedStream(self, ()).aggregate(**aggregates)

    def partition_aggregate(self, **aggregates: CombinerAggregator) -> Stream:
        """Make one record of each partition of the spout with records. Partitions of Spark do not matter."""
        return GroupedStream(self, ()).partition_aggregate(**aggregates)

    def persistent_aggregate(
        self,
        state: State,
        *,
        guarantee: str = "exactly_once",
        remove: Condition | None = None,
        **aggregates: CombinerAggregator,
    ) -> PersistentAggregate:
        """Aggregate all records into one global value: a state of one row without keys. A batch without records adds zero."""
        return GroupedStream(self, ()).persistent_aggregate(state, guarantee=guarantee, remove=remove, **aggregates)

    def persist(self, state: AppendState, *, guarantee: str = "exactly_once") -> PersistentAggregate:
        """Keep the records unchanged: the rows of each batch, exactly once; a restate of the batch replaces the rows.

        Raises NotExactlyOnce as `persistent_aggregate` does, DefinitionError for another state, and for fields that cannot be
        columns of a row.
        """
        check_appends(state)
        values = values_of(self.fields)
        kept = check_aggregate(PersistentAggregate(self.topology.name, self.node, ROW_KEYS, state, values, guarantee))
        self.topology.add(kept)
        return kept

    def field(self, name: str) -> Field:
        """Return the field of this name; DefinitionError names the existing fields."""
        return self.node.field(name)

    def of(self, operation: str) -> str:
        """Return an operation with its stream, in the words of errors."""
        return f"stream {self.name!r}: {operation}"

    def _quarantines(self, operation: str, on_error: str | None, function: object) -> bool:
        return quarantines(self.of(operation), on_error, function, self.topology.quarantine)

    def then(self, step: Step) -> Stream:
        """Return the stream after one more step."""
        unique((each.name for each in step.fields), "field")
        return replace(self, node=step)
