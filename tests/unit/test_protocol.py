"""What may happen next, decided on values."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from refusals import refused
from support import run

from txbatch.core.batch.transaction import (
    Assignment,
    Batch,
    BatchKind,
    BatchStatus,
    Interval,
    Restate,
    Run,
    TransactionAttempt,
)
from txbatch.core.errors import (
    BrokenChain,
    IntervalNotOver,
    IntervalTaken,
    StaleAttempt,
    TerminalError,
)
from txbatch.core.protocol.commit import check_commit
from txbatch.core.protocol.decisions import (
    Adopt,
    PlanNew,
    TakenIntervals,
    Use,
    Wait,
    WaitReason,
    check_abort,
    check_interval,
    check_success,
    consumed,
    decide_initialize,
    moved,
)
from txbatch.core.protocol.fence import check_attempt, check_fence
from txbatch.core.protocol.ledger import Head, Order
from txbatch.core.protocol.questions import Unfinished, unfinished
from txbatch.core.protocol.restate import uncounted
from txbatch.memory.tables import next_txid

RANGE = {"start": 10, "end": 20}
PLANNED = Batch(
    "t",
    3,
    BatchStatus.PLANNED,
    {"streams": {"s": {"partitions": {"a": RANGE}}}},
    "run:r",
    prev_txid=2,
    lease_run="r",
    lease_live=True,
)
EMITTED = replace(PLANNED, status=BatchStatus.EMITTED, fence=2, token="x")
ASSIGNMENT = Assignment("t", TransactionAttempt(3, 2), "x", EMITTED.metadata, "code")
OFFSETS: Any = {"s": {"a": {"start": 0, "end": 10}}}
HEAD = Head("t", 4, None, (), PLANNED, OFFSETS)
COMMITTED, ABORTED = (replace(EMITTED, status=status) for status in (BatchStatus.COMMITTED, BatchStatus.ABORTED))


def test_txids_are_consecutive_from_1() -> None:
    assert [next_txid(txids) for txids in ([], [1], [1, 2], [1, 2, 3])] == [1, 2, 3, 4]


def test_what_a_run_does_first() -> None:
    dead = replace(PLANNED, txid=4, lease_live=False)
    for head, max_pending, expected in (
        (HEAD, 1, PlanNew(4)),
        (replace(HEAD, own=COMMITTED, pending=(dead,)), 1, Use(COMMITTED)),
        (replace(HEAD, pending=(PLANNED,)), 1, Wait(PLANNED, WaitReason.FULL)),
        (replace(HEAD, pending=(PLANNED,)), 2, PlanNew(4)),
        (replace(HEAD, pending=(PLANNED, dead)), 2, Adopt(dead)),
        (replace(HEAD, pending=(PLANNED, dead)), 9, Adopt(dead)),
    ):
        assert decide_initialize(head, run("other"), max_pending) == expected


def test_a_run_goes_on_with_what_it_adopted_and_died_over() -> None:
    """Its own batch was aborted meanwhile: it must not wait for itself until its lease ends."""
    assert decide_initialize(replace(HEAD, pending=(PLANNED,)), run("r"), 1) == Adopt(PLANNED)


@pytest.mark.parametrize("change", [{"next_txid": 5}, {"prev": None}, {"own": PLANNED}, {"offsets": {"s": {}}}])
def test_a_head_that_moved(change: Any) -> None:
    assert not moved(HEAD, HEAD)
    assert moved(HEAD, replace(HEAD, **change))
    assert moved(HEAD, HEAD, replace(HEAD, own=PLANNED))


def test_a_lease_that_ended_meanwhile_does_not_move_the_head() -> None:
    assert not moved(replace(HEAD, pending=(PLANNED,)), replace(HEAD, pending=(replace(PLANNED, lease_live=False),)))


def test_who_may_start_an_attempt() -> None:
    check_attempt(PLANNED, run("r"))
    check_attempt(EMITTED, run("r"))
    check_attempt(replace(EMITTED, lease_live=False), run("other"))
    with refused("TX403", "txid 3"):
        check_attempt(EMITTED, run("other"))
    with refused("TX411", "committed", "txid 3"):
        check_attempt(COMMITTED, run("r"))
    with refused("TX412", "txid 3", "aborted", "initialize_transaction"):
        check_attempt(ABORTED, run("r"))


def test_the_fence() -> None:
    check_fence(EMITTED, ASSIGNMENT.attempt, ASSIGNMENT.token)
    for stale in (
        replace(ASSIGNMENT, attempt=TransactionAttempt(3, 1)),
        replace(ASSIGNMENT, attempt=TransactionAttempt(3, 3)),
        replace(ASSIGNMENT, token="y"),
    ):
        with pytest.raises(
            StaleAttempt, match=f"attempt {stale.attempt} is not the newest of txid 3, .*3:2; nothing was changed"
        ):
            check_fence(EMITTED, stale.attempt, stale.token)
    for over in (COMMITTED, ABORTED):
        with pytest.raises(StaleAttempt, match=f"which is {over.status}"):
            check_fence(over, ASSIGNMENT.attempt, ASSIGNMENT.token)


def test_a_commit_that_may_be_applied() -> None:
    assert check_commit(EMITTED, ASSIGNMENT, Order(None, 2, OFFSETS)) is True
    assert check_commit(COMMITTED, ASSIGNMENT, Order(None, 2, {})) is False


def test_a_commit_before_its_time() -> None:
    with refused("TX413", "attempt 3:2", "manifest", "emit_batch"):
        check_commit(replace(EMITTED, status=BatchStatus.PLANNED), ASSIGNMENT, Order(None, 2, OFFSETS))
    with refused("TX402", "txid 3", "txid 1"):
        check_commit(EMITTED, ASSIGNMENT, Order(1, 2, OFFSETS))
    with pytest.raises(StaleAttempt):
        check_commit(ABORTED, ASSIGNMENT, Order(None, 2, OFFSETS))


def broken(streams: Any, offsets: Any, last_committed: int | None = 2, **more: Any) -> str | None:
    batch = replace(EMITTED, metadata={"streams": streams, **more})
    try:
        check_commit(batch, ASSIGNMENT, Order(None, last_committed, offsets))
    except BrokenChain as error:
        return str(error)
    return None


def test_the_chain_of_a_partition() -> None:
    plan = {"s": {"partitions": {"a": RANGE}}}
    assert broken(plan, OFFSETS) is None
    assert broken(plan, {}) is None
    assert broken(plan, {"s": {"b": {"end": 99}}, "other": {"a": {"end": 99}}}) is None
    assert "starts a at 10, committed is 5" in str(broken(plan, {"s": {"a": {"start": 0, "end": 5}}}))
    assert "starts a at 10, committed is 20" in str(broken(plan, {"s": {"a": RANGE}}))
    continues = {"s": {"partitions": {"a": RANGE}, "continues": ["a"]}}
    assert broken(continues, OFFSETS) is None
    assert "starts a at 10, committed is nothing" in str(broken(continues, {}))


def test_the_chain_of_an_unpartitioned_stream() -> None:
    plan = {"s": {"start": 5, "end": 9}}
    assert broken(plan, {}) is None
    assert "planned after txid 2, but txid 1 is the last committed" in str(broken(plan, {}, last_committed=1))
    assert "but txid None is the last committed" in str(broken(plan, {}, last_committed=None))


def test_an_interval_continues_nothing() -> None:
    """Who reads by time is told by the batch's interval, and outside the plan: a plan may have any key."""
    streams = {"s": {"plan": {"files": []}, "interval": ["a", "b"]}}
    by_time = replace(EMITTED, key="interval:a/b", metadata={"format": 2, "streams": streams})
    assert check_commit(by_time, ASSIGNMENT, Order(None, 1, {}))
    older = replace(by_time, metadata={"streams": {"s": {"interval": ["a", "b"]}}})
    assert check_commit(older, ASSIGNMENT, Order(None, 1, {}))
    assert "but txid 1 is the last" in str(broken({"s": {"interval": ["a", "b"]}}, {}, last_committed=1))
    assert "but txid 1" in str(broken({"s": {"plan": {"interval": ["a", "b"]}}}, {}, last_committed=1, format=2))


