"""States apart from the ledger (R21): what an attempt may do in the warehouse, and what an abort must.

Both follow from the state's last writer, stored in the warehouse in the same transaction as the rows. The ledger's
transaction ends after the warehouse's. So an attempt or an abort may come after a crash between both, or from a process
cut off from the ledger and too late.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from txbatch.core.batch.transaction import Assignment, TransactionAttempt
from txbatch.core.errors import (
    DatabasesDisagree,
    HalfCommitted,
    StaleAttempt,
    StateAhead,
    StateDiffers,
    TakenBack,
)
from txbatch.core.state.state import StateKind


class ApartStatus(StrEnum):
    """Whether the rows of the last writer's txid are in the state."""

    APPLIED = "applied"
    TAKEN_BACK = "taken_back"


@dataclass(frozen=True, slots=True)
class LastWriter:
    """The attempt that wrote last to a state apart, and whether the rows are in the state; txid 0: no attempt yet.

    `digest` is the digest of the partials, for a transactional state with partials.
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
        """True if rows of the txid may be in the state."""
        return self.txid == txid and self.status is ApartStatus.APPLIED


@dataclass(frozen=True, slots=True)
class LedgerView:
    """The ledger's facts about a state apart: the last txid committed to the state, and whether the last writer is known."""

    committed: int | None = None
    knows_last: bool = True


class Apply(StrEnum):
    """How an attempt is applied to a state apart."""

    NEW = "new"  # the txid is new to the state: R9's column b > s
    REPLAY = "replay"  # an earlier attempt of the txid wrote to the state: R9's column b = s
    DONE = "done"  # the attempt wrote to the state; the ledger has not committed yet


def decide_apply(where: str, kind: StateKind, last: LastWriter, assignment: Assignment, ledger: LedgerView) -> Apply:
    """Decide how an attempt is applied, while the state's row is locked. `where` names the state in errors.

    Raise StateAhead if the warehouse has a later txid, TakenBack if the attempt was taken back, StaleAttempt if the attempt
    is not above the last writer. Also raise the errors of `check_not_set_back`.
    """
    attempt = assignment.attempt
    check_not_set_back(where, last, ledger)
    if last.txid > attempt.txid:
        raise StateAhead(
            f"{where} is already at txid {last.txid}, the batch is txid {attempt.txid}: a newer attempt has gone on; nothing "
            "was changed there"
        )
    if last.txid < attempt.txid:
        return Apply.NEW
    if last.applied(attempt.txid) and (last.attempt, last.token) == (attempt, assignment.token):
        return Apply.DONE
    if last.attempt_id >= attempt.attempt_id:
        raise _kept_out(where, last, attempt)
    replay = last.status is ApartStatus.APPLIED and kind is not StateKind.NON_TRANSACTIONAL
    return Apply.REPLAY if replay else Apply.NEW


def _kept_out(where: str, last: LastWriter, attempt: TransactionAttempt) -> TakenBack | StaleAttempt:
    found = f"{where} has {last.status.replace('_', ' ')} attempt {last.attempt}: attempt {attempt} may change nothing there"
    if last.status is ApartStatus.TAKEN_BACK:
        return TakenBack(f"{found}; emit again")
    return StaleAttempt(f"{found}; emit again (clear the task emit_batch), or abort the batch")


def check_not_set_back(where: str, last: LastWriter, ledger: LedgerView) -> None:
    """Raise DatabasesDisagree if the warehouse was restored to before the ledger's last commit to the state.

    Raise DatabasesDisagree if the ledger was restored to before the state's last writer: a txid may be another batch by now.
    """
    committed = ledger.committed
    if committed is not None and last.txid <= committed and not last.applied(committed):
        raise DatabasesDisagree(
            f"{where} is at txid {last.txid}, but the ledger has committed txid {committed} there: the database was set "
            "back; restore it to a later time, or drop the topology and run it again from the start"
        )
    if not ledger.knows_last:
        raise DatabasesDisagree(
            f"{where} holds attempt {last.attempt}, which the ledger does not know: the ledger was set back; restore both "
            "databases to the same time, or drop the topology and run it again from the start"
        )


def check_same_partials(where: str, last: LastWriter, attempt: TransactionAttempt, digest: str | None) -> None:
    """Raise StateDiffers if a replay brings other partials than a transactional state has."""
    if digest != last.digest:
        raise StateDiffers(
            f"{where} holds what attempt {last.attempt} brought, attempt {attempt} brings something else: the source or the "
            "job changed under its txid; restore the source and the job, and emit again"
        )


def decide_take_back(where: str, kind: StateKind, last: LastWriter, newest: TransactionAttempt) -> LastWriter | None:
    """Return the last writer to store at the abort of the batch with the `newest` attempt; None if a later txid wrote.

    The stored writer keeps all attempts of the batch out. Raise HalfCommitted if the state has rows that cannot be taken back.
    """
    if last.txid > newest.txid:
        return None
    if last.applied(newest.txid) and kind is StateKind.TRANSACTIONAL and last.digest is not None:
        raise HalfCommitted(
            f"{where} has applied attempt {last.attempt}, and a transactional state keeps nothing to go back to: the batch "
            "cannot be aborted; commit it (clear the task commit, or `txbatch run`)"
        )
    kept_out = max(newest, last.attempt)
    return LastWriter(kept_out.txid, kept_out.attempt_id, status=ApartStatus.TAKEN_BACK)


def decide_skip(where: str, kind: StateKind, last: LastWriter, turn: TransactionAttempt) -> LastWriter | None:
    """Return the last writer to store before `skip` gives records up; None to leave the writer.

    `turn` is the newest attempt of the oldest other open batch. The other batch may have planned the same records, and then
    no longer continues the committed batches. So the other batch's attempts are kept out of a state that can give nothing back.
    Raise HalfCommitted if the other batch is applied.
    """
    if kind is not StateKind.TRANSACTIONAL or last.txid > turn.txid or not turn.attempt_id:
        return None
    if last.applied(turn.txid) and last.digest is not None:
        raise HalfCommitted(
            f"{where} has applied txid {turn.txid}, whose commit did not end: commit it before an earlier txid is given up"
        )
    return decide_take_back(where, kind, last, turn)
