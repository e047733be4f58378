"""The coordinator over the in-memory ledger: who asks the spout what, and when (R1..R4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import pytest
from refusals import refused
from support import ListSpout, LogSpout, manifest_of, run, word_count

from txbatch import PlainSpout, Topology
from txbatch.core.batch.transaction import Batch, Interval, Run
from txbatch.core.errors import DefinitionError, PartitionUnreadable, TransientError
from txbatch.core.protocol.coordinator import NothingNew, initialize_transaction
from txbatch.core.protocol.decisions import Wait
from txbatch.core.protocol.ledger import Head
from txbatch.core.protocol.planning import plan_batch
from txbatch.core.sources.spout import PartitionedCoordinator, SpoutKind
from txbatch.memory.ledger import MemoryLedger


class Asked(ListSpout):
    """Writes down what it is asked."""

    def __init__(self, *sizes: int, ready: bool = True) -> None:
        super().__init__(*sizes)
        self.asked: list[Any] = []
        self.ready, self.between = ready, lambda: None

    def is_ready(self, txid: int) -> bool:
        self.asked.append(("is_ready", txid))
        return self.ready

    def initialize_transaction(self, txid: int, prev_metadata: Any, curr_metadata: Any) -> Any:
        self.asked.append((txid, prev_metadata and prev_metadata["number"], curr_metadata))
        self.between()
        return super().initialize_transaction(txid, prev_metadata, curr_metadata)

    def close(self) -> None:
        self.asked.append("closed")


def ledger_of(topology: Topology, **options: Any) -> MemoryLedger:
    ledger = MemoryLedger(**options)
    ledger.register(topology, "jobs/job.py")
    return ledger


def commit(ledger: MemoryLedger, topology: Topology, batch: Any, name: str) -> None:
    assignment = ledger.start_attempt(batch, run(name), "code")
    emitted = ledger.record_manifests([(assignment, manifest_of(topology, assignment, {"word_count": []}))])[0]
    ledger.commit(topology, emitted, {"word_count": []})


def test_a_plan_builds_on_the_metadata_before_it() -> None:
    spout = Asked(5, 5, 5)
    topology = word_count(spout)
    ledger = ledger_of(topology)
    for name in ("1", "2"):
        commit(ledger, topology, initialize_transaction(ledger, topology, run(name)), name)
    initialize_transaction(ledger, topology, run("3"))
    assert [each for each in spout.asked if each != "closed" and each[0] != "is_ready"] == [
        (1, None, None),
        (2, 0, None),
        (3, 1, None),
    ]


def test_the_spout_is_asked_under_no_lock_and_closed_after_errors() -> None:
    spout = Asked(5)
    topology = word_count(spout)
    ledger = ledger_of(topology)

    def fail() -> None:
        ledger.head("word_count", run("other"))  # would hang under the ledger's lock
        raise OSError("the source is away")

    spout.between = fail
    why = "word_count: the coordinator of stream 'words' raised OSError: the source is away; mend the spout, and run again"
    with pytest.raises(TransientError) as raised:
        initialize_transaction(ledger, topology, run("1"))
    assert str(raised.value) == f"TX209 (try again): {why}"
    assert spout.asked[-1] == "closed"
    assert ledger.head("word_count", run("1")).next_txid == 1


def test_a_spout_is_asked_again_when_the_head_moved() -> None:
    spout = Asked(5, 5)
    topology = word_count(spout, max_pending=2)
    ledger = ledger_of(topology)

    def another_run() -> None:
        spout.between = lambda: None
        assert isinstance(initialize_transaction(ledger, topology, run("quick")), Batch)

    spout.between = another_run
    batch = initialize_transaction(ledger, topology, run("slow"))
    assert isinstance(batch, Batch)
    assert (batch.txid, batch.prev_txid, batch.metadata["streams"]["words"]["plan"]["start"]) == (2, 1, 5)


def test_a_spout_that_is_not_ready_uses_no_txid() -> None:
    spout = Asked(5, ready=False)
    topology = word_count(spout)
    ledger = ledger_of(topology)
    assert isinstance(initialize_transaction(ledger, topology, run("1")), NothingNew)
    spout.ready = True
    assert spout.asked == [("is_ready", 1), "closed"]
    batch = initialize_transaction(ledger, topology, run("1"))
    assert isinstance(batch, Batch)
    assert batch.txid == 1


def test_a_run_that_has_a_batch_does_not_ask_the_spout() -> None:
    spout = Asked(5, 5)
    topology = word_count(spout)
    ledger = ledger_of(topology)
    first = initialize_transaction(ledger, topology, run("1"))
    spout.asked.clear()
    assert initialize_transaction(ledger, topology, run("1")) == first
    assert spout.asked == []


def test_waiting_and_adoption() -> None:
    now = datetime(2024, 1, 1, tzinfo=UTC)
    topology = word_count(Asked(5, 5))
    ledger = ledger_of(topology, lease_seconds=60, clock=lambda: now)
    first = initialize_transaction(ledger, topology, run("1"))
    assert isinstance(first, Batch)
    waits = initialize_transaction(ledger, topology, run("2"))
    assert isinstance(waits, Wait)
    assert waits.batch == first
    now += timedelta(seconds=61)
    adopted = initialize_transaction(ledger, topology, run("2"))
    assert isinstance(adopted, Batch)
    assert (adopted.txid, adopted.metadata, adopted.lease_run) == (1, first.metadata, "2")


def test_metadata_that_is_not_json_is_refused_before_it_is_stored() -> None:
    class Bad(ListSpout):
        def initialize_transaction(self, *_: Any) -> Any:
            return {"at": datetime.now(UTC)}

    topology = word_count(Bad())
    ledger = ledger_of(topology)
    with refused("TX119", "JSON"):
        initialize_transaction(ledger, topology, run("1"))
    assert ledger.head("word_count", run("1")).next_txid == 1


def test_a_spout_by_time_needs_an_interval_and_gets_it() -> None:
    class Daily(Asked):
        by_interval = True

    spout = Daily(5)
    topology = word_count(spout)
    head = ledger_of(topology).head("word_count", run("1"))
    with refused("TX415", "'words'", "'1'", "interval"):
        plan_batch(topology, head, run("1"))
    day = Interval(datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC))
    plan_batch(topology, head, Run("1", interval=day))
    assert spout.asked[-2] == (1, None, {"interval": ["2024-01-01T00:00:00+00:00", "2024-01-02T00:00:00+00:00"]})


# ---- partitions


def planned(spout: LogSpout, offsets: Any = None) -> Any:
    coordinator = PartitionedCoordinator(spout)
    coordinator.offsets = offsets or {}
    return coordinator.initialize_transaction(1, None, None)


def test_each_partition_goes_on_where_it_was() -> None:
    plan = planned(LogSpout({"a": 30, "b": 30, "c": 10}), {"a": {"start": 0, "end": 10}, "c": {"start": 0, "end": 10}})
    assert plan["partitions"] == {"a": {"start": 10, "end": 20}, "b": {"start": 0, "end": 10}}
    assert plan["continues"] == ["a"]


def test_partitions_have_names_not_numbers() -> None:
    """In the ledger's JSON 0 becomes "0": the partition would begin again with every batch."""

    class Numbered(LogSpout):
        def partitions(self) -> Any:
            return [0, 1]

    with refused("TX119", "partition", "'0'"):
        planned(Numbered({}))


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ([""], "partition '' has no name"),
        (["a", "b", "a"], "partition 'a' is named twice"),
        (["a", "b" * 2501], r"partition 'b+'\.\.\. has a name of 2,501 bytes; the ledger's index takes at most 2,500"),
        (["a", "ü" * 1251], r"partition 'ü+'\.\.\. has a name of 2,502 bytes"),
    ],
)
def test_a_name_stands_for_one_partition(names: list[str], says: str) -> None:
    """The ledger keeps no offset of a partition without a name: it would begin again with every batch."""

    class Named(LogSpout):
        def partitions(self) -> Any:
            return iter(names)

    with pytest.raises(DefinitionError, match=f"Named: {says}"):
        planned(Named(dict.fromkeys(names, 10)))


