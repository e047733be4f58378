"""Operations in SQL and in Python give the same; every aggregate is a fold of `init` and `combine`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import reduce
from itertools import permutations
from pathlib import Path
from typing import Annotated, Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from refusals import refused

from txbatch import (
    Avg,
    BatchSpout,
    CombinerAggregator,
    Count,
    FileSpout,
    FixedBatchSpout,
    Max,
    Min,
    OpaqueState,
    StaticFiles,
    StaticState,
    Sum,
    Topology,
)
from txbatch.core.aggregates.merger import Merger
from txbatch.core.batch.transaction import Run
from txbatch.core.errors import BadRecord, DefinitionError, TransientError
from txbatch.core.protocol.ledger import Head
from txbatch.core.protocol.planning import plan_batch
from txbatch.core.records.fields import key_bytes_max
from txbatch.core.topology.stream import Stream

Emit = Callable[..., Any]
Step = Callable[[Stream], Stream]
RECORDS = [("how are you", 1), ("", 2), (None, None), ("you Ü 文", -3)]


@dataclass
class Made:
    b: Annotated[int, "int"]
    a: str | None


def stream_of(fields: str, *records: Any) -> Stream:
    return Topology("t").new_stream("in", FixedBatchSpout(fields, 1_000, *records))


def counted(emit: Emit, stream: Stream) -> dict[Any, Any]:
    """How often each record comes out; its fields are made keys, null spelled out."""
    shown = stream.map(
        [f"coalesce(cast(`{field.name}` as string), 'NULL')" for field in stream.fields],
        ", ".join(f"`{field.name}` string" for field in stream.fields),
    )
    shown.group_by(*(field.name for field in stream.fields)).persistent_aggregate(OpaqueState("s"), records=Count())
    found: dict[Any, Any] = emit(stream.topology).partials["s"]
    return found


@pytest.mark.parametrize(
    ("sql", "python"),
    [
        (lambda s: s.filter("n > 0"), lambda s: s.filter(lambda r: r["n"] is not None and r["n"] > 0)),
        (
            lambda s: s.each("n * 2", "twice bigint"),
            lambda s: s.each(lambda r: None if r["n"] is None else r["n"] * 2, "twice bigint"),
        ),
        (
            lambda s: s.each(["n + 1", "upper(text)"], "more int, loud string"),
            lambda s: s.each(
                lambda r: (None if r["n"] is None else r["n"] + 1, None if r["text"] is None else r["text"].upper()),
                "more int, loud string",
            ),
        ),
        (
            lambda s: s.map("length(text)", "size int"),
            lambda s: s.map(lambda r: None if r["text"] is None else len(r["text"]), "size int"),
        ),
        (
            lambda s: s.filter("n < 2").map(["n", "text"], "b int, a string"),
            lambda s: s.filter(lambda r: r["n"] is not None and r["n"] < 2).map(
                lambda r: Made(a=r["text"], b=r["n"]), Made
            ),
        ),
        (
            lambda s: s.filter("text is not null").flat_map("split(text, ' ')", "word string"),
            lambda s: s.filter(lambda r: r["text"] is not None).flat_map(lambda r: r["text"].split(" "), "word string"),
        ),
        (
            lambda s: s.flat_map("array(struct(n, text), struct(n + 1 as n, text))", "n int, text string"),
            lambda s: s.flat_map(
                lambda r: [(r["n"], r["text"]), (None if r["n"] is None else r["n"] + 1, r["text"])],
                "n int, text string",
            ),
        ),
        (lambda s: s.project("n"), lambda s: s.map(lambda r: r["n"], "n int")),
        (lambda s: s.filter("false"), lambda s: s.filter(lambda _: False)),
        (lambda s: s.filter("n = 1"), lambda s: s.transform(lambda frame: frame.where("n = 1"), "text string, n int")),
    ],
    ids=[
        "filter",
        "each",
        "each of two",
        "map",
        "map to two",
        "flat_map",
        "flat_map to two",
        "project",
        "none left",
        "transform",
    ],
)
def test_sql_and_python_agree(emit: Emit, sql: Step, python: Step) -> None:
    in_sql, in_python = (counted(emit, step(stream_of("text string, n int", *RECORDS))) for step in (sql, python))
    assert in_sql == in_python


def test_python_functions_meet_every_type_and_make_it_again(emit: Emit) -> None:
    fields = "a string, b bigint, c int, d smallint, e boolean, f double, g float, h date, i timestamp, j binary, k decimal(10,2)"
    record = (
        *("Ü", 2**62, -1, 7, True, 0.5, 0.25, date(1, 1, 1), datetime(1582, 10, 15, 1, 2, 3, 4, tzinfo=UTC)),
        *(b"ab", Decimal("-1.05")),
    )
    nothing = (None,) * len(record)
    stream = stream_of(fields, record, nothing).filter(lambda r: r["i"] is None or r["i"] == record[8])
    same = stream.map(lambda r: tuple(r.values()), fields)
    assert counted(emit, same) == counted(emit, stream_of(fields, record, nothing))


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (
            lambda s: s.each(lambda r: r["n"] * 1.35, "x int"),
            r"returned 2\.7 for 'x', declared int: it is of the type float",
        ),
        (
            lambda s: s.map(lambda r: 1767225600 + r["n"], "x timestamp"),
            "returned 1767225602 for 'x', declared timestamp",
        ),
        (
            lambda s: s.flat_map(lambda r: [Decimal(1), Decimal(r["n"]) / 8], "x decimal(3,1)"),
            r"returned Decimal\('0.25'\) for 'x', declared decimal\(3,1\): Rescaling",
        ),
    ],
    ids=["each", "map", "flat_map"],
)
def test_a_value_of_another_type_than_declared_names_the_record(emit: Emit, step: Step, told: str) -> None:
    stream = step(stream_of("k string, n int", ("a", 2)))
    stream.persistent_aggregate(OpaqueState("s"), records=Count())
    with pytest.raises(BadRecord, match=rf"{told}.*; the record is \{{'k': 'a', 'n': 2\}}"):
        emit(stream.topology)


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (
            lambda s: s.each("p", "x decimal(10,2)"),
            r"each 'p' is decimal\(10,3\), 'x' is declared decimal\(10,2\), which would",
        ),
        (
            lambda s: s.each(["d", "p / 2"], "y double, x decimal(10,3)"),
            r"each 'p / 2' is decimal\(\d+,\d+\), 'x' is declared",
        ),
        (lambda s: s.map("d", "x int"), "map 'd' is double, 'x' is declared int"),
        (lambda s: s.map("n / 7", "x bigint"), "map 'n / 7' is double, 'x' is declared bigint"),
        (lambda s: s.map("timestamp_seconds(n)", "x date"), "is timestamp, 'x' is declared date"),
        (
            lambda s: s.map("cast(p as string)", "x decimal(10,2)"),
            r"is string, .*or say cast\(... as decimal\(10,2\)\) in the",
        ),
        (lambda s: s.flat_map("array(d)", "x int"), "'x' is double, 'x' is declared int"),
        (
            lambda s: s.transform(lambda frame: frame.select("d"), "d decimal(10,1)"),
            "'d' is double, 'd' is declared decimal",
        ),
    ],
)
def test_a_declared_type_that_would_round_is_refused(emit: Emit, step: Step, told: str) -> None:
    stream = step(stream_of("n int, p decimal(10,3), d double", (20, Decimal("1.567"), 2.75)))
    stream.persistent_aggregate(OpaqueState("s"), records=Count())
    with pytest.raises(DefinitionError, match=told):
        emit(stream.topology)


def test_a_declared_type_that_keeps_the_value_is_taken(emit: Emit) -> None:
    stream = stream_of("n int, p decimal(10,3), d double", (20, Decimal("1.567"), 2.75)).map(
        [
            "n",
            "n + 0L",
            "p",
            "p",
            "cast(p as decimal(10,2))",
            "round(p, 1)",
            "null",
            "cast(n as string)",
            "cast(d as int)",
            "p",
        ],
        "a bigint, b smallint, c decimal(12,4), d decimal(4,3), e decimal(10,2), f decimal(10,1), g date, h int, i int, j double",
    )
    assert list(counted(emit, stream)) == [("20", "20", "1.5670", "1.567", "1.57", "1.6", "NULL", "20", "2", "1.567")]


KEYED = [("a", 3), ("a", None), ("a", -5), ("b", None), ("c", 2**62), ("c", 2**62 - 1)]
DECIMALS = [("a", Decimal("99999999.99")), ("a", Decimal("0.01")), ("b", None), ("c", Decimal("-0.10"))]
DOUBLES = [("a", 0.1), ("a", 0.2), ("b", None), ("c", -1e300)]
STRINGS = [("a", "z"), ("a", "Ü"), ("a", "\U0001f600"), ("a", "\uffff"), ("b", None), ("c", "")]
DATES = [("a", date(1, 1, 1)), ("a", date(9999, 12, 31)), ("b", None)]
MOMENTS = [
    ("a", datetime(1, 1, 1, tzinfo=UTC)),
    ("a", datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    ("b", None),
]


@pytest.mark.parametrize(
    ("type_", "records", "aggregators"),
    [
        ("bigint", KEYED, [Count(), Count("v"), Sum("v"), Min("v"), Max("v"), Avg("v")]),
        ("decimal(10,2)", DECIMALS, [Count("v"), Sum("v"), Min("v"), Max("v"), Avg("v")]),
        ("double", DOUBLES, [Count("v"), Min("v"), Max("v"), Sum("v", approximate=True)]),
        ("string", STRINGS, [Count("v"), Min("v"), Max("v")]),
        ("date", DATES, [Count("v"), Min("v"), Max("v")]),
        ("timestamp", MOMENTS, [Count("v"), Min("v"), Max("v")]),
        ("boolean", [("a", True), ("a", False), ("b", None)], [Count("v"), Min("v"), Max("v")]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_aggregates_are_folds(
    emit: Emit, type_: str, records: list[tuple[str, Any]], aggregators: list[CombinerAggregator]
) -> None:
    stream = stream_of(f"k string, v {type_}", *records)
    named = {f"x{n}": each for n, each in enumerate(aggregators)}
    aggregate = stream.group_by("k").persistent_aggregate(OpaqueState("s"), **named)
    combine = Merger(aggregate.merges)

    def init(value: Any) -> tuple[Any, ...]:
        return tuple(part for each in aggregators for part in each.init(value))

    expected = {
        (key,): reduce(combine, [init(value) for k, value in records if k == key]) for key in {k for k, _ in records}
    }
    assert emit(stream.topology).partials["s"] == expected


def test_a_double_with_a_scale_sums_exactly(emit: Emit) -> None:
    stream = stream_of("k string, v double", *DOUBLES[:2])
    stream.group_by("k").persistent_aggregate(OpaqueState("s"), total=Sum("v", scale=2))
    assert emit(stream.topology).partials["s"] == {("a",): (Decimal("0.30"),)}


@pytest.mark.parametrize(
    "value", ["NaN", *(pytest.param(f"{sign}Infinity", marks=pytest.mark.whole) for sign in ("", "-"))]
)
@pytest.mark.parametrize(("kind", "type_"), [(Sum, "double"), (Avg, "double"), (Avg, "float")])
def test_a_double_that_is_no_decimal_is_refused(emit: Emit, kind: type[Sum], type_: str, value: str) -> None:
    stream = stream_of(f"k string, `it's v` {type_}", ("a", None), ("a", 0.5), ("a", float(value)))
    stream.group_by("k").persistent_aggregate(OpaqueState("s"), total=kind("it's v", scale=2))
    with refused("TX301", "t 1:1", "'in'", "'s'", '"it\'s v"', value, "approximate=True"):
        emit(stream.topology)


def test_doubles_that_are_no_number_stay_what_they_are(emit: Emit) -> None:
    nan, inf = float("nan"), float("inf")
    stream = stream_of("k string, v double", ("a", 1.0), ("a", nan), ("b", 1.0), ("b", inf))
    stream.group_by("k").persistent_aggregate(
        OpaqueState("s"),
        total=Sum("v", approximate=True),
        mean=Avg("v", approximate=True),
        low=Min("v"),
        high=Max("v"),
        n=Count("v"),
    )
    found = emit(stream.topology).partials["s"]
    assert str(found["a",]) == str((nan, nan, 2, 1.0, nan, 2))
    assert found["b",] == (inf, inf, 2, 1.0, inf, 2)


@pytest.mark.parametrize(
    ("fields", "records", "aggregator"),
    [
        ("k string, v bigint", [("a", 2**63 - 1), ("a", 1)], Sum("v")),
        ("k string, v bigint", [("a", 2**63 - 1)] * 3, Avg("v")),
        ("k string, v bigint", [("a", -(2**63)), ("a", -1)], Sum("v")),
        ("k string, v decimal(38,0)", [("a", Decimal(10**38 - 1)), ("a", Decimal(1))], Sum("v")),
        ("k string, v double", [("a", 1e300)], Sum("v", scale=2)),
    ],
)
def test_overflow_is_an_error(emit: Emit, fields: str, records: list[Any], aggregator: CombinerAggregator) -> None:
    stream = stream_of(fields, *records)
    stream.group_by("k").persistent_aggregate(OpaqueState("s"), n=Count(), total=aggregator)
    told = r"^TX305 .no retry helps.: t 1:1, stream 'in', state 's': .*, in the sum of 'total' or in an expression "
    told += "of the job; give it more digits, or "
    with pytest.raises(BadRecord, match=told):
        emit(stream.topology)


@pytest.mark.rule("R18")
def test_a_total_that_fits_is_no_overflow_in_whatever_order_its_records_come(emit: Emit) -> None:
    most, least = 2**63 - 1, -(2**63)
    low = [2**31 - 1, -(2**31), 2**31, -(2**31) - 1, 2**32 - 1, -(2**32)]
    numbers = {
        **{str(order): order for order in permutations([most, 1, -1])},
        **{str(order): order for order in permutations([least, -1, most])},
        "halves": low,
        "ends": [least - sum(low), *low],
        "nulls": [None, most, 5, None, -5],
        "many": [most] * 5 + [least] * 5,
        "nothing": [None],
    }
    records = [(key, number) for key, several in numbers.items() for number in several]
    stream = stream_of("k string, v bigint", *records)
    stream.group_by("k").persistent_aggregate(OpaqueState("s"), total=Sum("v"), mean=Avg("v"))
    stream.group_by("k").persistent_aggregate(OpaqueState("some"), low=Sum("v", where="-8 < v and v < 0"))
    stream.group_by("k").aggregate(total=Sum("v")).group_by("k").persistent_aggregate(OpaqueState("w"), n=Max("total"))
    there = {key: [number for number in several if number is not None] for key, several in numbers.items()}
    totals = {key: sum(several) if several else None for key, several in there.items()}
    partials = emit(stream.topology).partials
    assert partials["s"] == {(key,): (total, total, len(there[key])) for key, total in totals.items()}
    assert partials["w"] == {(key,): (total,) for key, total in totals.items()}
    few = {key: [number for number in several if -8 < number < 0] for key, several in there.items()}
    assert partials["some"] == {(key,): (sum(several) if several else None,) for key, several in few.items()}


@pytest.mark.parametrize(
    "name",
    [
        *("select", "tick`tick", "a.b"),
        *(
            pytest.param(name, marks=pytest.mark.whole)
            for name in ("Ünïcode", 'a"b', "with blank", "it's", "back\\slash", "per%cent")
        ),
    ],
)
def test_names_that_need_quotes(emit: Emit, name: str) -> None:
    quoted = "`" + name.replace("`", "``") + "`"
    stream = stream_of(f"{quoted} string, n bigint", ("x", 1), ("x", 2))
    kept = stream.filter(lambda r: r["n"] > 0).each(f"{quoted}", "other string").filter(f"{quoted} = other")
    kept.project(name, "n").group_by(name).persistent_aggregate(OpaqueState("s"), **{name + "2": Sum("n")})
    assert emit(stream.topology).partials["s"] == {("x",): (3,)}


@pytest.mark.parametrize(
    ("type_", "keys"),
    [
        ("string", ["", " ", "a", "A", "Ü", "\U0001f600"]),
        ("int", [0, -(2**31), 2**31 - 1]),
        ("bigint", [0, -(2**63), 2**63 - 1]),
        ("date", [date(1, 1, 1), date(1582, 10, 4), date(9999, 12, 31)]),
        ("timestamp", [datetime(1, 1, 1, tzinfo=UTC), datetime(2263, 1, 1, 0, 0, 0, 1, tzinfo=UTC)]),
        ("decimal(38,2)", [Decimal("0.10"), Decimal("9" * 36 + ".99")]),
        ("boolean", [True, False]),
        ("binary", [b"", b"\x00\xff"]),
    ],
)
def test_keys_of_every_type(emit: Emit, type_: str, keys: list[Any]) -> None:
    stream = stream_of(f"k {type_}", *keys)
    stream.group_by("k").persistent_aggregate(OpaqueState("s"), records=Count())
    assert emit(stream.topology).partials["s"] == {(key,): (1,) for key in keys}


REMOVALS = [("a", 1), ("a", -1), ("a", 3), ("b", -1), ("b", -1), ("c", None), ("c", 2)]


@pytest.mark.parametrize("remove", ["n < 0", lambda record: record["n"] is not None and record["n"] < 0])
def test_records_that_remove_their_key(emit: Emit, remove: Any) -> None:
    """Each key once: what the other records give, whether the key is removed, and whether others count."""
    stream = stream_of("k string, n int", *REMOVALS)
    stream.group_by("k").persistent_aggregate(
        OpaqueState("s"), remove=remove, records=Count(), total=Sum("n"), mean=Avg("n")
    )
    assert emit(stream.topology).partials["s"] == {
        ("a",): (2, 4, 4, 2, True, True),
        ("b",): (None, None, None, None, True, False),
        ("c",): (2, 2, 2, 1, False, True),
    }


def test_merged_streams_static_states_and_global_values_in_one_batch(emit: Emit) -> None:
    """Each stream is audited by itself; the merged one has the records of both, after their own operations."""
    topology = Topology("t")
    shop = topology.new_stream("shop", FixedBatchSpout("item string, pieces int", 9, ("a", 1), ("b", 2), (None, 3)))
    web = topology.new_stream("web", FixedBatchSpout("n bigint, article string", 9, (10, "a"), (20, "c")))
    merged = topology.merge(
        shop.each("pieces", "n bigint").project("item", "n"),
        web.map(["article", "n"], "x string, y bigint"),
        name="sales",
    )
    names = topology.new_static_state(
        StaticState("names", [("a", "Äpfel"), (None, "nobody")], "item string, name string")
    )
    prices = topology.new_static_state(
        StaticState(
            "prices",
            lambda spark: spark.range(1).selectExpr("'c' as item", "7 as price", "1 as more"),
            "item string, price int",
        )
    )
    named = merged.state_query(names, "item").state_query(prices, "item", fields=["price"])
    named.each("coalesce(name, 'unknown')", "label string").group_by("label").persistent_aggregate(
        OpaqueState("sales"), n=Sum("n"), price=Max("price")
    )
    merged.persistent_aggregate(OpaqueState("total"), records=Count(), n=Sum("n"))
    merged.filter("false").persistent_aggregate(OpaqueState("nothing"), records=Count(), mean=Avg("n"))
    emitted = emit(topology)
    assert {stream: read[""].records for stream, read in emitted.manifest.streams.items()} == {"shop": 3, "web": 2}
    assert emitted.partials == {
        "sales": {("Äpfel",): (11, None), ("unknown",): (25, 7)},
        "total": {(): (5, 36)},
        "nothing": {(): (0, None, 0)},
    }


@pytest.mark.parametrize("show", [True, False])
def test_a_static_state_with_a_key_twice_is_refused(emit: Emit, show: bool) -> None:
    topology = Topology("t", show_records=show)
    stream = topology.new_stream("in", FixedBatchSpout("word string", 1, "secret"))
    rows = [("secret", 1), ("secret", 2)]
    twice = topology.new_static_state(StaticState("twice", rows, "word string, n int"))
    stream.state_query(twice, "word").group_by("word").persistent_aggregate(OpaqueState("s"), n=Max("n"))
    with pytest.raises(BadRecord) as raised:
        emit(topology)
    told = "static state 'twice' has two rows with one word (secret); a key has one" in str(raised.value)
    assert (told, "secret" in str(raised.value)) == (show, show)


def test_a_key_with_several_rows(emit: Emit) -> None:
    stream = stream_of("word string", "a", "b", "a")
    tags = stream.topology.new_static_state(StaticState("tags", [("a", "x"), ("a", "y")], "word string, tag string"))
    tagged = stream.state_query(tags, "word", how="inner", many=True)
    tagged.group_by("tag").persistent_aggregate(OpaqueState("tags"), n=Count())
    tagged.partition_aggregate(n=Count()).persistent_aggregate(OpaqueState("all"), n=Sum("n"))
    assert emit(stream.topology).partials == {"tags": {("x",): (2,), ("y",): (2,)}, "all": {(): (4,)}}


def rates_in(root: Path, read: Any = None) -> Topology:
    """The first sale of each currency, at the rate of a file."""

    def read_csv(spark: SparkSession, files: Sequence[str]) -> DataFrame:
        return spark.read.csv(list(files), schema="currency string, rate bigint, more string")

    stream = stream_of("currency string", "EUR", "USD", "EUR")
    rates = stream.topology.new_static_state(
        StaticState("rates", StaticFiles(root, "*.csv", read or read_csv), "currency string, rate int")
    )
    named = stream.state_query(rates, "currency")
    named.group_by("currency").persistent_aggregate(OpaqueState("rates"), rate=Max("rate"))
    return stream.topology


def plan(topology: Topology) -> Any:
    return plan_batch(topology, Head("t", 1, None, (), None, {}), Run("test"))


def test_every_attempt_looks_up_in_the_files_that_the_plan_names(emit: Emit, tmp_path: Path) -> None:
    root = tmp_path / "rates"
    root.mkdir()
    (root / "a b[1].csv").write_text("EUR,3\n")
    topology = rates_in(root)
    planned = plan(topology)
    (root / "later.csv").write_text("USD,4\n")
    assert emit(topology, planned).partials == {"rates": {("EUR",): (3,), ("USD",): (None,)}}
    assert emit(topology, plan(topology)).partials == {"rates": {("EUR",): (3,), ("USD",): (4,)}}
    (root / "a b[1].csv").write_text("EUR,5\n")
    with refused("TX204", "a b[1].csv", "6 bytes", "planned"):
        emit(topology, planned)


def test_a_file_that_changes_while_it_is_looked_up_in_is_told(emit: Emit, tmp_path: Path) -> None:
    root = tmp_path / "rates"
    root.mkdir()
    file = root / "rates.csv"
    file.write_text("EUR,3\n")

    def read(spark: SparkSession, files: Sequence[str]) -> DataFrame:
        rows = spark.read.csv(list(files), schema="currency string, rate bigint")
        file.write_text("EUR,33\n")
        return rows

    with pytest.raises(
        TransientError,
        match=r"rates\.csv had 6 bytes when it was planned, now 7; restore it, and the retry reads it; or",
    ):
        emit(rates_in(root, read))


def test_a_static_state_with_a_value_of_another_type_is_refused(emit: Emit) -> None:
    stream = stream_of("word string", "a")
    rates = stream.topology.new_static_state(StaticState("rates", [("a", 2.7)], "word string, n int"))
    stream.state_query(rates, "word").group_by("word").persistent_aggregate(OpaqueState("s"), n=Max("n"))
    with pytest.raises(
        BadRecord, match=r"static state 'rates' has 2\.7 for 'n', declared int: it is of the type float"
    ):
        emit(stream.topology)


class Ticks(BatchSpout):
    """As many records as it is told."""

    fields = "n bigint"

    def __init__(self, records: int) -> None:
        self.records = records

    @property
    def identity(self) -> Any:
        return {"spout": "Ticks"}

    def emit_batch(self, spark: Any, txid: int) -> Any:
        return spark.range(self.records).selectExpr(f"id + {txid} as n")


@pytest.mark.parametrize("records", [3, 0])
def test_a_batch_spout_with_and_without_records(emit: Emit, records: int) -> None:
    stream = Topology("t").new_stream("in", Ticks(records))
    stream.persistent_aggregate(OpaqueState("s"), guarantee="at_least_once", records=Count(), top=Max("n"))
    emitted = emit(stream.topology, txid=7)
    assert emitted.read() == {"": records}
    assert emitted.partials["s"] == {(): (records, 9 if records else None)}


def test_a_stream_that_is_not_in_the_batch(emit: Emit) -> None:
    """The merged stream has the records of the other one; a global value of the absent one is written, and adds zero."""
    topology = Topology("t")
    here, away = (topology.new_stream(name, FixedBatchSpout("word string", 9, "a")) for name in ("here", "away"))
    topology.merge(here, away, name="both").group_by("word").persistent_aggregate(OpaqueState("both"), n=Count())
    away.group_by("word").persistent_aggregate(OpaqueState("keyed"), n=Count())
    away.persistent_aggregate(OpaqueState("total"), n=Count())
    emitted = emit(topology, {"format": 1, "streams": {"here": {"start": 0, "end": 1}}})
    assert emitted.partials == {"both": {("a",): (1,)}, "keyed": {}, "total": {(): (0,)}}


def test_a_string_value_that_postgres_cannot_store(emit: Emit) -> None:
    stream = stream_of("k string, v string", ("a", "b\0c"))
    stream.group_by("k").persistent_aggregate(OpaqueState("s"), top=Max("v"))
    with pytest.raises(BadRecord, match=r"value 'top' holds U\+0000; filter such records out in the job"):
        emit(stream.topology)


def test_an_operation_that_makes_invalid_utf8(emit: Emit) -> None:
    stream = stream_of("v int", 1).map("decode(x'ff', 'utf-8')", "k string")
    broken = stream_of("v int", 1).map("cast(x'ff' as string)", "k string")
    for each in (stream, broken):
        each.group_by("k").persistent_aggregate(OpaqueState("s"), records=Count())
    with pytest.raises(BadRecord, match="key 'k' is invalid UTF-8"):
        emit(broken.topology)


@pytest.mark.parametrize("keys", ["k", "k, n"])
def test_a_key_that_is_too_long_for_an_index(emit: Emit, keys: str) -> None:
    most = key_bytes_max(["string", "int"] if "n" in keys else ["string"])
    fits, too_long = "ü" * (most // 2), "a|\n'" + "b" * (most - 3)
    for words, message in (
        ((fits,), None),
        (("c", too_long), rf"in', state 's': key 'k' is .* {most:,} bytes; it begins: "),
    ):
        stream = stream_of("k string, n int", *((word, 1) for word in words))
        stream.group_by(*keys.split(", ")).persistent_aggregate(OpaqueState("s"), records=Count())
        if message is None:
            assert [key[0] for key in emit(stream.topology).partials["s"]] == [fits]
            continue
        with pytest.raises(BadRecord, match=message) as refused:
            emit(stream.topology)
        assert repr(too_long[:40]) in str(refused.value)


@pytest.mark.parametrize(
    "expression",
    [
        "date'0001-01-01' - interval 1 day",
        "date'+32768-01-01'",
        "timestamp'0000-12-31 23:59:59Z'",
        "timestamp_seconds(1200000000000)",
    ],
)
def test_a_time_that_postgres_would_write_otherwise(emit: Emit, expression: str) -> None:
    type_ = "date" if expression.startswith("date") else "timestamp"
    for key in (True, False):
        stream = stream_of("v int", 1).each(expression, f"t {type_}")
        grouped = stream.group_by("t" if key else "v")
        grouped.persistent_aggregate(OpaqueState("s"), latest=Max("v" if key else "t"))
        what = "key 't'" if key else "value 'latest'"
        with pytest.raises(BadRecord, match=f"{what} lies outside the years 1 to 32767: '"):
            emit(stream.topology)


def files(root: Path, step: Step) -> Topology:
    for n in range(9):
        (root / f"{n}.txt").write_text("poison\n" if n == 6 else f"{n}\n")
    topology = Topology("t")
    step(topology.new_stream("in", FileSpout(root, "*.txt"))).group_by("line").persistent_aggregate(
        OpaqueState("s"), records=Count()
    )
    return topology


def test_a_value_that_cannot_be_cast_names_the_file(emit: Emit, tmp_path: Path) -> None:
    with pytest.raises(
        BadRecord, match=r"The value 'poison' of the type \"STRING\" cannot be cast to \"INT\".*\(in 6.txt\)$"
    ):
        emit(files(tmp_path, lambda s: s.map("cast(cast(line as int) as string)", "line string")))


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (lambda s: s.filter("nosuch = 1"), r"name `nosuch` cannot be resolved.*; mend the expression in the job"),
        (lambda s: s.filter("line ="), r"Syntax error at or near end of input.*; mend the expression in the job"),
    ],
)
def test_an_operation_that_makes_no_sense_is_the_jobs_fault(emit: Emit, tmp_path: Path, step: Step, told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        emit(files(tmp_path, step))


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (
            lambda s: s.map(lambda r: (1, 2), "line string"),
            r"1\. map <lambda>: a function returned \(1, 2\); expected a tuple of 1 values",
        ),
        (
            lambda s: s.each(lambda r: "x", "a string, b string"),
            r"1\. each <lambda>: a function returned 'x'; expected a tuple of 2 values",
        ),
        (
            lambda s: s.flat_map(lambda r: r["line"], "line string"),
            r"1\. flat_map <lambda>: a function returned '\w+'; expected a list of records, also of one",
        ),
    ],
)
def test_another_number_of_values_names_the_record(emit: Emit, tmp_path: Path, step: Step, told: str) -> None:
    with pytest.raises(BadRecord, match=rf"{told}; the record is \{{'line': '\w+'\}} \(in \d.txt\)$"):
        emit(files(tmp_path, step))
