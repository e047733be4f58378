"""Why an attempt failed: the attempt's folder often has more to say than the exit of the process."""

from __future__ import annotations

from txbatch.core.batch.staging import AttemptFolder
from txbatch.core.batch.transaction import Assignment
from txbatch.core.errors import (
    EmissionFailed,
    NewerFormat,
    StaleAttempt,
    TransientError,
    TxbatchError,
    Unexpected,
    error_of,
)
from txbatch.core.protocol import advice


def failure_of(folder: AttemptFolder, assignment: Assignment, error: Exception) -> Exception:
    """Return the reason of an attempt's failure: a newer attempt, the error written by the job itself, or `error`."""
    return _superseded(folder, assignment) or _said_by_job(folder, assignment, error)


def _superseded(folder: AttemptFolder, assignment: Assignment) -> StaleAttempt | None:
    """Return the error with the name of the newer attempt, if a newer attempt ended this attempt's driver."""
    try:
        newer = folder.read_heartbeat().superseded
    except (TransientError, NewerFormat):
        return None
    what = f"{assignment.topology} {assignment.attempt}: {newer} took its place; nothing was changed"
    return StaleAttempt(what) if newer else None


def _said_by_job(folder: AttemptFolder, assignment: Assignment, error: Exception) -> Exception:
    """Return the error written by the job itself: the exit code of spark-submit says less."""
    try:
        said = folder.read_error()
    except NewerFormat:
        return error
    if said is None or (isinstance(error, TxbatchError) and not isinstance(error, TransientError)):
        return error
    message = advice.of_open(said["message"], assignment.topology, assignment.attempt.txid)
    return error_of(message, Unexpected if said["kind"] == "terminal" else EmissionFailed)
