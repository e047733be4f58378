"""A Python function that fails for a record: when no retry helps, and what is told of the record."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from txbatch import CombinerAggregator, Count, FileSpout, OpaqueState, Topology
from txbatch.core.errors import BadRecord, FunctionFailed, TransientError
from txbatch.core.topology.stream import Stream

Emit = Callable[..., Any]
SECRET = "Ada Lovelace"


def topology(root: Path, step: Callable[[Stream], Stream], **options: Any) -> Topology:
    for n in range(4):
        (root / f"{n}.txt").write_text(f"{SECRET}\n" if n == 2 else f"{n}\n")
    made = Topology("t", **options)
    counted = step(made.new_stream("in", FileSpout(root, "*.txt"))).group_by("line")
    counted.persistent_aggregate(OpaqueState("s"), records=Count())
    return made


def fails(record: Any) -> bool:
    return int(record["line"]) >= 0


def test_what_fails_twice_for_one_record_is_terminal(emit: Emit, tmp_path: Path) -> None:
    with pytest.raises(BadRecord) as raised:
        emit(topology(tmp_path, lambda s: s.filter(fails)))
    line = fails.__code__.co_firstlineno + 1
    assert str(raised.value) == (
        "TX307 (no retry helps): t 1:1, stream 'in', state 's': 1. filter fails raised ValueError: "
        "invalid literal for int() with base 10: "
        f"'{SECRET}' (test_failing_functions.py, line {line}, in fails), for the record {{'line': '{SECRET}'}} (in 2.txt); "
        "tried again it failed again: mend the source or the function, or abort the batch"
    )


class Longest(CombinerAggregator):
    """One of a user's own, which fails for what is no number."""

    partial = "longest bigint"

    def init(self, value: Any) -> Any:
        return (int(value),)

    def combine(self, left: Any, right: Any) -> Any:
        return max(left, right)


@pytest.mark.parametrize(
    ("values", "remove", "told"),
    [
        ({"records": Count(where=fails)}, None, "where fails raised"),
        ({"records": Count()}, fails, "remove fails raised"),
        ({"longest": Longest("line")}, None, "value 'longest': Longest raised"),
    ],
    ids=["where", "remove", "combiner"],
)
def test_what_a_state_asks_of_a_function_is_named(
    emit: Emit, tmp_path: Path, values: dict[str, Any], remove: Any, told: str
) -> None:
    made = topology(tmp_path, lambda s: s)
    made.streams["in"].group_by("line").persistent_aggregate(OpaqueState("asked"), remove=remove, **values)
    with pytest.raises(BadRecord, match=rf"state 'asked': {told} ValueError: .*: '{SECRET}'\}} \(in 2.txt\)"):
        emit(made)


def test_what_fails_once_is_tried_again(emit: Emit, tmp_path: Path) -> None:
    mark = tmp_path / "seen"

    def once(record: Any) -> bool:
        if record["line"] == SECRET and not mark.exists():
            mark.touch()
            raise ValueError("not yet")
        return True

    with pytest.raises(FunctionFailed, match=f"ValueError: not yet .* for the record {{'line': '{SECRET}'}}$"):
        emit(topology(tmp_path, lambda s: s.filter(once)))


def test_a_disk_or_a_network_that_fails_is_no_records_fault(emit: Emit, tmp_path: Path) -> None:
    def asks(record: Any) -> bool:
        raise ConnectionError("no answer")

    with pytest.raises(TransientError, match=r"1\. filter asks raised ConnectionError: no answer"):
        emit(topology(tmp_path, lambda s: s.filter(asks)))


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (lambda s: s.filter(fails), "1. filter fails raised ValueError (test_failing_functions.py, line "),
        (
            lambda s: s.map(lambda r: r["line"], "line int"),
            "1. map <lambda>: a function returned a str that does not fit 'line', declared int",
        ),
        (
            lambda s: s.map(lambda r: (r["line"], 1), "line string"),
            "1. map <lambda>: a function returned a value that does not fit",
        ),
        (
            lambda s: s.map("cast(cast(line as int) as string)", "line string"),
            "1. map, cast(line as int): CAST_INVALID_INPUT in an expression",
        ),
        (lambda s: s.map("concat(line, char(0))", "line string"), "key 'line' holds U+0000"),
    ],
    ids=["function", "value", "values", "expression", "key"],
)
def test_no_record_is_shown_where_that_is_said(
    emit: Emit, tmp_path: Path, capfd: pytest.CaptureFixture[str], step: Callable[[Stream], Stream], told: str
) -> None:
    with pytest.raises(BadRecord) as raised:
        emit(topology(tmp_path, step, show_records=False))
    assert told in str(raised.value)
    assert "Lovelace" not in str(raised.value)
    assert "(in " in str(raised.value)
    assert "Lovelace" not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (lambda s: s.filter("cast(line as int) > 0"), "2. filter, cast(line as int): The value"),
        (
            lambda s: s.filter("1 / (1 - n) > 0 or true").filter("1 / (1 - n) > 0"),
            "2. filter or 3. filter, 1 / (1 - n): Division by zero",
        ),
    ],
    ids=["one operation", "two that have it"],
)
def test_an_expression_that_fails_is_named(
    emit: Emit, tmp_path: Path, step: Callable[[Stream], Stream], told: str
) -> None:
    def with_number(stream: Stream) -> Stream:
        return step(stream.each("1", "n int"))

    with pytest.raises(BadRecord, match=rf"state 's': {re.escape(told)}.* \(in "):
        emit(topology(tmp_path, with_number))


def test_a_condition_that_fails_is_named_by_its_value(emit: Emit, tmp_path: Path) -> None:
    (tmp_path / "1.txt").write_text("a\n")
    made = Topology("t")
    counted = made.new_stream("in", FileSpout(tmp_path, "*.txt")).group_by("line")
    counted.persistent_aggregate(OpaqueState("s"), records=Count(), some=Count(where="cast(line as int) > 0"))
    with pytest.raises(BadRecord, match=r"state 's': where of some, cast\(line as int\): The value 'a' .* \(in 1.txt"):
        emit(made)
