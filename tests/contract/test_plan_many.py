"""Many runs are planned at once, by one head and in one transaction, and each has its own txid (R1, R2, R3), in both ledgers."""

from __future__ import annotations

from typing import Any

import pytest
from contract.test_batches import DAY, START, daily, of_day
from contract.test_restate import NAME, Case, restate_of, words
from sqlalchemy import event
from support import LogSpout, run, word_count

from txbatch.core.batch.transaction import Batch, BatchKind, BatchStatus, Interval, Run
from txbatch.core.errors import IntervalNotOver, IntervalTaken
from txbatch.core.protocol.coordinator import initialize_transaction
from txbatch.core.protocol.planning_ahead import initialize_many


def registered(backing: Any, topology: Any) -> Any:
    backing.ledger.register(topology, "jobs/job.py")
    return topology


def runs(names: str) -> list[Run]:
    return [run(name) for name in names]


@pytest.mark.rule("R1", "R3")
def test_each_is_what_it_would_be_planned_alone(backing: Any) -> None:
    """And there are no more than have something new."""
    topology = registered(backing, word_count(LogSpout({"a": 25, "b": 5})))
    alone = registered(backing, word_count(LogSpout({"a": 25, "b": 5}), "alone", max_pending=3))
    found = initialize_many(backing.ledger, topology, runs("1234"))
    assert [(batch.txid, batch.prev_txid) for batch in found] == [(1, None), (2, 1), (3, 2)]
    for name, batch in zip("123", found, strict=True):
        single = initialize_transaction(backing.ledger, alone, run(name))
        assert isinstance(single, Batch)
        assert batch.metadata == single.metadata
    assert [(batch.lease_run, batch.lease_live) for batch in found] == [("1", True), ("2", True), ("3", True)]
    for name, batch in zip("123", found, strict=True):
        backing.emit(topology, batch, words(dog=1), name)
        assert backing.commit(topology, batch, words(dog=1)).applied
    assert backing.state(NAME) == {("dog",): (3, 3)}


@pytest.mark.rule("R2")
def test_a_run_finds_its_own_again_and_those_without_one_are_planned_between(backing: Any) -> None:
    topology = registered(backing, daily())
    first = initialize_many(backing.ledger, topology, [of_day(number) for number in (1, 2, 3)])
    assert [batch.txid for batch in first] == [1, 2, 3]
    backing.ledger.abort(NAME, 2, "wrong")
    again = initialize_many(backing.ledger, topology, [of_day(number) for number in (1, 2, 3, 4)])
    assert [batch.txid for batch in again] == [1, 4, 3, 5]
    assert [batch.key for batch in again] == [of_day(number).key for number in (1, 2, 3, 4)]
    assert [head.own and head.own.txid for head in backing.ledger.heads(NAME, [of_day(2), of_day(9)])] == [4, None]


@pytest.mark.rule("R6")
def test_nothing_is_planned_ahead_of_another_runs_batch(backing: Any) -> None:
    """It waits for one that lives, and adopts one that does not: each by itself."""
    topology = registered(backing, word_count(LogSpout({"a": 90})))
    initialize_transaction(backing.ledger, topology, run("other"))
    assert initialize_many(backing.ledger, topology, runs("12")) == []
    backing.end_leases()
    assert initialize_many(backing.ledger, topology, runs("12")) == []
    assert backing.ledger.head(NAME, run("1")).pending[0].key == run("other").key


@pytest.mark.rule("R1")
def test_plans_for_a_head_that_moved_are_refused_together(backing: Any) -> None:
    topology = registered(backing, word_count(LogSpout({"a": 90}), max_pending=9))
    head = backing.ledger.head(NAME, run("1"))
    initialize_transaction(backing.ledger, topology, run("quick"))
    assert backing.ledger.plan_many(head, [(each, {"streams": {}}) for each in runs("12")], topology) is None
    assert backing.ledger.head(NAME, run("1")).next_txid == 2
    head = backing.ledger.head(NAME, run("1"))
    assert backing.ledger.plan_many(head, [(each, {"streams": {}}) for each in (run("1"), run("quick"))]) is None
    assert backing.ledger.head(NAME, run("1")).next_txid == 2


