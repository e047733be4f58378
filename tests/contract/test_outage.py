"""One of sixteen partitions is away (R13), records that are given up (R16), and streams that pause; both ledgers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from refusals import refused
from support import Keyed, ListSpout, LogSpout, manifest_of, read_all, run, word_count

from txbatch import Count, OpaqueState, SpoutKind, Topology
from txbatch.core.batch.transaction import Batch, BatchKind, BatchStatus
from txbatch.core.errors import BrokenChain
from txbatch.core.protocol.coordinator import NothingNew

PARTITIONS = [f"{number:02}" for number in range(16)]


class Story:
    """A topology whose key is the partition; a record of batch n weighs 10^(n-1), so a sum shows which were counted."""

    def __init__(self, backing: Any, kind: SpoutKind) -> None:
        self.backing, self.spout = backing, LogSpout(dict.fromkeys(PARTITIONS, 0), size=100, kind=kind)
        self.topology = word_count(self.spout)
        self.away: set[str] = set()

    def batch(self, txid: int, arrive: int = 1) -> Batch:
        for partition in PARTITIONS:
            self.spout.lengths[partition] += arrive
        found = self.backing.initialize(self.topology, f"run {txid}")
        assert isinstance(found, Batch)
        return found

    def emit(self, batch: Batch) -> dict[str, list[Keyed]]:
        """One attempt that reads all but the partitions that are away."""
        assignment = self.backing.attempt(batch, f"run {batch.txid}")
        read = {name: each for name, each in read_all(assignment)["words"].items() if name not in self.away}
        plan = batch.plan.streams["words"].ranges
        partials = {
            "word_count": [
                ((name,), (sum(10**offset for offset in range(plan[name]["start"], plan[name]["end"])),))
                for name in read
            ]
        }
        holes = {"words": {name: "away" for name in plan if name in self.away}} if self.away & set(plan) else {}
        manifest = manifest_of(self.topology, assignment, partials, streams={"words": read}, unreadable=holes)
        self.backing.ledger.record_manifests([(assignment, manifest)])
        return partials

    def commit(self, batch: Batch, partials: dict[str, list[Keyed]]) -> None:
        assert self.backing.commit(self.topology, batch, partials).applied
        self.backing.ledger.success("word_count", batch.txid)

    def counted(self) -> dict[str, int]:
        return {key[0]: value for key, (value, _) in self.backing.state("word_count").items()}


@pytest.mark.rule("R13")
def test_sixteen_partitions_one_away_at_the_retry_of_txid_2_and_back_at_txid_5(backing: Any) -> None:
    story = Story(backing, SpoutKind.OPAQUE)
    first = story.batch(1)
    story.commit(first, story.emit(first))
    second = story.batch(2)
    story.emit(second)
    story.away = {"03"}
    story.commit(second, story.emit(second))
    assert story.counted()["03"] == 1
    for txid in (3, 4):
        batch = story.batch(txid)
        story.commit(batch, story.emit(batch))
    story.away = set()
    fifth = story.batch(5)
    planned = fifth.metadata["streams"]["words"]["partitions"]
    assert (planned["03"], planned["04"]) == ({"start": 1, "end": 5}, {"start": 4, "end": 5})
    story.commit(fifth, story.emit(fifth))
    assert story.counted() == dict.fromkeys(PARTITIONS, 11111)


@pytest.mark.rule("R13")
def test_whatever_is_away_in_each_batch_every_record_counts_once(backing: Any) -> None:
    story = Story(backing, SpoutKind.OPAQUE)
    for txid in range(1, 8):
        story.away = {name for number, name in enumerate(PARTITIONS) if (number + txid) % 3 == 0}
        batch = story.batch(txid)
        story.emit(batch)
        story.away = {name for number, name in enumerate(PARTITIONS) if (number * txid) % 5 == 1}
        story.commit(batch, story.emit(batch))
    story.away = set()
    last = story.batch(8)
    story.commit(last, story.emit(last))
    assert story.counted() == dict.fromkeys(PARTITIONS, 11111111)


# ---- giving records up (R16)


def skip(backing: Any, txid: int, why: str = "poison") -> Batch:
    given_up: Batch = backing.ledger.skip("word_count", txid, why)
    return given_up


@pytest.mark.rule("R16")
@pytest.mark.parametrize("spout", [lambda: LogSpout({"a": 20}), lambda: ListSpout(10, 10)], ids=["partitioned", "list"])
def test_skipped_records_are_given_up_by_a_txid_of_their_own(backing: Any, spout: Callable[[], Any]) -> None:
    topology = word_count(spout())
    first = backing.initialize(topology, "1")
    backing.emit(topology, first, {"word_count": [(("bad",), (10,))]}, "1")
    given_up = skip(backing, first.txid)
    assert (given_up.txid, given_up.status, given_up.metadata) == (2, BatchStatus.COMMITTED, first.metadata)
    assert backing.ledger.batch("word_count", 1).status is BatchStatus.ABORTED
    again = backing.initialize(topology, "1")
    assert (again.txid, again.succeeded) == (2, True)
    second = backing.whole(topology, {"word_count": [(("good",), (10,))]}, "2")
    assert second.txid == 3
    assert second.metadata != first.metadata
    assert backing.state("word_count") == {("good",): (10, 3)}
    assert isinstance(backing.initialize(topology, "3"), NothingNew)


def partitions_of(batch: Batch) -> dict[str, tuple[int, int]]:
    return {name: (of["start"], of["end"]) for name, of in batch.plan.streams["words"].ranges.items()}


@pytest.mark.rule("R16")
@pytest.mark.parametrize("status", ["emitted", "aborted"])
def test_one_partitions_records_are_given_up_and_its_neighbours_count(backing: Any, status: str) -> None:
    topology = word_count(LogSpout({"a": 20, "b": 20, "c": 5}))
    backing.whole(topology, {"word_count": [(("good",), (25,))]}, "1")
    batch = backing.initialize(topology, "2")
    backing.emit(topology, batch, {"word_count": [(("bad",), (20,))]}, "2")
    if status == "aborted":
        backing.ledger.abort("word_count", batch.txid, "poison")
    given_up = backing.ledger.skip("word_count", batch.txid, "poison", "b")
    assert (given_up.txid, given_up.kind, partitions_of(given_up)) == (3, BatchKind.SKIP, {"b": (10, 20)})
    again = backing.initialize(topology, "2")
    assert (again.txid, partitions_of(again)) == (4, {"a": (10, 20)})
    backing.emit(topology, again, {"word_count": [(("good",), (10,))]}, "2")
    assert backing.commit(topology, again, {"word_count": [(("good",), (10,))]}).applied
    assert backing.state("word_count") == {("good",): (35, 4)}
    assert isinstance(backing.initialize(topology, "3"), NothingNew)
    with pytest.raises(BrokenChain, match="its records are those of a later txid by now"):
        backing.ledger.skip("word_count", batch.txid, "again", "b")


@pytest.mark.rule("R16")
def test_a_partition_that_cannot_be_given_up_alone_is_refused(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 20, "b": 20}))
    backing.initialize(topology, "1")
    with refused("TX401", "txid 1", "partition", "'x'", "'a'", "'b'"):
        backing.ledger.skip("word_count", 1, "poison", "x")
    assert partitions_of(backing.ledger.skip("word_count", 1, "poison", "words:a")) == {"a": (0, 10)}
    listed = word_count(ListSpout(10), "listed")
    backing.initialize(listed, "1")
    with refused("TX416", "'words'", "offsets", "partitions"):
        backing.ledger.skip("listed", 1, "poison", "a")


def test_neither_committed_nor_waiting_batches_are_skipped(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 40}), max_pending=2)
    backing.whole(topology, {"word_count": []}, "1")
    with refused("TX411", "committed"):
        skip(backing, 1)
    backing.initialize(topology, "2")
    backing.initialize(topology, "3")
    with refused("TX402", "txid 2"):
        skip(backing, 3)
    assert [batch.status for batch in backing.ledger.head("word_count", run("4")).pending] == [BatchStatus.PLANNED] * 2


def test_an_aborted_batch_can_be_skipped_afterwards_unless_its_records_are_taken(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 10}))
    first = backing.initialize(topology, "1")
    backing.ledger.abort("word_count", first.txid, "wrong")
    assert skip(backing, 1).txid == 2
    assert isinstance(backing.initialize(topology, "2"), NothingNew)
    with refused("TX407", "committed", "10"):
        skip(backing, 1)


@pytest.mark.parametrize("spout", [lambda: LogSpout({"a": 40}), lambda: ListSpout(5, 5, 5)], ids=["log", "list"])
def test_a_skip_of_records_that_are_not_next_says_what_to_do(backing: Any, spout: Callable[[], Any]) -> None:
    """Those of the batch before it are free: giving up what follows them would pass them over."""
    topology = word_count(spout(), max_pending=2)
    first, second = backing.initialize(topology, "1"), backing.initialize(topology, "2")
    backing.ledger.abort("word_count", first.txid, "wrong")
    with pytest.raises(
        BrokenChain, match="its records are not the next ones; nothing of them is given up; abort it without"
    ):
        skip(backing, second.txid)
    assert backing.ledger.batch("word_count", second.txid).status is BatchStatus.PLANNED
    backing.ledger.abort("word_count", second.txid, "wrong")
    assert backing.initialize(topology, "1").metadata == first.metadata


# ---- several streams


def test_a_stream_that_pauses_goes_on_where_it_was(backing: Any) -> None:
    short, long = ListSpout(1), ListSpout(1, 1, 1)
    topology = Topology("word_count")
    for name, spout, state in (("short", short, "first"), ("long", long, "second")):
        topology.new_stream(name, spout).group_by("word").persistent_aggregate(OpaqueState(state), count=Count())
    nothing = {"first": [], "second": []}
    assert set(backing.whole(topology, nothing, "1").metadata["streams"]) == {"short", "long"}
    assert set(backing.whole(topology, nothing, "2").metadata["streams"]) == {"long"}
    short.sizes.append(5)
    third = backing.whole(topology, nothing, "3")
    assert third.metadata["streams"]["short"] == {"plan": {"number": 1, "start": 1, "end": 6}}


class Two:
    """A stream read by partitions, and beside it one that is not, whose records come when a test says so."""

    def __init__(self, backing: Any, max_pending: int = 1) -> None:
        self.backing, self.log, self.list = backing, LogSpout({"a": 10}), ListSpout()
        self.topology = Topology("word_count", max_pending)
        for name, spout, state in (("log", self.log, "first"), ("list", self.list, "second")):
            self.topology.new_stream(name, spout).group_by("word").persistent_aggregate(
                OpaqueState(state), count=Count()
            )

    def planned(self, name: str) -> Batch:
        """A batch of what has come."""
        found = self.backing.initialize(self.topology, name)
        assert isinstance(found, Batch)
        return found

    def commit(self, batch: Batch, name: str) -> bool:
        nothing = {"first": [], "second": []}
        self.backing.emit(self.topology, batch, nothing, name)
        return bool(self.backing.commit(self.topology, batch, nothing).applied)

    def listed(self, batch: Batch) -> tuple[int, int]:
        """Which records of the stream without partitions a batch reads."""
        plan = batch.plan.streams["list"].ranges[""]
        return plan["start"], plan["end"]


@pytest.mark.rule("R3", "R16")
def test_a_late_skip_does_not_begin_a_stream_without_partitions_again(backing: Any) -> None:
    """The batch that is given up was planned before the stream had anything, and does not say where it is."""
    story = Two(backing)
    poison = story.planned("1")
    assert set(poison.plan.streams) == {"log"}
    backing.ledger.abort("word_count", poison.txid, "unreadable")
    story.log.lengths["a"], story.list.sizes = 0, [5]
    first = story.planned("2")
    assert story.commit(first, "2")
    given_up = skip(backing, poison.txid)
    assert (given_up.plan.streams, set(given_up.plan.idle)) == (poison.plan.streams, {"list"})
    assert isinstance(backing.initialize(story.topology, "3"), NothingNew)
    story.list.sizes.append(3)
    second = story.planned("3")
    assert [story.listed(each) for each in (first, second)] == [(0, 5), (5, 8)]
    assert story.commit(second, "3")


@pytest.mark.rule("R6", "R16")
def test_a_skip_beside_an_open_batch_of_a_stream_without_partitions_loses_nothing_of_it(backing: Any) -> None:
    """The open batch was not planned behind the skip: it is refused, and planned anew with the same records."""
    story = Two(backing, max_pending=2)
    poison = story.planned("1")
    backing.ledger.abort("word_count", poison.txid, "unreadable")
    story.log.lengths["a"], story.list.sizes = 0, [5]
    open_ = story.planned("2")
    assert skip(backing, poison.txid).plan.idle == {}
    with refused("TX407", "txid 2"):
        story.commit(open_, "2")
    backing.ledger.abort("word_count", open_.txid, "it was refused")
    again = story.planned("2")
    assert story.listed(again) == story.listed(open_) == (0, 5)
    assert story.commit(again, "2")
