"""Operations within a batch, in memory: golden cases, several results per record, what is refused, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from operation_cases import PATHS, SPARK_ONLY, OperationCase
from refusals import refused
from support import ListSpout

from txbatch import Count, FixedBatchSpout, Max, OpaqueState, Stream, Sum, Topology, TransactionalState
from txbatch.core.definition.changes import column_changes
from txbatch.core.definition.stored import columns
from txbatch.core.errors import DefinitionError
from txbatch.core.topology.guarantee import guarantees
from txbatch.core.topology.walks import one_for_one, per_batch
from txbatch.direct.operations import records
from txbatch.memory.runner import run

Change = Callable[[Stream], Any]


def stream_of(*given: Any, fields: str = "word string, n bigint", size: int = 3) -> Stream:
    return Topology("t").new_stream("in", FixedBatchSpout(fields, size, *(given or [("a", 1)])))


def out(stream: Stream) -> list[dict[str, Any]]:
    """All records of a FixedBatchSpout's stream, after its operations."""
    names = [field.name for field in stream.roots[0].fields]
    return list(
        records(stream.node, {"in": {"": [dict(zip(names, each, strict=True)) for each in stream.spout.records]}})
    )


@pytest.mark.parametrize("path", sorted({*PATHS} - {*SPARK_ONLY}), ids=lambda path: path.stem)
def test_golden(path: Path) -> None:
    case = OperationCase.load(path)
    if case.code:
        with refused(case.code, *case.names):
            case.in_memory()
        return
    assert case.in_memory() == case.expect


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


class Spread(Max):
    """Of values that are finished otherwise than they are kept."""

    def finish(self, partial: Any) -> Any:
        return [partial]


def joined(stream: Stream, on: Any = "word", how: str = "inner", fields: str = "word string, n string") -> Stream:
    other = stream.topology.new_stream("more", FixedBatchSpout(fields, 1, ("a", None)))
    return stream.topology.join(stream, other, on=on, how=how, name="both")


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
    "aggregate of nothing": (
        lambda s: s.aggregate(),
        "aggregate: no aggregate is given; add at least one",
    ),
    "aggregate by no aggregator": (
        lambda s: s.aggregate(n=3),
        "aggregate n is 3; give an aggregator, such as n=Count()",
    ),
    "aggregate what is not there": (lambda s: s.aggregate(n=Max("x")), "no field 'x' here; it has word, n"),
    "sum of text": (lambda s: s.aggregate(n=Sum("word")), "Sum of 'word', a string, is not exact: sum a number"),
    "value named as a key": (lambda s: s.group_by("word").aggregate(word=Count()), "field 'word' is given twice"),
    "value of a state's life": (
        lambda s: s.aggregate(n=Count(since="now")),
        "aggregate n: was and since belong to values of a state; remove was and since from a value of one batch",
    ),
    "value that is no field": (lambda s: s.aggregate(n=Spread("n")), "Spread cannot be finished within a batch"),
    "partitions behind distinct": (
        lambda s: s.distinct().filter("n > 1").partition_aggregate(n=Count()),
        "partition_aggregate comes behind distinct, where nobody knows the spout's partition any more; put it before",
    ),
    "partitions behind Spark's code": (
        lambda s: s.transform(lambda frame: frame).partition_aggregate(n=Count()),
        "partition_aggregate comes behind transform,",
    ),
    "partitions behind first_n": (lambda s: s.min_by("n").partition_aggregate(n=Count()), "first_n, min_by or max_by,"),
    "partitions behind a join": (
        lambda s: joined(s.project("word")).partition_aggregate(n=Count()),
        "comes behind join,",
    ),
    "join on other types": (
        lambda s: joined(s, on="n"),
        "stream 'both': join on 'n', a bigint of 'in' and a string of 'more'; cast one of them",
    ),
    "join on what one side lacks": (
        lambda s: joined(s, on=["word", "x"]),
        "stream 'in' has no field 'x' here; it has word, n",
    ),
    "join on what the other side lacks": (
        lambda s: joined(s.each("n", "x bigint"), on=["word", "x"]),
        "stream 'more' has no field 'x' here; it has word, n",
    ),
    "join with a name in common": (
        lambda s: joined(s, on="word", fields="word string, N bigint"),
        "'in' and 'more' both have 'N'; rename one by map, or leave it out by project",
    ),
    "join on nothing": (lambda s: joined(s, on=[]), "join: on is empty; name the fields that are equal in both"),
    "join on one thing twice": (lambda s: joined(s, on=["word", "word"]), "key 'word' is given twice"),
    "join some other way": (lambda s: joined(s, how="cross"), "how is 'cross'; it is one of inner, left, right, full"),
    "join with another topology": (
        lambda s: s.topology.join(s, Topology("u").new_stream("x", s.spout), on="word", name="both"),
        "'x' is of another topology; join streams of one",
    ),
    "join named as a stream": (
        lambda s: s.topology.join(s, s.project("word"), on="word", name="in"),
        "stream 'in' is given twice",
    ),
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
    assert guarantees(best)[0]["counts"] == "per interval: max_by word of each word"
    assert "batch" not in columns(plain.aggregates[0])
    stored, defined = (columns(made.aggregates[0]) for made in (plain, top))
    assert list(column_changes("s", stored, defined)) == [
        "state 's' changes from counting all records together to counting per batch: distinct; first 3 by word descending"
    ]
    assert list(column_changes("s", defined, defined)) == []


