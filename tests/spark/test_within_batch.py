"""Operations within a batch by Spark: the golden cases, and random ones, have the results that they have in memory."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from operation_cases import PATHS, Counted, OperationCase, Read, after, counted, in_memory, new_stream
from pyspark.sql import DataFrame, SparkSession

from txbatch import Stream, Topology
from txbatch.core.operations import Source
from txbatch.spark.frames import of_rows
from txbatch.spark.operations import run_operations


def frame_of(spark: SparkSession, stream: Stream, read: Read) -> DataFrame:
    def given(source: Source) -> DataFrame:
        return of_rows(spark, source.fields, [each for part in read[source.name].values() for each in part])

    return run_operations(stream.node, given)


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(record.values()) for record in frame.toArrow().to_pylist()]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_golden(spark: SparkSession, path: Path) -> None:
    case = OperationCase.load(path)
    assert counted(rows(frame_of(spark, case.stream, case.read))) == case.expect


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


# ---- random chains of operations on random records: the twin is Spark

FIELDS = "k string, m string, n bigint, x bigint"
CHAINS = 12


def random_record(random: Random) -> tuple[Any, ...]:
    return (
        *(random.choice(["a", "b", "ü", None]) for _ in range(2)),
        *(random.choice([0, 1, 2, None]) for _ in range(2)),
    )


def random_operations(random: Random) -> list[list[Any]]:
    made = []
    for _ in range(random.randint(1, 3)):
        group = ["group_by", *random.sample(["k", "m", "n"], random.randint(1, 2))]
        by = random.choice(["k", "n", "x"])
        first = ["first_n", random.randint(1, 4), by, {"descending": random.random() < 0.5}]
        made += random.choice([[["distinct"]], [first], [group, first], [group, ["max_by", by]], [["min_by", by]]])
    return made


def test_random_chains_are_as_in_memory(spark: SparkSession) -> None:
    """All chains are one job of Spark."""
    random, expected, found = Random(13), list[Counted](), list[DataFrame]()
    for number in range(CHAINS):
        topology = Topology("t")
        new_stream(topology, "in", FIELDS)
        new_stream(topology, "more", FIELDS)
        read = {name: {"": [random_record(random) for _ in range(random.randint(0, 12))]} for name in ("in", "more")}
        operations = random_operations(random)
        stream = after(topology, [["merge", "more", {"name": "all"}], *operations])
        expected.append(in_memory(stream, read))
        whole = frame_of(spark, stream, read).selectExpr(
            "to_json(array(struct(*)), map('ignoreNullFields', 'false')) as r"
        )
        found.append(whole.selectExpr(f"{number} as number", "r"))
    together = found[0]
    for each in found[1:]:
        together = together.union(each)
    out: list[list[tuple[Any, ...]]] = [[] for _ in range(CHAINS)]
    for number, record in rows(together):
        out[number].append(tuple(json.loads(record)[0].values()))
    assert [counted(each) for each in out] == expected
