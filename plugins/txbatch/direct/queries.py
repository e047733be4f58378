"""Answers questions: runs a query stream's operations in the calling process, over looked-up values (Trident's DRPC)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from txbatch.arrow import arrow_array
from txbatch.core.errors import BadFunction, BadRecord, InvalidKey, TxbatchError
from txbatch.core.records.comparing import key_of
from txbatch.core.records.declared import values_of
from txbatch.core.records.fields import Field
from txbatch.core.records.python_types import fitted
from txbatch.core.text import one_line, text_of
from txbatch.core.topology.look_up import How
from txbatch.core.topology.nodes import Aggregate, LiveLookup, Lookup, Step
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.topology.python_steps import Row, name_of, rows_of
from txbatch.core.topology.query_stream import QueryStream
from txbatch.direct.batch_operations import Record, aggregated
from txbatch.direct.functions import record_of
from txbatch.direct.look_up import by_key, looked_up
from txbatch.direct.operations import step_records

Key = tuple[Any, ...]
Of = TypeVar("Of")
Made = TypeVar("Made")
# Returns the values of each key of a state, None for one that is absent.
LookUp = Callable[[PersistentAggregate, Sequence[Key]], Sequence[Mapping[str, Any] | None]]
_SHOWN_MAX = 200


def answers(query: QueryStream, questions: Sequence[Any], look_up: LookUp) -> list[list[Record]]:
    """Return the answer to each question, a list of records. The keys of all questions are looked up in a state at once.

    A question is a value, or a tuple for several fields. TerminalError names the query and the question if a function fails,
    or if the question does not have the query's fields.
    """
    of = f"query {query.name!r} of topology {query.topology.name!r}"
    if isinstance(questions, str | bytes):
        raise InvalidKey(f"{of}: the questions are {questions!r}; give a list of them")
    asked = _records(of, query.asked, questions)
    batches = [[each] for each in asked]
    for step in query.steps:
        batches = [*_answered(_Told(of, query, step, asked), step, batches, look_up)]
    return batches


def _answered(told: _Told, step: Step, batches: Sequence[list[Record]], look_up: LookUp) -> Iterable[list[Record]]:
    """Return the records a step makes for each question."""
    match step:
        case LiveLookup():
            return _live(batches, step, look_up)
        case Lookup(query=static):
            found = by_key(static, show=told.query.shown)
            return ([*looked_up(records, static, found)] for records in batches)
        case Aggregate():
            values = step.values  # once for all questions
            return told.each(batches, lambda records: list(aggregated(records, step, values)))
        case _ if (rows_of_record := rows_of(step)) is not None:
            made = told.each(batches, lambda records: [row for each in records for row in rows_of_record(dict(each))])
            return ([record_of(row, step.fields) for row in rows] for rows in _checked(told, step, [*made]))
        case _:
            return told.each(batches, lambda records: list(step_records(records, step)))


def _checked(told: _Told, step: Step, made: list[list[Row]]) -> list[list[Row]]:
    """Return a function's rows for each question. Raise TerminalError if Spark would refuse a value for the value's field."""
    for number, field in enumerate(step.fields):
        try:
            arrow_array([row[number] for rows in made for row in rows], field)
        except Exception:  # it is told for which question
            deque(told.each(made, partial(_each_checked, number, field)), maxlen=0)
            raise
    return made


def _each_checked(number: int, field: Field, rows: list[Row]) -> list[Row]:
    for row in rows:
        arrow_array([row[number]], field)
    return rows


@dataclass(frozen=True, slots=True)
class _Told:
    """Makes the error of a step that fails for a question."""

    of: str
    query: QueryStream
    step: Step
    asked: Sequence[Record]

    def each(self, batches: Iterable[Of], make: Callable[[Of], Made]) -> Iterator[Made]:
        """Yield the result of `make` for the records of each question. TerminalError names the failed operation and the
        question.
        """
        for question, records in zip(self.asked, batches, strict=True):
            try:
                yield make(records)
            except Exception as error:
                called = f"{self.of}: {_called(self.step)} failed"
                if not self.query.shown:
                    raise BadFunction(f"{called}: {type(error).__name__}") from None
                told = error.text if isinstance(error, TxbatchError) else f"{type(error).__name__}: {text_of(error)}"
                raise BadFunction(f"{called} for {_shown(question)}: {told}") from error


def _live(batches: Sequence[list[Record]], step: LiveLookup, look_up: LookUp) -> Iterator[list[Record]]:
    names = [key.name for key in step.aggregate.keys]
    keys = [[key_of([record[name] for name in names]) for record in records] for records in batches]
    once = {
        key: record
        for same, records in zip(keys, batches, strict=True)
        for key, record in zip(same, records, strict=True)
    }
    once = {key: record for key, record in once.items() if None not in key}
    asked = [tuple(record[name] for name in names) for record in once.values()]
    found = dict(zip(once, look_up(step.aggregate, asked) if once else (), strict=True))
    for records, same in zip(batches, keys, strict=True):
        values = [found.get(key) for key in same]
        known = [each for each in zip(records, values, strict=True) if step.how is How.LEFT or each[1] is not None]
        yield [record | _values(step, value) for record, value in known]


def _values(step: LiveLookup, found: Mapping[str, Any] | None) -> Record:
    return {value.name: None if found is None else fitted(found[value.name], value.type) for value in step.values}


def _records(of: str, fields: Sequence[Field], questions: Sequence[Any]) -> list[Record]:
    """Return questions as records. Raise TerminalError if a question has the wrong fields, or a value of the wrong type."""
    names = [field.name for field in fields]
    rows = [values_of(tuple(each) if isinstance(each, list) else each, names) for each in questions]
    for row in rows:
        if len(row) != len(fields):
            takes = ", ".join(f"{field.name} {field.type}" for field in fields)
            raise InvalidKey(f"{of} takes {takes}; {one_line(repr(row), _SHOWN_MAX)} has {len(row)}")
    for number, field in enumerate(fields):
        _check_column(of, field, [row[number] for row in rows])
    try:
        return [record_of(row, fields) for row in rows]
    except OverflowError as error:
        raise InvalidKey(
            f"{of}: a time that is asked is outside the years 1 to 9999 in UTC; ask another one"
        ) from error


def _check_column(of: str, field: Field, values: Sequence[Any]) -> None:
    try:
        arrow_array(values, field, "asked is")
    except BadRecord as error:
        raise InvalidKey(f"{of}: {error.text}") from error


def _shown(question: Record) -> str:
    return one_line(", ".join(f"{name} {value!r}" for name, value in question.items()), _SHOWN_MAX)


def _called(step: Step) -> str:
    """Return an operation's name, with the function's name and place in the source."""
    operation = {"FlatMap": "flat_map", "FirstN": "first_n, min_by or max_by", "Windowed": "group_by"}.get(
        type(step).__name__
    )
    function = getattr(step, "function", getattr(step, "condition", None))
    named = [operation or type(step).__name__.lower()]
    if function is not None:
        named.append(name_of(function))
    if (code := getattr(function, "__code__", None)) is not None:
        named.append(f"(line {code.co_firstlineno} of {code.co_filename.rpartition('/')[2]})")
    return " ".join(named)
