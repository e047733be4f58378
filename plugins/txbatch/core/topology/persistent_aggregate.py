"""A stream's aggregation into a state, kept across batches; and which spouts and states fit (R11)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from txbatch.core.aggregates.aggregator import CombinerAggregator, Count, PartialColumn
from txbatch.core.aggregates.merge import ADD, GREATEST, Merger, Partial, RowMerge
from txbatch.core.aggregates.reducer import ReducerAggregator
from txbatch.core.aggregates.tallies import Histogram
from txbatch.core.corrections.keep_windows import check_keeps_windows
from txbatch.core.errors import DefinitionError, NotExactlyOnce
from txbatch.core.records.fields import Field, checked_name, unique
from txbatch.core.records.functions import check_condition
from txbatch.core.records.where import Condition, check_where
from txbatch.core.sources.spout import SpoutKind
from txbatch.core.state.new_values import checked_table
from txbatch.core.state.state import State, StateKind
from txbatch.core.topology.operations import Node, Windowed
from txbatch.core.topology.watermarked import of_another_time, policy, watermarks
from txbatch.core.windows.session_window import SessionWindow
from txbatch.core.windows.watermark import BEGIN, MERGE
from txbatch.core.windows.window import Window

if TYPE_CHECKING:
    from txbatch.core.state.update import Change

EXACTLY_ONCE = frozenset(
    {
        (SpoutKind.TRANSACTIONAL, StateKind.TRANSACTIONAL),
        (SpoutKind.TRANSACTIONAL, StateKind.OPAQUE),
        (SpoutKind.OPAQUE, StateKind.OPAQUE),
    }
)
PREVIOUS_PREFIX = "prev_"
# The primary key of a global value's one row; always true.
GLOBAL_KEY = Field("only", "boolean")
# Ours, and those that PostgreSQL gives to every table.
RESERVED_COLUMNS = frozenset(
    {"txid", PREVIOUS_PREFIX + "txid", "position", "tableoid", "ctid", "xmin", "xmax", "cmin", "cmax"}
)
# Beside the partials in an attempt's files: how many records each is made of. No state has it.
RECORDS_COLUMN = "_txbatch_records"


@dataclass(frozen=True, slots=True)
class ValueColumn:
    """A column of a state that holds a partial of the value named `value`."""

    name: str
    value: str
    partial: PartialColumn


# What a partial says beside its values, where a `remove` is defined: whether the key's value before the batch goes,
# and whether records of the key count.
MARKS = tuple(
    ValueColumn(name, name, PartialColumn("", "boolean", GREATEST, f"bool_or({name})"))
    for name in ("removed", "counted")
)


@dataclass(frozen=True)  # without slots, which leave no place for what is computed once
class PersistentAggregate:
    """A stream grouped by keys and aggregated into a state across batches; `remove` says which records remove their key.

    Without keys it is one global value, which every batch of the stream writes: an empty one adds zero. `topology` is the
    name of the topology, `stream` the node whose records are grouped.
    """

    topology: str
    stream: Node
    keys: tuple[Field, ...]
    state: State
    aggregates: Mapping[str, CombinerAggregator]
    guarantee: str
    remove: Condition | None = None

    @cached_property
    def columns(self) -> tuple[ValueColumn, ...]:
        """The state's value columns, in order."""
        return tuple(
            ValueColumn(name + partial.suffix, name, partial)
            for name, aggregator in self.aggregates.items()
            for partial in aggregator.columns_of(self.stream.field)
        )

    def new_values_into(self, table: str) -> PersistentAggregate:
        """Let each commit write what it changes into a table, `"schema.name"`, in its transaction; return the aggregate.

        A row has the key, `change` (added, changed or removed), each value as reports show it, `<value>_before` and
        `<value>_after`, and the txid. The table is made where it is not there. DefinitionError for one that is the ledger's.
        """
        if self.sessions:
            raise DefinitionError(
                f"state {self.state.name!r}: new_values_into({table!r}): a commit writes pieces of sessions, which come together "
                f"where they are read; read report.changes_{self.state.name}"
            )
        self.state.new_values = checked_table(self.state, table)
        return self

    @property
    def rows_of(self) -> tuple[Field, ...]:
        """Return the fields of the records that the state keeps; empty: it keeps aggregates."""
        return self.stream.fields if self.state.appends else ()

    @property
    def window(self) -> Window | SessionWindow | None:
        """Return the window that is one of its keys; None: it is grouped by fields alone."""
        found = self.stream.window if isinstance(self.stream, Windowed) else None
        return found if found and found.field in self.keys else None

    @property
    def sessions(self) -> SessionWindow | None:
        """Return what its sessions are, which are its last key; None: it counts by none (R27)."""
        return sessions_of(self.stream, self.keys)

    def window_end(self, keys: Mapping[str, str]) -> dict[str, str]:
        """Return the report's column of where its windows end, in SQL over those of its keys; the end of sessions is a value."""
        window = self.window
        return {window.end_name: window.end_sql(keys[window.name])} if isinstance(window, Window) else {}

    @property
    def closes(self) -> bool:
        """True if its windows or sessions close: its streams have a watermark, by which they end (R26)."""
        return self.window is not None and bool(watermarks(self.stream))

    @property
    def of_another_time(self) -> frozenset[str]:
        """Return the streams whose records are in windows by another time than their watermark's: by one that a step makes."""
        if self.window is None or not isinstance(self.stream, Windowed):
            return frozenset()
        return of_another_time(self.stream.before, self.window.time)

    def mark(self, watermark: Mapping[str, int]) -> int | None:
        """Return up to when its records are taken to be there: by the least of its streams, None while one has read nothing."""
        streams = watermarks(self.stream).keys()
        return min(watermark[stream] for stream in streams) if streams and streams <= watermark.keys() else None

    def late_before(self, watermark: Mapping[str, int]) -> int | None:
        """Return before which start windows have ended by a plan's watermarks: the least of its streams counts (R25).

        None where it is not by windows, or its streams have no watermark. As long as one of them has not read anything, none has.
        """
        if self.window is None or not watermarks(self.stream):
            return None
        mark = self.mark(watermark)
        return BEGIN if mark is None else self.window.ended_before(mark)

    @property
    def late(self) -> str:
        """Return what becomes of its late records; where nothing says which are, all count."""
        return MERGE if self.window is None else policy(f"state {self.state.name!r}", self.stream)

    @property
    def summed(self) -> str:
        """Return the names of the values that may outgrow their type, as an error tells them; empty: none does."""
        names = (each.value for each in self.columns if each.partial.merge is ADD)
        counts = (Count, Histogram)
        return " or ".join(repr(name) for name in dict.fromkeys(names) if not isinstance(self.aggregates[name], counts))

    @property
    def removable(self) -> bool:
        """True if records may remove keys; then partials carry `MARKS`."""
        return self.remove is not None

    @cached_property
    def partial_columns(self) -> tuple[ValueColumn, ...]:
        """The columns of a partial: values, and marks where keys may be removed."""
        return self.columns + (MARKS if self.removable else ())

    @property
    def merges(self) -> tuple[RowMerge, ...]:
        """How each value column merges."""
        return tuple(column.partial.merge for column in self.columns)

    @property
    def partial_merges(self) -> tuple[RowMerge, ...]:
        """How each column of a partial merges with that of another one of the same batch."""
        return tuple(column.partial.merge for column in self.partial_columns)

    @property
    def by_python(self) -> bool:
        """True if values merge by Python of the job, which PostgreSQL cannot run."""
        return not all(merge.in_sql for merge in self.merges)

    def changes(self, partials: Iterable[tuple[Any, Partial]]) -> dict[Any, Change]:
        """Return what a batch's partials do to each key; several partials of one key are combined."""
        combine = Merger(self.merges)
        found: dict[Any, Change] = {}
        for key, partial in partials:
            change = self.change(partial)
            found[key] = found[key].also(change, combine.on_the_way) if key in found else change
        for change in found.values():
            combine.checked(change.partial)
        return found

    def change(self, partial: Partial) -> Change:
        """Return what one partial does to its key."""
        from txbatch.core.state.update import Change  # no definition needs it

        return Change(partial[:-2], *partial[-2:]) if self.removable else Change(partial)


