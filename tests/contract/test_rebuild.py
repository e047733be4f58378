"""Rebuild: all batches are counted again beside what counts, and swapped (R23), in both ledgers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from contract.test_restate import NAME, Case, restate_of, words
from refusals import refused
from support import Keyed, ListSpout, LogSpout, code, manifest_of, run, word_count

from txbatch import Count, Max, SpoutKind, Topology
from txbatch.core.batch.manifest import ReadPartition
from txbatch.core.batch.transaction import Assignment, BatchStatus, TransactionAttempt
from txbatch.core.corrections.rebuild import Behind, Rebuild, Swapped
from txbatch.core.errors import StaleAttempt, TerminalError

pytestmark = pytest.mark.rule("R23")
JOB, NEW = "jobs/job.py", code("new")


def longest(**changes: Any) -> Topology:
    return word_count(LogSpout({"a": 100}), count=Count(), most=Max("word"), **changes)


def counted(**counts: int) -> dict[str, list[Keyed]]:
    """What a batch contributes by that definition."""
    return {NAME: [((word,), (count, word)) for word, count in counts.items()]}


class Rebuilding:
    """A rebuild of a case by another definition."""

    def __init__(self, case: Case, topology: Topology | None = None) -> None:
        self.rebuilds, self.backing, self.topology = case.backing.rebuilds, case.backing, topology or longest()
        self.rebuild: Rebuild = self.begin()

    def begin(self, why: str | None = "one more", job: str = NEW) -> Rebuild:
        return self.rebuilds.begin(self.topology, JOB, job, why, "ann")

    def count(self, txid: int, **counts: int) -> bool:
        return self.offer(txid, counted(**counts))

    def offer(self, txid: int, partials: Any, **changes: Any) -> bool:
        """A version, whether it is the next or not."""
        plan = self.backing.ledger.batch(NAME, txid).metadata
        assignment = Assignment(NAME, TransactionAttempt(txid, 0), uuid4().hex, plan, NEW)
        manifest = manifest_of(self.topology, assignment, partials, **changes)
        given = self.backing.as_partials(self.topology, partials)
        return self.rebuilds.count(self.rebuild, self.topology, assignment, manifest, given)

    def swap(self) -> Any:
        return self.rebuilds.swap(self.rebuild, self.topology)

    @property
    def next(self) -> int | None:
        version = self.rebuilds.next(self.rebuild)
        return version and version.txid

    def to_count(self, at_most: int) -> list[int]:
        return [version.current.txid for version in self.rebuilds.to_count(self.rebuild, at_most)]

    @property
    def progress(self) -> tuple[int, int]:
        found = self.rebuilds.progress(self.rebuild)
        return found.counted, found.left


@pytest.fixture
def case(backing: Any) -> Case:
    """Two batches are committed."""
    case = Case(backing)
    case.counts("1", dog=1, cat=2)
    case.counts("2", dog=10)
    return case


def values(case: Case) -> dict[str, tuple[Any, ...]]:
    return {key[0]: row for key, row in case.backing.values(NAME, "count", "most").items()}


def test_no_definition_is_changed_while_a_rebuild_runs(case: Case) -> None:
    """What is counted by then is of the definition with which the rebuild began."""
    rebuilding = Rebuilding(case)
    assert rebuilding.count(1, dog=1, cat=2)
    renamed = word_count(LogSpout({"a": 100}), number=Count(was="count"))
    with refused("TX602", "'word_count'", "rebuild", "1"):
        case.ledger.change(renamed, JOB, "a test")
    case.ledger.change(case.topology, JOB, "nothing is another")
    assert rebuilding.count(2, dog=10)
    assert rebuilding.swap() == Swapped(2)


def test_one_more_value_is_counted_for_all_history_while_batches_are_committed(case: Case) -> None:
    rebuilding = Rebuilding(case)
    assert (rebuilding.next, rebuilding.progress) == (1, (0, 2))
    assert rebuilding.count(1, dog=1, cat=2)
    assert not rebuilding.count(1, dog=1)  # it is not the next any more
    case.counts("3", emu=5)
    assert case.rows() == {"dog": (11, 2), "cat": (2, 1), "emu": (5, 3)}
    assert (rebuilding.next, rebuilding.progress, rebuilding.swap()) == (2, (1, 2), Behind())
    assert rebuilding.count(2, dog=10)
    assert rebuilding.count(3, emu=5)
    assert (rebuilding.next, rebuilding.progress) == (None, (3, 0))
    assert rebuilding.swap() == Swapped(3)
    assert values(case) == {"dog": (11, "dog", 2), "cat": (2, "cat", 1), "emu": (5, "emu", 3)}
    contributed = case.backing.contributed(NAME, "count", "most")
    assert contributed[("dog",), 2, 2] == (10, "dog")
    with refused("TX601", "'most'", "'word_count'"):
        case.initialize(run("4"))
    case.topology = rebuilding.topology
    of = run("4")
    case.goes(case.initialize(of), of, counted(dog=1))
    assert values(case)["dog"] == (12, "dog", 4)


@pytest.mark.rule("R17")
def test_what_a_rebuild_read_is_what_counts_of_a_version(case: Case) -> None:
    rebuilding, before = Rebuilding(case), case.ledger.version(NAME, 1)
    more = {"words": {"a": ReadPartition(11, "77")}}
    assert rebuilding.offer(1, counted(dog=1, cat=3), streams=more)
    assert case.ledger.version(NAME, 1) == before, "nothing of it counts yet"
    assert rebuilding.count(2, dog=10)
    rebuilding.swap()
    version = case.ledger.version(NAME, 1)
    assert (version.read, version.plan.to_json()) == (more, before.current.metadata)
    assert version.current.records == 11
    case.topology = rebuilding.topology
    of = restate_of(1)
    case.goes(case.initialize(of), of, counted(dog=2))
    assert case.ledger.version(NAME, 1).read == before.read


def test_what_is_restated_meanwhile_is_counted_in_its_turn(case: Case) -> None:
    rebuilding = Rebuilding(case)
    assert rebuilding.count(1, dog=1, cat=2)
    case.restates(1, dog=4)
    case.restates(1, "once more", dog=5)
    assert [rebuilding.to_count(number) for number in (1, 9)] == [[2], [2, 4]]
    assert (rebuilding.next, rebuilding.progress) == (2, (0, 2))
    assert rebuilding.count(2, dog=10)
    assert rebuilding.next == 4  # 3 was replaced before it was counted
    assert rebuilding.count(4, dog=5)
    assert rebuilding.progress == (2, 0)
    assert rebuilding.swap() == Swapped(4)
    assert values(case) == {"dog": (15, "dog", 4)}
    of = replace(run("and again"))
    case.topology = rebuilding.topology
    assert case.goes(case.initialize(of), of, counted(cat=1)).txid == 5
    assert values(case) == {"dog": (15, "dog", 4), "cat": (1, "cat", 5)}


def test_a_key_has_the_txid_of_what_took_its_records_away_though_that_was_never_counted(backing: Any) -> None:
    case = Case(backing)
    case.counts("1", dog=1, cat=2)
    case.counts("2", cat=7, dog=1)
    rebuilding = Rebuilding(case)
    assert rebuilding.count(1, dog=1, cat=2)
    case.restates(1, dog=4)
    case.restates(1, "once more", dog=5)
    assert case.rows() == {"dog": (6, 4), "cat": (7, 3)}
    assert rebuilding.count(2, cat=7, dog=1)
    assert rebuilding.count(4, dog=5)
    assert rebuilding.swap() == Swapped(4)
    assert values(case) == {"dog": (6, "dog", 4), "cat": (7, "cat", 3)}


def test_positions_that_share_a_key_are_restated_while_they_are_counted_anew(case: Case) -> None:
    """What takes another's place does so in its turn, and not before: the other one counts until then."""
    rebuilding = Rebuilding(case)
    assert rebuilding.count(1, dog=1, cat=2)
    assert rebuilding.count(2, dog=10)
    case.restates(1, dog=4)
    case.restates(2, dog=20)
    assert rebuilding.count(3, dog=4)
    assert rebuilding.count(4, dog=20)
    assert rebuilding.swap() == Swapped(4)
    assert values(case) == {"dog": (24, "dog", 4)}


