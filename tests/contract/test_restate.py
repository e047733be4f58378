"""Restate: a committed batch is counted again, in its place (R17), in both ledgers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from refusals import refused
from support import Keyed, ListSpout, LogSpout, run, word_count

from txbatch import Count, Topology, TransactionalState
from txbatch.core.batch.plan import Successive
from txbatch.core.batch.transaction import Batch, BatchKind, Restate, Run
from txbatch.core.protocol import coordinator
from txbatch.core.protocol.decisions import Wait

pytestmark = pytest.mark.rule("R17")
NAME = "word_count"


def words(**counts: int) -> dict[str, list[Keyed]]:
    return {NAME: [((word,), (count,)) for word, count in counts.items()]}


def restate_of(position: int, name: str = "again", **more: Any) -> Run:
    return replace(run(name), restate=Restate(position, "a file was wrong", "anna", **more))


class Case:
    """A topology on one of both ledgers, and its batches through their steps."""

    def __init__(self, backing: Any, spout: Any = None, **options: Any) -> None:
        self.backing, self.ledger = backing, backing.ledger
        self.topology: Topology = word_count(spout or LogSpout({"a": 100}), **options)

    def initialize(self, run: Run) -> Any:
        self.ledger.register(self.topology, "jobs/job.py")
        return coordinator.initialize_transaction(self.ledger, self.topology, run)

    def goes(self, batch: Batch, run: Run, partials: Mapping[str, Sequence[Keyed]], **changes: Any) -> Batch:
        """Emit, commit and success."""
        self.backing.emit(self.topology, batch, partials, run.name, **changes)
        committed = self.backing.commit(self.topology, batch, partials)
        assert committed.applied
        assert self.ledger.success(NAME, batch.txid)
        return committed.batch

    def counts(self, name: str, **counts: int) -> Batch:
        of = run(name)
        return self.goes(self.initialize(of), of, words(**counts))

    def restates(self, position: int, name: str = "again", **counts: int) -> Batch:
        of = restate_of(position, name)
        return self.goes(self.initialize(of), of, words(**counts))

    def rows(self) -> dict[str, tuple[Any, ...]]:
        return {key[0]: row for key, row in self.backing.state(NAME).items()}


@pytest.fixture
def case(backing: Any) -> Case:
    return Case(backing)


def test_a_batch_is_counted_again_in_its_place(case: Case) -> None:
    """A key of both versions changes, one of the old alone goes, one of the new alone comes, others stay as they are."""
    case.counts("1", dog=1, cat=2)
    case.counts("2", dog=10, emu=1)
    again = case.restates(1, dog=3, fox=1)
    assert (again.txid, again.position, again.kind, again.requested_by) == (3, 1, BatchKind.RESTATE, "anna")
    assert case.rows() == {"dog": (13, 3), "fox": (1, 3), "emu": (1, 2)}
    assert case.ledger.batch(NAME, 1).replaced_by == 3
    assert case.backing.contributions(NAME)[("dog",), 1, 3] == (3,)
    version = case.ledger.version(NAME, 1)
    assert (version.asked.txid, version.current.txid, version.read["words"]["a"].records) == (1, 3, 10)


def test_a_key_whose_value_stays_carries_the_restates_txid(case: Case) -> None:
    case.counts("1", dog=1)
    case.restates(1, dog=1)
    assert case.rows() == {"dog": (1, 2)}


def test_the_next_batch_neither_reads_again_nor_skips(case: Case) -> None:
    case.counts("1", dog=1)
    assert case.restates(1, dog=2).plan.streams["words"].ranges == {"a": {"start": 0, "end": 10}}
    following = case.initialize(run("3"))
    assert (following.prev_txid, following.plan.streams["words"].ranges) == (1, {"a": {"start": 10, "end": 20}})
    case.goes(following, run("3"), words(dog=4))
    assert case.rows() == {"dog": (6, 3)}


def test_a_restate_of_a_restate_means_its_position(case: Case) -> None:
    case.counts("1", dog=1)
    case.restates(1, "first", dog=2, cat=1)
    with refused("TX603", "txid 2", "txid 1", "restate"):
        case.initialize(restate_of(2))
    again = case.restates(case.ledger.batch(NAME, 2).position, "second", dog=5)
    assert [case.ledger.batch(NAME, txid).replaced_by for txid in (1, 2, 3)] == [2, 3, None]
    assert (again.txid, again.position, case.rows()) == (3, 1, {"dog": (5, 3)})


def test_the_example_of_the_protocol(case: Case) -> None:
    case.counts("1", dog=1, cat=1)
    case.counts("2", dog=1)
    assert case.rows() == {"dog": (2, 2), "cat": (1, 1)}
    case.restates(1, "first", dog=2, fox=1)
    assert case.rows() == {"dog": (3, 3), "fox": (1, 3)}
    case.counts("4", cat=1)
    assert case.rows() == {"dog": (3, 3), "cat": (1, 4), "fox": (1, 3)}
    case.restates(1, "second", dog=2, fox=1)
    assert case.rows() == {"dog": (3, 5), "cat": (1, 4), "fox": (1, 5)}


def test_a_restate_counts_for_max_pending_and_is_waited_for(case: Case) -> None:
    case.counts("1", dog=1)
    asked = case.initialize(restate_of(1))
    waits = case.initialize(run("2"))
    assert isinstance(waits, Wait)
    assert waits.batch.txid == asked.txid
    case.ledger.abort(NAME, asked.txid, "not now")
    assert case.initialize(run("2")).txid == 3


def test_two_positions_of_one_run_are_two_batches(case: Case) -> None:
    case.counts("1", dog=1)
    case.counts("2", dog=1)
    assert [case.restates(position, "again", dog=5).txid for position in (1, 2)] == [3, 4]
    assert [case.initialize(restate_of(position)).txid for position in (1, 2)] == [3, 4]
    assert case.rows() == {"dog": (10, 4)}


def test_several_partials_of_one_key_are_combined(case: Case) -> None:
    case.counts("1", dog=1)
    of = restate_of(1)
    twice: dict[str, list[Keyed]] = {NAME: [(("dog",), (2,)), (("cat",), (1,)), (("dog",), (3,))]}
    case.goes(case.initialize(of), of, twice)
    assert case.rows() == {"dog": (5, 2), "cat": (1, 2)}
    assert case.backing.contributions(NAME)[("dog",), 1, 2] == (5,)


def test_a_restate_is_found_as_unfinished_with_all_that_was_asked(case: Case) -> None:
    case.counts("1", dog=1)
    case.initialize(restate_of(1, "cli:again", accept_missing=True))
    found = case.ledger.oldest_unfinished(NAME, "cli:", above=0)
    assert found is not None
    assert (found.txid, found.run.name, found.run.key) == (2, "cli:again", "restate:1:cli:again")
    assert found.run.restate == Restate(1, "a file was wrong", "anna", accept_missing=True, skipped=True)


def test_only_the_streams_of_the_batch_are_read_again(backing: Any) -> None:
    """One that was idle then is not read, and where it goes on is left to the next ordinary batch."""
    case = Case(backing, LogSpout({"a": 20}))
    listed = ListSpout(5, 5)
    grouped = case.topology.new_stream("listed", listed).group_by("word")
    grouped.persistent_aggregate(TransactionalState("other"), count=Count())
    partials = {**words(dog=1), "other": [(("cat",), (1,))]}

    def whole(of: Run) -> Batch:
        batch = case.initialize(of)
        return case.goes(batch, of, partials)

    assert sorted(whole(run("1")).plan.streams) == ["listed", "words"]
    listed.sizes = [5]
    second = whole(run("2"))
    assert (sorted(second.plan.streams), sorted(second.plan.idle)) == (["words"], ["listed"])
    listed.sizes = [5, 5]
    again = whole(restate_of(2))
    assert (sorted(again.plan.streams), dict(again.plan.idle), again.plan.whole) == (["words"], {}, True)
    case.topology.streams["words"].spout.lengths["a"] = 30  # type: ignore[attr-defined]
    third = whole(run("4"))
    assert third.plan.streams["listed"].plan == {"number": 1, "start": 5, "end": 10}
    assert third.plan.streams["words"].ranges == {"a": {"start": 20, "end": 30}}
    assert case.rows() == {"dog": (3, 4)}


def test_parameters_are_those_of_then(backing: Any) -> None:
    spout = ListSpout(5, 5)
    spout.parameters = ("top",)
    case = Case(backing, spout)
    of = replace(run("1"), parameters={"top": 3})
    case.goes(case.initialize(of), of, words(dog=1))
    again = case.initialize(restate_of(1))
    assert (dict(again.plan.parameters), again.plan.streams["words"]) == (
        {"top": 3},
        Successive({"number": 0, "start": 0, "end": 5}),
    )
    assert case.initialize(restate_of(1)).txid == again.txid
