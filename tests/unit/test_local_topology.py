"""The testing kit: jobs as they are, fed in memory, that die where a test says, and count once."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import refusals

from txbatch import (
    AppendState,
    Avg,
    CollectSet,
    Count,
    CountIf,
    FileSpout,
    FixedBatchSpout,
    Interval,
    IntervalSpout,
    Max,
    NonTransactionalState,
    OpaqueState,
    Spout,
    StaticState,
    Sum,
    Topology,
    TransactionalState,
    window,
)
from txbatch.core.batch.transaction import BatchKind, BatchStatus
from txbatch.core.errors import (
    BadRecord,
    DefinitionError,
    IntervalNotOver,
    PartitionUnreadable,
    TerminalError,
)
from txbatch.core.state.state import State
from txbatch.testing import FeederBatchSpout, FeederPartitionedSpout, submit_topology
from txbatch.testing.local import POINTS

ROOT = Path(__file__).parents[2]
JANUARY_1 = Interval(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))
WORDS = "[a-z']+"
PLAIN = {"currency", "m", "m is null"}
SPLIT = 'regexp_extract_all(lower(line), "[a-z\']+", 0)'


def words(spout: Spout, state: State | None = None, name: str = "words", **more: Any) -> Topology:
    topology = Topology(name)
    stream = topology.new_stream("in", spout).group_by("word")
    stream.persistent_aggregate(state or OpaqueState("words"), count=Count(), **more)
    return topology


def counts(*pairs: tuple[str, int]) -> list[dict[str, Any]]:
    return [{"word": word, "count": count} for word, count in pairs]


@pytest.mark.parametrize("interval", [(JANUARY_1.start, JANUARY_1.end), "2026-01-01"])
def test_what_is_no_interval_is_told_how_one_is_written(interval: Any) -> None:
    with refusals.refused("TX105", "zone"):
        submit_topology(words(FeederBatchSpout("word string"))).run(interval=interval)


def test_a_run_of_a_job_by_time_without_an_interval_is_told_what_to_say() -> None:
    local = submit_topology(words(FeederBatchSpout("word string, day date", time="day")))
    with refusals.refused("TX415", "interval="):
        local.run()


def test_a_stream_that_is_not_there_is_told_which_are() -> None:
    local = submit_topology(words(FeederBatchSpout("word string")))
    with refusals.refused("TX401", "'inn'", "'in'"):
        local.spouts["inn"]
    assert local.spouts.get("inn") is None


# ---- a death at every point, of every kind of source and state


@pytest.mark.parametrize("point", [point for point in POINTS if "apart" not in point])
@pytest.mark.parametrize("state", [OpaqueState, TransactionalState])
def test_a_batch_that_dies_anywhere_counts_once(
    point: str, state: type[OpaqueState] | type[TransactionalState]
) -> None:
    spout = FeederBatchSpout("word string")
    local = submit_topology(words(spout, state("words")))
    spout.feed("the", "cat")
    assert local.run(dies_at=point) == ()
    spout.feed("the")
    assert local.run() in [(1, 2), (2,)]  # success is not run twice
    assert local.rows("words") == counts(("cat", 1), ("the", 2))
    assert [batch.txid for batch in local.batches()] == [1, 2]


@pytest.mark.parametrize("point", POINTS)
def test_so_does_one_of_a_state_in_another_database(point: str) -> None:
    spout = FeederBatchSpout("word string")
    local = submit_topology(words(spout, OpaqueState("words", database="warehouse")))
    spout.feed("the", "cat")
    local.run(dies_at=point)
    local.run()
    assert local.rows("words") == counts(("cat", 1), ("the", 1))


def test_attempt_2_dies_after_the_load() -> None:
    spout = FeederBatchSpout("word string")
    local = submit_topology(words(spout))
    spout.feed("the")
    local.run(dies_at="emit.manifest_written")
    local.run(dies_at="commit.loaded")
    assert [str(batch.attempt) for batch in local.batches()] == ["1:2"]
    assert local.rows("words") == []
    assert local.run() == (1,)
    assert local.rows("words") == counts(("the", 1))


def test_as_many_batches_as_are_said_also_of_a_source_without_end() -> None:
    local = submit_topology(words(FixedBatchSpout("word string", 1, "the", "cat", cycle=True)))
    with refusals.refused("TX106", "'in'", "batches="):
        local.run()
    assert local.run(batches=2) == (1, 2)
    assert local.run(batches=1, dies_at="commit.loaded") == ()
    assert local.run(batches=1) == (3,)
    assert local.rows("words") == counts(("cat", 1), ("the", 2))


def test_a_point_that_the_run_never_comes_to_fails_the_test() -> None:
    spout = FeederBatchSpout("word string")
    local = submit_topology(words(spout))
    with pytest.raises(TerminalError, match=r"never came to commit\.loaded: it ended txids \[\]; feed it before"):
        local.run(dies_at="commit.loaded")
    with refusals.refused("TX105", "dies_at", "'commit'", "planned"):
        local.run(dies_at="commit")


def test_a_non_transactional_source_gives_a_retry_other_records() -> None:
    spout = FeederBatchSpout("word string", kind="non_transactional")
    local = submit_topology(words(spout, NonTransactionalState("words"), guarantee="at_least_once"))
    spout.feed("lost")
    local.run(dies_at="emit.manifest_written")
    spout.feed("the")
    assert local.run() == (1,)
    assert local.rows("words") == counts(("the", 1))


# ---- partitions and outages


def test_an_opaque_partition_that_is_away_is_left_out_and_comes_later() -> None:
    spout = FeederPartitionedSpout("word string", kind="opaque")
    local = submit_topology(words(spout))
    spout.feed("the", partition="0")
    spout.feed("cat", partition="1")
    local.run(dies_at="initialize.planned")
    spout.take_away("1")
    assert local.run() == (1,)
    assert local.rows("words") == counts(("the", 1))
    spout.give_back("1")
    assert local.run() == (2,)
    assert local.rows("words") == counts(("cat", 1), ("the", 1))


@pytest.mark.parametrize("planned", [False, True])
def test_a_transactional_one_keeps_its_batch_back(planned: bool) -> None:
    spout = FeederPartitionedSpout("word string")
    local = submit_topology(words(spout, TransactionalState("words")))
    spout.feed("the", partition="0")
    spout.feed("cat", partition="1")
    if planned:
        local.run(dies_at="initialize.planned")
    spout.take_away("1")
    with refusals.refused("TX201", "partition", "'1'"):
        local.run()
    assert local.rows("words") == []
    spout.give_back("1")
    assert local.run() == (1,)
    assert local.rows("words") == counts(("cat", 1), ("the", 1))


def test_a_source_without_partitions_is_away_as_a_whole() -> None:
    spout = FeederBatchSpout("word string")
    local = submit_topology(words(spout))
    spout.feed("the")
    spout.take_away()
    with pytest.raises(PartitionUnreadable):
        local.run()
    spout.give_back()
    assert local.run() == (1,)


# ---- intervals, restates, restarts


def test_a_run_of_an_interval_counts_its_records_once_whenever_it_is_run() -> None:
    local = submit_topology(str(ROOT / "starter" / "jobs" / "sales.py"))
    spout = local.spouts["sales"]
    spout.feed((JANUARY_1.start, "Bergen", Decimal("5.00")), (JANUARY_1.end, "Oslo", Decimal("1.00")))
    local.run(interval=JANUARY_1, dies_at="commit.before_commit")
    spout.feed((JANUARY_1.start, "Oslo", Decimal("2.50")))  # too late for the plan
    assert local.run(interval=JANUARY_1)
    local.run(interval=JANUARY_1)
    bergen = {"shop": "Bergen", "sales": 1, "turnover": Decimal("5.00"), "mean": 5, "dearest": Decimal("5.00")}
    assert local.rows("sales") == [bergen]
    assert local.restate(1, why="late files")
    assert [row["shop"] for row in local.rows("sales")] == ["Bergen", "Oslo"]
    assert [batch.kind for batch in local.batches()] == [BatchKind.ORDINARY, BatchKind.RESTATE]


def test_an_interval_that_is_not_over_is_refused_as_in_production() -> None:
    local = submit_topology(words(FeederBatchSpout("word string, day date", time="day")))
    with pytest.raises(IntervalNotOver):
        local.run(interval=Interval(datetime(2026, 1, 1, tzinfo=UTC), datetime(2999, 1, 1, tzinfo=UTC)))


def test_a_day_is_in_its_interval_in_utc() -> None:
    spout = FeederBatchSpout("word string, day date", time="day")
    local = submit_topology(words(spout))
    spout.feed(("in", date(2026, 1, 1)), ("out", date(2026, 1, 2)))
    local.run(interval=JANUARY_1)
    assert local.rows("words") == counts(("in", 1))


def test_a_batch_is_counted_again_from_a_source_that_was_mended() -> None:
    spout = FeederBatchSpout("word string")
    local = submit_topology(words(spout))
    for word in ("teh", "cat"):
        spout.feed(word)
    assert local.run() == (1, 2)
    spout.mend(1, "the")
    assert local.restate(1, why="a typing error", dies_at="commit.loaded") == ()
    assert local.restate(1, why="a typing error") == (3,)
    assert local.rows("words") == counts(("cat", 1), ("the", 1))


def test_what_an_attempt_has_staged_is_committed_whatever_becomes_of_the_source() -> None:
    spout = FeederPartitionedSpout("word string")
    local = submit_topology(words(spout))
    spout.feed("teh", partition="0")
    local.run(dies_at="emit.recorded")
    spout.mend(1, "the", partition="0")
    assert local.run() == (1,)
    assert local.rows("words") == counts(("teh", 1))


@pytest.mark.parametrize("kind", ["transactional", "opaque"])
def test_staged_files_that_are_lost_are_emitted_again_from_the_same_source(kind: str) -> None:
    spout = FeederPartitionedSpout("word string", kind=kind)
    local = submit_topology(words(spout))
    spout.feed("teh", partition="0")
    local.run(dies_at="emit.recorded")
    local.lose_staged_files()
    spout.mend(1, "the", partition="0")
    if kind == "transactional":
        with refusals.refused("TX409", "partition", "'0'"):
            local.run()
        spout.mend(1, "teh", partition="0")
    assert local.run() == (1,)
    assert [row["word"] for row in local.rows("words")] == ["teh" if kind == "transactional" else "the"]
    assert [str(batch.attempt) for batch in local.batches()] == ["1:3" if kind == "transactional" else "1:2"]


def test_a_job_that_was_mended_goes_on_where_the_other_ended() -> None:
    def job(key: str, **more: Any) -> Topology:
        topology = Topology("words")
        stream = topology.new_stream("in", FileSpout("/data", "*.txt"))
        named = stream.map(lambda record: getattr(record["line"], key)(), "word string")
        named.group_by("word").persistent_aggregate(OpaqueState("words"), count=Count(), **more)
        return topology

    local = submit_topology(job("title"))
    local.spouts["in"].feed("THE", partition="a.txt")
    local.run()
    mended = local.submit_topology(job("lower"))
    mended.spouts["in"].feed("The", partition="b.txt")
    assert mended.run() == (2,)
    assert mended.rows("words") == counts(("The", 1), ("the", 1))
    assert mended.restate(1, why="lower case") == (3,)
    assert mended.rows("words") == counts(("the", 2))
    with refusals.refused("TX601", "'more'", "'words'"):
        local.submit_topology(job("lower", more=Count())).run()
    with refusals.refused("TX601", "'in'"):
        local.submit_topology(words(FeederBatchSpout("word string"))).run()


# ---- what a job has beside its functions


def test_the_job_of_the_readme_with_a_function_for_its_sql() -> None:
    job = ROOT / "jobs" / "word_count.py"
    with refusals.refused("TX113", "'word_count'", "Spark", "flat_map", "'lines'", "SQL", "functions="):
        submit_topology(job)
    local = submit_topology(job, functions={SPLIT: lambda record: re.findall(WORDS, record["line"].lower())})
    local.spouts["lines"].feed("How are you?", "are you there", partition="a.txt")
    local.run()
    assert {row["word"]: row["count"] for row in local.rows("word_count")} == {"how": 1, "are": 2, "you": 2, "there": 1}


def test_functions_stand_wherever_sql_may() -> None:
    def job(static: Any) -> Topology:
        topology = Topology("t")
        rates = topology.new_static_state(StaticState("rates", static, "currency string, rate bigint"))
        left = (
            topology.new_stream("a", FeederBatchSpout("currency string, n bigint"))
            .filter("n > 0")
            .each(["n * 2", "n + 1"], "twice bigint, more bigint")
            .state_query(rates, "currency")
        )
        right = topology.new_stream("b", FeederBatchSpout("currency string, m bigint"))
        summed = right.map(["currency", "m"], "currency string, m bigint").group_by("currency")
        joined = topology.join(left, summed.aggregate(m=Sum("m", where="m < 9")), on="currency", name="both")
        joined.group_by("currency").persistent_aggregate(
            OpaqueState("s"),
            remove="m is null",
            twice=Sum("twice"),
            big=CountIf("rate > 1"),
            more=Sum("more"),
            m=Sum("m"),
        )
        joined.persist(AppendState("rows"))
        return topology

    functions: dict[str, Any] = {
        "n > 0": lambda record: record["n"] > 0,
        "n * 2": lambda record: record["n"] * 2,
        "n + 1": lambda record: record["n"] + 1,
        "currency": lambda record: record["currency"],
        "m": lambda record: record["m"],
        "m < 9": lambda record: record["m"] < 9,
        "m is null": lambda record: record["m"] is None,
        "rate > 1": lambda record: record["rate"] > 1,
    }
    local = submit_topology(job(lambda spark: None), functions=functions, static={"rates": [("NOK", 11)]})
    local.spouts["a"].feed(("NOK", 1), ("NOK", 2), ("NOK", -1))
    local.spouts["b"].feed(("NOK", 5), ("NOK", 9))
    assert local.run() == (1,)
    assert local.rows("s") == [{"currency": "NOK", "twice": 6, "big": 2, "more": 5, "m": 10}]
    assert [(row["batch"], row["n"]) for row in local.rows("rows")] == [(1, 1), (1, 2)]
    with pytest.raises(DefinitionError) as refused:
        submit_topology(job(lambda spark: None))
    for expression in functions.keys() - PLAIN:
        assert repr(expression) in str(refused.value)
    for expression in PLAIN:
        assert repr(expression) not in str(refused.value)
        del functions[expression]
    assert submit_topology(job([("NOK", 11)]), functions=functions)
    assert "static state 'rates' is read by Spark" in str(refused.value)


def test_a_field_as_it_is_and_whether_it_is_null_need_no_function() -> None:
    topology = Topology("t")
    stream = topology.new_stream("in", FeederBatchSpout("word string, `unit price` bigint, paid boolean"))
    kept = stream.filter("WORD is Not  null").map(
        ["word", "`Unit Price`", "paid"], "word string, price bigint, paid boolean"
    )
    known = kept.each("price is null", "free boolean").group_by("word")
    known.persistent_aggregate(
        OpaqueState("s"), remove="paid", free=CountIf("free"), paid=CountIf("paid"), n=Count(where="free")
    )
    local = submit_topology(topology)
    local.spouts["in"].feed(("a", 1, None), ("a", None, False), (None, 1, False), ("b", 1, False))
    local.run()
    told = {"free": 1, "paid": 0, "n": 1}
    assert local.rows("s") == [{"word": "a", **told}, {"word": "b", "free": 0, "paid": 0, "n": 0}]
    local.spouts["in"].feed(("b", 1, True))
    local.run()
    assert local.rows("s") == [{"word": "a", **told}]


@pytest.mark.parametrize("sql", ["word", "`n`", "true", "null", "n is null and true", "n isnull", "not n"])
def test_all_other_expressions_are_sparks(sql: str) -> None:
    topology = Topology("t")
    stream = topology.new_stream(
        "in", FeederBatchSpout("word string, n bigint, `true` boolean, `null` boolean")
    ).filter(sql)
    stream.group_by("word").persistent_aggregate(OpaqueState("s"), count=Count())
    with refusals.refused("TX113", "'in'", "Spark", "SQL"):
        submit_topology(topology)


def test_a_field_that_is_not_there_is_named_as_by_the_command() -> None:
    topology = Topology("t")
    with refusals.refused("TX106", "'t'"):
        submit_topology(topology)
    stream = topology.new_stream("in", FeederBatchSpout("word string")).filter("wrod is null")
    stream.group_by("word").persistent_aggregate(OpaqueState("s"), count=Count())
    with refusals.refused("TX103", "'wrod is null'", "'wrod'", "'word'"):
        submit_topology(topology)


def test_records_in_quarantine_are_rows_to_look_at() -> None:
    topology = Topology("shop", quarantine=1)
    stream = topology.new_stream("in", FileSpout("/data", "*.txt")).each(lambda record: int(record["line"]), "n bigint")
    stream.persistent_aggregate(OpaqueState("s"), total=Sum("n"))
    local = submit_topology(topology)
    local.spouts["in"].feed("1", "x", "2", partition="a.txt")
    local.run(dies_at="commit.loaded")
    local.run()
    assert local.rows("s") == [{"total": 3}]
    (row,) = local.rows("shop_quarantine")
    assert (row["batch"], row["partition"], row["data"]) == (1, "a.txt", '{"line": "x"}')


def test_late_records_kept_aside_are_rows_to_look_at() -> None:
    hours = [(datetime(2026, 11, 23, hour, tzinfo=UTC),) for hour in (8, 12, 9)]
    topology = Topology("visits")
    stream = topology.new_stream("visits", FixedBatchSpout("at timestamp", 2, *hours))
    stream = stream.with_watermark("at", "1 hour", late="side").group_by(window("at", "1 hour"))
    stream.persistent_aggregate(OpaqueState("hourly"), visits=Count())
    local = submit_topology(topology)
    local.run()
    assert [(row["window_start"].hour, row["visits"]) for row in local.rows("hourly")] == [(8, 1), (12, 1)]
    assert [(row["batch"], row["at"].hour) for row in local.rows("hourly_late")] == [(2, 9)]


def test_a_transform_cannot_be_had_without_spark() -> None:
    topology = Topology("t")
    stream = topology.new_stream("in", FeederBatchSpout("word string")).transform(lambda frame: frame)
    stream.group_by("word").persistent_aggregate(OpaqueState("s"), count=Count())
    with refusals.refused("TX113", "'in'", "Spark"):
        submit_topology(topology)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"functions": {"lower(x)": str}}, ("TX103", "Spark", "SQL", "'lower(x)'")),
        ({"static": {"rates": []}}, ("TX103", "'rates'")),
        ({"spouts": {"out": FeederBatchSpout("word string")}}, ("TX103", "'out'", "'in'")),
    ],
)
def test_what_the_topology_does_not_have_is_named(given: dict[str, Any], told: tuple[str, ...]) -> None:
    with refusals.refused(*told):
        submit_topology(words(FeederBatchSpout("word string")), **given)


def test_a_spout_becomes_a_feeder_of_its_kind(tmp_path: Path) -> None:
    class ByCountry(FileSpout):
        parameters = ("country",)

    day = IntervalSpout(tmp_path, "at timestamp, word string", time="at")
    topology = words(day)
    spout = submit_topology(topology).spouts["in"]
    assert (spout.by_interval, spout.time, str(spout.kind)) == (True, "at", "transactional")
    assert topology.streams["in"].spout is day  # the job's own topology is left as it is
    stream = Topology("t").new_stream("in", ByCountry(tmp_path))
    stream.group_by("line").persistent_aggregate(OpaqueState("s"), count=Count())
    with refusals.refused("TX106", "'in'", "ByCountry"):
        submit_topology(stream.topology)  # type: ignore[arg-type]


# ---- what is fed, and what is looked at


@pytest.mark.parametrize(
    "record", [("a",), ("a", 1.5), {"word": "a"}, {"word": "a", "n": "1"}, ("a", 1, 2), ("a", True)]
)
def test_a_record_that_does_not_fit_is_refused_where_it_is_fed(record: Any) -> None:
    with refusals.refused("TX301", "FeederBatchSpout"):
        FeederBatchSpout("word string, n bigint").feed(record)


@pytest.mark.parametrize(
    ("record", "code", "told"),
    [
        (("a\0b", "v"), "TX304", "key 'word' holds U\\+0000"),
        (("a", "v\0"), "TX304", "value 'last' holds U\\+0000"),
        (
            ("\u00fc" * 1_339, "v"),
            "TX306",
            "key 'word' is too long .* takes at most 2,676 bytes; it begins: '\u00fc{40}'",
        ),
    ],
)
@pytest.mark.parametrize("show", [True, False])
def test_what_postgresql_cannot_store_is_refused_and_its_batch_named(
    record: Any, code: str, told: str, show: bool
) -> None:
    spout, topology = FeederBatchSpout("word string, v string"), Topology("words", show_records=show)
    grouped = topology.new_stream("in", spout).group_by("word")
    grouped.persistent_aggregate(OpaqueState("words"), last=Max("v"), all=CollectSet("v", limit=3))
    local = submit_topology(topology)
    spout.feed(("\u00fc" * 1_338, "as long as may be"))
    spout.feed(record)
    told = told if show else told.partition(":")[0]
    with pytest.raises(BadRecord, match=rf"^{code} \(no retry helps\): words 2:1: state 'words': {told}; filter such"):
        local.run()
    assert [batch.status for batch in local.batches()] == [BatchStatus.COMMITTED, BatchStatus.PLANNED]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: FeederBatchSpout("word string", kind="exact"),
        lambda: FeederBatchSpout("word string", time="word"),
        lambda: FeederPartitionedSpout("word string", kind="non_transactional"),
        lambda: FeederPartitionedSpout("word string").take_away("0"),
        lambda: FeederBatchSpout("word string").mend(1, "a"),
        lambda: FeederBatchSpout("word string").emit_batch(None, None, {}),  # type: ignore[arg-type]
    ],
)
def test_what_a_feeder_cannot_do_is_refused(wrong: Any) -> None:
    with pytest.raises(DefinitionError, match=r"Feeder|feed"):
        wrong()


@pytest.mark.parametrize(
    "time",
    [
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=9))),
        datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=5))),
    ],
)
def test_a_time_beyond_the_years_of_utc_is_refused_as_other_values_are(time: datetime) -> None:
    told = "was fed .* for 'at', declared timestamp: it is outside the years 1 to 9999 in UTC; convert it there"
    with pytest.raises(BadRecord, match=told):
        FeederBatchSpout("at timestamp, n bigint").feed((time, 1))


def test_a_record_without_its_time_is_in_no_interval() -> None:
    with refusals.refused("TX301", "no day"):
        FeederBatchSpout("word string, day date", time="day").feed(("a", None))


def test_rows_are_finished_and_in_order() -> None:
    spout = FeederBatchSpout("word string, n bigint")
    topology = Topology("t")
    stream = topology.new_stream("in", spout)
    stream.group_by("word").persistent_aggregate(OpaqueState("s"), mean=Avg("n"))
    stream.persistent_aggregate(OpaqueState("all"), count=Count())
    local = submit_topology(topology)
    assert local.rows("all") == []
    spout.feed({"word": "b", "n": 1}, ("b", 2), ("a", None))
    spout.feed()
    assert local.run() == (1, 2)
    assert local.rows("s") == [{"word": "a", "mean": None}, {"word": "b", "mean": Decimal("1.5")}]
    assert local.rows("all") == [{"count": 3}]
    with refusals.refused("TX401", "'t'", "'none'", "'s'", "'all'"):
        local.rows("none")
