"""Lock a batch's row; if a stalled commit of the same batch holds the row, end the commit's session (R5).

A commit holds the row with the lease, and cannot renew the lease. The commit's session shows life instead: the session works,
or has gone on between two looks. A session inside COMMIT works, and is left alone: the row is free when COMMIT is done. A session
that sends COMMIT between the second look and its end may be ended: the outcome is unknown to its client, and the row tells.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg2
from sqlalchemy import Connection, RowMapping
from sqlalchemy.exc import OperationalError

from txbatch.core.batch.transaction import Batch, Run, TransactionAttempt
from txbatch.core.errors import LeaseHeld, TransientError, Unavailable
from txbatch.core.protocol.ports import repeat
from txbatch.postgres.database.queries import query

log = logging.getLogger(__name__)
# Seconds a commit may hold the batch's row before anybody looks at its session, and seconds that must then stand still to be
# ended: by its own run, or by anyone once the lease has expired.
PATIENCE_SECONDS = 10
# Seconds to wait for the row then.
WAIT_SECONDS = 60
# Seconds between two signs of life, in the ledger's session, of a commit that waits for a warehouse.
BEAT_SECONDS = 2.0
_NAME_BYTES_MAX = 63
_LOCK_NOT_AVAILABLE = "55P03"


def commit_name(topology: str, attempt: TransactionAttempt) -> str:
    """Return the application_name of a session during the commit of an attempt."""
    name = f"txbatch commit {topology} {attempt}"
    if len(name.encode()) > _NAME_BYTES_MAX:
        name = f"txbatch commit {hashlib.sha256(topology.encode()).hexdigest()[:16]} {attempt}"
    return name


def share_topology(connection: Connection, committing: Batch) -> None:
    """Lock the topology's row FOR KEY SHARE: the first lock of each commit, before the batch's (R1, R23).

    Only the swap of a rebuild is kept out: no plan, and no change of the definition, which checks for open batches by itself.
    Until the transaction ends, the session shows the attempt it commits.
    """
    of = {"topology": committing.topology, "name": commit_name(committing.topology, committing.attempt)}
    connection.execute(query("share_topology"), of)


@contextmanager
def beating(connection: Connection) -> Iterator[None]:
    """Context manager. Show in the otherwise idle session that the process is alive."""
    cursor = connection.connection.cursor()

    def beat() -> None:
        with suppress(psycopg2.Error):  # whoever needs the session next finds that it is gone
            cursor.execute("SELECT")

    with repeat(beat, seconds=BEAT_SECONDS, name="txbatch beat"):
        yield


def locked_row(connection: Connection, topology: str, txid: int, run: Run | None) -> RowMapping | None:
    """Return the batch's row, locked, or None if there is no batch.

    If an older commit of the same batch holds the row for longer than PATIENCE_SECONDS, and then stands still for as long,
    the commit's session is ended: by the commit's own run, or by any run if the lease has expired. After WAIT_SECONDS, raise
    LeaseHeld if a session of the commit is there, Unavailable if not: another session holds the row.
    """
    free = connection.execute(query("lock_free_batch"), {"topology": topology, "txid": txid}).mappings().first()
    if free is not None:
        return free
    commit = _Commit(connection, topology, txid, run)
    for seconds, look in ((PATIENCE_SECONDS, commit.look), (PATIENCE_SECONDS, commit.end), (WAIT_SECONDS, None)):
        try:
            return _lock(connection, topology, txid, seconds)
        except Locked:
            if look is not None:
                look()
    raise commit.held()


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


class _Commit:
    """The commit of a batch's newest attempt, as shown by the commit's session to another session waiting for the row."""

    def __init__(self, connection: Connection, topology: str, txid: int, run: Run | None) -> None:
        self.connection, self.topology, self.txid, self.run = connection, topology, txid, run
        self.seen: set[tuple[object, ...]] = set()

    def look(self) -> None:
        """Remember how far the commit's session has come."""
        self.seen = set(self._standing())

    def end(self) -> None:
        """End the commit's session if permitted, and if the session has not gone on since the last look."""
        batch = self._batch()
        if batch["lease_live"] and (self.run is None or self.run.name != batch["lease_run"]):
            return
        still = [session[0] for session in self._standing() if session in self.seen]
        for ended in self.connection.execute(query("terminate_sessions"), {"name": self._name(), "pids": still}):
            log.warning("%s: ended the session %s, a commit that did not go on", self._name(), ended.pid)

    def held(self) -> TransientError:
        """Return the error to raise if the row stays locked."""
        batch = self._batch()
        topology, txid, name = batch["topology"], batch["txid"], self._name()
        if self.connection.execute(query("commit_sessions"), {"name": name}).first() is not None:
            attempt = TransactionAttempt(txid, batch["fence"])
            return LeaseHeld(
                f"{topology}: attempt {attempt} of {batch['lease_run']} is being committed; wait until it ends"
            )
        return Unavailable(
            f"{topology}: txid {txid} stays locked; see pg_stat_activity for who holds it, and try again"
        )

    def _standing(self) -> list[tuple[object, ...]]:
        """Return the sessions that neither work nor wait for another session, with how far they have come."""
        self.connection.execute(query("look_again"))
        rows = self.connection.execute(query("commit_sessions"), {"name": self._name()})
        return [tuple(row)[:-1] for row in rows if not row.works]

    def _batch(self) -> RowMapping:
        ids = {"topology": self.topology, "txid": self.txid}
        return self.connection.execute(query("batch"), ids).mappings().one()

    def _name(self) -> str:
        return commit_name(self.topology, TransactionAttempt(self.txid, self._batch()["fence"]))
