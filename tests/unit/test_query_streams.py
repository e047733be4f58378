"""What a query stream refuses when it is defined: what needs Spark, what counts, and look-ups that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support import LogSpout

from txbatch import (
    AppendState,
    CollectSet,
    Count,
    Histogram,
    OpaqueState,
    StaticState,
    Sum,
    Topology,
)
from txbatch.core.errors import DefinitionError
from txbatch.core.topology.query_stream import QueryStream


def defined() -> tuple[Topology, QueryStream, Any]:
    topology, spout = Topology("words"), LogSpout({"a": 9})
    spout.fields = "word string, size int"
    stream = topology.new_stream("words", spout)
    counts = stream.group_by("word", "size").persistent_aggregate(
        OpaqueState("words"), count=Count(), sizes=Histogram("size", [1, 2]), some=CollectSet("word", 3)
    )
    return topology, topology.new_query_stream("words", "word string, size int"), counts


REFUSED: dict[str, tuple[Callable[[Topology, QueryStream, Any], object], str]] = {
    "filter": (lambda t, q, s: q.filter("size > 1"), "query stream 'words': filter 'size > 1' needs Spark"),
    "each": (lambda t, q, s: q.each(["size + 1"], "more int"), "each ['size + 1'] needs Spark"),
    "map": (lambda t, q, s: q.map("size + 1", "more int"), "map 'size + 1' needs Spark"),
    "flat_map": (
        lambda t, q, s: q.flat_map("split(word, ' ')", "more string"),
        "flat_map \"split(word, ' ')\" needs Spark",
    ),
    "transform": (lambda t, q, s: q.transform(lambda frame: frame), "query stream 'words': transform <function"),
    "where": (lambda t, q, s: q.aggregate(n=Sum("size", where="size > 1")), "where of n 'size > 1' needs Spark"),
    "where, grouped": (
        lambda t, q, s: q.group_by("word").aggregate(n=Count(where="size > 1")),
        "where of n 'size > 1' needs",
    ),
    "static": (
        lambda t, q, s: q.state_query(
            t.new_static_state(StaticState("x", lambda spark: spark, "word string, a int")), "word"
        ),
        "query stream 'words': state_query: static state 'x' is read by Spark",
    ),
    "partition_aggregate": (lambda t, q, s: q.partition_aggregate(n=Count()), "comes behind a question"),
    "persist": (
        lambda t, q, s: q.persist(AppendState("kept")),
        "state 'kept': query stream 'words' has questions, which are no",
    ),
    "persistent_aggregate": (
        lambda t, q, s: q.persistent_aggregate(OpaqueState("n"), n=Count()),
        "state 'n': query stream 'words' has questions",
    ),
    "persistent_aggregate, grouped": (
        lambda t, q, s: q.group_by("word").persistent_aggregate(OpaqueState("n"), n=Count()),
        "state 'n': query stream 'words' has questions",
    ),
    "merge": (lambda t, q, s: t.merge(q, t.streams["words"], name="m"), "stream 'm': merge: 'words' is a query stream"),
    "join": (
        lambda t, q, s: t.join(t.streams["words"], q, on="word", name="j"),
        "stream 'j': join: 'words' is a query stream",
    ),
    "twice": (lambda t, q, s: t.new_query_stream("words", "a int"), "query stream 'words' is given twice"),
    "name": (lambda t, q, s: t.new_query_stream("", "a int"), "query stream '' is not a name"),
    "spout": (lambda t, q, s: q.spout, "stream 'words' has questions, and no spout"),
    "how": (lambda t, q, s: q.state_query(s, "word", "size", how="full"), "how='full' is neither"),
    "no keys": (
        lambda t, q, s: q.state_query(s),
        "state 'words' has the key word string, size int; name these fields, not none",
    ),
    "a key too few": (lambda t, q, s: q.state_query(s, "word"), "name these fields, not word"),
    "a key twice": (lambda t, q, s: q.state_query(s, "word", "word"), "key 'word' is given twice"),
    "a key of another type": (
        lambda t, q, s: q.map(lambda r: r, "word string, size bigint").state_query(s, "word", "size"),
        "key 'size' is a int there and a bigint here; convert it by map",
    ),
    "a key that is not there": (
        lambda t, q, s: q.project("word").state_query(s, "word", "size"),
        "has no field 'size' here",
    ),
    "an unknown value": (
        lambda t, q, s: q.state_query(s, "word", "size", fields=["x"]),
        "has no value 'x'; it has count, sizes",
    ),
    "a value that is no field": (
        lambda t, q, s: q.state_query(s, "word", "size"),
        "value 'sizes' is a Histogram, which no field",
    ),
    "a value that is there": (
        lambda t, q, s: q.each(len, "count int").state_query(s, "word", "size", fields="count"),
        "field 'count' is given twice",
    ),
    "another topology's": (
        lambda t, q, s: q.state_query(defined()[2], "word", "size"),
        "state 'words' is not of this topology",
    ),
    "a stream of batches": (
        lambda t, q, s: t.streams["words"].state_query(s, "word", "size"),
        "stream 'words': state_query: state 'words' changes with every batch",
    ),
    "a key of a global value": (
        lambda t, q, s: q.state_query(t.streams["words"].persistent_aggregate(OpaqueState("all"), n=Count()), "word"),
        "state 'all' is one global value and has no key; look it up without word",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_when_it_is_defined(name: str) -> None:
    define, told = REFUSED[name]
    topology, asked, state = defined()
    with pytest.raises(DefinitionError) as error:
        define(topology, asked, state)
    assert told in str(error.value)
    assert topology.query_stream("words").asked == asked.asked


def test_the_answer_is_what_the_last_operation_makes() -> None:
    topology, asked, state = defined()
    first = asked.filter(lambda r: True)
    assert topology.query_stream("words") is first
    looked_up = first.state_query(state, "size", "word", fields=["count"])
    assert [field.name for field in looked_up.fields] == ["word", "size", "count"]
    assert [type(step).__name__ for step in topology.query_stream("words").steps] == ["Filter", "LiveLookup"]
    assert [field.name for field in topology.query_stream("words").asked] == ["word", "size"]
