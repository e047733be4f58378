"""One transaction. If PostgreSQL refuses COMMIT, the transaction is undone. If the answer is lost, the outcome is unknown.

A process killed before COMMIT is sent needs no decision: PostgreSQL undoes the transaction when the session ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg2
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from txbatch.core.errors import OutcomeUnknown, TxbatchError
from txbatch.postgres.database.driver_errors import translate


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """Context manager. Run one transaction. Raise txbatch errors; OutcomeUnknown if the answer to COMMIT is lost (R10)."""
    committing, session = False, None
    try:
        with engine.connect() as connection:
            session = connection.connection.dbapi_connection
            begun = connection.begin()
            try:
                yield connection
            except BaseException:
                if not connection.closed and not connection.invalidated:
                    begun.rollback()
                raise
            committing = True
            begun.commit()
    except DBAPIError as error:
        raise _translated(error.orig, committing, _warehouse(engine, session, error.orig)) from error
    except psycopg2.Error as error:
        raise _translated(error, committing, _warehouse(engine, session, error)) from error


def outcome_unknown(code: str | None, severity: str | None = None) -> bool:
    """True if an error of COMMIT leaves open whether the transaction was committed; `code` is the SQLSTATE (R10).

    Without a code, the connection broke, perhaps before COMMIT was sent. Codes of class 08 tell of a broken connection, codes
    of class 57 of a query that was cancelled or a session or server that was ended, and a PANIC of a server that fell: the log
    may have the COMMIT. By
    any other error, PostgreSQL has answered that the transaction is undone.
    """
    return code is None or code.startswith(("08", "57")) or severity == "PANIC"


def _translated(error: BaseException | None, committing: bool, warehouse: str | None) -> TxbatchError:
    """Return the error to raise in place of the driver's error.

    The next try finds out what happened: in the ledger behind the lock of the batch's row, which a COMMIT under way still
    holds; in a warehouse by the state's last writer (R21).
    """
    severity = getattr(getattr(error, "diag", None), "severity_nonlocalized", None)
    if not committing or not outcome_unknown(getattr(error, "pgcode", None), severity):
        return translate(error, warehouse)
    where = f" in database {warehouse!r}" if warehouse else ""
    return OutcomeUnknown(
        f"outcome unknown: the answer to COMMIT{where} was lost; try again: the next try finds out whether it happened"
    )


def _warehouse(engine: Engine, session: object, error: object) -> str | None:
    """Return the warehouse whose session raised an error, or None.

    The block of a warehouse is inside the block of the ledger, and asks the ledger too: an error of the ledger's session may
    come through the warehouse's block first.
    """
    cursor = getattr(error, "cursor", None)
    of_this_block = cursor is None or cursor.connection is session
    return engine.get_execution_options().get("warehouse") if of_this_block else None