def test_what_was_emitted_before_the_swap_is_emitted_again(case: Case) -> None:
    rebuilding = Rebuilding(case)
    of = run("3")
    batch = case.initialize(of)
    case.backing.emit(case.topology, batch, words(emu=1), "3")
    assert rebuilding.count(1, dog=1, cat=2)
    assert rebuilding.count(2, dog=10)
    emitted = case.ledger.batch(NAME, 3)
    assert rebuilding.swap() == Swapped(2)
    assert case.ledger.batch(NAME, 3).status is BatchStatus.PLANNED
    with pytest.raises(StaleAttempt):
        case.ledger.commit(rebuilding.topology, emitted, case.backing.as_partials(case.topology, words(emu=1)))
    case.topology = rebuilding.topology
    case.goes(batch, of, counted(emu=1))
    assert values(case)["emu"] == (1, "emu", 3)


def test_one_rebuild_runs_and_whoever_calls_again_goes_on_with_it(case: Case) -> None:
    rebuilding = Rebuilding(case)
    assert rebuilding.begin(why=None) == rebuilding.rebuild
    with pytest.raises(TerminalError, match="the job has changed since"):
        rebuilding.begin(job=code("newer"))
    assert rebuilding.rebuilds.done(NAME, NEW, "one more") is None
    assert rebuilding.count(1, dog=1, cat=2)
    assert rebuilding.count(2, dog=10)
    rebuilding.swap()
    done = rebuilding.rebuilds.done(NAME, NEW, "one more")
    assert (done.rebuild, done.txid, done.earlier) == (rebuilding.rebuild, 2, True)
    assert rebuilding.rebuilds.done(NAME, NEW, "other words") is None
    assert rebuilding.rebuilds.done(NAME, code("newer"), "one more") is None
    with pytest.raises(TerminalError, match="does not run any more"):
        rebuilding.count(2, dog=10)
    with pytest.raises(TerminalError, match="does not run any more"):
        rebuilding.swap()
    assert Rebuilding(case).rebuild.number == rebuilding.rebuild.number + 1