def test_nothing_new_in_any_partition() -> None:
    assert planned(LogSpout({})) is None
    assert planned(LogSpout({"a": 10}), {"a": {"start": 0, "end": 10}}) is None


def test_empty_ranges_alone_are_nothing_new() -> None:
    """Else each run would use a txid, without end."""

    class Eager(LogSpout):
        def emit_partition_batch_new(self, attempt: Any, partition: str, last_metadata: Any) -> Any:
            start = last_metadata["end"] if last_metadata else 0
            return {"start": start, "end": self.lengths[partition]}

    assert planned(Eager({"a": 10, "b": 0}), {"a": {"start": 0, "end": 10}}) is None
    assert planned(Eager({"a": 10, "b": 0}))["partitions"] == {
        "a": {"start": 0, "end": 10},
        "b": {"start": 0, "end": 0},
    }


def test_at_most_so_many_partitions() -> None:
    spout = LogSpout({"a": 0, "b": 5, "c": 5, "d": 5})
    spout.max_partitions = 2
    assert list(planned(spout)["partitions"]) == ["b", "c"]


def test_an_empty_range_takes_no_place_of_a_partition_with_records() -> None:
    """Else the partitions behind it are never planned (R4)."""

    class Eager(LogSpout):
        def emit_partition_batch_new(self, attempt: Any, partition: str, last_metadata: Any) -> Any:
            start = last_metadata["end"] if last_metadata else 0
            return {"start": start, "end": self.lengths[partition]}

    spout = Eager({"a": 5, "b": 3, "c": 3})
    spout.max_partitions = 1
    behind = {"a": {"start": 0, "end": 5}}
    assert planned(spout, behind)["partitions"] == {"a": {"start": 5, "end": 5}, "b": {"start": 0, "end": 3}}


