"""Spark SQL of a job, held against the fields of its streams without Spark."""

from __future__ import annotations

import re

import pytest

from txbatch import Count, FixedBatchSpout, OpaqueState, Stream, Sum, Topology
from txbatch.core.errors import DefinitionError
from txbatch.launch.expressions import check_expressions, names

READS = {
    "price * amount": ["price", "amount"],
    "`unit price` + `a.b` + `c``d`": ["unit price", "a.b", "c`d"],
    "PRICE > 1 and Price < 2": ["PRICE", "Price"],
    "address.city.name": ["address"],
    "transform(xs, x -> x + y)": ["xs", "y"],
    "aggregate(xs, zero, (acc, x) -> acc + x.a, acc -> acc * factor)": ["xs", "zero", "factor"],
    "map_filter(m, (k, v) -> k > v + least)": ["m", "least"],
    "timestampadd(HOUR, n, ts)": ["n", "ts"],
    "dateadd(MONTH, 1, day)": ["day"],
    "timestampdiff(MINUTE, a, b)": ["a", "b"],
    "extract(DOW from day)": ["day"],
    "date_trunc('HOUR', ts) + interval 5 minutes": ["ts"],
    "cast(a as decimal(10,2)) <=> b::int": ["a", "b"],
    "case kind when 'a' then x else y end": ["kind", "x", "y"],
    "named_struct('name', a, 'it''s', \"b\").name": ["a"],
    "from_json(v, 'a int, b string').a": ["v"],
    "a.b[i]['k']": ["a", "i"],
    "s like '%x' escape '/' or s rlike 'y' or s not in ('a', t)": ["s", "s", "s", "t"],
    "a ?? b || c": ["a", "b", "c"],
    "position(a in b) + overlay(c placing d from 1 for 2)": ["a", "b", "c", "d"],
    "trim(both a from b)": ["a", "b"],
    "if(a, current_date, current_timestamp())": ["a"],
    "current_time > localtime and user = current_user": [],
    "date'2020-01-01' + timestamp '2020-01-01 00:00:00' + x'1F' + 1e3 + 5L + 1.5BD": [],
    "desc + set + date": ["desc", "set", "date"],
    "value -- a remark on it": ["value"],
    "count(*)": [],
    "*": [],
    # What it cannot read, or not be sure of, is left to Spark.
    "price >": [],
    "price ) (": [],
    "x in (select y from z)": [],
}


@pytest.mark.parametrize("sql", READS)
def test_the_fields_that_an_expression_reads(sql: str) -> None:
    assert sorted(names(sql)) == sorted(READS[sql])


def lines() -> Stream:
    spout = FixedBatchSpout("item string, price decimal(10,2), `unit price` double", 1, ("a", 1, 2.0))
    return Topology("t").new_stream("lines", spout)


WRONG = {
    "filter 'prise > 0' reads 'prise', which is no field there; it has item, price, unit price; did you mean 'price'?": (
        lambda: lines().filter("prise > 0")
    ),
    "each 'tax' reads 'tax'": lambda: lines().each("tax", "x double"),
    # One expression may name what those before it made, not what those behind it make.
    "each 'c + 1' reads 'c', which is no field there; it has item, price, unit price": lambda: lines().each(
        ["c + 1", "1"], "b int, c int"
    ),
    "map 'x' reads 'x'": lambda: lines().map(["price", "x"], "a decimal(10,2), b int"),
    "filter 'price > 0' reads 'price', which is no field there; it has item": lambda: (
        lines().project("item").filter("price > 0")
    ),
    "flat_map \"split(line, 'x')\" reads 'line'": lambda: lines().flat_map("split(line, 'x')", "word string"),
    "filter 'unit > 0' reads 'unit'": lambda: lines().filter("unit > 0"),
    "where 'n > 1' reads 'n'": lambda: lines().group_by("item").aggregate(n=Count(where="n > 1")),
    "filter 'price > 1' reads 'price'": lambda: lines().group_by("item").aggregate(n=Count()).filter("price > 1"),
}


@pytest.mark.parametrize("says", WRONG)
def test_a_field_that_is_not_there(says: str) -> None:
    stream = WRONG[says]()
    stream.persistent_aggregate(OpaqueState("s"), n=Count())
    refused(stream, says)


def test_a_field_that_is_not_there_of_what_is_said_of_a_state() -> None:
    sums = lines()
    sums.group_by("item").persistent_aggregate(OpaqueState("s"), n=Sum("price", where="cost > 0"))
    refused(sums, "where 'cost > 0' reads 'cost'")
    removing = lines()
    removing.group_by("item").persistent_aggregate(OpaqueState("s"), n=Sum("price"), remove="gone")
    refused(removing, "remove 'gone' reads 'gone'")


def refused(stream: Stream, says: str) -> None:
    with pytest.raises(DefinitionError, match=rf"^TX103 \(no retry helps\): stream 'lines': {re.escape(says)}"):
        check_expressions(stream.topology)  # type: ignore[arg-type]


def test_what_is_there_passes() -> None:
    stream = (
        lines()
        .filter("PRICE > 0 and `unit price` is not null")
        .each(["price * 2", "twice + 1"], "twice decimal(11,2), more decimal(12,2)")
        .transform(lambda frame: frame, "a int")
        .filter("seen_by_spark_alone > 0")
        .project("a")
        .filter("a > 0")
    )
    stream.persistent_aggregate(OpaqueState("s"), n=Count(where="a > 1"))
    check_expressions(stream.topology)  # type: ignore[arg-type]
