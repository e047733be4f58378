"""Definitions: what is accepted, and what each refusal says (R2, R11)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

import pytest
from refusals import refused
from support import ListSpout, LogSpout, word_count

from txbatch import (
    Avg,
    Count,
    FixedBatchSpout,
    Max,
    NonTransactionalState,
    OpaqueState,
    SpoutKind,
    Sum,
    Topology,
    TransactionalState,
)
from txbatch.core.definition.changes import column_changes
from txbatch.core.definition.stored import columns
from txbatch.core.errors import DefinitionError, NotExactlyOnce
from txbatch.core.topology.nodes import Each, Filter, FlatMap

STATES = {"transactional": TransactionalState, "opaque": OpaqueState, "non_transactional": NonTransactionalState}
EXACTLY_ONCE = {("transactional", "transactional"), ("transactional", "opaque"), ("opaque", "opaque")}


def stream(fields: str = "word string, n bigint", **options: Any) -> Any:
    spout = LogSpout({"a": 1}, **options)
    spout.fields = fields
    return Topology("t").new_stream("words", spout)


@pytest.mark.parametrize("state", sorted(STATES))
@pytest.mark.parametrize("spout", sorted(SpoutKind))
def test_the_guarantee_matrix(spout: SpoutKind, state: str) -> None:
    grouped = stream(kind=spout).group_by("word")
    if (spout, state) in EXACTLY_ONCE:
        assert grouped.persistent_aggregate(STATES[state]("s"), count=Count()).guarantee == "exactly_once"
        return
    says = (
        rf"^TX109 \(no retry helps\): state 's': an? {spout} spout with {state} state is not exactly-once; "
        'choose another state, or say guarantee="at_least_once"$'
    )
    with pytest.raises(NotExactlyOnce, match=says):
        grouped.persistent_aggregate(STATES[state]("s"), count=Count())
    assert grouped.stream.topology.aggregates == []
    assert grouped.persistent_aggregate(STATES[state]("s"), guarantee="at_least_once", count=Count())


def test_a_guarantee_of_ones_own() -> None:
    with refused("TX105", "'maybe'", "'exactly_once'", "'at_least_once'"):
        stream().group_by("word").persistent_aggregate(OpaqueState("s"), guarantee="maybe", count=Count())


@pytest.mark.parametrize(
    "name",
    [
        "a b",
        "ü",
        "a/b",
        "a%b",
        "",
        "x" * 64,
        ".",
        "..",
        "....",
        "-",
        "--conf",
        "a\n",
        "a\0",
        "\ud800",
        None,
        7,
        b"a",
        ["a"],
    ],
)
def test_names_that_are_no_topologys(name: Any) -> None:
    with refused("TX101", "topology"):
        Topology(name)


@pytest.mark.parametrize("name", ["A-z_0.9", ".hidden", "_x", "a..b", "1"])
def test_names_of_topologies(name: str) -> None:
    assert Topology(name).name == name


@pytest.mark.parametrize("fields", [None, 7, b"a int", ""])
def test_fields_that_are_none(fields: Any) -> None:
    with pytest.raises(DefinitionError, match="fields"):
        stream(fields)


def aggregate(*keys: str, state: Any = None, fields: str = "word string, n bigint", **values: Any) -> Any:
    return stream(fields).group_by(*(keys or ("word",))).persistent_aggregate(state or OpaqueState("s"), **values)


LONG = "x" * 59
REFUSED: list[tuple[str, Any, tuple[str, ...]]] = [
    ("unknown key", lambda: stream().group_by("wrod"), ("TX103", "'words'", "'wrod'")),
    ("no key", lambda: stream().group_by(), ("TX106", "'words'", "group_by")),
    ("key twice", lambda: stream().group_by("word", "word"), ("TX102", "key", "'word'", "twice")),
    ("project nothing", lambda: stream().project(), ("TX106", "'words'")),
    ("filter by nothing", lambda: stream().filter(None), ("TX110", "'words'", "SQL")),
    ("filter by a number", lambda: stream().filter(5), ("TX110", "'words'", "5")),
    ("filter by a blank", lambda: stream().filter(" "), ("TX110", "' '")),
    (
        "filter by a function of two",
        lambda: stream().filter(lambda record, other: True),
        ("TX110", "'words'", "lambda"),
    ),
    ("filter by a function of none", lambda: stream().filter(lambda: True), ("TX110", "lambda")),
    ("map by a number", lambda: stream().map(5, "a int"), ("TX110", "'words'", "5", "function", "SQL")),
    ("each by numbers", lambda: stream().each([1], "a int"), ("TX110", "1", "function")),
    (
        "two expressions for one field",
        lambda: stream().each(["n", "n"], "a int"),
        ("TX105", "'words'", "2", "1"),
    ),
    (
        "one expression for two fields",
        lambda: stream().map("n", "a int, b int"),
        ("TX105", "1", "2"),
    ),
    (
        "two arrays",
        lambda: stream().flat_map(["n", "n"], "a int, b int"),
        ("TX105", "flat_map", "2"),
    ),
    (
        "transform by SQL",
        lambda: stream().transform("n", "a int"),
        ("TX110", "'n'", "function", "DataFrame"),
    ),
    (
        "transform by two",
        lambda: stream().transform(lambda a, b: a, "a int"),
        ("TX110", "lambda"),
    ),
    ("remove by a function of two", lambda: aggregate(remove=lambda a, b: a, n=Count()), ("TX110", "'s'", "lambda")),
    ("unknown input", lambda: aggregate(total=Sum("m")), ("TX103", "'m'")),
    ("unknown after map", lambda: stream().map("n", "m bigint").project("word"), ("TX103", "'word'")),
    ("no aggregate", lambda: aggregate(), ("TX106", "'s'", "count=Count()")),
    (
        "not an aggregator",
        lambda: aggregate(count=Count),
        ("TX105", "'s'", "count=Count()"),
    ),
    (
        "remove is no aggregate",
        lambda: aggregate(remove=Count(), n=Count()),
        ("TX110", "'s'"),
    ),
    (
        "key is a mark",
        lambda: aggregate("counted", fields="counted string", remove="true", n=Count()),
        ("TX102", "'counted'"),
    ),
    ("value is a mark", lambda: aggregate(remove="true", removed=Count()), ("TX102", "column", "'removed'", "twice")),
    ("sum of strings", lambda: aggregate(total=Sum("word")), ("TX104", "Sum", "'word'")),
    ("field twice", lambda: stream().each("n", "word string"), ("TX102", "'word'", "twice")),
    (
        "fields that differ in case",
        lambda: stream().each("n", "Word string"),
        ("TX102", "'Word'", "'word'", "Spark"),
    ),
    (
        "key and value that differ in case",
        lambda: aggregate(Word=Count()),
        ("TX102", "column", "'Word'", "'word'"),
    ),
    ("bad type", lambda: stream().map("n", "m number"), ("TX104", "'number'")),
    ("key is value", lambda: aggregate("n", n=Count()), ("TX102", "column", "'n'", "twice")),
    ("value is previous value", lambda: aggregate(a=Count(), prev_a=Count()), ("TX102", "column", "'prev_a'", "twice")),
    (
        "key is previous value",
        lambda: aggregate("prev_a", fields="prev_a string", a=Count()),
        ("TX102", "column", "'prev_a'", "twice"),
    ),
    ("average's columns", lambda: aggregate(a=Avg("n"), a_sum=Count()), ("TX102", "column", "'a_sum'", "twice")),
    ("average is key", lambda: aggregate("n", n=Avg("n")), ("TX102", "column", "'n'", "twice")),
    (
        "key called txid",
        lambda: aggregate("txid", fields="txid string", a=Count()),
        ("TX102", "column", "'txid'", "'s'"),
    ),
    ("value called position", lambda: aggregate(position=Count()), ("TX102", "column", "'position'", "'s'")),
    ("value called txid", lambda: aggregate(txid=Count()), ("TX102", "column", "'txid'", "'s'")),
    ("value called prev_txid", lambda: aggregate(prev_txid=Count()), ("TX102", "column", "'prev_txid'", "'s'")),
    (
        "key called xmin",
        lambda: aggregate("xmin", fields="xmin string", a=Count()),
        ("TX102", "column", "'xmin'", "'s'"),
    ),
    ("value called ctid", lambda: aggregate(ctid=Count()), ("TX102", "column", "'ctid'", "'s'")),
    ("value called tableoid", lambda: aggregate(tableoid=Avg("n")), ("TX102", "column", "'tableoid'", "'s'")),
    ("value too long", lambda: aggregate(**{"x" * 64: Count()}), ("TX101", "64", "PostgreSQL")),
    ("previous value too long", lambda: aggregate(**{LONG: Count()}), ("TX101", f"'prev_{LONG}'", "64")),
    (
        "average too long",
        lambda: aggregate(state=TransactionalState("s"), **{LONG: Avg("n")}),
        ("TX101", f"'{LONG}_count'", "65"),
    ),
    ("key too long", lambda: aggregate("k" * 64, fields="k" * 64 + " string", a=Count()), ("TX101", "key", "64")),
    ("state too long", lambda: OpaqueState("s" * 44), ("TX101", "44", "43")),
    ("state empty", lambda: OpaqueState(""), ("TX101", "''")),
    ("stream twice", lambda: stream().topology.new_stream("words", ListSpout(1)), ("TX102", "'words'", "twice")),
    (
        "no state at all",
        lambda: stream().topology.check(),
        ("TX106", "'t'", "persistent_aggregate"),
    ),
    ("max_pending", lambda: Topology("t", max_pending=0), ("TX105", "'t'", "max_pending", "1")),
    ("no records", lambda: FixedBatchSpout("word string", 1), ("TX208", "record")),
    ("no batch", lambda: FixedBatchSpout("word string", 0, "a"), ("TX208", "max_batch_size", "1")),
    (
        "record too wide",
        lambda: FixedBatchSpout("word string", 1, ("a", "b")),
        ("TX208", "'a'", "'b'", "1"),
    ),
]


@pytest.mark.parametrize(("define", "says"), [pytest.param(*each[1:], id=each[0]) for each in REFUSED])
def test_a_definition_that_cannot_run_is_refused_where_it_stands(define: Any, says: tuple[str, ...]) -> None:
    with refused(*says):
        define()


def test_what_can_be_called_with_a_record_is_taken() -> None:
    for function in (
        itemgetter("n"),
        partial(pow, 2),
        len,
        str,
        Callable(),
        lambda record, more=1: more,
        lambda *all_: all_,
    ):
        stream().filter(function).each(function, "m string").flat_map(function, "k string").transform(
            function, "j string"
        )
    assert stream().flat_map(["array(struct(n, n))"], "a int, b int").map(("b", "a"), "a int, b int")


class Callable:
    def __call__(self, record: Any) -> Any:
        return record


def test_a_state_is_not_named_like_the_report_of_another_ones_changes() -> None:
    for names in (("s", "s_changes"), ("s_changes", "s")):
        grouped = stream().group_by("word")
        grouped.persistent_aggregate(OpaqueState(names[0]), n=Count())
        with refused("TX102", "'s_changes'"):
            grouped.persistent_aggregate(OpaqueState(names[1]), n=Count())
    grouped = stream().group_by("word")
    for state in (
        OpaqueState("s", contributions=False),
        OpaqueState("s_changes"),
        OpaqueState("a_changes", database="b"),
    ):
        grouped.persistent_aggregate(state, n=Count())
    grouped.persistent_aggregate(OpaqueState("a"), n=Count())


@pytest.mark.parametrize("name", ["batches", "attempts", "partitions", "completeness", "gaps", "waiting"])
def test_states_may_not_take_the_names_of_reports(name: str) -> None:
    with pytest.raises(DefinitionError, match=f"state '{name}'.*report.{name}.*name it otherwise"):
        OpaqueState(name)


def test_every_report_of_the_schema_is_reserved() -> None:
    import re
    from pathlib import Path

    schema = (Path(__file__).parents[2] / "sql" / "schema.sql").read_text(encoding="utf-8")
    reports = re.findall(r"CREATE VIEW report\.(\w+)", schema)
    assert len(reports) >= 5
    for name in reports:
        with pytest.raises(DefinitionError):
            OpaqueState(name)


def test_a_state_twice_in_one_topology() -> None:
    topology = word_count(LogSpout({"a": 1}))
    with refused("TX102", "'word_count'", "twice"):
        topology.streams["words"].group_by("word").persistent_aggregate(OpaqueState("word_count"), count=Count())


def test_operations_leave_the_stream_they_start_from_alone() -> None:
    first = stream()
    second = first.filter("n > 1").each("n * 2", "m bigint").flat_map("split(word, '')", "letter string")
    assert [field.name for field in first.fields] == ["word", "n"]
    assert first.node is first.topology.streams["words"].node
    last, each = second.node, second.node.before
    assert [type(node) for node in (last, each, each.before)] == [FlatMap, Each, Filter]
    assert each.before.before is first.node
    assert [field.name for field in each.fields] == ["word", "n", "m"]
    assert second.fields == last.fields


def test_the_columns_of_a_state() -> None:
    made = aggregate(count=Count(), mean=Avg("n"), top=Max("word"))
    assert [(column.name, column.value) for column in made.columns] == [
        ("count", "count"),
        ("mean_sum", "mean"),
        ("mean_count", "mean"),
        ("top", "top"),
    ]
    assert [str(merge) for merge in made.merges] == ["add", "add", "add", "greatest"]


def test_a_partial_says_also_whether_its_key_was_removed() -> None:
    made = aggregate(remove="n < 0", mean=Avg("n"))
    assert [column.name for column in made.partial_columns] == ["mean_sum", "mean_count", "removed", "counted"]
    assert [column.name for column in made.columns] == ["mean_sum", "mean_count"]
    assert [str(merge) for merge in made.partial_merges] == ["add", "add", "greatest", "greatest"]
    plain = aggregate("removed", fields="removed string", counted=Count())
    assert plain.partial_columns == plain.columns


def test_the_source_names_each_stream_and_its_kind() -> None:
    topology = word_count(LogSpout({"a": 1}, kind=SpoutKind.OPAQUE))
    topology.new_stream("more", ListSpout(1))
    assert topology.source == {
        "words": {"kind": "opaque", "reads": "partitions", "spout": "LogSpout"},
        "more": {"kind": "transactional", "reads": "whole", "spout": "ListSpout"},
    }


def test_names_that_need_quoting_are_welcome() -> None:
    for name in ("select", "Ünïcode", 'a"b', "a%b", "a:b", "a b"):
        made = aggregate(name, fields=f"`{name}` string", state=OpaqueState(name), **{f"n {name}": Count()})
        assert made.keys[0].name == name


@pytest.mark.parametrize(
    ("identity", "says"),
    [
        ({"kind": "files"}, "has the key 'kind', which is reserved; leave it out or rename it"),
        ({"reads": "all"}, "has the key 'reads', which is reserved; leave it out or rename it"),
        ({7: "root"}, "has the key 7, no string; name it '7'"),
        ("files", "is 'files'; give a mapping"),
        (None, "is None; give a mapping"),
    ],
)
def test_an_identity_is_a_mapping_without_what_the_ledger_keeps_anyway(identity: Any, says: str) -> None:
    class Named(LogSpout):
        @property
        def identity(self) -> Any:
            return identity

    with pytest.raises(DefinitionError, match=f"stream 'in': the identity of Named {says}"):
        Topology("t").new_stream("in", Named({"a": 1}))


def test_a_ledger_that_kept_no_aggregates_is_taken_as_it_is_defined() -> None:
    (aggregate,) = word_count(LogSpout({"a": 1})).aggregates
    defined = columns(aggregate)
    older = {name: value for name, value in defined.items() if name != "aggregates"}
    assert not list(column_changes("word_count", older, defined))


def test_the_columns_of_a_state_are_made_once() -> None:
    stream = Topology("t").new_stream("in", FixedBatchSpout("word string", 1, ("a",)))
    aggregate = stream.group_by("word").persistent_aggregate(OpaqueState("s"), count=Count())
    assert aggregate.columns is aggregate.columns
    assert aggregate == replace(aggregate)