@pytest.mark.rule("R2")
def test_one_that_is_refused_keeps_no_earlier_one_back(backing: Any) -> None:
    """It reaches into one that is planned by the same call, or is not over."""
    topology = registered(backing, daily())
    twice = Run("twice", interval=Interval(START + DAY, START + 3 * DAY))
    nothing: dict[str, Any] = {"streams": {}}
    head = backing.ledger.head(NAME, of_day(1))
    plans = [(of_day(1), nothing), (twice, nothing), (of_day(3), nothing)]
    assert [batch.txid for batch in backing.ledger.plan_many(head, plans, topology)] == [1]
    future = of_day(100_000)
    with pytest.raises(IntervalTaken):
        backing.ledger.plan_many(backing.ledger.head(NAME, twice), [(twice, nothing), (of_day(3), nothing)])
    with pytest.raises(IntervalNotOver):
        backing.ledger.plan_many(backing.ledger.head(NAME, future), [(future, nothing), (of_day(3), nothing)])
    assert backing.ledger.head(NAME, of_day(3)).next_txid == 2
    found = initialize_many(backing.ledger, topology, [of_day(1), of_day(2), future, of_day(3)])
    assert [batch.txid for batch in found] == [1, 2]


@pytest.mark.rule("R17")
def test_restates_are_planned_together_and_the_next_batch_follows_what_it_would(backing: Any) -> None:
    case = Case(backing, max_pending=5)
    case.counts("1", dog=1)
    case.counts("2", dog=10)
    asked = [restate_of(position, f"again {position}") for position in (1, 2, 9)]
    found = initialize_many(case.ledger, case.topology, asked)
    assert [(batch.txid, batch.position, batch.kind, batch.prev_txid) for batch in found] == [
        (3, 1, BatchKind.RESTATE, None),
        (4, 2, BatchKind.RESTATE, None),
    ]
    assert case.initialize(run("3")).prev_txid == 2
    for batch, count in zip(found, (5, 7), strict=True):
        case.goes(batch, asked[batch.position - 1], words(dog=count))
    assert case.rows() == {"dog": (12, 4)}
    assert [case.ledger.batch(NAME, txid).status for txid in (3, 4)] == [BatchStatus.COMMITTED] * 2


def test_the_head_is_read_twice_however_many_are_planned(backing: Any) -> None:
    """Once to plan, and once under the lock; and the source is listed once."""

    class Listed(LogSpout):
        listed = 0

        def partitions(self) -> Any:
            self.listed += 1
            return super().partitions()

    spout, statements, engines = Listed({"a": 1_000}), list[str](), list[object]()
    topology = registered(backing, word_count(spout))
    if hasattr(backing, "engine"):
        event.listen(backing.engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
        event.listen(backing.engine, "set_engine_execution_options", lambda *given: engines.append(given[0]))
    found = initialize_many(backing.ledger, topology, [run(str(number)) for number in range(60)])
    assert [batch.txid for batch in found] == list(range(1, 61))
    assert spout.listed == 1
    if statements:
        assert sum("txbatch.consumed" in each for each in statements) == 2
        assert len(statements) < 60 * 4 + 40
        assert len(engines) <= 2


@pytest.mark.rule("R3", "R6")
def test_what_a_call_brings_to_its_commits_is_in_the_way_of_none_of_its_next(backing: Any) -> None:
    """They follow it while it is in flight; without a word of that, as of others, max_pending is kept."""
    topology = registered(backing, word_count(LogSpout({"a": 90}), max_pending=2))
    first = initialize_many(backing.ledger, topology, runs("12"))
    assert initialize_many(backing.ledger, topology, runs("34")) == []
    behind = [batch.txid for batch in first]
    found = initialize_many(backing.ledger, topology, runs("34"), behind)
    assert [(batch.txid, batch.prev_txid) for batch in found] == [(3, 2), (4, 3)]
    for name, batch in zip("1234", (*first, *found), strict=True):
        backing.emit(topology, batch, words(dog=1), name)
        assert backing.commit(topology, batch, words(dog=1)).applied
    assert backing.state(NAME) == {("dog",): (4, 4)}
