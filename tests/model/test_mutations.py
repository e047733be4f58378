"""The model can fail: without one decision it finds a story that breaks a rule, mostly before any sum is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from model.explore import Explorer
from model.oracle import Violation
from model.source import Size

from txbatch import SpoutKind
from txbatch.core.batch.apart import Apply, LastWriter, LedgerView
from txbatch.core.batch.manifest import Manifest, ReadPartition
from txbatch.core.batch.transaction import Assignment, Batch, Run, TransactionAttempt
from txbatch.core.errors import StaleAttempt, StateAhead
from txbatch.core.protocol import commit, decisions, skip
from txbatch.core.protocol.ledger import Order
from txbatch.core.state.state import StateKind
from txbatch.memory import apart
from txbatch.memory import rows as memory
from txbatch.memory.ledger import MemoryLedger
from txbatch.memory.tables import Tables

STATES = 20_000
Patch = Callable[[pytest.MonkeyPatch], None]


def no_fence(patch: pytest.MonkeyPatch) -> None:
    """Attempts that are not the newest are let through (R5)."""
    patch.setattr(commit, "check_fence", lambda *_: None)


def no_chain(patch: pytest.MonkeyPatch) -> None:
    """A batch need not continue what is committed (R6)."""
    patch.setattr(commit, "check_chain", lambda *_: None)


def no_order(patch: pytest.MonkeyPatch) -> None:
    """A commit does not wait for the txids below (R6). It still continues, where those read other partitions."""
    check = commit.check_commit

    def unordered(now: Batch, loaded: Batch, order: Order) -> bool:
        return check(now, loaded, order._replace(open_before=None))

    patch.setattr(commit, "check_commit", unordered)


def plans_for_a_moved_head(patch: pytest.MonkeyPatch) -> None:
    """A plan is stored though its txid was given away meanwhile (R1)."""
    patch.setattr(decisions, "moved", lambda *_: False)


def success_of_a_zombie(patch: pytest.MonkeyPatch) -> None:
    """Success is noted for a batch that is not committed (R8)."""
    patch.setattr(decisions, "check_success", lambda *_: None)


def aborts_what_is_committed(patch: pytest.MonkeyPatch) -> None:
    """A committed batch is aborted, and its records are planned again (R16)."""
    patch.setattr(decisions, "check_abort", lambda *_: None)


def consumes_a_hole(patch: pytest.MonkeyPatch) -> None:
    """The offset of a partition that was left out moves on (R13)."""
    record = Tables.record

    def moving(tables: Tables, batch: Batch, manifest: Manifest) -> Batch:
        plans = batch.metadata["streams"].items()
        streams = {name: dict.fromkeys(plan["partitions"], ReadPartition(1, "0")) for name, plan in plans}
        return record(tables, batch, replace(manifest, streams=streams))

    patch.setattr(Tables, "record", moving)


def reuses_attempt_ids(patch: pytest.MonkeyPatch) -> None:
    """A run that starts again counts its attempts from 1, as Trident's coordinator does; tokens follow from the ids (R5)."""
    start = MemoryLedger.start_attempt

    def forgetful(ledger: MemoryLedger, batch: Batch, run: Run, code: str) -> Assignment:
        tables, at = ledger.tables.copy(), (batch.topology, batch.txid)
        if not tables.batches[at].status.final:
            tables.batches[at] = replace(tables.batches[at], fence=0)
        ledger.tables = tables
        return start(ledger, batch, run, code)

    class Constant:
        hex = "token"

    patch.setattr(memory, "uuid4", Constant)
    patch.setattr(MemoryLedger, "start_attempt", forgetful)


def skips_what_others_have(patch: pytest.MonkeyPatch) -> None:
    """Records are given up that another batch has counted by now (R16)."""
    patch.setattr(skip, "check_may_skip", lambda *_: None)
    patch.setattr(skip, "check_skip", lambda *_: None)


