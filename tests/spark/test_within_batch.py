"""Operations within a batch by Spark: the golden cases, and random ones, have the results that they have in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import reduce
from pathlib import Path
from random import Random
from typing import Any, cast

import operation_cases
import pytest
from operation_cases import (
    IN_SQL,
    LINES,
    PATHS,
    POSITION,
    Counted,
    OperationCase,
    Read,
    counted,
    documented,
    given,
    in_memory,
    new_stream,
)
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from refusals import check_refusal

from txbatch import (
    ApproxCountDistinct,
    Avg,
    BatchSpout,
    Count,
    FileSpout,
    Max,
    Min,
    OpaqueState,
    PartitionedLogSpout,
    StaticState,
    Stream,
    Sum,
    Topology,
)
from txbatch.core.topology.nodes import Source
from txbatch.core.topology.persistent_aggregate import RECORDS_COLUMN
from txbatch.spark.appended import appended
from txbatch.spark.failures import in_our_words
from txbatch.spark.frames import of_rows
from txbatch.spark.operations import run_operations
from txbatch.spark.within_batch import OF_FIELD
from txbatch.spouts.partitioned_log import PartitionedLog

cloudpickle.register_pickle_by_value(operation_cases)  # as that of a submitted job, which is __main__, is


def frame_of(spark: SparkSession, stream: Stream, read: Read) -> DataFrame:
    def given(source: Source, /, *, parted: bool = False) -> DataFrame:
        of = [OF_FIELD] if parted else []
        rows = (
            (*[f"{source.name}\0{partition}"] * parted, *each)
            for partition, part in read[source.name].items()
            for each in part
        )
        return of_rows(spark, [*of, *source.fields], rows)

    return run_operations(stream.node, given)


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(record.values()) for record in frame.toArrow().to_pylist()]


def check(spark: SparkSession, case: OperationCase) -> None:
    frame = frame_of(spark, case.stream, case.read)
    if case.kept:
        frame = appended(frame, case.kept, str(POSITION)).drop(RECORDS_COLUMN)
    assert counted(rows(frame)) == case.expect


# The random chains below ask Spark for these operations, of the same types and with nulls.
DRAWN = {
    *("aggregate", "aggregate-avg", "aggregate-by-another-field", "aggregate-of-aggregates", "aggregate-the-batch"),
    *("distinct", "distinct-of-merged", "merge", "first-n", "first-n-decimals", "first-n-descending"),
    *("first-n-in-groups", "first-n-nulls-last", "first-n-of-fewer", "first-n-strings"),
    *("join-inner", "join-left", "join-right", "join-then-aggregate"),
    *("max-by", "max-by-in-groups", "max-by-tie", "min-by"),
}
GOLDEN = [pytest.param(path, id=path.stem, marks=[pytest.mark.whole] * (path.stem in DRAWN)) for path in PATHS]


@pytest.mark.parametrize("path", GOLDEN)
def test_golden(spark: SparkSession, path: Path) -> None:
    case = OperationCase.load(path)
    if case.code is None:
        check(spark, case)
        return
    with pytest.raises(Exception) as failed:  # noqa: PT011 (Spark's own, which one of ours stands for)
        check(spark, case)
    problem = in_our_words(failed.value)
    check_refusal(problem, case.code, *case.names)


@pytest.mark.whole
@pytest.mark.parametrize("path", IN_SQL, ids=lambda path: path.stem)
def test_golden_in_sql(spark: SparkSession, path: Path) -> None:
    check(spark, OperationCase.load(path, "sql"))


def test_functions_that_return_lists_and_functions_that_look(spark: SparkSession) -> None:
    topology = Topology("t")
    lines = new_stream(topology, "in", "line string, n bigint")
    words = (
        lines.each(lambda record: record["line"].split(), "word string")
        .peek(lambda record: record.clear())
        .each(lambda record: [(record["n"], True), (None, False)], "more bigint, known boolean")
        .transform(lambda frame: frame.where("more is not null or n = 2"))
    )
    read: Read = {"in": {"": [("a b", 1), ("", 7), ("c", 2)]}}
    expected = [("a b", 1, "a", 1, True), ("a b", 1, "b", 1, True), ("c", 2, "c", 2, True), ("c", 2, "c", None, False)]
    assert counted(rows(frame_of(spark, words, read))) == counted(expected)


def test_a_reducer_of_no_records_makes_one_all_the_same(spark: SparkSession) -> None:
    made, _ = documented("sales.filter(lambda r: False).aggregate(basket=Basket())")
    assert rows(frame_of(spark, made, given(made))) == [("",)]


def test_of_more_values_than_hashes_are_kept_the_same_are(spark: SparkSession) -> None:
    about = new_stream(Topology("t"), "in", "n bigint").aggregate(about=ApproxCountDistinct("n", lg_k=4))
    read: Read = {"in": {"": [(number % 400,) for number in range(500)]}}
    ((found,),) = rows(frame_of(spark, about, read))
    assert counted([(found,)]) == in_memory(about, read)
    assert 200 < found < 800


# ---- random chains of operations on random records: the twin is Spark

FIELDS = "k string, m string, n bigint, x decimal(10,2)"
CHAINS = 16
NUMBERS = [0, 1, 2, None]


def random_record(random: Random) -> tuple[Any, ...]:
    texts = (random.choice(["a", "b", "ü", None]) for _ in range(2))
    return (*texts, random.choice(NUMBERS), random.choice([Decimal("1.50"), Decimal("-0.25"), None]))


def joined_or_merged(random: Random, topology: Topology) -> Stream:
    one, other = (new_stream(topology, name, FIELDS) for name in ("in", "more"))
    if random.random() < 0.3:
        return topology.merge(one, other, name="all")
    how, on = random.choice(["inner", "left", "right", "full"]), random.choice([["k"], ["n", "k"]])
    return topology.join(one.project("k", "n", "x"), other.project(*on, "m"), on=on, how=how, name="all")


def random_step(random: Random, stream: Stream) -> Stream:
    names = [field.name for field in stream.fields]
    number = next((field.name for field in stream.fields if field.type != "string"), names[0])
    summed = Sum(number) if number != names[0] else Count(number)
    keys, by = random.sample(names, random.randint(1, min(2, len(names)))), random.choice(names)
    grouped: Any = stream.group_by(*keys) if random.random() < 0.7 else stream
    match random.randint(0, 4):
        case 0:
            return stream.distinct()
        case 1:
            return cast(Stream, grouped.first_n(random.randint(1, 4), by, descending=random.random() < 0.5))
        case 2:
            return cast(Stream, random.choice([grouped.min_by, grouped.max_by])(by))
        case 3:
            return cast(Stream, grouped.aggregate(v1=Count(by), v2=summed, v3=Max(by)) if "v1" not in names else stream)
        case _:
            mean = Avg(number) if number != names[0] else Count()
            return cast(
                Stream,
                grouped.aggregate(w1=mean, w2=Min(by), w3=ApproxCountDistinct(by)) if "w1" not in names else stream,
            )


def by_spark(spark: SparkSession, all_of: Sequence[tuple[Stream, Read]]) -> list[Counted]:
    """The records of several streams, by one job."""
    record = "to_json(array(struct(*)), map('ignoreNullFields', 'false'))"
    frames = [
        frame_of(spark, stream, read).selectExpr(f"{number} as number", f"{record} as record")
        for number, (stream, read) in enumerate(all_of)
    ]
    found: list[list[Any]] = [[] for _ in all_of]
    for number, text in rows(reduce(DataFrame.union, frames)):
        found[number].append(json.loads(text, parse_float=Decimal)[0].values())
    return [counted(each) for each in found]


def test_random_chains_are_as_in_memory(spark: SparkSession) -> None:
    random, chains = Random(13), list[tuple[Stream, Read]]()
    for _ in range(CHAINS):
        stream = joined_or_merged(random, Topology("t"))
        for _ in range(random.randint(1, 3)):
            stream = random_step(random, stream)
        read = {name: {"": [random_record(random) for _ in range(random.randint(0, 9))]} for name in ("in", "more")}
        chains.append((stream, read))
    expected = [in_memory(*each) for each in chains]
    assert by_spark(spark, chains) == expected
    assert sum(bool(each) for each in expected) > CHAINS // 2


def test_the_lines_of_the_document_are_as_in_memory(spark: SparkSession) -> None:
    streams = [made for made, _ in map(documented, LINES) if isinstance(made, Stream)]
    lines = [(stream, given(stream)) for stream in streams]
    assert by_spark(spark, lines) == [in_memory(*each) for each in lines]


def test_partitions_are_known_behind_every_step_of_single_records(spark: SparkSession) -> None:
    """In Python as in SQL, and as in memory; the column that says the partition is seen by nobody."""
    topology = Topology("t")
    stream = new_stream(topology, "in", "k string, n bigint")
    names = topology.new_static_state(StaticState("names", [("a", "A")], "k string, name string"))
    seen = ["k", "n", "k1", "n1", "name"]
    python = stream.filter(lambda r: r["n"] > 0).each(lambda r: [(r["k"], 1), (r["k"], 2)], "k1 string, n1 bigint")
    python = python.state_query(names, "k").peek(lambda r: None if list(r) == seen else r["none"]).repartition(2)
    python = python.map(lambda r: (r["name"], r["n1"]), "name string, n bigint")
    python = python.flat_map(lambda r: [(r["name"], r["n"])] * 2, "name string, n bigint")
    sql = stream.filter("n > 0").flat_map("array(struct(k, 1), struct(k, 2))", "k string, n1 bigint")
    sql = sql.each(["k", "n1"], "k1 string, n bigint").state_query(names, "k")
    sql = sql.map(["name", "n"], "name string, n bigint").flat_map(
        "array(struct(name, n), struct(name, n))", "name string, n bigint"
    )
    odd = {"odd": Count(where=lambda r: r["n"] == 1), "named": Count("name"), "total": Sum("n")}
    read: Read = {"in": {"x": [("a", 1), ("b", 2), ("b", 0)], "y": [("a", 5)], "z": [("a", 0)]}}
    made = [(each.partition_aggregate(**odd), read) for each in (python, sql)]
    expected = counted([(4, 4, 12), (2, 4, 6)])
    assert in_memory(*made[0]) == expected
    assert by_spark(spark, made) == [expected, expected]


# ---- through spouts, to a state


class Numbers(BatchSpout):
    """A source that cannot be read twice."""

    fields = "k string, n bigint"

    @property
    def identity(self) -> dict[str, Any]:
        return {"spout": "Numbers"}

    def emit_batch(self, spark: SparkSession, txid: int) -> DataFrame:
        return spark.createDataFrame([("a", 1), ("a", 3), ("b", 5)], self.fields)


def test_a_stream_is_joined_with_its_own_aggregate(emit: Callable[..., Any], tmp_path: Path) -> None:
    """Also where both sides are the same frame, and where Spark need not read a side, as the other one is empty."""
    log = PartitionedLog(tmp_path / "log")
    log.append("p", ["a", "a", "b"])
    log.append("q", ["b"])
    topology = Topology("t")
    numbers = topology.new_stream("numbers", Numbers())
    most = topology.join(numbers, numbers.group_by("k").aggregate(most=Max("n")), on="k", name="most").filter(
        "n = most"
    )
    most.group_by("k").persistent_aggregate(OpaqueState("most"), guarantee="at_least_once", n=Sum("n"))
    lines = topology.new_stream("lines", PartitionedLogSpout(log.root))
    often = topology.join(lines, lines.group_by("line").aggregate(n=Count()), on="line", name="often")
    often.group_by("line").persistent_aggregate(OpaqueState("often"), n=Sum("n"))
    nothing = lines.filter("line = 'none'").project("line")
    none = topology.join(lines, nothing, on="line", name="none")
    none.group_by("line").persistent_aggregate(OpaqueState("none"), n=Count())
    emitted = emit(topology)
    assert emitted.partials["most"] == {("a",): (3,), ("b",): (5,)}
    assert emitted.partials["often"] == {("a",): (4,), ("b",): (4,)}
    assert emitted.partials["none"] == {}
    assert emitted.read("lines") == {"p": 3, "q": 1}


def test_what_is_joined_and_aggregated_reaches_its_state(emit: Callable[..., Any], tmp_path: Path) -> None:
    """The audit counts the records of the sources; a stream that has nothing in the batch is an empty side."""
    for name, text in (("orders/1", "a 5\na 7\nb 1\n"), ("orders/2", "a 5\nc -\n"), ("paid/1", "a x\nb y\n")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "none").mkdir()
    topology = Topology("t")

    def is_seven(record: dict[str, Any]) -> bool:
        return bool(record["orders"] == "7")

    words = "split(line, ' ')[0]", "split(line, ' ')[1]"
    orders, paid, none = (
        topology.new_stream(name, FileSpout(tmp_path / name)).map(words, f"k string, {name} string")
        for name in ("orders", "paid", "none")
    )
    each = orders.group_by("k").aggregate(n=Count(), five=Count(where="orders = '5'"), big=Count(where=is_seven))
    both = topology.join(topology.join(each, paid, on="k", how="left", name="b"), none, on="k", how="left", name="c")
    values = {"most": Max("n"), "five": Max("five"), "seven": Max("big"), "paid": Count("paid"), "none": Count("none")}
    both.group_by("k").persistent_aggregate(OpaqueState("both"), remove="paid = 'y'", **values)
    per_file = topology.merge(orders.project("k"), paid.project("k"), name="lines").partition_aggregate(lines=Count())
    per_file.group_by("lines").persistent_aggregate(OpaqueState("per_file"), files=Count())
    none.aggregate(n=Count()).group_by("n").persistent_aggregate(OpaqueState("nothing"), times=Count())
    emitted = emit(topology)
    assert emitted.partials["both"] == {
        ("a",): (3, 2, 1, 1, 0, False, True),
        ("b",): (None, None, None, None, None, True, False),
        ("c",): (1, 0, 0, 0, 0, False, True),
    }
    assert emitted.partials["per_file"] == {(3,): (1,), (2,): (2,)}
    assert emitted.partials["nothing"] == {(0,): (1,)}
    assert emitted.read("orders") == {"1": 3, "2": 2}
    assert emitted.manifest.states["both"].kept == 3
