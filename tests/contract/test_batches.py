"""The life of batches: identity, order, completeness, corrections, against both ledgers."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from refusals import refused
from support import Keyed, ListSpout, LogSpout, manifest_of, read_all, run, word_count

from txbatch import Count, OpaqueState, SpoutKind, Topology, TransactionalState
from txbatch.core.batch.manifest import ReadPartition
from txbatch.core.batch.transaction import Batch, BatchStatus, Interval, Run
from txbatch.core.errors import (
    Incomplete,
    IntervalNotOver,
    IntervalTaken,
    LeaseHeld,
    StaleAttempt,
    StateAhead,
    TerminalError,
)
from txbatch.core.protocol.coordinator import FinishFirst, NothingNew, Yours, initialize_transaction, take_turn
from txbatch.core.protocol.decisions import Wait, WaitReason, belongs_to_another

Words = dict[str, list[Keyed]]
NONE: Words = {"word_count": []}


def words(**counts: int) -> Words:
    return {"word_count": [((word,), (count,)) for word, count in counts.items()]}


# ---- txids and identity (R1, R2, R3)


def test_txids_are_consecutive_from_1_and_each_run_has_its_own(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 30}))
    batches = [backing.whole(topology, words(dog=1), f"run {number}") for number in range(3)]
    assert [batch.txid for batch in batches] == [1, 2, 3]
    assert [batch.metadata["streams"]["words"]["partitions"]["a"]["start"] for batch in batches] == [0, 10, 20]
    assert isinstance(backing.initialize(topology, "run 4"), NothingNew)
    assert backing.state("word_count") == {("dog",): (3, 3)}
    assert backing.contributions("word_count") == {(("dog",), txid, txid): (1,) for txid in (1, 2, 3)}


def test_the_last_txid_is_of_any_batch(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 30}))
    assert backing.ledger.last_txid("word_count") == 0
    backing.whole(topology, words(dog=1), "1")
    assert backing.ledger.last_txid("word_count") == 1
    backing.initialize(topology, "2")
    backing.ledger.abort("word_count", 2, "why")
    assert (backing.ledger.last_txid("word_count"), backing.ledger.last_txid("other")) == (2, 0)


def test_a_batch_says_how_many_records_it_read_once_it_is_committed(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 17}))
    first = backing.initialize(topology, "1")
    assert isinstance(first, Batch)
    assert first.records is None
    assert [backing.whole(topology, words(dog=1), name).records for name in "12"] == [10, 7]
    assert [backing.ledger.batch("word_count", txid).records for txid in (1, 2)] == [10, 7]


@pytest.mark.rule("R2", "R3")
def test_the_same_run_finds_its_batch_and_metadata_even_when_the_spout_would_plan_otherwise(backing: Any) -> None:
    spout = LogSpout({"a": 10})
    topology = word_count(spout)
    first = backing.initialize(topology, "run")
    spout.lengths, spout.size = {"a": 500, "b": 500}, 100
    again = backing.initialize(topology, "run")
    assert (again.txid, again.metadata) == (first.txid, first.metadata)
    backing.emit(topology, again, words(dog=1))
    backing.commit(topology, again, words(dog=1))
    committed = backing.initialize(topology, "run")
    assert (committed.txid, committed.metadata, committed.status) == (1, first.metadata, BatchStatus.COMMITTED)


def test_metadata_comes_back_as_json(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 1}))
    backing.ledger.register(topology, "jobs/job.py")
    planned = backing.ledger.plan(
        backing.ledger.head("word_count", run("r")), run("r"), {"streams": {"ü": (1, {2: None})}}
    )
    assert planned.metadata == {"streams": {"ü": [1, {"2": None}]}}


@pytest.mark.rule("R4")
def test_nothing_new_uses_no_txid(backing: Any) -> None:
    spout = LogSpout({"a": 0})
    topology = word_count(spout)
    assert isinstance(backing.initialize(topology, "run"), NothingNew)
    spout.lengths = {"a": 1}
    assert backing.initialize(topology, "run").txid == 1


def test_a_plan_for_a_head_that_moved_is_refused(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 30}), max_pending=2)
    backing.ledger.register(topology, "jobs/job.py")
    head = backing.ledger.head("word_count", run("slow"))
    assert backing.initialize(topology, "quick").txid == 1
    assert backing.ledger.plan(head, run("slow"), {"streams": {}}) is None
    assert backing.initialize(topology, "slow").txid == 2


def test_a_plan_is_refused_when_what_it_builds_on_was_aborted(backing: Any) -> None:
    """Neither the highest txid nor the newest batch differs here: only where the partitions start."""
    spout = LogSpout({"a": 100})
    topology = word_count(spout, max_pending=3)
    first = backing.initialize(topology, "1")
    spout.lengths["b"] = 10
    spout.lengths["a"] = 10
    assert backing.initialize(topology, "2").metadata["streams"]["words"]["partitions"] == {
        "b": {"start": 0, "end": 10}
    }
    spout.lengths["a"] = 100
    head = backing.ledger.head("word_count", run("3"))
    backing.ledger.abort("word_count", first.txid, "wrong")
    assert backing.ledger.plan(head, run("3"), {"streams": {}}) is None


@pytest.mark.rule("R4")
def test_an_empty_batch_commits(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 10}))
    batch = backing.whole(topology, NONE, "run")
    assert batch.status is BatchStatus.COMMITTED
    assert backing.state("word_count") == {}


# ---- attempts and the fence (R5)


@pytest.mark.rule("R5")
def test_attempts_rise_and_are_never_used_again(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 30}))
    batch = backing.initialize(topology, "run")
    tokens = set()
    for number in (1, 2, 3):
        assignment = backing.attempt(batch)
        assert str(assignment.attempt) == f"1:{number}"
        tokens.add(assignment.token)
        backing.reconnect()
    assert len(tokens) == 3
    backing.ledger.abort("word_count", 1, "wrong")
    anew = backing.initialize(topology, "run")
    assert str(backing.attempt(anew).attempt) == "2:1"
    assert backing.attempts("word_count") == [
        ("1:1", "superseded"),
        ("1:2", "superseded"),
        ("1:3", "superseded"),
        ("2:1", "emitting"),
    ]


def test_a_stale_attempt_may_neither_report_nor_renew_nor_commit(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 10}))
    batch = backing.initialize(topology, "run")
    zombie = backing.attempt(batch)
    live = backing.attempt(batch)
    with refused("TX404", "attempt 1:1", "1:2"):
        backing.ledger.record_manifests([(zombie, manifest_of(topology, zombie, words(dog=99)))])
    assert not backing.ledger.renew_lease(zombie)
    assert not backing.ledger.renew_lease(replace(live, token="of a database that was lost"))
    assert backing.ledger.renew_lease(live)
    with refused("TX413", "attempt 1:2", "manifest"):
        backing.commit(topology, batch, words(dog=99))
    backing.ledger.record_manifests([(live, manifest_of(topology, live, words(dog=1)))])
    backing.commit(topology, batch, words(dog=1))
    assert backing.state("word_count") == {("dog",): (1, 1)}


def test_partials_read_before_a_newer_attempt_began_are_refused(backing: Any) -> None:
    """The commit read the batch, then the files; meanwhile another attempt emitted."""
    topology = word_count(LogSpout({"a": 10}))
    batch = backing.initialize(topology, "run")
    backing.emit(topology, batch, words(dog=99))
    read = backing.ledger.batch("word_count", 1)
    backing.emit(topology, batch, words(dog=1))
    with refused("TX404", "attempt 1:1", "1:2"):
        backing.ledger.commit(topology, read, backing.as_partials(topology, words(dog=99)))
    assert backing.state("word_count") == {}
    assert backing.commit(topology, batch, words(dog=1)).applied


@pytest.mark.rule("R5")
def test_an_attempt_of_a_former_database_is_refused(backing: Any) -> None:
    """The numbers are right, the token is not."""

    topology = word_count(LogSpout({"a": 10}))
    live = backing.attempt(backing.initialize(topology, "run"))
    former = replace(live, token="of another database")
    with pytest.raises(StaleAttempt):
        backing.ledger.record_manifests([(former, manifest_of(topology, former, words(dog=99)))])


def test_a_newer_attempt_takes_the_manifest_of_the_older_one_away(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 10}))
    batch = backing.initialize(topology, "run")
    backing.emit(topology, batch, words(dog=1))
    backing.attempt(batch)
    with refused("TX413", "1:2", "manifest"):
        backing.commit(topology, batch, words(dog=1))
    assert backing.attempts("word_count") == [("1:1", "superseded"), ("1:2", "emitting")]


def test_a_failed_attempt_says_why_and_a_late_word_of_it_changes_nothing(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 10}))
    batch = backing.initialize(topology, "run")
    backing.ledger.fail_attempt(backing.attempt(batch), "Spark fell over")
    first, _ = backing.emit(topology, batch, words(dog=1))
    backing.commit(topology, batch, words(dog=1))
    backing.ledger.fail_attempt(first, "late")
    assert backing.attempts("word_count") == [("1:1", "failed"), ("1:2", "committed")]


def test_an_attempt_that_was_called_failed_and_finishes_after_all_is_taken(backing: Any) -> None:
    """Whoever submitted it lost sight of it; while no newer one has begun, its work is the newest attempt's (R5)."""
    topology = word_count(LogSpout({"a": 10}))
    batch = backing.initialize(topology, "run")
    assignment = backing.attempt(batch)
    backing.ledger.fail_attempt(assignment, "the connection was cut")
    partials = {"word_count": [(("a",), (10,))]}
    backing.ledger.record_manifests([(assignment, manifest_of(topology, assignment, partials))])
    assert backing.attempts("word_count") == [("1:1", "emitted")]
    assert backing.commit(topology, batch, partials).applied


