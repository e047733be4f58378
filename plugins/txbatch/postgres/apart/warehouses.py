"""The other databases of a ledger: the order of work there, beside the ledger's own transaction (R21).

The order is always: the ledger's batch row is locked, then the warehouse's transaction begins and ends, then the ledger's
ends. A crash in between leaves the warehouse ahead. By the last writer there, the next attempt or the abort decides what to
do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, RowMapping

from txbatch import failpoints
from txbatch.core.batch.apart import LastWriter, LedgerView, check_not_set_back
from txbatch.core.batch.transaction import Assignment, Batch
from txbatch.core.errors import InvalidSetting, TxbatchError, Unavailable
from txbatch.core.protocol.commit import StatePlan
from txbatch.core.text import one_line
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.postgres.apart import apart
from txbatch.postgres.apart.apart import StateApart
from txbatch.postgres.database.engine import connect, hurry
from txbatch.postgres.database.grants import check_rights_apart
from txbatch.postgres.database.queries import query
from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.state.statements import statements_of
from txbatch.postgres.tables import batches
from txbatch.postgres.tables.batch_lock import beating


def _unknown(database: str) -> str:
    raise InvalidSetting(f"database {database!r}: no URL is known here")


class Warehouses:
    """Databases by name. `url_of` returns the URL of a database, or raises DefinitionError; it is called at the first use."""

    def __init__(self, url_of: Callable[[str], str] = _unknown, *, application_name: str = "txbatch") -> None:
        self._url_of, self._application_name = url_of, application_name
        self._engines: dict[str, Engine] = {}

    def engine(self, database: str) -> Engine:
        """Return the engine of a database."""
        if database not in self._engines:
            url = self._url_of(database)
            what = f"the URL of database {database!r}"
            self._engines[database] = connect(
                url, application_name=self._application_name, what=what, warehouse=database
            )
        return self._engines[database]

    def ensure(self, ledger: Connection, topology: str, aggregate: PersistentAggregate, *, new: bool) -> None:
        """Create a state apart that is `new` to the ledger, or check the state against its definition (SchemaMismatch)."""
        with transaction(self.engine(str(aggregate.state.database))) as connection:
            apart.ensure(connection, _identity(ledger), topology, aggregate, new=new)

    def clear(self, ledger: Connection, topology: str) -> None:
        """Drop the copies that states left behind in a warehouse, after an earlier version moved the states back.

        A left copy counts for nothing. Raise Unavailable if a copy cannot be dropped now; the topology's row is locked.
        """
        for row in ledger.execute(query("left_behind"), {"topology": topology}).mappings().all():
            try:
                with transaction(self.engine(row["database"])) as connection:
                    hurry(connection)
                    apart.drop(connection, topology, _identity(ledger), only=row["state"])
            except TxbatchError as error:
                raise Unavailable(
                    f"{apart.where(**row)} is a copy from before the state came back, and cannot be dropped: {one_line(error)}; "
                    "let that database be reached and readers of its report end, drop views made of it, and try again"
                ) from error
            ledger.execute(query("forget_left"), {"state": row["state"]})

    def commit(
        self, ledger: Connection, assignment: Assignment, there: Sequence[StatePlan], partials: Mapping[str, Any]
    ) -> None:
        """Apply an attempt to the states in other databases and commit there, while the ledger holds the batch's row.

        Raise StateAhead, StaleAttempt, TakenBack or DatabasesDisagree by the last writer; Incomplete (R7); SchemaMismatch.
        """
        if not there:
            return
        identity, topology = _identity(ledger), assignment.topology
        committed = {row["state"]: row["applied_txid"] for row in _states(ledger, topology)}
        databases = (str(each.aggregate.state.database) for each in there)
        with beating(ledger), self._all(databases, "commit.apart_committed") as connections:
            for number, each in enumerate(there):
                connection = connections[str(each.aggregate.state.database)]
                state = apart.check(connection, identity, topology, each.aggregate)
                statements = statements_of(each.aggregate, f"staged_{number}")
                view = _view(ledger, topology, state.last, committed[each.name])
                state.apply(statements, assignment, view, partials[each.name], each.staged)
            failpoints.hit("commit.apart_loaded")
            still_there(ledger)
        states = [each.name for each in there]
        ledger.execute(query("apart_committed"), {"states": states, "txid": assignment.attempt.txid})

    def take_back(self, ledger: Connection, batch: Batch) -> None:
        """Undo the writes of a batch's attempts before the batch is aborted, and keep the attempts out from now on (R16).

        Raise TerminalError if rows there cannot be taken back. While a lower txid is open, no rows can be there.
        """
        ids = batches.batch_ids(batch)
        if not batch.fence or batches.one(ledger, "neighbours", **ids)["open_before"] is not None:
            return
        with self._lock_states(ledger, batch.topology) as states:
            for state in states:
                state.take_back(batch)
            still_there(ledger)

    def prepare_skip(self, ledger: Connection, pending: Sequence[Batch]) -> None:
        """Keep the open batch whose turn it is from being half committed, before an aborted batch's records are given up.

        Raise TerminalError if the open batch is half committed: its records may include the aborted batch's. `pending` are
        the batches in flight, locked, oldest first: only the oldest batch can have rows there.
        """
        for turn in pending[:1]:
            with self._lock_states(ledger, turn.topology) as states:
                for state in states:
                    state.prepare_skip(turn)
                still_there(ledger)

    def ahead(self, ledger: Connection, topology: str) -> list[dict[str, Any]]:
        """Return the states apart that have rows of a txid not committed in the ledger, or that have a `problem`."""
        found: list[dict[str, Any]] = []
        for row in _states(ledger, topology):
            told: dict[str, Any] = {"state": row["state"], "database": row["database"]}
            try:
                with transaction(self.engine(row["database"])) as connection:
                    last = apart.peek(connection, row["state"])
                _check_not_set_back(ledger, row, last)
            except TxbatchError as error:
                found.append({**told, "problem": str(error)})
                continue
            if last.applied(last.txid) and last.txid > (row["applied_txid"] or 0):
                found.append({**told, "txid": last.txid, "attempt": str(last.attempt)})
        return found

    def drop(self, ledger: Connection, topology: str) -> None:
        """Drop the states apart that the ledger has of a topology, and the copies that returned states left behind."""
        left = ledger.execute(query("left_behind"), {"topology": topology}).mappings()
        for database in sorted({row["database"] for row in (*_states(ledger, topology), *left)}):
            self.drop_in(database, topology, _identity(ledger))

    def owners(self, database: str, topology: str) -> list[RowMapping]:
        """Return the ledgers that have states of a topology in a database: `ledger`, `states`, and `txid`, the newest txid."""
        with transaction(self.engine(database)) as connection:
            return apart.owners(connection, topology)

    def drop_in(self, database: str, topology: str, ledger: str) -> list[str]:
        """Drop the states that a topology of a ledger has in one database; return the names."""
        with transaction(self.engine(database)) as connection:
            return apart.drop(connection, topology, ledger)

    def check(self, ledger: Connection) -> str:
        """Return how many states apart are well. Raise SchemaMismatch, TerminalError or Unavailable for the first broken
        state.

        TerminalError names each missing right of the role in the first database where a right is missing.
        """
        states = list(ledger.execute(query("states_apart")).mappings())
        for database in sorted({row["database"] for row in states}):
            with transaction(self.engine(database)) as connection:
                check_rights_apart(
                    connection, database, [row["state"] for row in states if row["database"] == database]
                )
        for row in states:
            with transaction(self.engine(row["database"])) as connection:
                _well(ledger, connection, row)
        databases = ", ".join(sorted({row["database"] for row in states}))
        return f"{len(states)} states in {databases}" if states else "no states apart"

    @contextmanager
    def _lock_states(self, ledger: Connection, topology: str) -> Iterator[list[StateApart]]:
        """Context manager. Lock the states apart of a topology, in one transaction for each database."""
        found = _states(ledger, topology)
        with self._all((row["database"] for row in found), "abort.apart_committed") as connections:
            yield [_well(ledger, connections[row["database"]], row) for row in found]

    @contextmanager
    def _all(self, databases: Iterable[str], failpoint: str) -> Iterator[dict[str, Connection]]:
        """Context manager. Begin a transaction in each database. The transactions commit one after the other; an error undoes
        the rest.
        """
        with ExitStack() as stack:
            yield {
                database: stack.enter_context(_transaction(self.engine(database), failpoint))
                for database in sorted(set(databases))
            }


@contextmanager
def _transaction(engine: Engine, failpoint: str) -> Iterator[Connection]:
    """Context manager. Run one transaction, then reach the failpoint."""
    with transaction(engine) as connection:
        yield connection
    failpoints.hit(failpoint)


def _well(ledger: Connection, connection: Connection, row: RowMapping) -> StateApart:
    """Return a state apart of the ledger, with its row locked. Raise SchemaMismatch or TerminalError if the state is not as
    it was.
    """
    state = apart.owned(connection, row["state"], row["database"], _identity(ledger), row["topology"])
    _check_not_set_back(ledger, row, state.last)
    return state


def _check_not_set_back(ledger: Connection, row: RowMapping, last: LastWriter) -> None:
    view = _view(ledger, row["topology"], last, row["applied_txid"])
    check_not_set_back(apart.where(row["state"], row["database"]), last, view)


def _view(ledger: Connection, topology: str, last: LastWriter, committed: int | None) -> LedgerView:
    if last.token is None:  # nobody has written, or it is taken back
        return LedgerView(committed)
    wrote = {"topology": topology, "txid": last.txid, "attempt_id": last.attempt_id, "token": last.token}
    return LedgerView(committed, bool(ledger.execute(query("knows_attempt"), wrote).scalar_one()))


def _states(ledger: Connection, topology: str) -> list[RowMapping]:
    found = ledger.execute(query("states_of"), {"topology": topology}).mappings()
    return [row for row in found if row["database"] is not None]


def identity_of(engine: Engine) -> str:
    """Return the identity of the ledger in a database."""
    with transaction(engine) as ledger:
        return _identity(ledger)


def _identity(ledger: Connection) -> str:
    return str(ledger.execute(query("ledger")).scalar_one())


def still_there(ledger: Connection) -> None:
    """Fail if our session of the ledger is gone, and with the session all its locks. Called right before COMMIT elsewhere."""
    ledger.execute(query("clock"))