def test_the_chain_of_a_stream_that_pauses() -> None:
    """The batch says where the stream stands, though it has nothing of it: that must be committed too."""
    plan = {"s": {"partitions": {"a": RANGE}}}
    assert broken(plan, OFFSETS, idle={"list": {"end": 5}}) is None
    assert "planned after txid 2, but txid 1" in str(broken(plan, OFFSETS, last_committed=1, idle={"list": {"end": 5}}))
    idle = {"list": {"plan": 5, "interval": ["a", "b"]}}
    mixed = replace(EMITTED, key="interval:a/b", metadata={"format": 2, "streams": plan, "idle": idle})
    assert check_commit(mixed, ASSIGNMENT, Order(None, 1, OFFSETS))


def test_success_and_abort() -> None:
    check_success(COMMITTED)
    for batch in (PLANNED, EMITTED, ABORTED):
        check_abort(batch)
        with pytest.raises(TerminalError, match=f"t: txid 3 is {batch.status}, not committed; clear the task commit"):
            check_success(batch)
    with refused("TX411", "txid 3", "committed"):
        check_abort(COMMITTED)


def test_offsets_after_batches_in_flight() -> None:
    later = replace(PLANNED, metadata={"streams": {"s": {"partitions": {"b": RANGE}}, "list": {"end": 5}}})
    assert consumed(OFFSETS, [PLANNED, later]) == {"s": {"a": RANGE, "b": RANGE}}
    assert OFFSETS == {"s": {"a": {"start": 0, "end": 10}}}


