"""States apart from the ledger (R21): what their fence lets an attempt do, and an abort.

The fence stands in the warehouse, in the same transaction as the rows: which attempt wrote there last, and whether its rows
are there. The ledger's own transaction ends after the warehouse's, so each of these may come after a crash between both,
or from a process that was cut off from the ledger and goes on too late.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from txbatch.core.errors import HalfCommitted, StaleAttempt, StateAhead, TakenBack, TerminalError
from txbatch.core.state import StateKind
from txbatch.core.transaction import Assignment, TransactionAttempt


class ApartStatus(StrEnum):
    """Whether the rows of the fence's txid are in the state."""

    APPLIED = "applied"
    TAKEN_BACK = "taken_back"


@dataclass(frozen=True, slots=True)
class Fence:
    """Who wrote last to a state apart. `digest` is that of the partials, for a transactional state that got any.

    txid 0: nobody has written yet.
    """

    txid: int = 0
    attempt_id: int = 0
    token: str | None = None
    digest: str | None = None
    status: ApartStatus = ApartStatus.TAKEN_BACK

    @property
    def attempt(self) -> TransactionAttempt:
        """The attempt that wrote last."""
        return TransactionAttempt(self.txid, self.attempt_id)

    def applied(self, txid: int) -> bool:
        """Whether rows of this txid may be in the state."""
        return self.txid == txid and self.status is ApartStatus.APPLIED


class Step(StrEnum):
    """What an attempt does to a state apart."""

    DONE = "done"  # it has done it before; the ledger does not know yet
    APPLY = "apply"  # the txid is new there: R9's column b > s
    REPLAY = "replay"  # an earlier attempt of the txid has been there: R9's column b = s


def decide_step(where: str, kind: StateKind, fence: Fence, assignment: Assignment, committed: int | None) -> Step:
    """What this attempt does, under the fence's lock. `where` names the state in errors; `committed` is the txid that the
    ledger last committed there.

    Raises StateAhead for a later txid in the warehouse, TakenBack for the attempt that was taken back there, StaleAttempt
    for another that is not above the fence, TerminalError when the warehouse was set back.
    """
    attempt = assignment.attempt
    check_not_set_back(where, fence, committed)
    if fence.txid > attempt.txid:
        raise StateAhead(
            f"{where} is already at txid {fence.txid}, the batch is txid {attempt.txid}: the ledger was set back, or a newer "
            "attempt has gone on; nothing was changed there"
        )
    if fence.txid < attempt.txid:
        return Step.APPLY
    if fence.applied(attempt.txid) and (fence.attempt, fence.token) == (attempt, assignment.token):
        return Step.DONE
    if fence.attempt == attempt and fence.status is ApartStatus.TAKEN_BACK:
        raise TakenBack(
            f"{where} has taken back attempt {attempt}, which may change nothing there any more; emit again"
        )
    if fence.attempt_id >= attempt.attempt_id:
        raise StaleAttempt(
            f"{where} has {fence.status.replace('_', ' ')} attempt {fence.attempt}: attempt {attempt} may change nothing "
            "there; emit again (clear the task emit_batch), or abort the batch"
        )
    replay = fence.status is ApartStatus.APPLIED and kind is not StateKind.NON_TRANSACTIONAL
    return Step.REPLAY if replay else Step.APPLY


def check_not_set_back(where: str, fence: Fence, committed: int | None) -> None:
    """TerminalError when the warehouse knows less than what the ledger has committed there."""
    if committed is not None and fence.txid <= committed and not fence.applied(committed):
        raise TerminalError(
            f"{where} is at txid {fence.txid}, but the ledger has committed txid {committed} there: the database was set "
            "back; restore it to a later time, or drop the topology and run it again from the start"
        )


def check_same_partials(where: str, fence: Fence, attempt: TransactionAttempt, digest: str | None) -> None:
    """A replay into a transactional state must bring what is there already; TerminalError when it does not."""
    if digest != fence.digest:
        raise TerminalError(
            f"{where} holds what attempt {fence.attempt} brought, attempt {attempt} brings something else: the source or the "
            "job changed under its txid; put it back as it was and emit again"
        )


def decide_take_back(where: str, kind: StateKind, fence: Fence, newest: TransactionAttempt) -> Fence | None:
    """The fence after an abort of the batch whose newest attempt this is; None: leave all as it is.

    No attempt of the batch can write there any more. HalfCommitted when rows are there that cannot be taken back.
    """
    if fence.txid > newest.txid:
        return None
    if fence.applied(newest.txid) and kind is StateKind.TRANSACTIONAL and fence.digest is not None:
        raise HalfCommitted(
            f"{where} has applied attempt {fence.attempt}, and a transactional state keeps nothing to go back to: the batch "
            "cannot be aborted; commit it (clear the task commit, or `txbatch run`)"
        )
    last = max(newest, fence.attempt)
    return Fence(last.txid, last.attempt_id, status=ApartStatus.TAKEN_BACK)


def decide_skip(where: str, kind: StateKind, fence: Fence, turn: TransactionAttempt) -> Fence | None:
    """The fence before records are given up that the batch whose `turn` it is may have planned anew; None: as it is.

    That batch will then no longer continue what is committed, and must not be half committed where nothing can be taken
    back: HalfCommitted when it is; else its attempts are kept out, also those on their way.
    """
    if kind is not StateKind.TRANSACTIONAL or fence.txid > turn.txid or not turn.attempt_id:
        return None
    if fence.applied(turn.txid) and fence.digest is not None:
        raise HalfCommitted(
            f"{where} has applied txid {turn.txid}, whose commit did not end: commit it before an earlier txid is given up"
        )
    return decide_take_back(where, kind, fence, turn)
