"""States apart from the ledger (R21), against both ledgers: crashes between both commits, zombies, aborts, lost databases."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import refusals
from contract.test_restate import restate_of
from support import Keyed, LogSpout, code, manifest_of, word_count

from txbatch import (
    Count,
    NonTransactionalState,
    OpaqueState,
    SpoutKind,
    Topology,
    TransactionalState,
)
from txbatch.core.batch.transaction import Batch, BatchStatus, Interval, Run
from txbatch.core.errors import DatabasesDisagree, SchemaMismatch, TerminalError
from txbatch.core.protocol.coordinator import FinishFirst, initialize_transaction, take_turn
from txbatch.core.protocol.decisions import belongs_to_another
from txbatch.failpoints import FailpointReached

pytestmark = pytest.mark.rule("R21")
Words = dict[str, list[Keyed]]
KINDS = {
    "opaque": (OpaqueState, SpoutKind.OPAQUE),
    "transactional": (TransactionalState, SpoutKind.TRANSACTIONAL),
    "non_transactional": (NonTransactionalState, SpoutKind.TRANSACTIONAL),
}


def words(**counts: int) -> Words:
    return {"word_count": [((word,), (count,)) for word, count in counts.items()]}


def apart(kind: str = "opaque", **options: Any) -> Topology:
    state, spout = KINDS[kind]
    return word_count(LogSpout({"a": 1000}, kind=spout), state=state("word_count", database="warehouse"), **options)


@pytest.fixture
def crashing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Calls something that dies at a failpoint."""

    def crash(point: str, call: Callable[[], Any]) -> None:
        with monkeypatch.context() as patch:
            patch.setenv("TXBATCH_FAILPOINTS", f"{point}=raise")
            with pytest.raises(FailpointReached):
                call()

    return crash


def half_committed(backing: Any, crashing: Any, topology: Topology, partials: Words, name: str = "run") -> Batch:
    """A batch whose commit ended in the warehouse and not in the ledger."""
    batch = backing.initialize(topology, name)
    backing.emit(topology, batch, partials, name)
    crashing("commit.apart_committed", lambda: backing.commit(topology, batch, partials))
    assert backing.ledger.batch("word_count", batch.txid).status is BatchStatus.EMITTED
    return batch


@pytest.mark.parametrize("kind", KINDS)
def test_batches_arrive_in_the_warehouse(backing: Any, kind: str) -> None:
    topology = apart(kind)
    backing.whole(topology, words(dog=1, man=2), "1")
    backing.whole(topology, words(dog=1), "2")
    assert backing.apart("word_count") == {("dog",): (2, 2), ("man",): (2, 1), "last": ("2:1", "applied")}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_attempt_again_does_nothing_there(backing: Any, crashing: Any, kind: str) -> None:
    """Also of a state that would count again: it is no other attempt."""
    topology = apart(kind)
    backing.whole(topology, words(dog=1), "1")
    batch = half_committed(backing, crashing, topology, words(dog=1), "2")
    backing.reconnect()
    assert backing.commit(topology, batch, words(dog=1)).applied
    assert backing.apart("word_count") == {("dog",): (2, 2), "last": ("2:1", "applied")}
    assert backing.ledger.batch("word_count", 2).status is BatchStatus.COMMITTED


def test_a_newer_attempt_with_other_records_takes_the_older_ones_back(backing: Any, crashing: Any) -> None:
    topology = apart()
    backing.whole(topology, words(dog=4), "1")
    batch = half_committed(backing, crashing, topology, words(dog=1, cat=7), "2")
    assert backing.apart("word_count") == {("dog",): (5, 2), ("cat",): (7, 2), "last": ("2:1", "applied")}
    backing.emit(topology, batch, words(man=3), "2")
    assert backing.commit(topology, batch, words(man=3)).applied
    assert backing.apart("word_count") == {("dog",): (4, 1), ("man",): (3, 2), "last": ("2:2", "applied")}
    backing.whole(topology, words(dog=1), "3")
    assert backing.apart("word_count")["dog",] == (5, 3)