START = datetime(2024, 1, 1, tzinfo=UTC)


def days(first: int, last: int) -> Interval:
    return Interval(START + timedelta(first), START + timedelta(last))


def test_a_batch_tells_its_run() -> None:
    """By interval the run meets the batch again by the key (R2), and by the same parameters."""
    metadata = {"format": 2, "streams": {}, "parameters": {"top": 3}}
    batch = replace(PLANNED, key=f"interval:{days(0, 1)}", metadata=metadata, lease_run="cli:a-1")
    found = unfinished(batch)
    assert found == Unfinished(3, Run("cli:a-1", interval=days(0, 1), parameters={"top": 3}))
    assert found.run.key == batch.key
    assert unfinished(PLANNED).run == Run("r")
    restate = replace(batch, kind=BatchKind.RESTATE, position=2, reason="wrong", requested_by="anna")
    assert unfinished(restate).run.restate == Restate(2, "wrong", "anna", accept_missing=True, skipped=True)


@pytest.mark.parametrize(
    ("taken", "free"),
    [
        ([], [(0, 9)]),
        ([(0, 9)], []),
        ([(-5, 20)], []),
        ([(-5, 2)], [(2, 9)]),
        ([(7, 20)], [(0, 7)]),
        ([(2, 3), (5, 6)], [(0, 2), (3, 5), (6, 9)]),
        ([(0, 2), (2, 4)], [(4, 9)]),
    ],
)
def test_what_is_not_covered_yet(taken: Any, free: Any) -> None:
    assert uncounted(days(0, 9), [days(*each) for each in taken]) == [days(*each) for each in free]


def test_intervals() -> None:
    check_interval("t", days(0, 1), START + timedelta(1), [])
    with pytest.raises(IntervalNotOver, match="is not over"):
        check_interval("t", days(0, 1), START + timedelta(1) - timedelta(microseconds=1), [])
    with pytest.raises(IntervalTaken, match="all of it is covered"):
        check_interval("t", days(0, 1), START + timedelta(9), [days(0, 1)])
    with pytest.raises(IntervalTaken, match=r"not covered yet: 2024-01-02T.*/2024-01-03T"):
        check_interval("t", days(0, 2), START + timedelta(9), [days(0, 1)])


def test_intervals_that_one_call_plans_are_in_each_others_way() -> None:
    """In whatever order they come; one that is refused is not taken."""
    taken = TakenIntervals("t", START + timedelta(20), [days(0, 2), days(5, 6)])
    for each in (days(6, 7), days(2, 4), days(-3, 0)):
        taken.take(each)
    assert taken.intervals == [days(-3, 0), days(0, 2), days(2, 4), days(5, 6), days(6, 7)]
    for each in (days(3, 5), days(-9, -2), days(4, 9), days(5, 6), days(-9, 19)):
        with pytest.raises(IntervalTaken):
            taken.take(each)
    with pytest.raises(
        IntervalTaken, match=r"overlaps 2024-01-03.*2024-01-05\S+; not covered yet: 2024-01-05\S+/2024-01-06"
    ):
        taken.take(days(3, 5))
    with pytest.raises(IntervalNotOver):
        taken.take(days(19, 21))
    taken.take(days(4, 5))
    assert len(taken.intervals) == 6
