"""SQL expressions that drop, multiply or mix records, or say something else every time, are refused before anything is read."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from support import ListSpout

from txbatch import Count, FixedBatchSpout, OpaqueState, Topology
from txbatch.core.errors import DefinitionError
from txbatch.core.records.fields import Field
from txbatch.core.topology.nodes import Each, Filter, FlatMap, Map
from txbatch.core.topology.walks import Source
from txbatch.spark.operations import run_step, with_condition

TIME, FLAT = "date_trunc", "flat_map makes any number of records"
MIXING = [
    ("window(ts, '10 minutes').start", "window", TIME),
    ("session_window(ts, '5 minutes').start", "session_window", "txbatch.session_window"),
    ("window_time(window(ts, '1 hour'))", "window_time", TIME),
    ("explode(a)", "explode", FLAT),
    ("posexplode_outer(a)", "posexplode_outer", FLAT),
    ("inline(array(struct(n)))", "inline", FLAT),
    ("stack(2, n, n)", "stack", FLAT),
    ("json_tuple(s, 'a')", "json_tuple", FLAT),
    ("row_number() over (order by n)", "row_number", "persistent_aggregate"),
    ("lag(n) over (order by n)", "lag", "persistent_aggregate"),
    ("sum(n) over ()", "sum", "persistent_aggregate"),
    ("sum(n)", "sum", "persistent_aggregate"),
    ("count(*)", "count", "persistent_aggregate"),
    ("(select max(id) from range(3))", "a subquery", "state_query"),
]
OTHERWISE = [
    ("rand()", "rand"),
    ("coalesce(s, uuid())", "uuid"),
    ("shuffle(a)[0]", "shuffle"),
    ("monotonically_increasing_id()", "monotonically_increasing_id"),
    ("input_file_name()", "input_file_name"),
    ("current_timestamp()", "current_timestamp"),
    ("now()", "now"),
    ("current_date", "current_date"),
    ("unix_timestamp()", "current_timestamp"),
    ("date'today'", "'today'"),
    ("timestamp 'now'", "'now'"),
    ("cast('yesterday' as date)", "'yesterday'"),
    ("current_user()", "current_user"),
]
RIGHT = [
    "n + 1",
    "split(s, ',')[0]",
    "transform(a, x -> x + 1)[0]",
    "date_trunc('hour', ts)",
    "timestamp_seconds(unix_seconds(ts) - pmod(unix_seconds(ts), 600))",
    "convert_timezone('America/New_York', cast(ts as timestamp_ntz))",
    "if(s = 'today', 'now()', 'explode(a)')",
    "from_csv(s, 'a int').a",
    "if(n > 9, raise_error('too large'), n)",
    "(select)",
]
CALLS = {"each": "{}", "map": "{}", "filter": "({}) is not null", "flat_map": "array({})", "remove": "({}) is not null"}

NODES: Any = {"each": Each, "map": Map, "filter": Filter, "flat_map": FlatMap}


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return spark.sql(
        "SELECT id AS n, cast(id as string) AS s, timestamp'2024-01-01 00:12:34Z' AS ts, array(1, 2) AS a, id AS `select`"
        " FROM range(3)"
    )


def run(frame: DataFrame, operation: str, expression: str) -> DataFrame:
    if operation == "remove":
        return with_condition(frame, expression, "removes")
    fields = tuple(Field(name, type_) for name, type_ in frame.dtypes)
    after = {"each": (*fields, Field("x", "string")), "filter": fields}.get(operation, (Field("x", "string"),))
    return run_step(frame, NODES[operation]("in", after, Source("in", fields, ListSpout(1)), expression))


@pytest.mark.rule("R24")
@pytest.mark.parametrize("operation", CALLS)
@pytest.mark.parametrize(("expression", "function", "way_out"), MIXING, ids=[each[0] for each in MIXING])
def test_what_is_not_record_by_record(
    frame: DataFrame, operation: str, expression: str, function: str, way_out: str
) -> None:
    given = CALLS[operation].format(expression)
    with pytest.raises(DefinitionError) as raised:
        run(frame, operation, given)
    told = str(raised.value)
    assert told.startswith(f"TX111 (no retry helps): {operation} {given!r}: ")
    assert f"{function} does not work record by record" in told or "a window function does not work" in told
    assert way_out in told
    assert "\n" not in told


@pytest.mark.rule("R24")
@pytest.mark.parametrize("operation", CALLS)
@pytest.mark.parametrize(("expression", "function"), OTHERWISE, ids=[each[0] for each in OTHERWISE])
def test_what_says_something_else_every_time(frame: DataFrame, operation: str, expression: str, function: str) -> None:
    with pytest.raises(DefinitionError, match=f": {function} says something else whenever it is asked"):
        run(frame, operation, CALLS[operation].format(expression))


@pytest.mark.parametrize("expression", RIGHT)
def test_what_looks_at_one_record_is_welcome(frame: DataFrame, expression: str) -> None:
    for operation, call in CALLS.items():
        expression = "`select`" if expression == "(select)" else expression
        run(frame, operation, call.format(expression))


def test_the_documented_way_to_cut_time_is_right(frame: DataFrame) -> None:
    cut = frame.selectExpr("cast(timestamp_seconds(unix_seconds(ts) - pmod(unix_seconds(ts), 600)) as string) AS cut")
    assert {row.cut for row in cut.collect()} == {"2024-01-01 00:10:00"}


def test_the_expression_of_several_is_named(frame: DataFrame) -> None:
    fields = (Field("x", "bigint"), Field("y", "bigint"))
    with pytest.raises(DefinitionError, match=r"map 'explode\(a\)': explode does not"):
        run_step(frame, Map("in", fields, Source("in", fields, ListSpout(1)), ["n", "explode(a)"]))


def test_a_job_that_drops_records_in_silence_fails(emit: Any) -> None:
    topology = Topology("windows")
    stream = topology.new_stream("in", FixedBatchSpout("at timestamp", 2, None, None))
    cut = stream.each("window(at, '10 minutes').start", "start timestamp")
    cut.group_by("start").persistent_aggregate(OpaqueState("windows"), count=Count())
    with pytest.raises(DefinitionError, match="window does not work record by record"):
        emit(topology)