def test_a_range_that_leaves_records_out_or_takes_them_twice() -> None:
    class Jumps(LogSpout):
        def emit_partition_batch_new(self, attempt: Any, partition: str, last_metadata: Any) -> Any:
            return {"start": 12, "end": 20}

    with refused("TX119", "partition", "'a'", "planned", "12", "10"):
        planned(Jumps({"a": 30}), {"a": {"start": 0, "end": 10}})


@pytest.mark.parametrize("kind", SpoutKind)
def test_a_partition_that_cannot_be_asked(kind: SpoutKind) -> None:
    class Away(LogSpout):
        def emit_partition_batch_new(self, attempt: Any, partition: str, last_metadata: Any) -> Any:
            if partition == "b":
                raise PartitionUnreadable("broker down")
            return super().emit_partition_batch_new(attempt, partition, last_metadata)

    spout = Away({"a": 10, "b": 10}, kind=kind)
    if kind is not SpoutKind.OPAQUE:
        with refused("TX201", "broker down"):
            planned(spout)
        return
    assert planned(spout) == {"partitions": {"a": {"start": 0, "end": 10}}, "unreadable": {"b": "broker down"}}


@pytest.mark.parametrize("away", ["a", "b"])
def test_a_partition_that_is_away_without_a_reason_is_left_out(away: str) -> None:
    """It had the range of the partition before it, whose records counted twice while its own were lost."""

    class Away(LogSpout):
        def emit_partition_batch_new(self, attempt: Any, partition: str, last_metadata: Any) -> Any:
            if partition == away:
                raise PartitionUnreadable
            return super().emit_partition_batch_new(attempt, partition, last_metadata)

    there = ({"a", "b"} - {away}).pop()
    spout = Away({"a": 10, "b": 10}, kind=SpoutKind.OPAQUE)
    assert planned(spout) == {"partitions": {there: {"start": 0, "end": 10}}, "unreadable": {away: ""}}


def test_an_abandoned_batch_that_someone_took_meanwhile_is_left_alone() -> None:
    topology = word_count(ListSpout(5, 5))
    ledger = ledger_of(topology)
    batch = initialize_transaction(ledger, topology, run("1"))
    assert isinstance(batch, Batch)
    assert ledger.adopt(replace(batch, lease_live=False), run("2")) is None


# ---- what a spout may not plan


class Ranges(LogSpout):
    """Plans what it is told."""

    def __init__(self, **ranges: Any) -> None:
        super().__init__(dict.fromkeys(ranges, 0))
        self.ranges = ranges

    def emit_partition_batch_new(self, attempt: Any, partition: str, last_metadata: Any) -> Any:
        return self.ranges[partition]


def test_offsets_that_went_backwards() -> None:
    with refused("TX206", "partition", "'a'", "4", "10"):
        planned(Ranges(a={"start": 10, "end": 4}), {"a": {"start": 0, "end": 10}})


def test_a_range_without_an_end() -> None:
    with refused("TX119", "'a'", "planned", "'start'", "10", "'end'"):
        planned(Ranges(a={"start": 10}))