def holes_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A partition with nothing in a committed batch loses its place (Trident's, measured)."""
    record = Tables.record

    def forgetting(tables: Tables, batch: Batch, manifest: Manifest) -> Batch:
        for name, plan in batch.metadata["streams"].items():
            for partition in set(plan["partitions"]) - set(manifest.streams.get(name, {})):
                tables.consumed.pop((batch.topology, name, partition), None)
        return record(tables, batch, manifest)

    patch.setattr(Tables, "record", forgetting)


def no_fence_apart(patch: pytest.MonkeyPatch) -> None:
    """The warehouse lets every attempt write (R21)."""
    decide = apart.decide_apply

    def lenient(where: str, kind: StateKind, last: LastWriter, assignment: Assignment, ledger: LedgerView) -> Apply:
        try:
            return decide(where, kind, last, assignment, ledger)
        except (StaleAttempt, StateAhead):
            return Apply.REPLAY

    patch.setattr(apart, "decide_apply", lenient)


def aborts_only_here(patch: pytest.MonkeyPatch) -> None:
    """An abort leaves alone what the batch wrote in the warehouse (R16, R21)."""
    patch.setattr(apart, "decide_take_back", lambda *_: None)


def abort_forgets_to_keep_out(patch: pytest.MonkeyPatch) -> None:
    """An abort takes back what is there, and does not keep out what may still come (R21)."""
    decide = apart.decide_take_back

    def forgetful(where: str, kind: StateKind, last: LastWriter, newest: TransactionAttempt) -> LastWriter | None:
        return decide(where, kind, last, newest) if last.applied(newest.txid) else None

    patch.setattr(apart, "decide_take_back", forgetful)


def gives_up_what_is_half_committed(patch: pytest.MonkeyPatch) -> None:
    """Records are given up that a batch has in a transactional state of the warehouse (R21)."""
    patch.setattr(apart, "decide_skip", lambda *_: None)


ONE = Size(2, 2, 1, runs=2)
AHEAD = Size(2, 1, 1, max_pending=2, runs=2)
OPAQUE = Size(1, 2, 2, SpoutKind.OPAQUE, runs=1)
APART = Size(2, 2, 1, SpoutKind.OPAQUE, runs=1, apart=True)
MUTATIONS = [
    (no_fence, ONE, "R5"),
    (no_chain, AHEAD, "not continuous|records were lost"),
    (no_order, Size(2, 1, 2, max_pending=2, late=1, records=1), r"txid 2 is committed before \[1\]"),
    (plans_for_a_moved_head, AHEAD, "too late"),
    (success_of_a_zombie, ONE, "success of txid 1, which is planned"),
    (aborts_what_is_committed, ONE, "was final as .*committed.* and is now .*aborted"),
    (consumes_a_hole, OPAQUE, "R13"),
    (reuses_attempt_ids, OPAQUE, "R5"),
    (skips_what_others_have, ONE, "given up"),
    (no_fence_apart, APART, "R21|outside the ledger"),
    (aborts_only_here, APART, "R21"),
    (abort_forgets_to_keep_out, APART, "R21"),
    (gives_up_what_is_half_committed, Size(3, 1, 1, runs=1, apart=True), "cannot be aborted"),
    (holes_are_forgotten, Size(3, 1, 2, SpoutKind.OPAQUE, runs=3), "lost|counts in"),
]


@pytest.mark.parametrize(("mutation", "size", "says"), MUTATIONS, ids=[each[0].__name__ for each in MUTATIONS])
def test_a_protocol_without_this_decision_is_found_out(
    mutation: Patch, size: Size, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mutation(monkeypatch)
    explorer = Explorer(size, states=STATES)
    with pytest.raises(Violation, match=says) as found:
        explorer.all_states()
    with capsys.disabled():
        print(f"\n{mutation.__name__}, after {explorer.report.transitions:,} transitions: {found.value}")


@pytest.mark.parametrize("size", sorted({each[1] for each in MUTATIONS[:-1]}, key=str), ids=str)
def test_the_whole_protocol_is_not(size: Size) -> None:
    """At the sizes above nothing is found as long as nothing is taken away."""
    assert not Explorer(size, states=STATES).all_states().capped
