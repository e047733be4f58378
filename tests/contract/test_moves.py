"""A state moves to another database and back (R21, R23), in both ledgers alike."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from redefined import JOB, WHY, change, defined, keyed, whole
from support import LogSpout

from txbatch import Count, OpaqueState, Topology, TransactionalState, failpoints
from txbatch.core.errors import ChangeTooEarly, SchemaMismatch, StateAhead, TerminalError


@pytest.mark.rule("R21", "R23")
@pytest.mark.parametrize("kind", [OpaqueState, TransactionalState])
def test_a_state_that_is_moved_to_another_database_and_back(
    backing: Any, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = defined(state=kind("s")), defined(state=kind("s", database="warehouse"))
    whole(backing, here, "1", dog=2, cat=1)
    whole(backing, here, "2", dog=1)
    moved = "state 's' is in database 'warehouse' now, was in the ledger's database, without its contributions"
    cut_off(backing, there, "change.apart_committed", monkeypatch)
    whole(backing, here, "3", dog=1)  # the ledger still has it, and goes on
    assert change(backing, there) == [("in place", moved)]
    assert backing.apart("s") == {("dog",): (4, 3), ("cat",): (1, 1), "last": ("3:1", "applied")}
    whole(backing, there, "4", cat=4)
    assert backing.apart("s") == {("dog",): (4, 3), ("cat",): (5, 4), "last": ("4:1", "applied")}
    batch = backing.initialize(there, "5")
    backing.emit(there, batch, {"s": keyed({"dog": 1})}, "5")
    backing.ledger.abort("t", batch.txid, "in the way")
    assert change(backing, here) == [
        ("in place", "state 's' is in the ledger's database now, was in database 'warehouse'"),
        ("in place", "state 's' is with contributions now, was without contributions"),
    ]
    whole(backing, here, "6", dog=1)
    assert backing.values("s", "count") == {("dog",): (5, 6), ("cat",): (5, 4)}
    assert backing.contributed("s", "count") == {(("dog",), 6, 6): (1,)}
    cut_off(backing, there, "change.apart_committed", monkeypatch)
    assert change(backing, there) == [("in place", moved)]
    cut_off(backing, here, "change.committed", monkeypatch)  # what is left there is in nobody's way
    assert backing.values("s", "count") == {("dog",): (5, 6), ("cat",): (5, 4)}
    assert change(backing, there) == [("in place", moved)]
    whole(backing, there, "7", dog=1)
    assert backing.apart("s") == {("dog",): (6, 7), ("cat",): (5, 4), "last": ("7:1", "applied")}


def cut_off(backing: Any, topology: Topology, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that ends there."""
    with monkeypatch.context() as patch:
        patch.setenv("TXBATCH_FAILPOINTS", f"{point}=raise")
        with pytest.raises(failpoints.FailpointReached):
            backing.ledger.change(topology, JOB, WHY)


def apart(kind: Any = OpaqueState) -> Any:
    return kind("s", database="warehouse")


def removing(state: Any) -> Topology:
    topology, spout = Topology("t"), LogSpout({"a": 1_000})
    spout.fields = "word string, n int, x double"
    stream = topology.new_stream("in", spout).group_by("word")
    stream.persistent_aggregate(state, remove=lambda record: record["n"] < 0, count=Count())
    return topology


@pytest.mark.rule("R21", "R23")
@pytest.mark.parametrize("kind", [OpaqueState, TransactionalState])
def test_a_key_that_was_removed_there_is_none_here(backing: Any, kind: Any) -> None:
    """An opaque state apart keeps its row until it cannot be given back any more; here it would count as a value."""
    here, there = removing(kind("s")), removing(apart(kind))
    whole(backing, here, "1", dog=(2, False, True), cat=(1, False, True))
    change(backing, there)
    whole(backing, there, "2", dog=(0, True, False))
    change(backing, here)
    assert backing.values("s", "count") == {("cat",): (1, 1)}
    whole(backing, here, "3", dog=(5, False, True))
    assert backing.values("s", "count") == {("cat",): (1, 1), ("dog",): (5, 3)}


@pytest.mark.rule("R21", "R23")
def test_a_warehouse_that_was_set_back_is_not_taken_over(backing: Any) -> None:
    here, there = defined(), defined(state=apart())
    whole(backing, here, "1", dog=2)
    change(backing, there)
    whole(backing, there, "2", dog=1)
    backing.set_last_writer("s", 1)
    with pytest.raises(
        TerminalError, match="is at txid 1, but the ledger has committed txid 2 there: the database was set back"
    ):
        backing.ledger.change(here, JOB, WHY)
    backing.set_last_writer("s", 2)
    change(backing, here)
    assert backing.values("s", "count") == {("dog",): (3, 2)}


@pytest.mark.rule("R21", "R23")
def test_a_warehouse_that_is_ahead_is_not_taken_over(backing: Any) -> None:
    here, there = defined(), defined(state=apart())
    whole(backing, here, "1", dog=2)
    change(backing, there)
    whole(backing, there, "2", dog=1)
    backing.set_last_writer("s", 3)
    with pytest.raises(StateAhead, match="holds attempt 3:1, which the ledger does not know: the ledger was set back"):
        backing.ledger.change(here, JOB, WHY)
    assert backing.apart("s")[("dog",)] == (3, 2)


@pytest.mark.rule("R21", "R23")
def test_a_state_that_was_lost_there_is_not_taken_over(backing: Any) -> None:
    here, there = defined(), defined(state=apart())
    whole(backing, here, "1", dog=2)
    change(backing, there)
    backing.lose_warehouse()
    with pytest.raises(SchemaMismatch, match="is gone, though the ledger knows it"):
        backing.ledger.change(here, JOB, WHY)


@pytest.mark.rule("R21", "R23")
def test_a_state_goes_while_no_batch_is_open(backing: Any) -> None:
    here, there = defined(), defined(state=apart())
    whole(backing, here, "1", dog=2)
    backing.initialize(here, "2")
    with pytest.raises(ChangeTooEarly, match="while txid 2 of 2 is open"):
        backing.ledger.change(there, JOB, WHY)


@pytest.mark.rule("R21", "R23")
def test_two_states_at_once(backing: Any) -> None:
    def states(database: str | None) -> Any:
        return [OpaqueState("o", database=database), TransactionalState("s", database=database)]

    here, there = defined(state=states(None)), defined(state=states("warehouse"))
    whole(backing, here, "1", dog=2)
    change(backing, there)
    assert backing.apart("o")[("dog",)] == backing.apart("s")[("dog",)] == (2, 1)
    whole(backing, there, "2", dog=1)
    change(backing, here)
    assert backing.values("o", "count") == backing.values("s", "count") == {("dog",): (3, 2)}


@pytest.mark.rule("R21", "R23")
def test_one_comes_and_one_goes(backing: Any) -> None:
    """Where the ledger cannot do both at once, it says so; step by step it can."""
    there, here = "warehouse", None
    before = defined(state=[OpaqueState("o", database=there), OpaqueState("s", database=here)])
    after = defined(state=[OpaqueState("o", database=here), OpaqueState("s", database=there)])
    whole(backing, before, "1", dog=2)
    with suppress(TerminalError):
        backing.ledger.change(after, JOB, WHY)
    change_at_last = defined(state=[OpaqueState("o", database=there), OpaqueState("s", database=there)])
    backing.ledger.change(change_at_last, JOB, WHY)
    backing.ledger.change(after, JOB, WHY)
    whole(backing, after, "2", dog=1)
    assert backing.values("o", "count") == {("dog",): (3, 2)}
    assert backing.apart("s")[("dog",)] == (3, 2)