def test_an_error_with_a_null_character_is_recorded(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 10}))
    backing.ledger.fail_attempt(backing.attempt(backing.initialize(topology, "run")), "bad byte \0 here")
    assert backing.attempts("word_count") == [("1:1", "failed")]


def test_another_live_run_holds_the_batch(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 10}))
    batch = backing.initialize(topology, "run")
    with pytest.raises(LeaseHeld, match="being worked on by run"):
        backing.attempt(batch, "other")
    backing.end_leases()
    assert str(backing.attempt(batch, "other").attempt) == "1:1"
    with pytest.raises(LeaseHeld, match="being worked on by other"):
        backing.attempt(batch, "run")


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_no_attempt_of_a_batch_that_is_over(backing: Any, end: str) -> None:
    topology = word_count(LogSpout({"a": 10}))
    batch = backing.initialize(topology, "run")
    backing.emit(topology, batch, words(dog=1))
    if end == "commit":
        backing.commit(topology, batch, words(dog=1))
    else:
        backing.ledger.abort("word_count", 1, "wrong")
    with pytest.raises(TerminalError, match=f"already committed as txid 1|txid 1 was {end}ed"):
        backing.attempt(batch)


# ---- order, chain, adoption (R6)


@pytest.mark.rule("R6")
def test_commits_happen_in_txid_order(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 30}), max_pending=2)
    first, second = backing.initialize(topology, "1"), backing.initialize(topology, "2")
    backing.emit(topology, second, words(dog=2), "2")
    with refused("TX402", "txid 2", "txid 1"):
        backing.commit(topology, second, words(dog=2))
    assert backing.ledger.turn_of("word_count", 2) == 1
    assert backing.ledger.turn_of("word_count", 1) is None
    backing.emit(topology, first, words(dog=1), "1")
    backing.commit(topology, first, words(dog=1))
    assert backing.ledger.turn_of("word_count", 2) is None
    backing.commit(topology, second, words(dog=2))
    assert backing.state("word_count") == {("dog",): (3, 2)}