def test_a_newer_attempt_with_the_same_records_changes_no_transactional_state(backing: Any, crashing: Any) -> None:
    topology = apart("transactional")
    batch = half_committed(backing, crashing, topology, words(dog=1, cat=7))
    turned = {"word_count": [(("cat",), (7,)), (("dog",), (1,))]}
    backing.emit(topology, batch, turned)
    assert backing.commit(topology, batch, turned).applied
    assert backing.apart("word_count") == {("dog",): (1, 1), ("cat",): (7, 1), "last": ("1:2", "applied")}


@pytest.mark.parametrize("other", [words(dog=2), words(cat=1), words(), words(dog=1, cat=1)], ids=str)
def test_a_newer_attempt_with_other_partials_is_refused_by_a_transactional_state(
    backing: Any, crashing: Any, other: Words
) -> None:
    topology = apart("transactional")
    batch = half_committed(backing, crashing, topology, words(dog=1))
    backing.emit(topology, batch, other)
    with refusals.refused("TX505", "attempt 1:1", "attempt 1:2"):
        backing.commit(topology, batch, other)
    assert backing.apart("word_count") == {("dog",): (1, 1), "last": ("1:1", "applied")}
    backing.emit(topology, batch, words(dog=1))
    assert backing.commit(topology, batch, words(dog=1)).applied


def test_a_non_transactional_state_counts_a_newer_attempt_again(backing: Any, crashing: Any) -> None:
    topology = apart("non_transactional")
    batch = half_committed(backing, crashing, topology, words(dog=1))
    backing.emit(topology, batch, words(dog=1))
    assert backing.commit(topology, batch, words(dog=1)).applied
    assert backing.apart("word_count")["dog",] == (2, 1)


@pytest.mark.rule("R17", "R23")
def test_nothing_is_counted_again_where_a_state_is_apart(backing: Any) -> None:
    """There are no contributions there, and no second generation."""
    topology = apart()
    backing.whole(topology, words(dog=1), "1")
    with refusals.refused("TX603", "'word_count'", "'warehouse'"):
        initialize_transaction(backing.ledger, topology, restate_of(1))
    with refusals.refused("TX604", "'word_count'", "rebuild"):
        backing.rebuilds.begin(topology, "jobs/job.py", code("new"), "a test")
    assert backing.apart("word_count") == {("dog",): (1, 1), "last": ("1:1", "applied")}


# ---- abort (R16)


def test_abort_takes_back_and_the_aborted_attempt_is_kept_out(backing: Any, crashing: Any) -> None:
    topology = apart()
    backing.whole(topology, words(dog=4), "1")
    half_committed(backing, crashing, topology, words(dog=1, cat=7), "2")
    assert backing.ledger.abort("word_count", 2, "wrong").status is BatchStatus.ABORTED
    assert backing.apart("word_count") == {("dog",): (4, 1), "last": ("2:1", "taken_back")}
    backing.whole(topology, words(dog=1), "3")
    assert backing.apart("word_count") == {("dog",): (5, 3), "last": ("3:1", "applied")}


def test_an_abort_that_dies_between_both_databases_is_done_again(backing: Any, crashing: Any) -> None:
    """The attempt was taken back, the ledger does not know: it may not come again, a newer one may."""
    topology = apart()
    batch = half_committed(backing, crashing, topology, words(dog=1))
    crashing("abort.apart_committed", lambda: backing.ledger.abort("word_count", 1, "wrong"))
    assert backing.ledger.batch("word_count", 1).status is BatchStatus.EMITTED
    with refusals.refused("TX502", "attempt 1:1"):
        backing.commit(topology, batch, words(dog=1))
    backing.emit(topology, batch, words(cat=1))
    assert backing.commit(topology, batch, words(cat=1)).applied
    assert backing.apart("word_count") == {("cat",): (1, 1), "last": ("1:2", "applied")}


def test_abort_is_refused_where_nothing_can_be_taken_back(backing: Any, crashing: Any) -> None:
    topology = apart("transactional")
    batch = half_committed(backing, crashing, topology, words(dog=1))
    for refused in (backing.ledger.abort, backing.ledger.skip):
        with refusals.refused("TX501", "aborted"):
            refused("word_count", 1, "wrong")
    assert backing.ledger.batch("word_count", 1).status is BatchStatus.EMITTED
    assert backing.commit(topology, batch, words(dog=1)).applied
    assert backing.apart("word_count") == {("dog",): (1, 1), "last": ("1:1", "applied")}


