"""From the records of a batch to the partials of a state."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from txbatch.core.batch.manifest import StagedState
from txbatch.core.batch.plan import Ranges
from txbatch.core.errors import BadFunction, BadRecord, FunctionFailed, SourceChanged, TransientError, TxbatchError
from txbatch.core.records.fields import KEY_TEXTS, TIME_RANGES, YEAR_MAX, Field, array_of, key_bytes_max
from txbatch.core.records.sql import spark_name, spark_text
from txbatch.core.sources.emitter import PARTITION_COLUMN
from txbatch.core.sources.spout import PartitionedSpout
from txbatch.core.text import one_line
from txbatch.core.topology.late import LateState
from txbatch.core.topology.nodes import Failed, Source
from txbatch.core.topology.persistent_aggregate import RECORDS_COLUMN, PersistentAggregate
from txbatch.core.topology.python_steps import expressions_of
from txbatch.core.topology.quarantine import QuarantineState, check_number
from txbatch.core.topology.storable import HOLDS_NUL, NO_UTF8, TOLD_CHARACTERS, refused_value, too_long
from txbatch.core.topology.walks import makes_records, one_for_one
from txbatch.core.topology.watermarked import watermarks
from txbatch.core.windows.watermark import MERGE
from txbatch.spark.appended import appended
from txbatch.spark.failures import failed_expression, in_our_words
from txbatch.spark.frames import nothing
from txbatch.spark.kept_records import SharedJoins
from txbatch.spark.observed_rows import ObservedRecords
from txbatch.spark.operations import run_operations, with_condition, with_where
from txbatch.spark.own_combiners import IS_RECORD, Own, own_values, together, with_partials
from txbatch.spark.reader import BatchReader
from txbatch.spark.sessions import own_sessions
from txbatch.spark.state_query import Tables
from txbatch.spark.two_step_aggregate import counted_first
from txbatch.spark.within_batch import OF_FIELD, carried, of_each_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REMOVES = "_txbatch_removes"  # whether a record removes its key
_BAD_VALUE = re.compile(r"txbatch bad value\|(\d+)\|([^|]+)\|([0-9A-F]*)\|")
_OUT_OF_RANGE = ("ARITHMETIC_OVERFLOW", "NUMERIC_VALUE_OUT_OF_RANGE")
_WAYS = "mend the source or the function, or abort the batch"
Met = TypeVar("Met", bound=TxbatchError)
# A stream and one of its partitions.
Place = tuple[str, str]


@dataclass(frozen=True, slots=True)
class BatchAggregator:
    """Makes the partials of a state, with the readers of all streams in the batch by name, and the tables for look-ups."""

    aggregate: PersistentAggregate
    readers: Mapping[str, BatchReader]
    tables: Tables = field(default_factory=Tables)
    _counted: list[tuple[str, ObservedRecords]] = field(default_factory=list)

    @property
    def state(self) -> str:
        """The state's name."""
        return self.aggregate.state.name

    @property
    def show(self) -> bool:
        """Whether errors may show records."""
        return self.aggregate.stream.show_records

    @property
    def has_records(self) -> bool:
        """Whether a stream of the state is in the batch, or a result is written even without records."""
        stream = self.aggregate.stream
        if isinstance(stream, Failed) and not stream.steps:
            return False
        made = not self.aggregate.keys or makes_records(stream)
        return made or any(root.name in self.readers for root in stream.roots)

    def partials(self, places: Collection[Place] | None = None) -> DataFrame:
        """Return a row for each key: the partials of the batch, or of some places, and the number of records.

        If the readers give records of several batches, return a row for each batch and key, with the batch in front.
        """
        tables = self.tables if places is None else replace(self.tables, joins=SharedJoins())
        frame = run_operations(self.aggregate.stream, partial(self._records, places), tables)
        grouped = self._grouped(frame)
        values = [Field(column.name, column.partial.type) for column in self.aggregate.partial_columns]
        columns, keys = [*self.aggregate.keys, *values], len(self.aggregate.keys)
        checked = [_checked(column, n, key=n < keys) for n, column in enumerate(columns)]
        if texts := [n for n, key in enumerate(self.aggregate.keys) if key.type in KEY_TEXTS]:
            checked[texts[0]] = _short_enough(checked[texts[0]], self.aggregate.keys, texts[0])
        return grouped.selectExpr(*carried(grouped), *checked, RECORDS_COLUMN)

    def _grouped(self, frame: DataFrame) -> DataFrame:
        if isinstance(self.aggregate.state, QuarantineState):
            frame = frame.limit(self.aggregate.state.limit + 1)
        batches = {txid: each for reader in self.readers.values() for txid, each in reader.assignments.items()}
        if isinstance(self.aggregate.state, LateState):
            frame = _late(frame, self.aggregate.state.of, {txid: each.plan.watermark for txid, each in batches.items()})
        if self.aggregate.state.appends:
            positions = {txid: each.position for txid, each in batches.items()}
            return appended(frame, self.aggregate, of_each_batch(frame, positions))
        assignment = next(iter(self.readers.values())).assignment
        if self.aggregate.sessions:
            marks = assignment.plan.marks(watermarks(self.aggregate.stream))
            late_before = self.aggregate.late_before(marks)
            frame = own_sessions(frame, self.aggregate, self.aggregate.sessions, late_before)
        return _aggregated(frame, self.aggregate)

    def check_read(self, staged: StagedState) -> None:
        """Raise TransientError if the staged partials count other records than the audit read (R7).

        If a step may drop or add records, only streams with planned numbers of records are counted during reading.
        """
        sources = self._one_for_one
        if sources is None:
            self.check_counted()
            return
        read = sum(self.readers[source.name].read for source in sources if source.name in self.readers)
        left_out = 0 if self.aggregate.late == MERGE else staged.late or 0
        if staged.kept not in (None, read - left_out):
            raise self._changed()

    def check_counted(self) -> None:
        """Raise TransientError if other records were counted during reading than the audit read."""
        if any(not counted.are(self.readers[name].read) for name, counted in self._counted):
            raise self._changed()

    def _changed(self) -> TransientError:
        return SourceChanged(
            f"{self}: other records were counted than read before; the source changed meanwhile: emit again"
        )

    def check_quarantine(self, failed: int | None, written: str) -> None:
        """Raise QuarantineFull if more records failed than permitted; `written` is the place of the failed records' rows."""
        state = self.aggregate.state
        if not isinstance(state, QuarantineState) or failed is None or failed <= state.limit:
            return
        reader = next(iter(self.readers.values()))
        first = reader.spark.read.parquet(written).first()
        assignment = reader.assignment
        check_number(f"{assignment.topology} {assignment.attempt}", state, failed, first.asDict() if first else None)

    def explain(self, error: Exception) -> TxbatchError:
        """Return why the partials could not be made, in txbatch's words, with the partition if a single partition has the
        problem.
        """
        problem = self._told(error)
        if problem is error:
            return problem
        if not isinstance(problem, BadRecord | FunctionFailed):
            return type(problem)(f"{self}: {problem}")
        met = self._looked_at(problem)
        return type(met)(f"{self}: {met}{self._out_of_range(error)}")

    def __str__(self) -> str:
        assignment = next(iter(self.readers.values())).assignment
        stream, state = self.aggregate.stream, self.aggregate.state
        return f"{assignment.topology} {assignment.attempt}, stream {stream.name!r}, state {state.name!r}"

    def _records(self, places: Collection[Place] | None, root: Source, parted: bool = False) -> DataFrame:
        reader = self.readers.get(root.name)
        partitions = None if places is None else [name for stream, name in places if stream == root.name]
        if reader is None or partitions == []:
            other = next(iter(self.readers.values()))
            of = [OF_FIELD] if parted or (other.several and places is None) else []
            return nothing(other.spark, [*of, *root.fields])
        names = (spark_name(field.name) for field in root.fields)
        records = reader.records(partitions)
        records = records.selectExpr(*([_of(root)] if parted else carried(records)), *names)
        if places is not None or not reader.says_records or self._one_for_one is not None:
            return records
        counted = ObservedRecords.of(records)
        self._counted.append((root.name, counted))
        return counted.frame

    @property
    def _one_for_one(self) -> tuple[Source, ...] | None:
        """The sources if each record of the sources reaches the state once; None if records may be dropped or added."""
        return None if isinstance(self.aggregate.state, LateState) else one_for_one(self.aggregate.stream)

    def _bad_value(self, error: Exception) -> BadRecord | None:
        found = _BAD_VALUE.search(str(error))
        if not found:
            return None
        told = bytes.fromhex(found[3]).decode(errors="replace")
        return refused_value(self.aggregate, int(found[1]), found[2], told)

    def _out_of_range(self, error: Exception) -> str:
        """Return where a number may have outgrown the type, and the way out: Spark reports only the overflow."""
        if not str(getattr(error, "getCondition", str)() or "").startswith(_OUT_OF_RANGE):
            return ""
        summed = f"in the sum of {self.aggregate.summed} or " if self.aggregate.summed else ""
        return f", {summed}in an expression of the job; give it more digits, or filter such records out in the job"

    def _looked_at(self, problem: BadRecord | FunctionFailed) -> BadRecord | FunctionFailed:
        """Return a problem with a partition that has the problem alone, found by halving; reads the batch at most once more.

        A function that failed twice for a record will always fail for the record: the problem is a BadRecord.
        """
        roots = [root.name for root in self.aggregate.stream.roots if root.name in self.readers]
        plans = {root: self.readers[root].planned for root in roots}
        places = [(root, name) for root, plan in plans.items() if isinstance(plan, Ranges) for name in plan.partitions]
        kind: type[BadRecord | FunctionFailed] = BadRecord if isinstance(problem, BadRecord) else FunctionFailed
        met = {_record(problem)}
        while len(places) > 1:
            half = places[: len(places) // 2]
            failed = self._failure(kind, half)
            met.add(_record(failed))
            places = half if failed else places[len(half) :]
        last = self._failure(kind, places or None) if places or isinstance(problem, FunctionFailed) else None
        where = f" (in {places[0][1]})" if places and last else ""
        if (record := _record(last)) and record in met:
            return BadFunction(f"{last}{where}; tried again it failed again: {_WAYS}")
        return type(problem)(f"{problem}{where}")

    def _failure(self, kind: type[Met], places: Collection[Place] | None) -> Met | None:
        """Return a problem of the given kind in the records of some places, or of all; None if there is none."""
        try:
            self.partials(places).write.format("noop").mode("overwrite").save()
        except Exception as error:
            found = self._told(error)
            return found if isinstance(found, kind) else None
        return None

    def _told(self, error: Exception) -> TxbatchError:
        if bad := self._bad_value(error):
            return bad
        problem, part = in_our_words(error, show=self.show), failed_expression(error)
        of = dict.fromkeys(name for name, sql in self._expressions() if part and part in sql)
        return type(problem)(f"{' or '.join(of)}, {one_line(part)}: {problem}") if of else problem

    def _expressions(self) -> Iterator[tuple[str, str]]:
        """Yield the job's SQL expressions, each behind the expression's operation."""
        yield from expressions_of(self.aggregate.stream)
        removes = {"remove": self.aggregate.remove}
        conditions = {f"where of {name}": each.where for name, each in self.aggregate.aggregates.items()} | removes
        yield from ((name, where) for name, where in conditions.items() if isinstance(where, str))


def _late(frame: DataFrame, of: PersistentAggregate, watermarks: Mapping[int, Mapping[str, int]]) -> DataFrame:
    """Return the records of windows already ended by the watermarks in the plan of the record's batch."""
    ended = {txid: of.late_before(watermark) for txid, watermark in watermarks.items()}
    if of.window is None or None in ended.values():
        raise AssertionError(f"{of.state.name}: it is by no window")
    return frame.filter(f"unix_micros({spark_name(of.window.name)}) < {of_each_batch(frame, ended)}")


def _record(problem: TxbatchError | None) -> str:
    return problem.record if isinstance(problem, FunctionFailed) else ""


def _of(root: Source) -> str:
    """Return the SQL of a record's stream and partition, in one text: no stream's name has U+0000."""
    partition = PARTITION_COLUMN if isinstance(root.spout, PartitionedSpout) else "''"
    return f"concat({spark_text(root.name)}, char(0), {partition}) as {OF_FIELD.name}"


def _aggregated(frame: DataFrame, aggregate: PersistentAggregate) -> DataFrame:
    """Return a row per key. If keys may be removed, first make a row for removing records and a row for the rest."""
    from pyspark.sql import functions as F

    keys = [*carried(frame), *(spark_name(key.name) for key in aggregate.keys)]
    show = aggregate.stream.show_records
    frame, conditions = with_where(frame, aggregate.aggregates, show=show)
    if aggregate.remove is None:
        frame, where, owns = _with_own(frame, aggregate, conditions)
        return together(counted_first(frame, keys, aggregate.columns, aggregate.aggregates, where, owns), owns)
    marked = with_condition(frame, aggregate.remove, REMOVES, show=show)
    marked, where, owns = _with_own(marked, aggregate, conditions, REMOVES)
    apart = counted_first(marked, [*keys, REMOVES], aggregate.columns, aggregate.aggregates, where, owns)
    names = [spark_name(column.name) for column in aggregate.columns if column.partial.merge.in_sql]
    names += [own.column for own in owns]
    counted = [F.expr(f"any_value({name}) FILTER (WHERE NOT {REMOVES}) AS {name}") for name in names]
    marks = [F.expr(f"bool_or({REMOVES}) AS removed"), F.expr(f"bool_or(NOT {REMOVES}) AS counted")]
    by_key = apart.groupBy(*keys).agg(*counted, *marks, F.expr(f"sum({RECORDS_COLUMN}) AS {RECORDS_COLUMN}"))
    return together(by_key, owns, removable=True)


def _with_own(
    frame: DataFrame, aggregate: PersistentAggregate, where: Mapping[str, str], removes: str | None = None
) -> tuple[DataFrame, Mapping[str, str], list[Own]]:
    """Return the records beside the partials of users' own combiners, and the column of counting rows for each value."""
    names = {name: [each.name for each in aggregate.columns if each.value == name] for name in aggregate.aggregates}
    owns = own_values(aggregate.aggregates, where, names)
    if not owns:
        return frame, where, owns
    others = len(owns) < len(aggregate.aggregates)
    keys = [*(key.name for key in aggregate.keys), *([removes] if removes else [])]
    made = with_partials(frame, keys, owns, records=others, removes=removes)
    return made, {name: where.get(name, IS_RECORD) for name in aggregate.aggregates}, owns


def _checked(column: Field, number: int, *, key: bool) -> str:
    """Return the column, with an error for values PostgreSQL could not store: a null key, U+0000 or invalid UTF-8 in a
    string, a date or time of a year written differently by PostgreSQL or Arrow.
    """
    name, cases = spark_name(column.name), []
    element = array_of(column.type)
    if key:
        cases.append((f"{name} is null", _error(number, "is null")))
    if element is not None:
        found = [(f"exists({name}, x -> {bad})", error) for bad, error in _bad("x", element, number, "''")]
        cases += found
    else:
        cases += _bad(name, column.type, number, f"cast({name} as string)")
    return f"{_refused(cases, name)} as {name}" if cases else name


def _bad(value: str, type_: str, number: int, told: str) -> list[tuple[str, str]]:
    """Return the SQL of forbidden values of a type, with the errors; `told` is the SQL of a time's text."""
    if type_ == "string":
        return [
            (f"instr({value}, char(0)) > 0", _error(number, HOLDS_NUL)),
            (f"not is_valid_utf8({value})", _error(number, NO_UTF8)),
        ]
    if type_ not in TIME_RANGES:
        return []
    unit, first, last = TIME_RANGES[type_]
    outside = _error(number, f"lies outside the years 1 to {YEAR_MAX}", told)
    return [(f"{unit}({value}) not between {first} and {last}", outside)]


def _short_enough(checked: str, keys: Sequence[Field], number: int) -> str:
    """Return a key's column, with an error if all columns together are too long for an index."""
    name, most = spark_name(keys[number].name), key_bytes_max([key.type for key in keys])
    size = " + ".join(f"octet_length({spark_name(key.name)})" for key in keys if key.type in KEY_TEXTS)
    start = name if keys[number].type == "string" else f"hex(substring({name}, 1, {TOLD_CHARACTERS}))"
    told = _error(number, too_long(keys), start)
    value = checked.removesuffix(f" as {name}")
    return f"{_refused([(f'{size} > {most}', told)], value)} as {name}"


def _refused(cases: Sequence[tuple[str, str]], value: str) -> str:
    return f"case {' '.join(f'when {bad} then {error}' for bad, error in cases)} else {value} end"


def _error(number: int, reason: str, value: str = "''") -> str:
    """Return an expression that raises an error for `_BAD_VALUE` to find; `value` is the SQL of a text to be quoted in part."""
    start = f"hex(encode(left({value}, {TOLD_CHARACTERS}), 'utf-8'))"
    return f"raise_error(concat('txbatch bad value|{number}|{reason}|', {start}, '|'))"