def test_as_many_batches_in_flight_as_allowed(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 30}), max_pending=2)
    backing.initialize(topology, "1")
    backing.initialize(topology, "2")
    waits = backing.initialize(topology, "3")
    assert isinstance(waits, Wait)
    assert waits.batch.txid == 1


@pytest.mark.rule("R6")
def test_a_partition_whose_range_was_planned_behind_an_aborted_one_is_refused(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 40}), max_pending=3)
    backing.whole(topology, words(dog=1), "1")
    second, third = backing.initialize(topology, "2"), backing.initialize(topology, "3")
    backing.ledger.abort("word_count", second.txid, "wrong")
    backing.emit(topology, third, words(dog=1), "3")
    with refused("TX407", "txid 3", "20", "committed", "10"):
        backing.commit(topology, third, words(dog=1))


def test_the_same_where_nothing_of_the_partition_is_committed_yet(backing: Any) -> None:
    """Else the aborted batch's records would never be read."""
    topology = word_count(LogSpout({"a": 40}), max_pending=3)
    first, second = backing.initialize(topology, "1"), backing.initialize(topology, "2")
    backing.ledger.abort("word_count", first.txid, "wrong")
    backing.emit(topology, second, words(dog=1), "2")
    with refused("TX407", "txid 2", "10", "committed"):
        backing.commit(topology, second, words(dog=1))


def test_a_partition_may_begin_anywhere(backing: Any) -> None:
    """A broker's oldest offset need not be 0."""
    topology = word_count(LogSpout({"a": 40}))
    backing.ledger.register(topology, "jobs/job.py")
    plan = {"streams": {"words": {"partitions": {"a": {"start": 1_000, "end": 1_010}}}}}
    batch = backing.ledger.plan(backing.ledger.head("word_count", run("run")), run("run"), plan)
    backing.emit(topology, batch, words(dog=1))
    assert backing.commit(topology, batch, words(dog=1)).applied


def test_an_unpartitioned_batch_behind_an_aborted_one_is_refused(backing: Any) -> None:
    topology = word_count(ListSpout(5, 5, 5), max_pending=2)
    first, second = backing.initialize(topology, "1"), backing.initialize(topology, "2")
    backing.ledger.abort("word_count", first.txid, "wrong")
    backing.emit(topology, second, words(dog=1), "2")
    with refused("TX407", "planned", "txid 1", "committed"):
        backing.commit(topology, second, words(dog=1))


@pytest.mark.rule("R16")
def test_abort_frees_the_records_and_the_run_plans_them_anew(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 10}))
    first = backing.initialize(topology, "run")
    backing.emit(topology, first, words(dog=99))
    assert backing.ledger.abort("word_count", 1, "wrong").status is BatchStatus.ABORTED
    assert backing.ledger.abort("word_count", 1, "twice").status is BatchStatus.ABORTED
    with refused("TX404", "aborted"):
        backing.commit(topology, first, words(dog=99))
    anew = backing.whole(topology, words(dog=1), "run")
    assert (anew.txid, anew.metadata) == (2, first.metadata)
    assert backing.state("word_count") == {("dog",): (1, 2)}


@pytest.mark.rule("R6")
def test_a_dead_runs_batch_is_adopted_with_its_metadata(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 30}))
    dead = backing.initialize(topology, "dead")
    backing.attempt(dead, "dead")
    assert isinstance(backing.initialize(topology, "heir"), Wait)
    backing.end_leases()
    adopted = backing.initialize(topology, "heir")
    assert (adopted.txid, adopted.metadata, adopted.lease_run) == (1, dead.metadata, "heir")
    with pytest.raises(LeaseHeld):
        backing.attempt(dead, "dead")
    backing.emit(topology, adopted, words(dog=1), "heir")
    backing.commit(topology, adopted, words(dog=1))
    assert backing.initialize(topology, "dead").txid == 1
    assert isinstance(backing.initialize(topology, "next"), Batch)


@pytest.mark.rule("R6", "R8")
def test_what_runs_of_one_name_committed_is_found_by_it(backing: Any) -> None:
    """Whoever had planned and emitted it; a name that only begins so is another's."""
    topology, ledger = word_count(LogSpout({"a": 60}), max_pending=9), backing.ledger
    for number, name in enumerate(("dead", "call+1", "call+12", "call+x", "call+1+1", "call"), 1):
        batch = backing.initialize(topology, name)
        backing.emit(topology, batch, words(dog=1), name)
        committing = run("call+2") if name == "dead" else run(name)
        assert ledger.committed_by_each("word_count", "call+") == [1, 2, 3][: number - 1]
        staged = backing.as_partials(topology, words(dog=1))
        assert ledger.commit(topology, ledger.batch("word_count", batch.txid), staged, committing).applied
    assert ledger.committed_by("word_count", run("call+2")).txid == 1
    assert ledger.committed_by("word_count", run("dead")) is None
    assert ledger.committed_by_each("word_count", "other+") == []