def test_a_state_behind_operations_per_batch_counts_each_batch_alone() -> None:
    words = stream_of(("a", 1), ("a", 1), ("b", 1), ("a", 1), ("b", 5), ("b", 5), size=3)
    words.distinct().group_by("word").persistent_aggregate(OpaqueState("s"), batches=Count(), best=Max("n"))
    assert {key: row.value for (key,), row in run(words.topology).rows("s").items()} == {"a": (2, 1), "b": (2, 5)}
    assert per_batch(words.topology.aggregates[0].stream) == ("distinct",)


def test_streams_that_are_joined_in_the_batches_that_both_have() -> None:
    """The shorter stream has nothing in the third batch: an empty side. Each state counts what one batch made."""
    topology = Topology("t")
    orders = topology.new_stream(
        "orders", FixedBatchSpout("id bigint, shop string", 2, *((n, "ab"[n % 2]) for n in range(6)))
    )
    paid = topology.new_stream("paid", FixedBatchSpout("id bigint, price bigint", 2, (0, 5), (1, 7), (2, 5), (9, 9)))
    both = topology.join(orders, paid, on="id", how="full", name="both")
    assert [field.name for field in both.fields] == ["id", "shop", "price"]
    assert [root.name for root in both.roots] == ["orders", "paid"]
    with pytest.raises(DefinitionError, match="'both' is joined and has several spouts"):
        _ = both.spout
    shops = (
        both.filter(lambda record: record["shop"] is not None)
        .group_by("shop")
        .aggregate(n=Count(where=lambda record: True), price=Sum("price"), none=Count(where=lambda record: False))
    )
    shops.group_by("shop").persistent_aggregate(
        TransactionalState("shops"), batches=Count(), most=Max("price"), none=Sum("none")
    )
    both.aggregate(n=Count()).persistent_aggregate(OpaqueState("sizes"), records=Sum("n"), largest=Max("n"))
    paid.aggregate(n=Count()).group_by("n").persistent_aggregate(OpaqueState("paid"), batches=Count())
    ledger = run(topology)
    assert ledger.rows("shops")["a",].value == (3, 5, 0)
    assert ledger.rows("sizes")[()].value == (7, 3)
    assert {key: row.value for (key,), row in ledger.rows("paid").items()} == {2: (2,), 0: (1,)}
    assert guarantees(topology)[1]["counts"] == "per batch: full join of orders and paid on id; aggregate n Count"


def test_records_that_remove_their_key_behind_a_join() -> None:
    topology = Topology("t")
    stock = topology.new_stream(
        "stock", FixedBatchSpout("item string, n bigint", 2, ("nut", 1), ("bolt", 2), ("nut", 3))
    )
    gone = topology.new_stream("gone", FixedBatchSpout("item string, gone boolean", 1, ("bolt", True), ("nut", False)))
    both = topology.join(stock, gone, on="item", how="left", name="both")
    both.group_by("item").persistent_aggregate(OpaqueState("s"), remove=lambda record: record["gone"], n=Sum("n"))
    assert {key: row.value for (key,), row in run(topology).rows("s").items()} == {"nut": (4,)}