NO_RANGE = r"stream 'words': partition 'a' was planned as .*'start' and 'end'"
NO_PARTITIONS = r"stream 'words': .* was planned; a PartitionedCoordinator plans 'partitions', a range for each name"


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        *(({"partitions": {"a": range_}}, NO_RANGE) for range_ in ({"start": 10}, {"end": 10}, [0, 10])),
        *((plan, NO_PARTITIONS) for plan in ({}, {"partitions": ["a"]}, ["partitions"], "partitions", 7)),
    ],
)
def test_a_coordinator_of_its_own_that_plans_another_shape(plan: Any, said: str) -> None:
    class Own(PartitionedCoordinator):
        def initialize_transaction(self, *_: Any) -> Any:
            return plan

    class Spout(LogSpout):
        def coordinator(self) -> Own:
            return Own(self)

    topology = word_count(Spout({"a": 1}))
    with pytest.raises(DefinitionError, match=said):
        initialize_transaction(ledger_of(topology), topology, run("1"))


def test_a_coordinator_that_plans_partitions_as_a_whole_would_begin_anew_each_time() -> None:
    class Wrapped(LogSpout):
        def coordinator(self) -> Any:
            return ListSpout(5, 5)

    topology = word_count(Wrapped({"a": 1}))
    says = "stream 'words': Wrapped is a PartitionedSpout, and its coordinator, ListSpout, is no PartitionedCoordinator"
    with pytest.raises(DefinitionError, match=says):
        plan_batch(topology, ledger_of(topology).head("word_count", run("1")), run("1"))


def test_a_coordinator_that_plans_partitions_of_a_spout_that_has_none() -> None:
    """No reader could say which record is of which partition."""

    class Wrapper(ListSpout):
        def coordinator(self) -> Any:
            return LogSpout({"a": 1}).coordinator()

    topology = word_count(Wrapper())
    says = "stream 'words': Wrapper has no partitions, and its coordinator, PartitionedCoordinator, plans them; make it a Part"
    with pytest.raises(DefinitionError, match=says):
        plan_batch(topology, ledger_of(topology).head("word_count", run("1")), run("1"))


def test_what_is_gone_comes_alone() -> None:
    """So that no record that is still there is given up with it."""
    gone = {"start": 10, "end": 20, "gone": "retention"}
    offsets = {name: {"start": 0, "end": 10} for name in "abc"}
    plan = planned(Ranges(a={"start": 10, "end": 11}, b=gone, c=None), offsets)
    assert plan == {"partitions": {"b": gone}, "continues": ["b"]}


def test_metadata_whose_keys_would_come_back_as_strings() -> None:
    class Bad(ListSpout):
        def initialize_transaction(self, *_: Any) -> Any:
            return {"files": [{"a": {1: "x"}}]}

    topology = word_count(Bad())
    with refused("TX119", "'words'", "JSON", "key", "1"):
        initialize_transaction(ledger_of(topology), topology, run("1"))


@pytest.mark.parametrize("text", ["\0", "a\0b"])
@pytest.mark.parametrize("plan", [lambda text: text, lambda text: {text: 1}, lambda text: [{"end": [text]}]])
def test_metadata_that_postgresql_cannot_show(plan: Any, text: str) -> None:
    """Stored as JSON it would break every report that looks into it."""

    class Bad(ListSpout):
        def initialize_transaction(self, *_: Any) -> Any:
            return plan(text)

    topology = word_count(Bad())
    with refused("TX119", "'words'", "U+0000"):
        initialize_transaction(ledger_of(topology), topology, run("1"))
    Bad.initialize_transaction = lambda *_: plan("\\u0000")  # type: ignore[method-assign]
    assert isinstance(initialize_transaction(ledger_of(topology), topology, run("1")), Batch)


class Named(Mapping[str, Any]):
    """A mapping that is no dict."""

    def __init__(self, of: dict[str, Any]) -> None:
        self.of = of

    def __getitem__(self, name: str) -> Any:
        return self.of[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.of)

    def __len__(self) -> int:
        return len(self.of)


@pytest.mark.parametrize("mapping", [MappingProxyType, Named])
@pytest.mark.parametrize("at", [lambda each: each, lambda each: {"files": [each]}], ids=["the plan", "in the plan"])
@pytest.mark.parametrize("held", [{"file": "a.csv"}, {"file": "a\0b"}, {7: "a.csv"}], ids=str)
def test_metadata_of_mappings_that_are_no_dicts(mapping: Any, at: Any, held: dict[Any, Any]) -> None:
    """Refused whatever the mapping holds: JSON has no spelling of it, so no text passes unseen."""

    class Bad(ListSpout):
        def initialize_transaction(self, *_: Any) -> Any:
            return at(mapping(held))

    topology = word_count(Bad())
    with refused("TX119", "'words'", "JSON"):
        initialize_transaction(ledger_of(topology), topology, run("1"))