def sessions_of(stream: Node, keys: Sequence[Field]) -> SessionWindow | None:
    """Return the sessions by which a node's records are grouped, where these are the keys; None: by none."""
    found = stream.window if isinstance(stream, Windowed) else None
    return found if isinstance(found, SessionWindow) and found.field in keys else None


def checked(aggregate: PersistentAggregate) -> PersistentAggregate:
    """The aggregate, if it can be kept.

    Raises NotExactlyOnce (R11), DefinitionError for what is no state, aggregator or condition, and for names or types.
    """
    state = aggregate.state
    if not isinstance(state, State):
        raise DefinitionError(f"{state!r} takes no updates; aggregate into a state, such as OpaqueState('name')")
    if not aggregate.stream.roots:
        raise DefinitionError(
            f"state {state.name!r}: query stream {aggregate.stream.name!r} has questions, which are no batch and count nowhere; "
            "aggregate a stream of a spout"
        )
    check_guarantee(aggregate.stream, state, aggregate.guarantee)
    _check_aggregators(aggregate)
    if not (aggregate.remove is None or isinstance(aggregate.remove, str) or callable(aggregate.remove)):
        raise DefinitionError(f"state {state.name!r}: remove is {aggregate.remove!r}; give a condition, as for filter")
    if aggregate.remove is not None:
        check_condition(f"state {state.name!r}: remove", aggregate.remove)
    if aggregate.removable and aggregate.sessions:
        raise DefinitionError(
            f"state {state.name!r}: remove takes a key away, and records before and after it may be of one session; filter them "
            "out, or count by other keys"
        )
    if aggregate.removable and not aggregate.keys:
        raise DefinitionError(f"state {state.name!r}: remove needs a key to remove; group_by one first")
    _check_columns(aggregate)
    check_keeps_windows(aggregate)
    return aggregate