@pytest.mark.rule("R2", "R6")
def test_an_heir_has_a_batch_of_its_own_after_the_one_it_adopted(backing: Any) -> None:
    """As many batches as runs, also when one died; and whoever comes again finds what is its own."""
    topology = word_count(LogSpout({"a": 30}))
    backing.initialize(topology, "dead")
    backing.end_leases()
    for _ in ("adopts", "was killed, and is there again"):
        adopted = backing.initialize(topology, "heir")
        assert (adopted.txid, belongs_to_another(adopted, run("heir"))) == (1, True)
    backing.emit(topology, adopted, words(dog=1), "heir")
    backing.commit(topology, adopted, words(dog=1))
    own = backing.initialize(topology, "heir")
    assert (own.txid, belongs_to_another(own, run("heir"))) == (2, False)
    backing.emit(topology, own, words(dog=1), "heir")
    backing.commit(topology, own, words(dog=1))
    assert [backing.initialize(topology, name).txid for name in ("dead", "heir", "next")] == [1, 2, 3]


def test_a_batch_that_is_looked_after_or_over_is_not_adopted(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 30}))
    batch = backing.initialize(topology, "1")
    assert backing.ledger.adopt(batch, run("2")) is None
    backing.emit(topology, batch, words(dog=1), "1")
    backing.commit(topology, batch, words(dog=1))
    backing.end_leases()
    assert backing.ledger.adopt(batch, run("2")) is None


@pytest.mark.rule("R6")
def test_a_run_that_waits_for_the_dead_finishes_their_batch_and_keeps_its_own(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 30}), max_pending=2)
    dead, own = backing.initialize(topology, "dead"), backing.initialize(topology, "heir")
    backing.emit(topology, own, words(dog=2), "heir")
    waits = take_turn(backing.ledger, own, run("heir"))
    assert isinstance(waits, Wait)
    assert (waits.batch.txid, waits.batch.lease_run) == (1, "dead")

    backing.end_leases()
    for _ in ("adopted", "the heir was killed and is there again"):
        turn = take_turn(backing.ledger, own, run("heir"))
        assert isinstance(turn, FinishFirst)
        adopted = turn.batch
        assert (adopted.txid, adopted.metadata, adopted.lease_run) == (1, dead.metadata, "heir")
    assert backing.initialize(topology, "heir").txid == 2
    assert backing.initialize(topology, "dead").txid == 1
    backing.emit(topology, adopted, words(dog=1), "heir")
    backing.commit(topology, adopted, words(dog=1))
    assert take_turn(backing.ledger, own, run("heir")) == Yours()
    assert backing.commit(topology, own, words(dog=2)).applied
    assert backing.state("word_count") == {("dog",): (3, 2)}


@pytest.mark.rule("R6")
def test_a_run_whose_own_batch_was_aborted_goes_on_with_what_it_adopted(backing: Any) -> None:
    """It does not wait for itself until its own lease ends."""
    topology = word_count(LogSpout({"a": 30}), max_pending=2)
    backing.initialize(topology, "dead")
    own = backing.initialize(topology, "heir")
    backing.end_leases()
    assert isinstance(take_turn(backing.ledger, own, run("heir")), FinishFirst)
    backing.ledger.abort("word_count", own.txid, "wrong")
    assert backing.initialize(topology, "heir").txid == 1


@pytest.mark.rule("R5", "R16")
@pytest.mark.parametrize("now", ["a newer attempt", "committed", "aborted"])
def test_an_attempt_that_is_overtaken_aborts_nothing(backing: Any, now: str) -> None:
    """A try that found its chain broken, or a file missing, and slept before it aborted."""
    topology = word_count(LogSpout({"a": 30}))
    batch = backing.initialize(topology, "1")
    old = backing.ledger.start_attempt(batch, run("1"), "code")
    if now == "aborted":
        backing.ledger.abort("word_count", 1, "by a person")
    else:
        backing.emit(topology, batch, words(dog=1), "1")
    if now == "committed":
        backing.commit(topology, batch, words(dog=1))
    with refused("TX404"):
        backing.ledger.abort("word_count", 1, "its chain is broken", old)
    found = backing.ledger.batch("word_count", 1)
    assert (found.status, found.reason) == {
        "a newer attempt": (BatchStatus.EMITTED, None),
        "committed": (BatchStatus.COMMITTED, None),
        "aborted": (BatchStatus.ABORTED, "by a person"),
    }[now]


@pytest.mark.rule("R5", "R16")
def test_the_newest_attempt_may_abort(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 30}))
    newest = backing.ledger.start_attempt(backing.initialize(topology, "1"), run("1"), "code")
    assert backing.ledger.abort("word_count", 1, "its chain is broken", newest).status is BatchStatus.ABORTED


@pytest.mark.rule("R6")
def test_who_waits_keeps_its_batch_as_long_as_it_is_its(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 30}))
    batch = backing.initialize(topology, "waits")
    backing.end_leases()
    assert not backing.ledger.renew_waiting_lease(batch, run("another"))
    assert backing.ledger.renew_waiting_lease(batch, run("waits"))
    assert backing.ledger.batch("word_count", 1).lease_live
    backing.end_leases()
    assert backing.initialize(topology, "heir").lease_run == "heir"
    assert not backing.ledger.renew_waiting_lease(batch, run("waits"))
    backing.ledger.abort("word_count", 1, "wrong")
    assert not backing.ledger.renew_waiting_lease(batch, run("heir"))


# ---- completeness (R7)