def test_an_empty_transactional_batch_can_be_aborted(backing: Any, crashing: Any) -> None:
    topology = apart("transactional")
    half_committed(backing, crashing, topology, words())
    backing.ledger.abort("word_count", 1, "wrong")
    backing.whole(topology, words(dog=1), "2")
    assert backing.apart("word_count") == {("dog",): (1, 2), "last": ("2:1", "applied")}


def test_a_batch_behind_others_is_aborted_without_closing_their_way(backing: Any) -> None:
    topology = apart(max_pending=2)
    first, second = backing.initialize(topology, "1"), backing.initialize(topology, "2")
    backing.emit(topology, second, words(dog=1), "2")
    backing.ledger.abort("word_count", 2, "wrong")
    backing.emit(topology, first, words(dog=1), "1")
    assert backing.commit(topology, first, words(dog=1)).applied
    assert backing.apart("word_count") == {("dog",): (1, 1), "last": ("1:1", "applied")}


def test_skip_takes_back(backing: Any, crashing: Any) -> None:
    topology = apart()
    half_committed(backing, crashing, topology, words(dog=1))
    assert backing.ledger.skip("word_count", 1, "poison").txid == 2
    assert backing.apart("word_count") == {"last": ("1:1", "taken_back")}
    batch = backing.whole(topology, words(man=1), "3")
    assert batch.metadata["streams"]["words"]["partitions"] == {"a": {"start": 10, "end": 20}}
    assert backing.apart("word_count") == {("man",): (1, 3), "last": ("3:1", "applied")}


def test_records_that_a_half_committed_batch_has_are_not_given_up(backing: Any, crashing: Any) -> None:
    """Else that batch could neither go on, nor be taken back."""
    topology = apart("transactional")
    backing.initialize(topology, "1")
    backing.ledger.abort("word_count", 1, "wrong")
    batch = half_committed(backing, crashing, topology, words(dog=1), "2")
    with refusals.refused("TX501", "txid 2"):
        backing.ledger.skip("word_count", 1, "poison")
    assert backing.commit(topology, batch, words(dog=1)).applied


@pytest.mark.rule("R16")
@pytest.mark.parametrize("behind", [0, 1, 2])
@pytest.mark.parametrize("kind", ["opaque", "transactional"])
def test_a_half_committed_batch_is_given_up_by_whole_or_not_at_all(
    backing: Any, crashing: Any, kind: str, behind: int
) -> None:
    """Whatever is planned and emitted behind it: it is the one that may be in the warehouse."""
    topology = apart(kind, max_pending=behind + 1)
    batch = backing.initialize(topology, "1")
    later = [backing.initialize(topology, f"{number + 2}") for number in range(behind)]
    for number, each in enumerate(later):
        backing.emit(topology, each, words(dog=10), f"{number + 2}")
    backing.emit(topology, batch, words(dog=1), "1")
    crashing("commit.apart_committed", lambda: backing.commit(topology, batch, words(dog=1)))
    if kind == "transactional":
        with refusals.refused("TX501", "aborted"):
            backing.ledger.skip("word_count", 1, "poison")
        assert backing.commit(topology, batch, words(dog=1)).applied
    else:
        crashing("abort.apart_committed", lambda: backing.ledger.skip("word_count", 1, "poison"))
        assert backing.ledger.skip("word_count", 1, "poison").txid == behind + 2
    counted = 1 if kind == "transactional" else 0
    for each in later:
        assert backing.commit(topology, each, words(dog=10)).applied
        counted += 10
    found = backing.apart("word_count").get(("dog",), (0,))
    assert found[0] == counted


@pytest.mark.rule("R16")
@pytest.mark.parametrize("dies", [False, True])
def test_who_was_kept_out_by_a_skip_emits_again(backing: Any, crashing: Any, dies: bool) -> None:
    """Also where the skip died before the ledger knew: then the batch that it kept out has the records."""
    topology = apart("transactional", max_pending=2)
    first, second = backing.initialize(topology, "1"), backing.initialize(topology, "2")
    backing.emit(topology, second, words(dog=10), "2")
    backing.ledger.abort("word_count", first.txid, "wrong")
    if dies:
        crashing("abort.apart_committed", lambda: backing.ledger.skip("word_count", 1, "poison"))
        backing.ledger.abort("word_count", second.txid, "does not continue")
        assert backing.whole(topology, words(dog=1), "1").txid == 3
        return
    assert backing.ledger.skip("word_count", 1, "poison").txid == 3
    with refusals.refused("TX502", "attempt 2:1"):
        backing.commit(topology, second, words(dog=10))
    backing.emit(topology, second, words(dog=10), "2")
    assert backing.commit(topology, second, words(dog=10)).applied
    assert backing.apart("word_count") == {("dog",): (10, 2), "last": ("2:2", "applied")}