def check_guarantee(stream: Node, state: State, guarantee: str) -> None:
    """The guarantee matrix (R11)."""
    if guarantee not in ("exactly_once", "at_least_once"):
        raise DefinitionError(f"guarantee {guarantee!r} is neither 'exactly_once' nor 'at_least_once'")
    if guarantee == "exactly_once" and (stream.kind, state.kind) not in EXACTLY_ONCE:
        raise NotExactlyOnce(
            f"state {state.name!r}: {_article(stream.kind)} {stream.kind} spout with {state.kind} state is not exactly-once; "
            f'choose another state, or say guarantee="at_least_once"'
        )


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def _check_aggregators(aggregate: PersistentAggregate) -> None:
    name = aggregate.state.name
    if not aggregate.aggregates:
        raise DefinitionError(f"state {name!r}: give at least one aggregate, such as count=Count()")
    given: Mapping[str, object] = aggregate.aggregates
    for value, aggregator in given.items():
        if isinstance(aggregator, ReducerAggregator):
            raise DefinitionError(
                f"state {name!r}: {value} is a ReducerAggregator, which says not how what two batches made is combined; give a "
                "CombinerAggregator, or aggregate within the batch"
            )
        if not isinstance(aggregator, CombinerAggregator):
            raise DefinitionError(
                f"state {name!r}: {value} is {aggregator!r}; give an aggregator, such as {value}=Count()"
            )
    for column in aggregate.columns:
        where = aggregate.aggregates[column.value].where
        if where is not None:
            check_where(f"state {name!r}: {column.value}", where, column.partial.aggregate)


def _check_columns(aggregate: PersistentAggregate) -> None:
    keys = [key.name for key in aggregate.keys or (GLOBAL_KEY,)]
    values = [column.name for column in aggregate.columns]
    previous = [PREVIOUS_PREFIX + name for name in values] if aggregate.state.kind is StateKind.OPAQUE else []
    for name in keys:
        checked_name(name, "key")
    for name in (*values, *previous):
        checked_name(name, "value")
    marks = [mark.name for mark in aggregate.partial_columns[len(values) :]]
    reported = [name for name in aggregate.aggregates if name not in values]  # such as an average
    reported += [*aggregate.window_end(dict.fromkeys(keys, ""))]
    names = [*keys, *values, *previous, *marks, *reported]
    for name in filter(RESERVED_COLUMNS.__contains__, names):
        raise DefinitionError(f"column {name!r} of state {aggregate.state.name!r} is reserved; rename it")
    unique(names, "column")