@pytest.mark.rule("R7")
def test_a_transactional_partition_read_differently_is_refused(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 10, "b": 10}))
    batch = backing.initialize(topology, "run")
    first, _ = backing.emit(topology, batch, words(dog=1))
    second = backing.attempt(batch)
    other = read_all(second)
    other["words"]["b"] = ReadPartition(10, "666")
    with refused("TX409", "partition", "'b'", "attempt 1:1", "'10'", "'666'"):
        backing.ledger.record_manifests([(second, manifest_of(topology, second, words(dog=1), streams=other))])
    backing.ledger.record_manifests([(second, manifest_of(topology, second, words(dog=1)))])
    assert backing.commit(topology, batch, words(dog=1)).applied
    assert first.attempt.attempt_id == 1


def test_an_opaque_partition_may_be_read_differently(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 10}, kind=SpoutKind.OPAQUE))
    batch = backing.initialize(topology, "run")
    backing.emit(topology, batch, words(dog=9))
    fewer = {"words": {"a": ReadPartition(3, "333")}}
    backing.emit(topology, batch, words(dog=3), streams=fewer)
    backing.commit(topology, batch, words(dog=3))
    assert backing.state("word_count") == {("dog",): (3, 1)}


@pytest.mark.rule("R7")
@pytest.mark.parametrize(
    ("streams", "says"),
    [
        ({"words": {"a": ReadPartition(1, "1")}}, "of stream 'words' was not read: b"),
        ({}, "was not read: a, b"),
        ({"words": {each: ReadPartition(1, "1") for each in "abc"}}, "was read but not planned: c"),
        (
            {"words": {each: ReadPartition(1, "1") for each in "ab"}, "more": {"x": ReadPartition(1, "1")}},
            "'more' was read but not planned: x",
        ),
    ],
)
def test_a_manifest_must_cover_the_plan_and_no_more(backing: Any, streams: Any, says: str) -> None:
    topology = word_count(LogSpout({"a": 10, "b": 10}))
    assignment = backing.attempt(backing.initialize(topology, "run"))
    with pytest.raises(Incomplete, match=says):
        backing.ledger.record_manifests([(assignment, manifest_of(topology, assignment, NONE, streams=streams))])


def test_partials_that_are_not_the_manifests_are_refused(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 10}))
    batch = backing.initialize(topology, "run")
    backing.emit(topology, batch, words(dog=1))
    with refused("TX408", "manifest"):
        backing.commit(topology, batch, words(dog=1, cat=1))
    assert backing.state("word_count") == {}
    assert backing.ledger.batch("word_count", 1).status is BatchStatus.EMITTED
    assert backing.commit(topology, batch, words(dog=1)).applied


def test_partials_for_other_states_are_refused(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 10}))
    batch = backing.initialize(topology, "run")
    backing.emit(topology, batch, words(dog=1))
    changed = word_count(LogSpout({"a": 10}))
    changed.streams["words"].group_by("word").persistent_aggregate(OpaqueState("more"), count=Count())
    with refused("TX601", "'more'"):
        backing.commit(changed, batch, {**words(dog=1), "more": []})
    assert backing.state("word_count") == {}


@pytest.mark.rule("R10")
def test_two_states_commit_together_or_not_at_all(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 20}))
    topology.streams["words"].group_by("word").persistent_aggregate(TransactionalState("second"), count=Count())
    both = {**words(dog=1), "second": [(("dog",), (5,))]}
    backing.whole(topology, both, "1")
    batch = backing.initialize(topology, "2")
    backing.emit(topology, batch, both, "2")
    with pytest.raises(Incomplete):
        backing.commit(topology, batch, {**words(dog=1), "second": []})
    assert (backing.state("word_count"), backing.state("second")) == ({("dog",): (1, 1)}, {("dog",): (5, 1)})
    backing.commit(topology, batch, both)
    assert (backing.state("word_count"), backing.state("second")) == ({("dog",): (2, 2)}, {("dog",): (10, 2)})


def test_without_contributions_the_state_is_the_same(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 20}), state=OpaqueState("word_count", contributions=False))
    backing.whole(topology, words(dog=1), "1")
    backing.whole(topology, words(dog=1), "2")
    assert backing.state("word_count") == {("dog",): (2, 2)}


# ---- commit and success (R8, R10)


def test_a_batch_is_committed_once_however_often_it_is_asked(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 10}))
    batch = backing.whole(topology, words(dog=1), "run")
    for _ in range(2):
        again = backing.commit(topology, batch, words(dog=1))
        assert (again.applied, again.batch.status, again.batch.txid) == (False, BatchStatus.COMMITTED, 1)
    assert backing.state("word_count") == {("dog",): (1, 1)}


@pytest.mark.rule("R8")
def test_success_is_noted_once_and_only_after_the_commit(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 10}))
    batch = backing.initialize(topology, "run")
    with refused("TX413", "txid 1", "planned", "committed"):
        backing.ledger.success("word_count", 1)
    backing.emit(topology, batch, words(dog=1))
    with refused("TX413", "txid 1", "emitted", "committed"):
        backing.ledger.success("word_count", 1)
    backing.commit(topology, batch, words(dog=1))
    assert [backing.ledger.success("word_count", 1) for _ in range(2)] == [True, False]
    assert backing.ledger.batch("word_count", 1).succeeded


@pytest.mark.rule("R16")
def test_a_committed_batch_is_not_aborted(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 10}))
    backing.whole(topology, words(dog=1), "run")
    with refused("TX411", "txid 1", "committed"):
        backing.ledger.abort("word_count", 1, "wrong")