# ---- a run that died between both commits is repaired by the next one, whatever that is (R6)


def of_day(number: int) -> Run:
    start = datetime(2024, 1, number, tzinfo=UTC)
    return Run(f"day {number}", interval=Interval(start, start + timedelta(days=1)))


@pytest.mark.rule("R6")
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("kind", ["opaque", "transactional"])
def test_a_dead_runs_half_committed_interval_is_in_nobodys_way(
    backing: Any, crashing: Any, kind: str, waits: bool
) -> None:
    """What can be taken back is aborted; what cannot be is committed by whoever waits for it, who keeps his own interval."""
    topology = apart(kind, max_pending=2)
    topology.streams["words"].spout.by_interval = True
    backing.ledger.register(topology, "jobs/job.py")
    dead = initialize_transaction(backing.ledger, topology, of_day(1))
    assert isinstance(dead, Batch)
    own = initialize_transaction(backing.ledger, topology, of_day(2)) if waits else None
    assignment = backing.ledger.start_attempt(dead, of_day(1), "code")
    backing.ledger.record_manifests([(assignment, manifest_of(topology, assignment, words(dog=1)))])
    crashing("commit.apart_committed", lambda: backing.commit(topology, dead, words(dog=1)))
    backing.end_leases()
    if isinstance(own, Batch):
        turn = take_turn(backing.ledger, own, of_day(2))
        found = turn.batch if isinstance(turn, FinishFirst) else turn
    else:
        found = initialize_transaction(backing.ledger, topology, of_day(2))
    if kind == "opaque":
        assert backing.ledger.batch("word_count", 1).status is BatchStatus.ABORTED
        assert backing.apart("word_count") == {"last": ("1:1", "taken_back")}
        return
    assert isinstance(found, Batch)
    assert (found.txid, found.lease_run, belongs_to_another(found, of_day(2))) == (1, "day 2", True)
    assert backing.commit(topology, found, words(dog=1)).applied
    mine = initialize_transaction(backing.ledger, topology, of_day(2))
    assert isinstance(mine, Batch)
    assert (mine.txid, mine.key) == (2, of_day(2).key)
    assert backing.ledger.head("word_count", of_day(1)).own.txid == 1


# ---- several states and databases


def several() -> Topology:
    topology = word_count(LogSpout({"a": 1000}), state=OpaqueState("word_count", database="warehouse"))
    grouped = topology.streams["words"].group_by("word")
    grouped.persistent_aggregate(OpaqueState("other", database="other_warehouse"), count=Count())
    grouped.persistent_aggregate(OpaqueState("inside"), count=Count())
    return topology


def in_all(**counts: int) -> Words:
    return {name: words(**counts)["word_count"] for name in ("word_count", "other", "inside")}


def test_states_of_three_databases_come_together(backing: Any, crashing: Any) -> None:
    """A crash after the first of three commits; the next attempt brings them together, whatever it read."""
    topology = several()
    backing.whole(topology, in_all(dog=1), "1")
    half_committed(backing, crashing, topology, in_all(dog=1, cat=1), "2")
    assert backing.state("inside") == {("dog",): (1, 1)}
    batch = backing.initialize(topology, "2")
    backing.emit(topology, batch, in_all(dog=5), "2")
    assert backing.commit(topology, batch, in_all(dog=5)).applied
    assert backing.state("inside") == {("dog",): (6, 2)}
    assert backing.apart("word_count") == {("dog",): (6, 2), "last": ("2:2", "applied")}


def test_an_error_in_the_ledgers_own_state_reaches_no_warehouse(backing: Any) -> None:
    topology = several()
    backing.whole(topology, in_all(dog=2**62), "1")
    batch = backing.initialize(topology, "2")
    partials = {**in_all(dog=1), "inside": words(dog=2**62 + 5)["word_count"]}
    backing.emit(topology, batch, partials, "2")
    with pytest.raises(TerminalError, match="out of range"):
        backing.commit(topology, batch, partials)
    assert backing.apart("word_count") == {("dog",): (2**62, 1), "last": ("1:1", "applied")}


