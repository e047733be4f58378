"""Quarantine: records for which functions fail are kept beside the states, up to a limit."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import refusals

from txbatch import AppendState, Count, FixedBatchSpout, OpaqueState, Stream, TerminalError, Topology, TransientError
from txbatch.core.errors import BadRecord, DefinitionError, QuarantineFull
from txbatch.core.topology.quarantine import DATA_CHARACTERS_MAX
from txbatch.memory.runner import run
from txbatch.testing import submit_topology

Failed = tuple[Any, ...]


def number(record: Any) -> int:
    return int(record["line"])


def lines(*records: str, quarantine: int | None = 9, size: int = 3, **options: Any) -> Stream:
    topology = Topology("lines", quarantine=quarantine, **options)
    return topology.new_stream("in", FixedBatchSpout("line string", size, *(records or ("1",))))


def counted(stream: Stream) -> tuple[dict[Any, int], list[Failed]]:
    """What a global count came to, and the rows of the quarantine."""
    stream.persistent_aggregate(OpaqueState("n"), n=Count())
    ledger = run(stream.topology)  # type: ignore[arg-type]
    rows = ledger.rows("lines_quarantine")
    failed = sorted(((batch, *row.value) for (batch, _, _), row in rows.items()), key=repr)
    return {row.value for row in ledger.rows("n").values()}, failed  # type: ignore[return-value]


def test_what_fails_is_kept_and_all_else_counts() -> None:
    counts, failed = counted(lines("1", "x", "2", "3", "\0", "y").each(number, "n bigint"))
    invalid = "ValueError: invalid literal for int() with base 10: "
    assert counts == {(3,)}
    assert failed == [
        (1, "in", None, "1. each number", f"{invalid}'x'", '{"line": "x"}'),
        (2, "in", None, "1. each number", f"{invalid}'\\x00'", '{"line": "\\u0000"}'),
        (2, "in", None, "1. each number", f"{invalid}'y'", '{"line": "y"}'),
    ]


@pytest.mark.parametrize(
    ("step", "operation"),
    [
        (lambda s: s.filter(number), "2. filter number"),
        (lambda s: s.map(lambda r: "x" if r["line"] == "x" else 1, "n bigint"), "2. map <lambda>"),
        (lambda s: s.map(lambda r: (1, 2) if r["line"] == "x" else 1, "n bigint"), "2. map <lambda>"),
        (lambda s: s.flat_map(lambda r: (int(each) for each in r["line"]), "n bigint"), "2. flat_map <lambda>"),
        (lambda s: s.peek(number), "2. peek number"),
    ],
    ids=["filter", "value that does not fit", "too many values", "flat_map", "peek"],
)
def test_each_operation_quarantines_and_says_which_it_was(step: Callable[[Stream], Stream], operation: str) -> None:
    counts, failed = counted(step(lines("1", "x", "2").project("line")))
    assert counts == {(2,)}
    assert [(row[3], row[-1]) for row in failed] == [(operation, '{"line": "x"}')]


def test_a_record_is_in_quarantine_once_for_each_operation_that_failed_and_not_for_each_state() -> None:
    stream = lines("1", "x", "2").each(lambda r: r["line"], "again string")
    one = stream.each(number, "n bigint")
    one.persist(AppendState("kept"))
    stream.map(lambda r: (int(r["again"]),), "m bigint").persist(AppendState("other"))
    _, failed = counted(one)
    assert [row[3] for row in failed] == ["2. each number", "2. map <lambda>"]


def test_the_limit_is_of_a_batch_and_the_error_shows_one() -> None:
    counts, failed = counted(lines("x", "y", "z", "u", quarantine=3).each(number, "n bigint"))
    assert (counts, len(failed)) == ({(0,)}, 4)
    stream = lines("x", "y", "z", quarantine=2).each(number, "n bigint")
    told = "lines 1:1: functions fail for more than 2 records of the batch, .*; one of them: 1. each number, ValueError: .*'x'"
    with pytest.raises(QuarantineFull, match=told):
        counted(stream)


def test_an_operation_can_fail_the_batch_all_the_same() -> None:
    with refusals.refused("TX307", "ValueError"):
        counted(lines("x").each(number, "n bigint", on_error="fail"))


def test_what_is_no_records_fault_fails_the_batch() -> None:
    def away(record: Any) -> bool:
        raise ConnectionError("away")

    with pytest.raises(ConnectionError):
        counted(lines("x").filter(away))


def test_a_long_record_is_cut_and_none_is_shown_where_that_is_said() -> None:
    _, failed = counted(lines("x" * 20_000).each(number, "n bigint"))
    assert len(failed[0][-1]) == DATA_CHARACTERS_MAX
    assert failed[0][-1].endswith("... (20,012 characters)")
    _, failed = counted(lines("x", show_records=False).each(number, "n bigint"))
    assert failed == [(1, "in", None, "1. each number", "ValueError", None)]


def test_a_restate_after_the_job_was_mended_takes_them_out_again() -> None:
    def topology(function: Callable[[Any], Any]) -> Topology:
        stream = lines("1", "x").each(function, "n bigint")
        stream.persistent_aggregate(OpaqueState("n"), n=Count())
        return stream.topology  # type: ignore[return-value]

    local = submit_topology(topology(number))
    local.run()
    assert [row["operation"] for row in local.rows("lines_quarantine")] == ["1. each number"]
    mended = local.submit_topology(topology(lambda r: 0 if r["line"] == "x" else int(r["line"])))
    assert mended.restate(1, why="mended") == (2,)
    assert (mended.rows("lines_quarantine"), mended.rows("n")) == ([], [{"n": 2}])


@pytest.mark.parametrize("error", [TerminalError, TransientError])
def test_what_a_job_says_is_no_records_fault_is_not_quarantined(error: type[Exception]) -> None:
    def refused(record: Any) -> int:
        raise error("the key is refused")

    with pytest.raises(error, match="the key is refused"):
        counted(lines("1").each(refused, "n bigint"))


class Wordless(Exception):
    def __str__(self) -> str:
        raise KeyError("name")

    __repr__ = __str__


WORDLESS = "Wordless (its text raises KeyError)"


def wordless(record: Any) -> Any:
    if record["line"] == "x":
        raise Wordless
    return Wordless() if record["line"] == "y" else number(record)


def test_an_exception_and_a_value_whose_text_raises_are_quarantined_as_others_are() -> None:
    counts, failed = counted(lines("1", "x", "y").each(wordless, "n bigint"))
    assert counts == {(1,)}
    misfit = f"a function returned {WORDLESS} for 'n', declared bigint: it is of the type Wordless"
    assert {each[4].partition(";")[0] for each in failed} == {f"Wordless: {WORDLESS}", f"BadResult: {misfit}"}


@pytest.mark.parametrize("line", ["x", "y"])
def test_without_a_quarantine_they_are_told(line: str) -> None:
    with pytest.raises(BadRecord, match=re.escape(WORDLESS)):
        counted(lines(line, quarantine=None).each(wordless, "n bigint"))


@pytest.mark.parametrize(
    ("define", "told"),
    [
        (lambda: lines(quarantine=0), "quarantine=0; say how many records of a batch may fail"),
        (lambda: lines().filter(number, on_error="drop"), "on_error='drop' is neither 'fail' nor 'quarantine'"),
        (lambda: lines(quarantine=None).filter(number, on_error="quarantine"), "the topology has none; say Topology"),
        (lambda: lines().filter("line > 1", on_error="quarantine"), "an expression of Spark SQL fails the whole batch"),
        (lambda: lines().persist(AppendState("lines_quarantine")), "lines_quarantine"),
        (lambda: Topology("x" * 40, quarantine=1), "quarantine"),
    ],
)
def test_what_cannot_be_is_refused(define: Callable[[], Any], told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        define()


def test_the_quarantine_is_the_last_state_of_all_streams() -> None:
    topology = Topology("two", quarantine=1)
    spout = FixedBatchSpout("line string", 1, "1")
    topology.new_stream("a", spout).persist(AppendState("kept"))
    topology.new_stream("b", spout).filter(number).persist(AppendState("more"))
    assert [each.state.name for each in topology.aggregates] == ["kept", "more", "two_quarantine"]
    assert [root.name for root in topology.aggregates[-1].stream.roots] == ["a", "b"]
    topology.new_stream("c", spout)
    assert [root.name for root in topology.aggregates[-1].stream.roots] == ["a", "b", "c"]