@pytest.mark.rule("R9")
def test_a_state_changed_outside_the_ledger_stops_the_commit(backing: Any) -> None:
    """A restored ledger beside a newer state: the txids begin again, the rows are ahead."""
    topology = word_count(LogSpout({"a": 30}), state=TransactionalState("word_count"))
    backing.whole(topology, words(dog=1), "1")
    batch = backing.initialize(topology, "2")
    backing.emit(topology, batch, words(dog=1, cat=1), "2")
    put_ahead(backing, "dog", 7)
    with pytest.raises(StateAhead, match="outside the ledger"):
        backing.commit(topology, batch, words(dog=1, cat=1))
    assert backing.state("word_count") == {("dog",): (1, 7)}
    assert backing.ledger.batch("word_count", 2).status is BatchStatus.EMITTED


def put_ahead(backing: Any, word: str, txid: int) -> None:

    from sqlalchemy import text

    if hasattr(backing, "engine"):
        with backing.engine.begin() as connection:
            connection.execute(
                text("UPDATE state.word_count SET txid = :txid WHERE word = :word"), {"txid": txid, "word": word}
            )
        return
    tables = backing.ledger.tables
    stored = tables.states["word_count"]
    tables.states["word_count"] = replace(stored, rows={(word,): replace(stored.rows[word,], txid=txid)})


@pytest.mark.parametrize("call", ["batch", "abort", "success", "commit", "attempt"])
def test_an_unknown_txid(backing: Any, call: str) -> None:
    topology = word_count(LogSpout({"a": 10}))
    batch = backing.initialize(topology, "run")
    backing.ledger.abort("word_count", 1, "so that it is final")

    unknown = replace(batch, txid=7)
    calls = {
        "batch": lambda: backing.ledger.batch("word_count", 7),
        "abort": lambda: backing.ledger.abort("word_count", 7, "why"),
        "success": lambda: backing.ledger.success("word_count", 7),
        "commit": lambda: backing.commit(topology, unknown, NONE),
        "attempt": lambda: backing.attempt(unknown),
    }
    with refused("TX401", "'word_count'", "txid 7"):
        calls[call]()


def test_an_unknown_topology_and_a_batch_without_attempt(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 10}))
    head = backing.ledger.head("nobody", run("run"))
    with refused("TX401", "'nobody'"):
        backing.ledger.plan(head, run("run"), {"streams": {}})
    with refused("TX401", "txid 1"):
        backing.ledger.newest_attempt(backing.initialize(topology, "run"))


def test_the_newest_attempt_comes_with_its_manifest(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 10}))
    batch = backing.initialize(topology, "run")
    assignment, manifest = backing.emit(topology, batch, words(dog=1))
    emitted = backing.ledger.batch("word_count", 1)
    assert backing.ledger.newest_attempt(emitted) == (assignment, manifest)


# ---- outages and offsets (R12, R13, R14)


@pytest.mark.rule("R13")
def test_an_unreadable_opaque_partition_is_left_out_and_comes_with_a_later_txid(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 20, "b": 20}, kind=SpoutKind.OPAQUE))
    first = backing.initialize(topology, "1")
    hole = {"unreadable": {"words": {"b": "broker down"}}, "streams": {"words": {"a": ReadPartition(10, "1")}}}
    backing.emit(topology, first, words(dog=1), "1", **hole)
    backing.commit(topology, first, words(dog=1))
    second = backing.initialize(topology, "2")
    assert second.metadata["streams"]["words"]["partitions"] == {
        "a": {"start": 10, "end": 20},
        "b": {"start": 0, "end": 10},
    }


def test_a_retry_may_take_a_returned_partition_back(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 20, "b": 20}, kind=SpoutKind.OPAQUE))
    batch = backing.initialize(topology, "1")
    hole = {"unreadable": {"words": {"b": "broker down"}}, "streams": {"words": {"a": ReadPartition(10, "1")}}}
    backing.emit(topology, batch, words(dog=1), "1", **hole)
    backing.emit(topology, batch, words(dog=2), "1")
    backing.commit(topology, batch, words(dog=2))
    assert backing.initialize(topology, "2").metadata["streams"]["words"]["partitions"]["b"]["start"] == 10


@pytest.mark.rule("R12")
def test_a_transactional_partition_may_not_be_left_out(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 10, "b": 10}))
    assignment = backing.attempt(backing.initialize(topology, "run"))
    hole = {"unreadable": {"words": {"b": "broker down"}}, "streams": {"words": {"a": ReadPartition(10, "1")}}}
    with refused("TX408", "'words'"):
        backing.ledger.record_manifests([(assignment, manifest_of(topology, assignment, NONE, **hole))])


@pytest.mark.rule("R13")
def test_an_attempt_that_could_read_nothing_fails(backing: Any) -> None:
    topology = word_count(LogSpout({"a": 10}, kind=SpoutKind.OPAQUE))
    assignment = backing.attempt(backing.initialize(topology, "run"))
    hole = {"unreadable": {"words": {"a": "broker down"}}, "streams": {}}
    with refused("TX201", "nothing"):
        backing.ledger.record_manifests([(assignment, manifest_of(topology, assignment, NONE, **hole))])


@pytest.mark.rule("R14")
def test_offsets_survive_batches_without_the_partition(backing: Any) -> None:
    spout = LogSpout({"a": 10, "b": 10}, size=5)
    topology = word_count(spout)
    starts: dict[str, list[int]] = {"a": [], "b": []}
    for number in range(8):
        if number == 2:
            del spout.lengths["b"]
        if number == 5:
            spout.lengths["b"] = 20
        spout.lengths["a"] += 5
        batch = backing.whole(topology, words(dog=1), f"run {number}")
        for partition, range_ in batch.metadata["streams"]["words"]["partitions"].items():
            starts[partition].append(range_["start"])
    assert starts == {"a": [0, 5, 10, 15, 20, 25, 30, 35], "b": [0, 5, 10, 15]}


