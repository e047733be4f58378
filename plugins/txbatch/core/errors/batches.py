"""Errors of batches, attempts and commits (TX4..), and of states in other databases (TX5..)."""

from __future__ import annotations

from txbatch.core.errors.base import DefinitionError, TerminalError, TransientError


class UnknownName(TerminalError, code="TX401"):
    """The ledger has no topology, state, batch or attempt of that name."""


class NotItsTurn(TransientError, code="TX402"):
    """A lower txid is not final yet (R6)."""


class LeaseHeld(TransientError, code="TX403"):
    """Another live run holds this batch (R5)."""


class StaleAttempt(TerminalError, code="TX404"):
    """The attempt may not change anything (R5): a newer attempt exists, the batch is final, or the manifest is of another
    attempt.
    """


class IntervalTaken(TerminalError, code="TX405"):
    """Part of the interval belongs to another batch (R2)."""


class IntervalNotOver(TransientError, code="TX406"):
    """The interval ends in the future: some of its records do not exist yet (R2)."""


class BrokenChain(TerminalError, code="TX407"):
    """The batch does not continue what is committed; the run plans a new batch (R6)."""


class Incomplete(TerminalError, code="TX408"):
    """The staged files do not fit the plan or the manifest (R7)."""


class ReadDifferently(Incomplete, code="TX409"):
    """Two attempts of one batch read different records: the source changed under the txid."""


class StateAhead(TerminalError, code="TX410"):
    """A state row has this txid or a later one: the row was changed outside the ledger (R9)."""


class AlreadyCommitted(TerminalError, code="TX411"):
    """The batch is committed, and a committed batch stays."""


class BatchAborted(TerminalError, code="TX412"):
    """The batch was aborted and counts nothing."""


class NotEmitted(TerminalError, code="TX413"):
    """The run has no batch, no staged result or no commit yet: an earlier task must run first."""


class OtherParameters(TerminalError, code="TX414"):
    """The parameters of the run differ from the parameters in the plan of the run's batch."""


class NoInterval(DefinitionError, code="TX415"):
    """The topology reads by time, and the run has no interval."""


class CannotSkip(TerminalError, code="TX416"):
    """The records of the batch cannot be given up in this way."""


class EmissionFailed(TransientError, code="TX417"):
    """Spark ended before the batch was emitted."""


class SparkFailed(TransientError, code="TX418"):
    """Spark raised an error that txbatch has no words for."""


class FunctionFailed(TransientError, code="TX419"):
    """A Python function of the job raised. `record` is a digest of the record; empty if the fault may be in no record."""

    record = ""

    @classmethod
    def of(cls, text: str, record: str) -> FunctionFailed:
        """Return the error with the record's digest."""
        failed = cls(text)
        failed.record = record
        return failed


class TaskEnded(TransientError, code="TX420"):
    """The task was ended before the task's work was done."""


class HalfCommitted(TerminalError, code="TX501"):
    """A transactional state apart has the batch's rows and cannot give them back: commit the batch (R21)."""


class TakenBack(Incomplete, code="TX502"):
    """The rows that the newest attempt wrote to a state apart were taken back: emit again (R21)."""


class DatabasesDisagree(TerminalError, code="TX503"):
    """The ledger and a state apart, or a folder of files, do not belong together: one of the two was restored or changed."""


class NotAnotherDatabase(DefinitionError, code="TX504"):
    """A state apart cannot have this feature."""


class StateDiffers(TerminalError, code="TX505"):
    """A state apart has the rows of another attempt of the batch, and the newest attempt brings different rows."""