def test_ranges_of_mappings_that_are_no_dicts() -> None:
    ranges = MappingProxyType({"a": {"start": "0\0", "end": 10}})
    topology = word_count(LogSpout({"a": 10}))
    with refused("TX119", "'words'", "JSON", "mappingproxy"), pytest.MonkeyPatch.context() as patched:
        patched.setattr(PartitionedCoordinator, "initialize_transaction", lambda *_: {"partitions": ranges})
        initialize_transaction(ledger_of(topology), topology, run("1"))


def test_metadata_that_is_nested_without_end() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]

    class Bad(ListSpout):
        def initialize_transaction(self, *_: Any) -> Any:
            return deep

    topology = word_count(Bad())
    with refused("TX119", "'words'"):
        initialize_transaction(ledger_of(topology), topology, run("1"))


def test_an_interval_is_planned_by_all_streams_that_read_by_time_or_by_none() -> None:
    """Else the interval of the one that is not ready would be taken, and its records never counted (R4)."""
    early, late, list_ = Asked(5), Asked(5, ready=False), Asked()
    early.by_interval = late.by_interval = True
    topology = word_count(early)
    topology.new_stream("late", late)
    topology.new_stream("list", list_)
    day = Run("1", interval=Interval(datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC)))
    head = ledger_of(topology).head("word_count", day)
    assert plan_batch(topology, head, day) is None
    late.ready = True
    metadata = plan_batch(topology, head, day)
    assert metadata is not None
    assert set(metadata["streams"]) == {"words", "late"}


def test_a_spout_gets_the_parameters_it_declares_beside_the_interval() -> None:
    spout, other = Asked(5), Asked(5)
    spout.parameters, spout.by_interval, other.parameters = ("top",), True, ("bottom",)
    topology = word_count(spout)
    topology.new_stream("others", other)
    head = ledger_of(topology).head("word_count", run("1"))
    day = Interval(datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC))
    metadata = plan_batch(topology, head, Run("1", interval=day, parameters={"top": 3}))
    assert metadata is not None
    assert metadata["parameters"] == {"top": 3}
    assert spout.asked[-2][2] == {
        "interval": [str(day.start.isoformat()), day.end.isoformat()],
        "parameters": {"top": 3},
    }
    assert other.asked[-2][2] == {"parameters": {}}
    with refused("TX103", "'word_count'", "'left'"):
        plan_batch(topology, head, Run("1", interval=day, parameters={"left": 3}))


@pytest.mark.parametrize("range_", [[1, 2], 7, "text"])
def test_a_range_of_another_shape(range_: Any) -> None:
    with refused("TX119", "partition", "'a'", "planned", "'start'", "'end'"):
        planned(Ranges(a=range_))


@pytest.mark.parametrize("names", [None, 5, "ab"])
def test_partitions_that_are_no_list(names: Any) -> None:
    class Named(LogSpout):
        def partitions(self) -> Any:
            return names

    with refused("TX119", "partitions"):
        planned(Named({}))


def test_offsets_of_floats_that_went_backwards() -> None:
    with refused("TX206", "1.0", "4.0"):
        planned(Ranges(a={"start": 4.0, "end": 1.0}), {"a": {"start": 0.0, "end": 4.0}})


def test_an_offset_is_the_same_when_its_json_is() -> None:
    range_ = {"start": ("f", 2), "end": ("f", 3)}
    assert planned(Ranges(a=range_), {"a": {"start": ["f", 1], "end": ["f", 2]}})["continues"] == ["a"]


@pytest.mark.parametrize("records", ["99", 99.0, -1, True, None])
def test_a_number_of_records_that_is_none(records: Any) -> None:
    with refused("TX119", "'records'"):
        planned(Ranges(a={"start": 0, "end": 4, "records": records}))