@pytest.mark.rule("R13", "R14")
def test_a_flapping_partition_with_batches_in_flight_keeps_its_place(backing: Any) -> None:
    spout = LogSpout({"a": 30, "b": 30})
    topology = word_count(spout, max_pending=3)
    first = backing.initialize(topology, "1")
    del spout.lengths["b"]
    second = backing.initialize(topology, "2")
    spout.lengths["b"] = 30
    third = backing.initialize(topology, "3")
    planned = [batch.metadata["streams"]["words"]["partitions"] for batch in (first, second, third)]
    assert [each.get("b", {}).get("start") for each in planned] == [0, None, 10]
    for number, batch in enumerate((first, second, third), start=1):
        backing.emit(topology, batch, words(dog=1), str(number))
        assert backing.commit(topology, batch, words(dog=1)).applied


def test_a_stream_that_has_nothing_in_a_batch_keeps_its_place(backing: Any) -> None:
    """Two unpartitioned streams, one shorter: it must not begin again."""
    topology = word_count(ListSpout(5))
    other = topology.new_stream("other", ListSpout(5, 5, 5)).group_by("word")
    other.persistent_aggregate(OpaqueState("other"), count=Count())
    none = {**NONE, "other": []}
    planned = [set(backing.whole(topology, none, f"run {number}").metadata["streams"]) for number in range(3)]
    assert planned == [{"words", "other"}, {"other"}, {"other"}]
    assert isinstance(backing.initialize(topology, "run 4"), NothingNew)


# ---- definitions (R2)


@pytest.mark.rule("R2")
@pytest.mark.parametrize("change", ["kind of spout", "identity", "stream"])
def test_one_source_per_topology_once_it_has_a_txid(backing: Any, change: str) -> None:
    backing.initialize(word_count(LogSpout({"a": 0})), "run")
    backing.ledger.register(word_count(ListSpout(1)), "jobs/job.py")  # nothing was read yet
    topology = word_count(LogSpout({"a": 10}))
    backing.whole(topology, words(dog=1), "run")
    changed = {
        "kind of spout": word_count(LogSpout({"a": 10}, kind=SpoutKind.OPAQUE)),
        "identity": word_count(ListSpout(1)),
        "stream": two_streams(),
    }
    with refused("TX601", "word_count"):
        backing.ledger.register(changed[change], "jobs/job.py")
    backing.ledger.register(topology, "jobs/job.py")


def two_streams() -> Topology:
    topology = word_count(LogSpout({"a": 10}))
    topology.new_stream("more", ListSpout(1))
    return topology


def test_a_state_has_one_topology(backing: Any) -> None:
    backing.ledger.register(word_count(LogSpout({"a": 10})), "jobs/job.py")
    other = word_count(LogSpout({"a": 10}), "other", state=OpaqueState("word_count"))
    with refused("TX102", "'word_count'"):
        backing.ledger.register(other, "jobs/other.py")


# ---- by interval (R2)

DAY = timedelta(days=1)
START = datetime(2024, 1, 1, tzinfo=UTC)


def of_day(number: int, days: int = 1) -> Run:
    return Run(f"scheduled {number}", interval=Interval(START + number * DAY, START + (number + days) * DAY))


def daily() -> Topology:
    class Daily(ListSpout):
        by_interval = True

        def initialize_transaction(self, txid: int, prev_metadata: Any, curr_metadata: Any) -> Any:
            return {**curr_metadata, "start": 0, "end": 1}

    return word_count(Daily())


@pytest.mark.rule("R2")
def test_a_batch_is_found_by_its_interval_and_older_ones_may_come_later(backing: Any) -> None:
    topology = daily()
    backing.ledger.register(topology, "jobs/job.py")
    txids = []
    for number in (5, 2, 5, 9):
        batch = initialize_transaction(backing.ledger, topology, of_day(number))
        assert isinstance(batch, Batch)
        txids.append(batch.txid)
        if batch.status is BatchStatus.PLANNED:
            assignment = backing.ledger.start_attempt(batch, of_day(number), "code")
            backing.ledger.record_manifests([(assignment, manifest_of(topology, assignment, words(dog=1)))])
            assert backing.commit(topology, batch, words(dog=1)).applied
    assert txids == [1, 2, 1, 3]


@pytest.mark.rule("R2")
def test_intervals_may_not_overlap_nor_reach_into_the_future(backing: Any) -> None:
    topology = daily()
    backing.ledger.register(topology, "jobs/job.py")
    assert isinstance(initialize_transaction(backing.ledger, topology, of_day(1)), Batch)
    head = backing.ledger.head("word_count", of_day(0, 3))
    with pytest.raises(IntervalTaken, match=r"not covered yet: 2024-01-01T.*/2024-01-02T.*, 2024-01-03T.*/2024-01-04T"):
        backing.ledger.plan(head, of_day(0, 3), {"streams": {}})
    later = Run("later", interval=Interval(datetime.now(UTC), datetime.now(UTC) + DAY))
    with pytest.raises(IntervalNotOver, match="is not over"):
        backing.ledger.plan(backing.ledger.head("word_count", later), later, {"streams": {}})


def test_a_dead_runs_interval_is_aborted_not_adopted(backing: Any) -> None:
    topology = daily()
    backing.ledger.register(topology, "jobs/job.py")
    initialize_transaction(backing.ledger, topology, of_day(1))
    backing.end_leases()
    batch = initialize_transaction(backing.ledger, topology, of_day(2))
    assert isinstance(batch, Batch)
    assert batch.txid == 2
    assert backing.ledger.batch("word_count", 1).status is BatchStatus.ABORTED
    again = initialize_transaction(backing.ledger, daily_pending(2), of_day(1))
    assert isinstance(again, Batch)
    assert again.txid == 3