# ---- one of the databases is lost, or set back


def test_a_new_ledger_does_not_write_into_the_warehouse_of_an_old_one(backing: Any) -> None:
    topology = apart()
    backing.whole(topology, words(dog=1), "1")
    backing.lose_ledger()
    with refusals.refused("TX601", "'word_count'", "'warehouse'"):
        backing.ledger.register(topology, "jobs/job.py")
    assert backing.apart("word_count") == {("dog",): (1, 1), "last": ("1:1", "applied")}


def test_a_warehouse_made_anew_is_noticed(backing: Any) -> None:
    topology = apart()
    backing.whole(topology, words(dog=1), "1")
    batch = backing.initialize(topology, "2")
    backing.emit(topology, batch, words(dog=1), "2")
    backing.lose_warehouse()
    for call in (
        lambda: backing.ledger.register(topology, "jobs/job.py"),
        lambda: backing.commit(topology, batch, words(dog=1)),
        lambda: backing.ledger.abort("word_count", 2, "wrong"),
    ):
        with refusals.refused("TX503", "'word_count'", "'warehouse'"):
            call()


def test_another_topologys_state_apart_is_refused(backing: Any) -> None:
    backing.whole(apart(), words(dog=1), "1")
    with refusals.refused("TX102", "'word_count'"):
        backing.ledger.register(apart(name="thief"), "jobs/thief.py")


def test_a_state_does_not_move(backing: Any) -> None:
    backing.ledger.register(word_count(LogSpout({"a": 1})), "jobs/job.py")
    inside = word_count(LogSpout({"a": 1}), state=OpaqueState("word_count", contributions=False))
    with pytest.raises(SchemaMismatch):
        backing.ledger.register(inside, "jobs/job.py")
    with pytest.raises(SchemaMismatch):
        backing.ledger.register(apart(), "jobs/job.py")


def test_a_ledger_set_back_is_refused_by_what_the_warehouse_knows(backing: Any, crashing: Any) -> None:
    """Its next attempts have the numbers of those that went on elsewhere, and would pass for them."""
    topology = apart()
    batch = half_committed(backing, crashing, topology, words(dog=1))
    backing.forget_attempts("word_count", 1)
    for _ in range(2):
        backing.emit(topology, batch, words(dog=3))
        with refusals.refused("TX503", "attempt 1:1"):
            backing.commit(topology, batch, words(dog=3))
    with pytest.raises(DatabasesDisagree, match="the ledger was set back"):
        backing.ledger.abort("word_count", 1, "wrong")
    assert backing.apart("word_count") == {("dog",): (1, 1), "last": ("1:1", "applied")}


@pytest.mark.parametrize("kind", ["opaque", "transactional"])
@pytest.mark.parametrize("ahead", [2, 3, 9])
def test_a_ledger_set_back_does_not_count_again_what_is_in_the_warehouse(backing: Any, kind: str, ahead: int) -> None:
    """Its next txids are other batches than those of the same number, which the warehouse may hold."""
    topology = apart(kind)
    backing.whole(topology, words(dog=1), "1")
    backing.set_last_writer("word_count", ahead)
    backing.initialize(topology, "2")
    backing.ledger.abort("word_count", 2, "it has no attempt yet")
    for _ in range(2):
        batch = backing.initialize(topology, "3")
        backing.emit(topology, batch, words(dog=1), "3")
        with pytest.raises(DatabasesDisagree, match=f"holds attempt {ahead}:1, which the ledger does not know"):
            backing.commit(topology, batch, words(dog=1))
    assert backing.apart("word_count") == {("dog",): (1, 1), "last": (f"{ahead}:1", "applied")}


def test_a_warehouse_set_back_is_noticed(backing: Any) -> None:
    topology = apart()
    for name in "12":
        backing.whole(topology, words(dog=1), name)
    backing.set_last_writer("word_count", 1)
    batch = backing.initialize(topology, "3")
    backing.emit(topology, batch, words(dog=1), "3")
    with refusals.refused("TX503", "txid 1", "committed", "txid 2"):
        backing.commit(topology, batch, words(dog=1))
