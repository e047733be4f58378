"""Operations within a batch, in memory: golden cases, several results per record, what is refused, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from operation_cases import PATHS, OperationCase, in_memory
from support import ListSpout

from txbatch import Count, FixedBatchSpout, Max, OpaqueState, Stream, Topology
from txbatch.core.definition import column_changes, columns
from txbatch.core.errors import DefinitionError
from txbatch.core.guarantee import guarantees
from txbatch.core.operations import one_for_one, per_batch
from txbatch.memory.operations import records
from txbatch.memory.runner import run

Change = Callable[[Stream], Any]


def stream_of(*given: Any, fields: str = "word string, n bigint", size: int = 3) -> Stream:
    return Topology("t").new_stream("in", FixedBatchSpout(fields, size, *(given or [("a", 1)])))


def out(stream: Stream) -> list[dict[str, Any]]:
    """All records of a FixedBatchSpout's stream, after its operations."""
    names = [field.name for field in stream.roots[0].fields]
    return list(records(stream.node, {"in": [dict(zip(names, each, strict=True)) for each in stream.spout.records]}))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_golden(path: Path) -> None:
    case = OperationCase.load(path)
    assert in_memory(case.stream, case.read) == case.expect


def test_a_function_of_each_may_return_a_list_of_results() -> None:
    lines = stream_of(("a b", 1), ("", 2), ("c", 3), fields="line string, n bigint")
    words = lines.each(lambda record: record["line"].split(), "word string")
    assert [(each["line"], each["n"], each["word"]) for each in out(words)] == [
        ("a b", 1, "a"),
        ("a b", 1, "b"),
        ("c", 3, "c"),
    ]
    several = lines.each(lambda record: [(word, len(word)) for word in record["line"].split()], "w string, size int")
    assert [tuple(each.values())[2:] for each in out(several)] == [("a", 1), ("b", 1), ("c", 1)]
    assert one_for_one(words.node) is None
    assert one_for_one(lines.each("n + 1", "more bigint").node) == lines.roots


def test_peek_shows_each_record_and_changes_none() -> None:
    seen: list[str] = []

    def look(record: dict[str, Any]) -> None:
        seen.append(record.pop("word"))

    peeked = stream_of(("a", 1), ("b", 2)).peek(look).repartition(2)
    assert [each["word"] for each in out(peeked)] == seen == ["a", "b"]
    assert one_for_one(peeked.node) == peeked.roots


def test_transform_keeps_its_fields_unless_told() -> None:
    stream = stream_of()
    assert stream.transform(lambda frame: frame).fields == stream.fields
    assert [field.name for field in stream.transform(lambda frame: frame, "x int").fields] == ["x"]


REFUSED: dict[str, tuple[Change, str]] = {
    "first_n of none": (lambda s: s.first_n(0, "n"), "stream 'in': first_n 0: give a whole number, at least 1"),
    "first_n of true": (lambda s: s.first_n(True, "n"), "first_n True: give a whole number"),
    "first_n of text": (lambda s: s.first_n("2", "n"), "first_n '2': give a whole number"),
    "first_n by what is not there": (lambda s: s.first_n(1, "x"), "no field 'x' here; it has word, n"),
    "min_by what is not there": (lambda s: s.min_by("x"), "no field 'x' here"),
    "max_by in groups": (lambda s: s.group_by("word").max_by("x"), "no field 'x' here"),
    "repartition to none": (lambda s: s.repartition(-1), "repartition -1: give a whole number, at least 1"),
    "repartition by what is not there": (lambda s: s.repartition(2, "x"), "no field 'x' here"),
    "peek by SQL": (lambda s: s.peek("print(n)"), "peek 'print(n)' is no function; give one of a record"),
    "peek by a function of two": (lambda s: s.peek(lambda a, b: None), "is called with one argument; let it take one"),
    "transform by SQL": (lambda s: s.transform("n"), "transform 'n' is no function; give one of a DataFrame"),
}


@pytest.mark.parametrize(("change", "says"), REFUSED.values(), ids=REFUSED)
def test_refused_when_defined(change: Change, says: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        change(stream_of())
    assert says in str(refused.value)


def test_a_topology_says_what_it_counts_per_batch_and_a_change_of_it_is_told() -> None:
    def topology(by_interval: bool, change: Change) -> Topology:
        spout = ListSpout()
        spout.by_interval = by_interval
        made = Topology("t")
        change(made.new_stream("in", spout)).group_by("word").persistent_aggregate(OpaqueState("s"), n=Count())
        return made

    plain = topology(False, lambda stream: stream.filter(bool))
    top = topology(False, lambda stream: stream.distinct().filter(bool).first_n(3, "word", descending=True))
    best = topology(True, lambda stream: stream.group_by("word").max_by("word"))
    assert [made.per_batch for made in (plain, top, best)] == [False, True, True]
    assert guarantees(plain)[0]["counts"] is None
    assert guarantees(top)[0]["counts"] == "per batch: distinct; first 3 by word descending"
    assert guarantees(best)[0]["counts"] == "per interval: first 1 by word descending that is known of each word"
    assert "batch" not in columns(plain.aggregates[0])
    stored, defined = (columns(made.aggregates[0]) for made in (plain, top))
    assert list(column_changes("s", stored, defined)) == [
        "state 's' counts per batch: distinct; first 3 by word descending now, counted all records together"
    ]
    assert list(column_changes("s", defined, defined)) == []


def test_a_state_behind_operations_per_batch_counts_each_batch_alone() -> None:
    words = stream_of(("a", 1), ("a", 1), ("b", 1), ("a", 1), ("b", 5), ("b", 5), size=3)
    words.distinct().group_by("word").persistent_aggregate(OpaqueState("s"), batches=Count(), best=Max("n"))
    assert {key: row.value for (key,), row in run(words.topology).rows("s").items()} == {"a": (2, 1), "b": (2, 5)}
    assert per_batch(words.topology.aggregates[0].stream) == ("distinct",)