@pytest.mark.rule("R6")
def test_a_run_that_waits_for_a_dead_runs_interval_aborts_it(backing: Any) -> None:
    topology = daily_pending(2)
    backing.ledger.register(topology, "jobs/job.py")
    dead, own = (initialize_transaction(backing.ledger, topology, of_day(number)) for number in (1, 2))
    assert isinstance(own, Batch)
    assert take_turn(backing.ledger, own, of_day(2)) == Wait(dead, WaitReason.TURN)
    backing.end_leases()
    assert take_turn(backing.ledger, own, of_day(2)) == Yours()
    aborted = backing.ledger.batch("word_count", 1)
    assert (aborted.status, aborted.replanned) == (BatchStatus.ABORTED, True)
    again = initialize_transaction(backing.ledger, topology, of_day(1))
    assert isinstance(again, Batch)
    assert (again.txid, again.key, again.replanned) == (3, of_day(1).key, False)


@pytest.mark.rule("R6", "R16")
def test_only_a_run_aborts_a_batch_as_abandoned(backing: Any) -> None:
    """A person may give the same reason. A txid that gives the records up is not abandoned, whatever its batch was."""
    topology = daily()
    backing.ledger.register(topology, "jobs/job.py")
    first = initialize_transaction(backing.ledger, topology, of_day(1))
    assert isinstance(first, Batch)
    why = f"abandoned by {first.lease_run}; nobody found it so"
    assert not backing.ledger.abort("word_count", 1, why).replanned
    assert isinstance(initialize_transaction(backing.ledger, topology, of_day(1)), Batch)
    backing.end_leases()
    assert isinstance(initialize_transaction(backing.ledger, topology, of_day(2)), Batch)
    assert backing.ledger.batch("word_count", 2).replanned
    backing.ledger.abort("word_count", 3, "in the way")
    assert not backing.ledger.skip("word_count", 2, "poison").replanned


@pytest.mark.rule("R2", "R16")
@pytest.mark.parametrize("status", ["planned", "committed", "given up"])
def test_an_interval_that_another_txid_has_is_not_given_up(backing: Any, status: str) -> None:
    topology = daily()
    backing.ledger.register(topology, "jobs/job.py")
    assert isinstance(initialize_transaction(backing.ledger, topology, of_day(1)), Batch)
    backing.ledger.abort("word_count", 1, "wrong")
    if status == "given up":
        assert backing.ledger.skip("word_count", 1, "poison").txid == 2
    else:
        again = initialize_transaction(backing.ledger, topology, of_day(1))
        assert isinstance(again, Batch)
        assignment = backing.ledger.start_attempt(again, of_day(1), "code")
        backing.ledger.record_manifests([(assignment, manifest_of(topology, assignment, words(dog=1)))])
        if status == "committed":
            backing.commit(topology, again, words(dog=1))
    with refused("TX405", "txid 1", "interval", "txid 2"):
        backing.ledger.skip("word_count", 1, "poison")
    assert backing.ledger.head("word_count", of_day(1)).own.txid == 2


@pytest.mark.rule("R16")
def test_an_interval_in_flight_is_given_up(backing: Any) -> None:
    """The batch itself is none of the others."""
    topology = daily()
    backing.ledger.register(topology, "jobs/job.py")
    initialize_transaction(backing.ledger, topology, of_day(1))
    assert backing.ledger.skip("word_count", 1, "poison").txid == 2
    assert backing.ledger.head("word_count", of_day(1)).own.txid == 2


def daily_pending(pending: int) -> Topology:
    topology = daily()
    topology.max_pending = pending
    return topology


# ---- parameters that choose data (R2)


def asking(top: int, name: str) -> Run:
    return Run(name, run_id=name, parameters={"top": top})


@pytest.mark.rule("R2")
def test_the_same_key_with_other_parameters_is_refused(backing: Any) -> None:
    spout = ListSpout(10, 10)
    spout.parameters = ("top",)
    topology = word_count(spout)
    backing.ledger.register(topology, "jobs/job.py")
    batch = initialize_transaction(backing.ledger, topology, asking(5, "mine"))
    assert isinstance(batch, Batch)
    assert batch.metadata["parameters"] == {"top": 5}
    for other in (asking(6, "mine"), run("mine")):
        with refused("TX414", "planned", '"top"', "5"):
            initialize_transaction(backing.ledger, topology, other)
    assert initialize_transaction(backing.ledger, topology, asking(5, "mine")) == batch


@pytest.mark.rule("R6")
@pytest.mark.parametrize("top", [5, 6])
def test_a_dead_runs_batch_is_adopted_only_where_the_same_was_asked_for(backing: Any, top: int) -> None:
    """Else the heir would finish what the dead run asked for, and never what it was asked for itself."""
    spout = ListSpout(10, 10)
    spout.parameters = ("top",)
    topology = word_count(spout)
    backing.ledger.register(topology, "jobs/job.py")
    initialize_transaction(backing.ledger, topology, asking(5, "dead"))
    backing.end_leases()
    heirs = initialize_transaction(backing.ledger, topology, asking(top, "heir"))
    assert isinstance(heirs, Batch)
    assert (heirs.txid, heirs.metadata["parameters"]["top"]) == ((1, 5) if top == 5 else (2, 6))
    aborted = backing.ledger.batch("word_count", 1).status is BatchStatus.ABORTED
    assert aborted == (top == 6)
