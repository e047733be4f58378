"""A topology reads what changed in a state of another one, from committed txid to committed txid, in both ledgers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from contract.test_rebuild import JOB, Rebuilding, counted
from contract.test_restate import NAME, Case, restate_of, words
from refusals import refused
from support import LogSpout, run, word_count

from txbatch import Avg, Count, OpaqueState, StateSpout, Topology
from txbatch.core.batch.transaction import Batch, Restate
from txbatch.core.corrections.rebuild import Swapped
from txbatch.core.errors import DefinitionError, RecordsGone, TerminalError
from txbatch.core.protocol import coordinator
from txbatch.core.protocol.coordinator import NothingNew
from txbatch.core.records.fields import Field
from txbatch.core.state.keep import Keep
from txbatch.core.upstream.upstream import export

FIELDS = "word string, change string, count_before bigint, count_after bigint, txid bigint"
TOP = "top"


def top(state: str = NAME, fields: str = FIELDS, name: str = TOP) -> Topology:
    """Words, and how often each has changed."""
    topology = Topology(name)
    grouped = topology.new_stream("changes", StateSpout(state, fields)).group_by(fields.partition(" ")[0])
    grouped.persistent_aggregate(OpaqueState(name), count=Count())
    return topology


class Exported:
    """The folder of an attempt, as far as it is exported to."""

    def __init__(self) -> None:
        self.records: list[tuple[Any, ...]] = []

    def write_export(self, number: int, fields: Sequence[Field], records: Iterable[tuple[Any, ...]]) -> None:
        assert number == 0
        self.records = sorted(map(tuple, records))


class Chain(Case):
    """A topology, and one that reads its state."""

    def __init__(self, backing: Any, reader: Topology | None = None, **options: Any) -> None:
        super().__init__(backing, LogSpout({"a": 1000}), **options)
        self.reader = reader or top()

    def plans(self, name: str, of: Restate | None = None) -> Any:
        self.ledger.register(self.reader, JOB)
        return coordinator.initialize_transaction(self.ledger, self.reader, replace(run(name), restate=of))

    def exports(self, batch: Batch, name: str = "run") -> list[tuple[Any, ...]]:
        """An attempt of a batch: what it is given."""
        folder = Exported()
        export(self.reader, self.ledger.upstream, self.backing.attempt(batch, name), folder)  # type: ignore[arg-type]
        return folder.records

    def reads(self, name: str, of: Restate | None = None) -> list[tuple[Any, ...]]:
        """A batch of the reader through all steps: what it was given."""
        batch = self.plans(name, of)
        assert isinstance(batch, Batch), batch
        found = self.exports(batch, name)
        partials = {self.reader.name: [((each[0],), (1,)) for each in found]}
        self.backing.emit(self.reader, batch, partials, name)
        assert self.backing.commit(self.reader, batch, partials).applied
        assert self.ledger.success(self.reader.name, batch.txid)
        return found


@pytest.fixture
def chain(backing: Any) -> Chain:
    return Chain(backing)


def test_the_first_batch_has_all_keys_and_each_later_one_what_changed(chain: Chain) -> None:
    chain.counts("1", dog=1, cat=2)
    chain.counts("2", dog=10)
    assert chain.reads("a") == [("cat", "added", None, 2, 1), ("dog", "added", None, 11, 2)]
    assert isinstance(chain.plans("b"), NothingNew)
    chain.counts("3", dog=5, emu=1)
    chain.counts("4", emu=1)
    assert chain.reads("b") == [("dog", "changed", 11, 16, 3), ("emu", "added", None, 2, 4)]
    ranges = [chain.ledger.batch(TOP, txid).plan.streams["changes"].ranges[NAME] for txid in (1, 2)]
    assert [(each["start"], each["end"]) for each in ranges] == [(0, 2), (2, 4)]


def test_a_key_may_be_of_any_type(backing: Any) -> None:
    spout = LogSpout({"a": 1000})
    spout.fields = "n bigint, at timestamp"
    chain = Chain(backing, top(fields=f"n bigint, at timestamp, {FIELDS.partition(', ')[2]}"))
    chain.topology = Topology(NAME)
    grouped = chain.topology.new_stream("in", spout).group_by("n", "at")
    grouped.persistent_aggregate(OpaqueState(NAME), count=Count())
    at = datetime(2026, 11, 24, tzinfo=UTC)
    backing.whole(chain.topology, {NAME: [((7, at), (1,))]}, "1")
    assert chain.reads("a") == [(7, at, "added", None, 1, 1)]


def test_nothing_is_read_of_a_state_without_batches(chain: Chain) -> None:
    chain.ledger.register(chain.topology, JOB)
    assert isinstance(chain.plans("a"), NothingNew)


def test_every_attempt_has_the_same_whatever_comes_meanwhile(chain: Chain) -> None:
    """Also what is open or aborted upstream is not seen, and a restate that comes later is not."""
    chain.counts("1", dog=1)
    batch = chain.plans("a")
    first = chain.exports(batch, "a")
    chain.counts("2", dog=10)
    chain.restates(1, cat=7)
    chain.initialize(run("4"))
    assert chain.exports(batch, "a") == first == [("dog", "added", None, 1, 1)]


@pytest.mark.rule("R16")
def test_what_is_open_below_a_skip_is_read_once_it_is_committed(backing: Any) -> None:
    """A skip is committed at once, by a txid above those of batches that are still open; they are not passed by."""
    chain = Chain(backing, max_pending=2)
    chain.counts("1", dog=1)
    assert chain.reads("a") == [("dog", "added", None, 1, 1)]
    poisoned, below = chain.initialize(run("2")), chain.initialize(run("3"))
    assert chain.ledger.skip(NAME, poisoned.txid, "poison").txid > below.txid
    assert isinstance(chain.plans("b"), NothingNew)
    chain.goes(below, run("3"), words(dog=10))
    assert chain.reads("b") == [("dog", "changed", 1, 11, below.txid)]


@pytest.mark.rule("R17")
def test_a_restate_upstream_comes_as_a_change(chain: Chain) -> None:
    chain.counts("1", dog=1, cat=2, emu=1)
    chain.counts("2", dog=10)
    chain.reads("a")
    chain.restates(1, dog=4, fox=1, emu=1)
    assert chain.reads("b") == [
        ("cat", "removed", 2, None, 3),
        ("dog", "changed", 11, 14, 3),
        ("fox", "added", None, 1, 3),
    ]


@pytest.mark.rule("R17")
def test_a_batch_of_the_reader_is_counted_again_as_it_was(chain: Chain) -> None:
    chain.counts("1", dog=1)
    first = chain.reads("a")
    chain.counts("2", dog=10)
    second = chain.reads("b")
    chain.restates(1, dog=2)
    assert chain.reads("again", Restate(1, "the job was wrong")) == first
    assert chain.reads("once more", Restate(2, "the job was wrong")) == second
    assert chain.reads("c") == [("dog", "changed", 11, 12, 3)]


@pytest.mark.rule("R23")
def test_a_rebuild_upstream_comes_as_a_change_with_the_next_batch(chain: Chain) -> None:
    chain.counts("1", dog=1, cat=2)
    chain.counts("2", dog=10)
    first = chain.reads("a")
    chain.counts("3", emu=1)
    rebuilding = Rebuilding(chain)
    for txid, counts in enumerate(({"dog": 5, "cat": 2}, {"dog": 10, "fox": 1}, {}), 1):
        assert rebuilding.count(txid, **counts)
    assert rebuilding.swap() == Swapped(3)
    assert chain.reads("b") == [("emu", "added", None, 1, 3)]  # what reports showed at txid 3, before the swap
    assert isinstance(chain.plans("c"), NothingNew)
    chain.topology = rebuilding.topology
    of = run("4")
    chain.goes(chain.initialize(of), of, counted(owl=1))
    swapped = [
        ("cat", "changed", 2, 2, 1),  # it has another value since, which is not read here
        ("dog", "changed", 11, 15, 2),
        ("emu", "removed", 1, None, 4),
        ("fox", "added", None, 1, 2),
        ("owl", "added", None, 1, 4),
    ]
    assert chain.reads("c") == swapped
    assert chain.reads("again", Restate(1, "the job was wrong")) == first
    assert chain.reads("once more", Restate(3, "the job was wrong")) == swapped
    of = run("5")
    chain.goes(chain.initialize(of), of, counted(owl=1))
    assert chain.reads("d") == [("owl", "changed", 1, 2, 5)]


@pytest.mark.rule("R17", "R23")
def test_what_a_rebuild_replaced_is_read_as_of_then_after_a_restate_as_well(chain: Chain) -> None:
    """Each key once: a restate after the swap changes nothing of what was before."""
    chain.counts("1", dog=1, cat=2)
    first = chain.reads("a")
    chain.counts("2", dog=10)
    rebuilding = Rebuilding(chain)
    assert rebuilding.count(1, dog=1, cat=2)
    assert rebuilding.count(2, dog=10)
    assert rebuilding.swap() == Swapped(2)
    chain.topology = rebuilding.topology
    of = restate_of(1)
    chain.goes(chain.initialize(of), of, counted(dog=4, emu=1))
    assert chain.reads("again", Restate(1, "the job was wrong")) == first
    assert chain.reads("b") == [
        ("cat", "removed", 2, None, 3),
        ("dog", "changed", 1, 14, 3),
        ("emu", "added", None, 1, 3),
    ]


@pytest.mark.rule("R23")
def test_the_past_of_a_rebuild_stays_until_its_changes_are_read(chain: Chain) -> None:
    chain.counts("1", dog=1)
    chain.reads("a")
    rebuilding = Rebuilding(chain)
    assert rebuilding.count(1, dog=5)
    assert rebuilding.swap() == Swapped(1)
    with refused("TX606", "'top'", "'word_count'", "rebuild"):
        rebuilding.rebuilds.drop_past(NAME)
    chain.topology = rebuilding.topology
    of = run("2")
    chain.goes(chain.initialize(of), of, counted(dog=1))
    assert chain.reads("b") == [("dog", "changed", 1, 6, 2)]
    assert rebuilding.rebuilds.drop_past(NAME) == [rebuilding.rebuild.number]
    with refused("TX205", "txid 1", "rebuild"):
        chain.plans("again", Restate(2, "the job was wrong"))


@pytest.mark.rule("R23")
def test_what_was_rebuilt_and_not_kept_is_read_with_the_next_txid(backing: Any) -> None:
    """Before that nothing is planned, as nobody could say what it was as of its newest txid."""
    chain = Chain(backing, state=OpaqueState(NAME, contributions=False))
    chain.counts("1", dog=1)
    rebuilding = Rebuilding(chain)
    assert rebuilding.count(1, dog=5)
    assert rebuilding.swap() == Swapped(1)
    for way in ("a", "b"):
        with refused("TX205", "rebuild 1", "run topology 'word_count'"):
            chain.plans(way)
    chain.topology = rebuilding.topology
    of = restate_of(1)
    chain.goes(chain.initialize(of), of, counted(dog=6))
    assert chain.reads("c") == [("dog", "added", None, 6, 2)]


@pytest.mark.rule("R22")
def test_retention_keeps_what_a_reader_needs(chain: Chain) -> None:
    for number in range(1, 4):
        chain.counts(f"{number}", dog=1)
    chain.reads("a")
    for number in range(4, 8):
        chain.counts(f"{number}", dog=1)
    kept = chain.backing.retention
    past = kept.past(NAME, Keep(txids=1))
    assert (past.wanted, past.reached) == (6, 3)
    assert past.waits_for == "topology 'top', which has read states as of txid 3, to run again"
    assert {each.horizon for each in kept.fold(NAME, 6)} == {3}
    assert chain.reads("b") == [("dog", "changed", 3, 7, 7)]
    assert (kept.past(NAME, Keep(txids=1)).waits_for, [each.horizon for each in kept.fold(NAME, 6)]) == (None, [6])


@pytest.mark.rule("R22")
def test_retention_keeps_what_an_open_batch_reads(chain: Chain) -> None:
    for number in range(1, 3):
        chain.counts(f"{number}", dog=1)
    batch = chain.plans("a")
    for number in range(3, 6):
        chain.counts(f"{number}", dog=1)
    assert {each.horizon for each in chain.backing.retention.fold(NAME, 4)} == {2}
    assert chain.exports(batch, "a") == [("dog", "added", None, 2, 2)]


@pytest.mark.rule("R22")
def test_what_is_folded_is_read_as_it_is_now_and_not_as_it_was(chain: Chain) -> None:
    for number in range(1, 4):
        chain.counts(f"{number}", dog=1)
    assert [each.horizon for each in chain.backing.retention.fold(NAME, 2)] == [2]
    assert chain.reads("a") == [("dog", "added", None, 3, 3)]
    chain.counts("4", dog=1)
    chain.counts("5", dog=1)
    chain.reads("b")
    assert [each.horizon for each in chain.backing.retention.fold(NAME, 4)] == [4]
    with refused("TX205", "txid 3", "folded", "txid 4", "stay unchanged"):
        chain.plans("again", Restate(1, "the job was wrong"))


def test_a_state_whose_past_is_not_kept_is_refused(backing: Any) -> None:
    chain = Chain(backing, state=OpaqueState(NAME, contributions=False))
    chain.counts("1", dog=1)
    with pytest.raises(TerminalError, match="kept without contributions: what changed in it is not known"):
        chain.plans("a")


def test_a_state_or_a_column_that_is_not_there_is_named(backing: Any) -> None:
    with refused("TX401", "'word_count'"):
        Chain(backing).plans("a")
    chain = Chain(backing, top(fields="word string, total_after bigint"))
    chain.counts("1", dog=1)
    with refused("TX601", "'total_after'", "count_before", "count_after"):
        chain.plans("a")


def test_values_come_as_reports_show_them(backing: Any) -> None:
    """An average is one value, and a key comes under its own name."""
    chain = Chain(backing, top(fields="word string, mean_before decimal(20,4), mean_after decimal(20,4)"))
    topology = Topology(NAME)
    spout = LogSpout({"a": 100})
    spout.fields = "word string, price bigint"
    grouped = topology.new_stream("words", spout).group_by("word")
    grouped.persistent_aggregate(OpaqueState(NAME), mean=Avg("price"))
    chain.topology = topology
    of = run("1")
    chain.goes(chain.initialize(of), of, {NAME: [(("dog",), (3, 2))]})
    of = run("2")
    chain.goes(chain.initialize(of), of, {NAME: [(("dog",), (5, 2))]})
    assert [(word, before, float(after)) for word, before, after in chain.reads("a")] == [("dog", None, 2.0)]


def test_a_cycle_is_refused(chain: Chain) -> None:
    """Of however many topologies, before any of them has a txid."""
    chain.counts("1", dog=1)
    first, second = top("second", name="first"), top("third", name="second")
    third = top("first", name="third")
    for each in (first, second, third):
        chain.ledger.register(each, JOB)
    told = "reads what it makes itself: third reads state 'first' of first reads state 'second' of second reads state 'third'"
    with pytest.raises(DefinitionError, match=f"topology 'third' {told} of third; a chain has an end"):
        coordinator.initialize_transaction(chain.ledger, third, run("x"))
    with refused("TX107", "'top'"):
        coordinator.initialize_transaction(chain.ledger, top(TOP), run("x"))


@pytest.mark.rule("R23")
def test_a_state_that_is_read_keeps_its_name_and_its_place(chain: Chain) -> None:
    """Its topology need not. No state moves to another database, read or not."""
    chain.counts("1", dog=1)
    first = chain.reads("a")
    stays = "state 'word_count' stays unchanged while topology 'top' reads the state"
    others = [
        (OpaqueState("words", was=NAME), stays),
        (OpaqueState(NAME, database="warehouse"), "what is counted stays where it is"),
        (OpaqueState("words", since="now"), stays),
    ]
    for other, says in others:
        with pytest.raises(TerminalError, match=says):
            chain.ledger.change(word_count(LogSpout({"a": 1000}), state=other), JOB, "a better name, or place")
    chain.topology = word_count(LogSpout({"a": 1000}), "renamed", state=OpaqueState(NAME))
    chain.topology.was = NAME
    chain.ledger.change(chain.topology, JOB, "a better name")
    assert chain.reads("again", Restate(1, "the job was wrong")) == first
    assert isinstance(chain.plans("b"), NothingNew)


def test_a_state_that_was_made_anew_is_refused(chain: Chain) -> None:
    """Of a dropped topology, or a ledger that was set back."""
    chain.counts("1", dog=1)
    batch = chain.plans("a")
    of = batch.plan.streams["changes"].ranges[NAME]
    for wrong in ({**of, "of": ["another", 1]}, {**of, "end": 7}):
        with pytest.raises(
            RecordsGone, match=r"(was dropped and made anew|at txid 1: its ledger was set back), since it was"
        ):
            list(chain.ledger.upstream.changes(NAME, wrong, ["word"]))
