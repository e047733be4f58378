"""A stream's aggregation into a state, kept across batches; and which spouts and states fit (R11)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from txbatch.core.aggregates.aggregator import CombinerAggregator, Count, PartialColumn
from txbatch.core.aggregates.counting import Histogram
from txbatch.core.aggregates.merge import ADD, GREATEST, Partial, RowMerge
from txbatch.core.aggregates.merger import Merger
from txbatch.core.errors import OutOfPlace
from txbatch.core.records.fields import Field
from txbatch.core.records.where import Condition
from txbatch.core.state.checks import checked_table
from txbatch.core.state.state import State
from txbatch.core.topology.nodes import Node, Windowed
from txbatch.core.topology.watermarked import of_another_time, policy, watermarks
from txbatch.core.windows.session_window import SessionWindow
from txbatch.core.windows.timed import Timed
from txbatch.core.windows.watermark import BEGIN, MERGE

if TYPE_CHECKING:
    from txbatch.core.state.update import Change

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
FLAGS = tuple(
    ValueColumn(name, name, PartialColumn("", "boolean", GREATEST, f"bool_or({name})"))
    for name in ("removed", "counted")
)


@dataclass(frozen=True)  # without slots, which leave no place for what is computed once
class PersistentAggregate:
    """A stream grouped by keys and aggregated into a state across batches; `remove` decides which records remove their key.

    Without keys the state has one global value. Every batch of the stream writes the value: an empty batch adds zero.
    `topology` is the name of the topology, `stream` the node whose records are grouped.
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

    @property
    def counts_again(self) -> Sequence[str]:
        """The values that count a changed record once more: of a spout whose records change, by a merge that adds."""
        if not any(root.spout.repeats for root in self.stream.roots):
            return []
        return list(dict.fromkeys(column.value for column in self.columns if not column.partial.merge.takes_twice))

    def new_values_into(self, table: str) -> PersistentAggregate:
        """Let each commit write its changes into a table, `"schema.name"`, in the commit's transaction; return the aggregate.

        A row has the key, `change` (added, changed or removed), each value of the report before and after, `<value>_before`
        and `<value>_after`, and the txid. If the table is missing, txbatch creates the table. DefinitionError for a table of
        the ledger.
        """
        if self.sessions:
            raise OutOfPlace(
                f"state {self.state.name!r}: new_values_into({table!r}): a commit writes pieces of sessions, which come together "
                f"where they are read; read report.changes_{self.state.name}"
            )
        self.state.new_values = checked_table(self.state, table)
        return self

    @property
    def rows_of(self) -> tuple[Field, ...]:
        """The fields of the records that the state keeps; empty if the state keeps aggregates."""
        return self.stream.fields if self.state.appends else ()

    @property
    def window(self) -> Timed | None:
        """The window among the keys; None if records are grouped by fields alone."""
        found = self.stream.window if isinstance(self.stream, Windowed) else None
        return found if found and found.field in self.keys else None

    @property
    def sessions(self) -> SessionWindow | None:
        """The session window, the last of the keys; None without sessions (R27)."""
        return sessions_of(self.stream, self.keys)

    def window_end(self, keys: Mapping[str, str]) -> dict[str, str]:
        """Return the report's column for the end of windows, in SQL over the SQL of the keys; the end of sessions is a value."""
        return {} if self.window is None else self.window.derived_sql(keys[self.window.name])

    @property
    def closes(self) -> bool:
        """True if windows or sessions close: the streams have a watermark that ends windows (R26)."""
        return self.window is not None and bool(watermarks(self.stream))

    @property
    def of_another_time(self) -> frozenset[str]:
        """The streams with a window by a time made by a step, not by the time of their watermark."""
        if self.window is None or not isinstance(self.stream, Windowed):
            return frozenset()
        return of_another_time(self.stream.before, self.window.time)

    def watermark_of(self, watermark: Mapping[str, int]) -> int | None:
        """Return the time up to which records are taken to have come: the least of the streams' watermarks.

        None while a stream has read nothing.
        """
        streams = watermarks(self.stream).keys()
        return min(watermark[stream] for stream in streams) if streams and streams <= watermark.keys() else None

    def late_before(self, watermark: Mapping[str, int]) -> int | None:
        """Return the start before which windows have ended by a plan's watermarks; the streams' least watermark counts (R25).

        None without windows, or if the streams have no watermark. While a stream has not read anything, no window has ended.
        """
        if self.window is None or not watermarks(self.stream):
            return None
        mark = self.watermark_of(watermark)
        return BEGIN if mark is None else self.window.late_before(mark)

    @property
    def late(self) -> str:
        """The treatment of late records; without a watermark, all records count."""
        return MERGE if self.window is None else policy(f"state {self.state.name!r}", self.stream)

    @property
    def summed(self) -> str:
        """The names of the values that may outgrow their type, in the words of an error; empty if no value may."""
        names = (each.value for each in self.columns if each.partial.merge is ADD)
        counts = (Count, Histogram)
        return " or ".join(repr(name) for name in dict.fromkeys(names) if not isinstance(self.aggregates[name], counts))

    @property
    def removable(self) -> bool:
        """True if records may remove keys; then partials carry `FLAGS`."""
        return self.remove is not None

    @cached_property
    def partial_columns(self) -> tuple[ValueColumn, ...]:
        """The columns of a partial: values, and marks where keys may be removed."""
        return self.columns + (FLAGS if self.removable else ())

    @property
    def merges(self) -> tuple[RowMerge, ...]:
        """The merge of each value column."""
        return tuple(column.partial.merge for column in self.columns)

    @property
    def partial_merges(self) -> tuple[RowMerge, ...]:
        """The merge of each column of a partial with another partial of the same batch."""
        return tuple(column.partial.merge for column in self.partial_columns)

    @property
    def by_python(self) -> bool:
        """True if values merge by Python of the job, which PostgreSQL cannot run."""
        return not all(merge.in_sql for merge in self.merges)

    def changes(self, partials: Iterable[tuple[Any, Partial]]) -> dict[Any, Change]:
        """Return the change of each key by a batch's partials; several partials of one key are combined."""
        combine = Merger(self.merges)
        found: dict[Any, Change] = {}
        for key, partial in partials:
            change = self.change(partial)
            found[key] = found[key].also(change, combine.on_the_way) if key in found else change
        for change in found.values():
            combine.checked(change.partial)
        return found

    def change(self, partial: Partial) -> Change:
        """Return the change of a key by one partial."""
        from txbatch.core.state.update import Change  # no definition needs it

        return Change(partial[:-2], *partial[-2:]) if self.removable else Change(partial)


def sessions_of(stream: Node, keys: Sequence[Field]) -> SessionWindow | None:
    """Return the session window of a node if its start is among the keys; None if not."""
    found = stream.window if isinstance(stream, Windowed) else None
    return found if isinstance(found, SessionWindow) and found.field in keys else None


def finished(aggregate: PersistentAggregate, partial: Partial | None) -> list[Any] | None:
    """Return a key's values in the form of reports; None for no such key."""
    if partial is None:
        return None
    own = [[n for n, column in enumerate(aggregate.columns) if column.value == name] for name in aggregate.aggregates]
    made = zip(aggregate.aggregates.values(), own, strict=True)
    return [each.finish(tuple(partial[n] for n in at)) for each, at in made]