def test_what_is_read_in_part_is_not_counted(case: Case) -> None:
    rebuilding = Rebuilding(case)
    away = {"streams": {"words": {}}, "unreadable": {"words": {"a": "it is away"}}}
    with refused("TX605", "partition", "'a'", "'words'", "txid 1"):
        rebuilding.offer(1, counted(), **away)
    assert rebuilding.progress == (0, 2)


def test_what_was_given_up_and_then_counted_is_rebuilt(backing: Any) -> None:
    """A restate of what was given up is the only batch that has counted."""
    case = Case(backing)
    case.ledger.skip(NAME, case.initialize(run("1")).txid, "poison")
    with pytest.raises(TerminalError, match="has counted nothing yet"):
        Rebuilding(case)
    again = restate_of(2, skipped=True)
    case.goes(case.initialize(again), again, words(dog=1))
    rebuilding = Rebuilding(case)
    assert rebuilding.next == 3
    assert rebuilding.count(3, dog=1)
    assert rebuilding.swap() == Swapped(3)
    assert values(case) == {"dog": (1, "dog", 3)}


def test_what_cannot_be_rebuilt_is_refused(backing: Any) -> None:
    def begin(topology: Topology, why: str | None) -> None:
        backing.rebuilds.begin(topology, JOB, NEW, why)

    case = Case(backing)
    case.initialize(run("1"))
    with pytest.raises(TerminalError, match="has counted nothing yet"):
        begin(case.topology, "why")
    case.counts("1", dog=1)
    with pytest.raises(TerminalError, match="say why all of it is counted again"):
        begin(case.topology, " ")
    with refused("TX604", "'words'"):
        begin(word_count(ListSpout(kind=SpoutKind.NON_TRANSACTIONAL)), "why")
    with refused("TX601", "rebuild"):
        begin(word_count(ListSpout(kind=SpoutKind.OPAQUE)), "why")