def test_what_a_coordinator_does_to_the_last_plan_stays_its_own() -> None:
    """Else a stream that turns out to have nothing new is stored as if it had gone on, and its records are in no batch."""

    class InPlace(ListSpout):
        def initialize_transaction(self, txid: int, prev_metadata: Any, curr_metadata: Any) -> Any:
            planned = super().initialize_transaction(txid, prev_metadata, curr_metadata)
            if prev_metadata is not None:
                prev_metadata["start"] = 99
            return planned

    topology = word_count(InPlace(5, 5))
    ledger = ledger_of(topology)
    commit(ledger, topology, initialize_transaction(ledger, topology, run("1")), "1")
    head = ledger.head("word_count", run("2"))
    assert plan_batch(topology, head, run("2")) is not None
    assert head.prev is not None
    assert head.prev.plan.streams["words"].plan["start"] == 0


class Day(PlainSpout):
    """Reads by time, and says how many records an interval has."""

    fields, by_interval = "n int", True
    identity = {"spout": "Day"}  # noqa: RUF012

    def __init__(self, records: Any) -> None:
        self.records = records

    def initialize_transaction(self, txid: int, prev_metadata: Any, curr_metadata: Any) -> Any:
        return {**curr_metadata, "records": self.records}

    def emit_batch(self, *_: Any) -> Any:
        raise AssertionError


def planned_day(records: Any) -> Any:
    topology = Topology("t")
    topology.new_stream("in", Day(records))
    day = Interval(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))
    return plan_batch(topology, Head("t", 1, None, (), None, {}), Run("day", interval=day))


def test_an_interval_may_say_how_many_records_it_has() -> None:
    plan = planned_day(7)
    assert (plan["format"], plan["streams"]["in"]["records"]) == (8, 7)


@pytest.mark.parametrize("records", ["99", 99.0, -1, True, None])
def test_a_number_of_records_of_an_interval_that_is_none(records: Any) -> None:
    with pytest.raises(DefinitionError, match=r"stream 'in': the interval was planned with .* records; say how many"):
        planned_day(records)


def listed(*names: str, vanish: str = "tell", known: Any = ("a", "b", "c")) -> Any:
    """The plan of a source that lists these partitions, each with something new."""
    spout = Ranges(**{name: {"start": 1, "end": 2} for name in names})
    spout.vanish = vanish  # type: ignore[assignment]
    return planned(spout, {name: {"start": 0, "end": 1} for name in known})


def test_partitions_that_are_listed_no_more_stand_in_the_plan() -> None:
    assert listed("b", "d")["missing"] == ["a", "c"]
    assert "missing" not in listed("a", "b", "c", "d")
    assert "missing" not in listed("b", vanish="normal")
    assert listed("n", known=[f"{n:04}" for n in range(1000)])["missing"] == [f"{n:04}" for n in range(100)]


def test_a_source_may_refuse_to_go_on_without_a_partition() -> None:
    for names, missing in ((["b"], "a, c"), ([], "a, b, c")):
        told = f"Ranges: partitions that were read before are listed no more: {missing}; give them back, or the right"
        with pytest.raises(TransientError, match=told):
            listed(*names, vanish="refuse")
    with pytest.raises(TransientError, match="no more: 0, 1, 2, 3, 4 and 3 more; give"):
        listed(vanish="refuse", known="01234567")
    assert "missing" not in listed("a", "b", "c", vanish="refuse")
    with pytest.raises(DefinitionError, match="vanish='nowhere' is none of 'tell', 'refuse' and 'normal'"):
        listed("b", vanish="nowhere")


def test_what_vanished_is_told_by_all_plans_of_one_look() -> None:
    spout = Ranges(b={"start": 1, "end": 2})
    coordinator = PartitionedCoordinator(spout)
    coordinator.offsets = {"a": {"start": 0, "end": 1}, "b": {"start": 0, "end": 1}}
    with coordinator.one_look():
        plans = [coordinator.initialize_transaction(txid, None, None) for txid in (1, 2)]
    assert [plan and plan["missing"] for plan in plans] == [["a"], ["a"]]


def test_a_source_with_nothing_new_is_listed_once_by_all_plans_of_one_look() -> None:
    """Its listing has nothing left, and is a listing all the same: another stream may have more for the next txid."""

    class Listed(LogSpout):
        listed = 0

        def partitions(self) -> Any:
            self.listed += 1
            return super().partitions()

    spout = Listed({"a": 10})
    coordinator = PartitionedCoordinator(spout)
    coordinator.offsets = {"a": {"start": 0, "end": 10}}
    with coordinator.one_look():
        assert [coordinator.initialize_transaction(txid, None, None) for txid in (2, 3)] == [None, None]
    assert spout.listed == 1
    assert coordinator.initialize_transaction(4, None, None) is None
    assert spout.listed == 2
