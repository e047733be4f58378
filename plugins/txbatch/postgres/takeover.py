"""A batch's row, locked; if need be by ending the session of an older commit that holds it and does not go on (R5)."""

from __future__ import annotations

import hashlib
import logging

from sqlalchemy import Connection, RowMapping
from sqlalchemy.exc import OperationalError

from txbatch.core.errors import LeaseHeld, TransientError, Unavailable
from txbatch.core.transaction import Batch, Run, TransactionAttempt
from txbatch.postgres.queries import query

log = logging.getLogger(__name__)
# So long a commit of the batch may hold its row; then its own run ends it, and so does anyone once its lease is over.
PATIENCE_SECONDS = 10
# So long others wait for it then, while its lease lives.
WAIT_SECONDS = 60
_NAME_BYTES_MAX = 63
_LOCK_NOT_AVAILABLE = "55P03"


def commit_name(topology: str, attempt: TransactionAttempt) -> str:
    """The application_name of a session while it commits this attempt."""
    name = f"txbatch commit {topology} {attempt}"
    if len(name.encode()) > _NAME_BYTES_MAX:
        name = f"txbatch commit {hashlib.sha256(topology.encode()).hexdigest()[:16]} {attempt}"
    return name


def say_commit(connection: Connection, batch: Batch) -> None:
    """Let others see, until the transaction ends, whose commit this session is at work on."""
    connection.execute(query("set_application_name"), {"name": commit_name(batch.topology, batch.attempt)})


def locked_row(connection: Connection, topology: str, txid: int, run: Run | None) -> RowMapping | None:
    """The batch's row, locked; None when there is no such batch.

    Where an older commit of this very batch holds it for longer than PATIENCE_SECONDS, its session is ended by the run that
    it belongs to, and by anyone when its lease is over; else LeaseHeld after WAIT_SECONDS. Unavailable when it is held by
    someone else for so long.
    """
    try:
        return _lock(connection, topology, txid, PATIENCE_SECONDS)
    except Locked:
        held_by = _end_commit(connection, topology, txid, run)
    try:
        return _lock(connection, topology, txid, WAIT_SECONDS)
    except Locked:
        raise held_by from None


class Locked(Exception):
    """The row was not free in time."""


def _lock(connection: Connection, topology: str, txid: int, seconds: float) -> RowMapping | None:
    connection.exec_driver_sql(f"SAVEPOINT unlocked; SET LOCAL lock_timeout = '{seconds}s'")
    try:
        row = connection.execute(query("lock_batch"), {"topology": topology, "txid": txid}).mappings().first()
    except OperationalError as error:
        if getattr(error.orig, "pgcode", None) != _LOCK_NOT_AVAILABLE:
            raise
        connection.exec_driver_sql("ROLLBACK TO unlocked; RELEASE unlocked")
        raise Locked from error
    connection.exec_driver_sql("SET LOCAL lock_timeout TO DEFAULT; RELEASE unlocked")
    return row


def _end_commit(connection: Connection, topology: str, txid: int, run: Run | None) -> TransientError:
    """End the one session that commits the batch's newest attempt and waits for nobody, if that may be done.

    Returns what is to be told if the row does not become free.
    """
    batch = connection.execute(query("batch"), {"topology": topology, "txid": txid}).mappings().one()
    attempt = TransactionAttempt(txid, batch["fence"])
    if batch["lease_live"] and (run is None or run.name != batch["lease_run"]):
        return LeaseHeld(
            f"{topology}: attempt {attempt} of {batch['lease_run']} is being committed; wait until it ends"
        )
    for ended in connection.execute(query("terminate_commit"), {"name": commit_name(topology, attempt)}):
        log.warning("%s: ended the session %s, a commit of %s that did not go on", topology, ended.pid, attempt)
    return Unavailable(f"{topology}: txid {txid} stays locked; see pg_stat_activity for who holds it, and try again")
