"""The example of the README, in memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from refusals import refused
from support import LogSpout, word_count

from txbatch import (
    AppendState,
    ApproxCountDistinct,
    Avg,
    CombinerAggregator,
    Count,
    DistinctSketch,
    FixedBatchSpout,
    LiveState,
    Max,
    Min,
    OpaqueState,
    ReducerAggregator,
    StateSpout,
    StaticState,
    Stream,
    Sum,
    TopNBy,
    Topology,
    TransactionalState,
)
from txbatch.core.errors import BadRecord, TerminalError, TransientError
from txbatch.core.records.ordered_texts import BETWEEN, ordered_text
from txbatch.memory.ask import ask
from txbatch.memory.ledger import MemoryLedger
from txbatch.memory.runner import run
from txbatch.testing import FeederPartitionedSpout

SENTENCES = ("how are you", "nice to meet you", "what a good day")


def sentences(*records: Any, fields: str = "sentence string", size: int = 1, name: str = "t") -> Stream:
    return Topology(name).new_stream("sentences", FixedBatchSpout(fields, size, *(records or SENTENCES)))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_classic_word_count_whatever_the_batches(size: int) -> None:
    words = sentences(size=size).flat_map(lambda record: record["sentence"].split(" "), "word string")
    words.group_by("word").persistent_aggregate(OpaqueState("words"), count=Count())
    ledger = run(words.topology)
    counts = {key: value.value for (key,), value in ledger.rows("words").items()}
    once = dict.fromkeys(["how", "are", "nice", "to", "meet", "what", "a", "good", "day"], (1,))
    assert counts == {**once, "you": (2,)}
    assert ledger.tables.last_committed("t") == -(-3 // size)


def test_running_again_goes_on_and_counts_nothing_twice() -> None:
    ledger = MemoryLedger()
    for _ in range(2):
        words = sentences().flat_map(lambda record: record["sentence"].split(" "), "word string")
        words.group_by("word").persistent_aggregate(OpaqueState("words"), count=Count())
        run(words.topology, ledger)
    assert ledger.rows("words")["you",].value == (2,)
    assert ledger.tables.last_committed("t") == 3


def test_of_several_states_that_are_read_some_may_have_nothing_new() -> None:
    reader, ledger = Topology("reader"), MemoryLedger()
    spouts = {name: FeederPartitionedSpout("word string") for name in ("a", "b")}
    topologies = {name: Topology(name) for name in spouts}
    for name, spout in spouts.items():
        words = topologies[name].new_stream("in", spout)
        words.group_by("word").persistent_aggregate(OpaqueState(name), count=Count())
        changes = reader.new_stream(name, StateSpout(name, "word string"))
        changes.persistent_aggregate(OpaqueState(f"of_{name}"), changes=Count())
    for name in ("a", "b"):
        spouts[name].feed("x", partition="0")
        run(topologies[name], ledger)
    run(reader, ledger)
    spouts["b"].feed("x", partition="0")
    run(reader, run(topologies["b"], ledger))
    assert [ledger.rows(f"of_{name}")[()].value for name in ("a", "b")] == [(1,), (2,)]


def test_operations_one_after_the_other() -> None:
    stream = (
        sentences(("AA", 5), ("AA", None), ("UA", 7), ("AA", 9), fields="carrier string, delay bigint", size=2)
        .each(lambda record: (record["delay"] or 0) * 2, "twice bigint")
        .filter(lambda record: record["carrier"] == "AA")
        .project("carrier", "delay", "twice")
    )
    stream.group_by("carrier").persistent_aggregate(
        TransactionalState("s"),
        n=Count(),
        known=Count("delay"),
        mean=Avg("delay"),
        low=Min("delay"),
        top=Max("twice"),
        exact=Sum("delay", scale=1),
    )
    ledger = run(stream.topology)
    assert ledger.rows("s")["AA",].value == (3, 2, 14, 2, 5, 18, Decimal("14.0"))


def test_numbers_are_those_of_the_declared_types() -> None:
    """As in Spark: an int that is given for a double is one, from a spout, a function or a row that is looked up."""
    stream = sentences(("a", 10), ("a", 9.5), ("a", 10.0), fields="k string, x double", size=2)
    half = stream.each(lambda record: 5 if record["x"] > 9.6 else 4.75, "half double")
    rates = stream.topology.new_static_state(StaticState("rates", [("a", 2)], "k string, rate double"))
    rated = half.state_query(rates, "k")
    rated.group_by("k").persistent_aggregate(
        OpaqueState("s"),
        different=ApproxCountDistinct("x"),
        rates=DistinctSketch("rate"),
        top=TopNBy(2, ("half", "rate"), by="x"),
    )
    values = run(stream.topology).rows("s")["a",].value
    first = rated.topology.aggregates[0].aggregates["top"].finish(values[-1:])
    assert (len(values[0]), first) == (2, [{"half": 5, "rate": 2}, {"half": 5, "rate": 2}])
    assert values[-1] == [BETWEEN.join(map(ordered_text, (10.0, 5.0, 2.0)))] * 2


def test_times_are_moments_whatever_zone_they_are_written_in() -> None:
    """As in Spark: without a zone it is UTC, from a spout, a function, a reducer or a row that is looked up."""
    moment, zone = datetime(2026, 1, 1, tzinfo=UTC), timezone(timedelta(hours=2))
    written = (moment.replace(tzinfo=None), moment, moment.astimezone(zone))
    stream = sentences(*written, fields="at timestamp", size=2)
    made = stream.map(lambda record: record["at"].astimezone(zone).replace(tzinfo=None), "local timestamp")
    shifts = stream.topology.new_static_state(StaticState("shifts", [(written[2], 1)], "at timestamp, shift int"))
    stream.group_by("at").persistent_aggregate(OpaqueState("fed"), count=Count(), first=Min("at"))
    made.group_by("local").persistent_aggregate(OpaqueState("made"), count=Count())
    stream.state_query(shifts, "at").group_by("shift").persistent_aggregate(OpaqueState("found"), count=Count())
    stream.aggregate(at=Latest()).group_by("at").persistent_aggregate(OpaqueState("reduced"), count=Count())
    ledger, later = run(stream.topology), moment + timedelta(hours=2)
    assert {key: row.value for key, row in ledger.rows("fed").items()} == {(moment,): (3, moment)}
    assert {key: row.value for key, row in ledger.rows("made").items()} == {(later,): (3,)}
    assert {key: row.value for key, row in ledger.rows("found").items()} == {(1,): (3,)}
    assert {key: row.value for key, row in ledger.rows("reduced").items()} == {(moment,): (2,)}


class Latest(ReducerAggregator):
    result = "timestamp"

    def init(self) -> None:
        return None

    def reduce(self, value: datetime | None, record: dict[str, Any]) -> datetime:
        return record["at"].replace(tzinfo=None)


@pytest.mark.parametrize("size", [1, 5])
def test_a_key_of_doubles_is_one_as_in_spark_and_postgresql(size: int) -> None:
    """NaN is one key, whoever makes it and in whichever batch; zero has no sign."""
    given = [(float("nan"), 1), (-0.0, 1), (float("nan"), 2), (0.0, 2), (1.5, 2)]
    stream = sentences(*given, fields="x double, n int", size=size)
    stream.group_by("x").persistent_aggregate(OpaqueState("fed"), n=Count())
    made = stream.map(lambda record: (float(str(record["x"])), record["n"]), "y double, n int")
    made.group_by("y").persistent_aggregate(OpaqueState("made"), n=Count())
    mean = made.group_by("n", "y").aggregate(mean=Sum("y", approximate=True))
    mean.group_by("mean").persistent_aggregate(OpaqueState("means"), n=Count())
    ledger = run(stream.topology)
    for state in ("fed", "made", "means"):
        found = {str(key): row.value for (key,), row in ledger.rows(state).items()}
        assert found == {"nan": (2,), "0.0": (2,), "1.5": (1,)}


def test_a_question_about_nan_is_answered() -> None:
    stream = sentences((float("nan"),), (-0.0,), fields="x double")
    counts = stream.group_by("x").persistent_aggregate(OpaqueState("s"), n=Count())
    stream.topology.new_query_stream("of", "x double").state_query(counts, "x").aggregate(n=Sum("n"))
    asked = stream.topology.new_query_stream("told", "args string").each(
        lambda record: float(record["args"]), "x double"
    )
    asked.state_query(counts, "x").aggregate(n=Sum("n"))
    ledger = run(stream.topology)
    assert ask(ledger, stream.topology, "of", [float("nan"), -0.0, 1]) == [[{"n": 1}], [{"n": 1}], [{"n": None}]]
    assert ask(ledger, stream.topology, "told", ["nan", "-0"]) == [[{"n": 1}], [{"n": 1}]]


def test_functions_of_several_fields() -> None:
    stream = sentences("a b", fields="line string").map(
        lambda record: tuple(record["line"].split()), "x string, y string"
    )
    stream.group_by("x", "y").persistent_aggregate(TransactionalState("s"), n=Count())
    assert list(run(stream.topology).rows("s")) == [("a", "b")]


def test_records_that_remove_their_key() -> None:
    words = sentences("a 1", "b 2", "a 3", "a -", "b -", "b 5", "c -", fields="line string", size=2).map(
        lambda record: tuple(record["line"].split()), "word string, amount string"
    )
    words.group_by("word").persistent_aggregate(
        OpaqueState("words"), remove=lambda record: record["amount"] == "-", n=Count(), top=Max("amount")
    )
    ledger = run(words.topology)
    assert {key: value.value for (key,), value in ledger.rows("words").items()} == {"a": (1, "3"), "b": (1, "5")}
    assert ledger.tables.states["words"].contributions == {
        (("a",), 1, 1): (1, "1", False, True),
        (("b",), 1, 1): (1, "2", False, True),
        (("a",), 2, 2): (1, "3", True, True),
        (("b",), 3, 3): (1, "5", True, True),
        (("c",), 4, 4): (None, None, True, False),
    }


def test_what_needs_spark_is_refused_and_nothing_is_counted() -> None:
    words = sentences().flat_map("split(sentence, ' ')", "word string")
    words.group_by("word").persistent_aggregate(OpaqueState("words"), count=Count())
    ledger = MemoryLedger()
    with refused("TX113", "flat_map", "Spark", "Python", "function"):
        run(words.topology, ledger)
    assert ledger.rows("words") == {}
    words = sentences(name="removing")
    words.group_by("sentence").persistent_aggregate(OpaqueState("s"), remove="sentence = ''", count=Count())
    with refused("TX113", "\"sentence = ''\"", "Spark"):
        run(words.topology)
    with refused("TX113", "'words'", "LogSpout", "Spark", "FixedBatchSpout"):
        run(word_count(LogSpout({"a": 1})))


@pytest.mark.parametrize("type_", ["int", "string"])
def test_a_stream_that_reads_a_state_as_another_type_is_refused_as_by_spark(type_: str) -> None:
    up, down = sentences(("a", 1), ("b", 2**40), fields="word string, n bigint", name="up"), Topology("down")
    up.group_by("word").persistent_aggregate(OpaqueState("sums"), total=Sum("n"))
    changes = down.new_stream("changes", StateSpout("sums", f"word string, total_after {type_}"))
    changes.group_by("word").persistent_aggregate(OpaqueState("seen"), count=Count())
    with pytest.raises(
        BadRecord, match=f"stream 'changes': the state has .* for 'total_after', declared {type_}: .*; convert it there"
    ):
        run(down, run(up.topology))


def test_a_value_of_another_type_is_refused_with_the_state_that_is_looked_up() -> None:
    up, down = sentences(("a", 2**40), fields="word string, n bigint", name="up"), Topology("down")
    up.group_by("word").persistent_aggregate(OpaqueState("sums"), total=Sum("n"))
    words = down.new_stream("words", FixedBatchSpout("word string", 1, "a"))
    seen = words.state_query(LiveState("sums", "word string, total int"), "word")
    seen.group_by("word").persistent_aggregate(OpaqueState("seen"), count=Count())
    with refused("TX301", "'sums'", "1099511627776", "'total'"):
        run(down, run(up.topology))
    stream = sentences("a", fields="word string")
    rates = stream.topology.new_static_state(StaticState("rates", [("a", 2.7)], "word string, n int"))
    stream.state_query(rates, "word").group_by("word").persistent_aggregate(OpaqueState("s"), n=Max("n"))
    with refused("TX301", "'rates'", "2.7", "'n'"):
        run(stream.topology)


@pytest.mark.parametrize("database", [None, "wh"])
@pytest.mark.parametrize(
    ("type_", "most", "instead"),
    [
        ("bigint", 2**63 - 1, "a decimal with more digits"),
        ("decimal(38,2)", Decimal("9" * 36 + ".99"), "fewer digits after the point"),
    ],
)
def test_what_fails_in_the_commit_names_batch_and_state_as_postgresql_does(
    type_: str, most: Any, instead: str, database: str | None
) -> None:
    words = sentences(("a", most), ("a", most), fields=f"word string, n {type_}")
    words.group_by("word").persistent_aggregate(OpaqueState("sums", database=database), total=Sum("n"))
    with pytest.raises(
        BadRecord,
        match=rf"^TX305 \(no retry helps\): t 2:1, state 'sums': .* is out of range for its type; sum {instead} instead",
    ):
        run(words.topology)


def test_a_null_key_is_refused() -> None:
    stream = sentences("a", None, fields="word string")
    stream.group_by("word").persistent_aggregate(OpaqueState("words"), count=Count())
    told = r"^TX306 \(no retry helps\): t 2:1: state 'words': a key is null in "
    told += r"\{'word': None\}; filter .* quarantine .* mend the source, then run again; only if .*, abort the batch"
    with pytest.raises(BadRecord, match=told):
        run(stream.topology)


@pytest.mark.parametrize(
    ("total", "told"),
    [
        (Sum("x", scale=2), r"field 'x' is nan, which.*; the record is \{'k': "),
        (Sum("n"), "the total 9223372036854775808 is out of range"),  # of which no record is at fault
    ],
)
def test_a_value_that_cannot_be_added_names_state_and_record_and_a_total_that_does_not_fit_the_state(
    total: Sum, told: str
) -> None:
    records = ("a", 1.0, 2**62), ("b", float("nan"), 2**62), ("a", 1.0, 2**62)
    stream = sentences(*records, fields="k string, x double, n bigint", size=3)
    stream.group_by("k").persistent_aggregate(OpaqueState("sums"), total=total)
    with pytest.raises(BadRecord, match=rf"^TX305 \(no retry helps\): t 1:1: state 'sums': .*{told}"):
        run(stream.topology)


@pytest.mark.parametrize(
    ("show", "told"),
    [(True, "ValueError: invalid literal .*'a', for the record {'sentence': '1 a'}"), (False, "ValueError")],
)
def test_a_function_that_fails_twice_for_one_record_is_terminal(show: bool, told: str) -> None:
    topology = Topology("t", show_records=show)
    stream = topology.new_stream("in", FixedBatchSpout("sentence string", 2, "1 2", "1 a"))
    numbers = stream.flat_map(lambda record: map(int, record["sentence"].split()), "n bigint")
    numbers.group_by("n").persistent_aggregate(OpaqueState("s"), count=Count())
    with pytest.raises(
        BadRecord,
        match=rf"^TX307 \(no retry helps\): t 1:1: stream 'in': 1. flat_map "
        rf"<lambda> raised {told}; tried again it failed again: mend",
    ):
        run(topology)


class Unpaid(TerminalError):
    """An error of the job, made of two values."""

    def __init__(self, order: int, amount: int) -> None:
        super().__init__(f"order {order} lacks {amount}")


def test_an_error_of_the_job_may_be_made_of_other_values_than_a_text() -> None:
    def paid(record: Any) -> bool:
        raise Unpaid(7, 20)

    stream = sentences("a").filter(paid)
    stream.group_by("sentence").persistent_aggregate(OpaqueState("s"), count=Count())
    with pytest.raises(TerminalError, match=r"^TX001 \(no retry helps\): t 1:1: order 7 lacks 20$"):
        run(stream.topology)


@pytest.mark.parametrize("made", ["ab", b"ab", {"letter": "a"}])
def test_a_text_or_a_dict_is_no_list_of_records(made: Any) -> None:
    """It was taken apart: a record for each character, or for each key."""
    words = sentences("ab").flat_map(lambda record: made, "letter string")
    words.group_by("letter").persistent_aggregate(OpaqueState("s"), count=Count())
    told = (
        rf"1\. flat_map <lambda>: a function returned {re.escape(repr(made))}; expected a list of records, also of one"
    )
    with pytest.raises(BadRecord, match=told):
        run(words.topology)


@pytest.mark.parametrize("show", [True, False])
def test_too_many_values_are_the_records_fault_and_cut_or_not_shown(show: bool) -> None:
    topology = Topology("t", show_records=show)
    stream = topology.new_stream("in", FixedBatchSpout("k string", 1, "secret"))
    stream.map(lambda r: (r["k"], *"b" * 1_000), "k string").group_by("k").persistent_aggregate(
        OpaqueState("s"), count=Count()
    )
    with pytest.raises(BadRecord) as raised:
        run(topology)
    told = str(raised.value)
    assert told.startswith("TX308 (no retry helps): t 1:1: stream 'in': 1. map <lambda>: a function returned ")
    assert ("a function returned ('secret', 'b', " in told, "secret" in told) == (show, show)
    assert told.endswith("(5,010 characters); expected a tuple of 1 values; the record is {'k': 'secret'}") == show


@pytest.mark.parametrize(
    "change",
    [
        lambda stream: stream.map(lambda record: 1 / 0, "k string"),
        lambda stream: stream.map(lambda record: 1, "k string"),
        lambda stream: stream.aggregate(n=Count(where=lambda record: 1 / 0)).map(lambda record: "a", "k string"),
        lambda stream: stream.aggregate(k=Broken()),
        lambda stream: stream.map(lambda record: (None, *record.values()), "k string, big string, n int"),
        lambda stream: stream.each(lambda record: "a", "k string").filter(lambda record: record["nothing"]),
    ],
)
def test_a_record_of_a_megabyte_is_cut_and_what_to_do_is_told(change: Callable[[Stream], Stream]) -> None:
    stream = sentences(("x" * 1_000_000, 1), fields="big string, n int")
    change(stream).group_by("k").persistent_aggregate(OpaqueState("s"), count=Count())
    with pytest.raises(BadRecord, match=r"^TX30[678] \(no retry helps\): t 1:1: .*'x{250,300}\.\.\.") as raised:
        run(stream.topology)
    assert len(str(raised.value)) < 1_000


class Broken(ReducerAggregator):
    result = "string"

    def init(self) -> None:
        return None

    def reduce(self, value: None, record: dict[str, Any]) -> None:
        raise ValueError("broken")


class Inverse(CombinerAggregator):
    """Raises for a nought."""

    partial = "of double"

    def init(self, value: Any) -> Any:
        return (1 / value,)

    def combine(self, left: Any, right: Any) -> Any:
        return (left[0] + right[0],)


def asks(record: Any) -> bool:
    return bool(record[f"no {record['k']}"])


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"n": Count(where=asks)}, "value 'n': where asks raised KeyError{'no Ada'}; mend the job"),
        ({"n": Count(), "remove": asks}, "remove asks raised KeyError{'no Ada'}; mend the job"),
        ({"n": Inverse("v")}, "value 'n': Inverse: init raised ZeroDivisionError{division by zero}; mend the job"),
    ],
    ids=["where", "remove", "init"],
)
@pytest.mark.parametrize("show", [True, False])
def test_a_function_of_a_state_that_raises_is_named(values: dict[str, Any], told: str, show: bool) -> None:
    topology = Topology("t", show_records=show)
    stream = topology.new_stream("in", FixedBatchSpout("k string, v int", 1, ("Ada", 0)))
    stream.group_by("k").persistent_aggregate(OpaqueState("s"), **values)
    with pytest.raises(BadRecord) as raised:
        run(topology)
    cause, shown = (
        re.sub("{(.*)}", r": \1" if show else "", told),
        "; the record is {'k': 'Ada', 'v': 0}" if show else "",
    )
    assert str(raised.value) == f"TX307 (no retry helps): t 1:1: state 's': {cause}{shown}"


def test_a_disk_that_fails_a_function_of_a_state_is_no_records_fault() -> None:
    def away(record: Any) -> bool:
        raise ConnectionError("away")

    stream = sentences("a")
    stream.group_by("sentence").persistent_aggregate(OpaqueState("s"), n=Count(where=away))
    with pytest.raises(ConnectionError, match="away"):
        run(stream.topology)


@pytest.mark.parametrize("show", [True, False])
def test_a_function_of_an_aggregate_in_the_batch_that_raises_is_named(show: bool) -> None:
    topology = Topology("t", show_records=show)
    stream = topology.new_stream("in", FixedBatchSpout("k string, v int", 1, ("Ada", 0)))
    stream.group_by("k").aggregate(n=Count(where=asks)).persist(AppendState("s"))
    with pytest.raises(BadRecord) as raised:
        run(topology)
    cause = ": 'no Ada'" if show else ""
    shown = "; the record is {'k': 'Ada', 'v': 0}" if show else ""
    told = f"t 1:1: stream 'in': aggregate n: where asks raised KeyError{cause}; mend the job{shown}"
    assert str(raised.value) == f"TX307 (no retry helps): {told}"


def test_a_function_that_fails_once_or_by_what_is_no_records_fault_is_tried_again() -> None:
    failing = iter([ValueError("once"), None, ConnectionError("away"), TransientError("ours")])

    def raises(record: Any) -> bool:
        if error := next(failing):
            raise error
        return True

    stream = sentences("a").filter(raises)
    stream.group_by("sentence").persistent_aggregate(OpaqueState("s"), count=Count())
    for error, told in (
        (TransientError, "ValueError: once.*tried again it did not: run again"),
        (ConnectionError, "away"),
        (TransientError, "ours"),
    ):
        with pytest.raises(error, match=told):
            run(stream.topology)


@pytest.mark.parametrize("method", ["coordinator", "is_ready", "initialize_transaction", "close", "batch"])
def test_what_a_spout_raises_names_its_stream(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    stream = sentences()
    stream.group_by("sentence").persistent_aggregate(OpaqueState("s"), n=Count())

    def failing(*_: Any) -> None:
        raise RuntimeError("broker 10.0.0.1 refused")

    monkeypatch.setattr(FixedBatchSpout, method, failing)
    what = r"batch\(\)" if method == "batch" else "the coordinator"
    with pytest.raises(
        TransientError,
        match=rf"^TX209 \(try again\): t: {what} of stream 'sentences' raised RuntimeError: broker .*; mend the",
    ):
        run(stream.topology)


def test_a_success_that_raises_is_told_and_called_again_and_keeps_no_batch_back() -> None:
    """The batch is committed, and what comes after it is counted, too."""
    told = list[str]()

    class Deaf(FixedBatchSpout):
        def success(self, txid: int) -> None:
            told.append(f"success {txid}")
            raise KeyError("gone")

        def close(self) -> None:
            told.append("close")

    def topology(spout: type[FixedBatchSpout]) -> Topology:
        words = Topology("t").new_stream("in", spout("word string", 1, "a", "b", "a"))
        words.group_by("word").persistent_aggregate(OpaqueState("words"), n=Count())
        return words.topology

    ledger = MemoryLedger()
    why = r"t: txid {} is committed; success\(\) of stream 'in' raised KeyError: 'gone'; mend the spout, and run again"
    for txid in (1, 2):
        with pytest.raises(TransientError, match=why.format(txid)) as raised:
            run(topology(Deaf), ledger)
        assert isinstance(raised.value.__cause__, KeyError)
        assert ledger.tables.last_committed("t") == txid
    assert [each for each in told if each != "close"] == ["success 1", "success 1", "success 2"]
    assert told[-1] == "close"
    run(topology(FixedBatchSpout), ledger)
    assert {key: value.value for (key,), value in ledger.rows("words").items()} == {"a": (2,), "b": (1,)}
    assert ledger.oldest_unfinished("t", "", above=0) is None
