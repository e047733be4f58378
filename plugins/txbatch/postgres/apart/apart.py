"""States apart (R21), in one transaction of their database. `postgres.apart.warehouses` decides when.

The row of `txbatch.apart` names the state's last writer: the row is locked before the state's rows are touched, and written
with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, RowMapping

from txbatch.core.batch.apart import (
    ApartStatus,
    Apply,
    LastWriter,
    LedgerView,
    check_same_partials,
    decide_apply,
    decide_skip,
    decide_take_back,
)
from txbatch.core.batch.manifest import StagedState
from txbatch.core.batch.transaction import Assignment, Batch
from txbatch.core.definition.changes import column_changes
from txbatch.core.definition.checks import way_out
from txbatch.core.definition.stored import columns
from txbatch.core.errors import DatabasesDisagree, SchemaMismatch
from txbatch.core.state.state import StateKind
from txbatch.core.stored_json import canonical_json
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.postgres.database.engine import execute, run_all
from txbatch.postgres.database.expressions import pg_name
from txbatch.postgres.database.queries import query
from txbatch.postgres.database.warehouse_migrations import migrate_warehouse
from txbatch.postgres.schema import report_views
from txbatch.postgres.state.statements import StateStatements, statements_of
from txbatch.postgres.state.take_back import RESTORED_MARKS, take_back
from txbatch.postgres.state.writer import ApartWriter, OpaqueReplay, StateWriter, TransactionalReplay


@dataclass(frozen=True, slots=True)
class StateApart:
    """A state in another database than the ledger's; `stored` is the state's row of `txbatch.apart`, locked."""

    connection: Connection
    database: str
    stored: RowMapping

    @property
    def name(self) -> str:
        """The name of the state and its database, for errors."""
        return where(self.stored["state"], self.database)

    @property
    def kind(self) -> StateKind:
        """The state's kind."""
        return StateKind(self.stored["kind"])

    @property
    def last(self) -> LastWriter:
        """The attempt that wrote last."""
        return last_writer(self.stored)

    def apply(
        self,
        statements: StateStatements,
        assignment: Assignment,
        ledger: LedgerView,
        partials: Any,
        staged: StagedState,
    ) -> None:
        """Apply one attempt by R9, as far as the last writer and the `ledger`'s view allow."""
        step = decide_apply(self.name, self.kind, self.last, assignment, ledger)
        if step is Apply.DONE:
            return
        writer = _writer(step, self.kind)(self.connection, statements, assignment)
        staged_rows = writer.load(partials, staged)
        digest = self._digest(statements, assignment, step) if self.kind is StateKind.TRANSACTIONAL else None
        writer.apply(staged_rows)
        attempt = assignment.attempt
        self._set(LastWriter(attempt.txid, attempt.attempt_id, assignment.token, digest, ApartStatus.APPLIED))

    def take_back(self, batch: Batch) -> None:
        """Undo the writes of an uncommitted batch's attempts, and keep the attempts out from now on (R16)."""
        after = decide_take_back(self.name, self.kind, self.last, batch.attempt)
        if after is None:
            return
        if self.last.applied(batch.txid) and self.kind is StateKind.OPAQUE:
            defined = self.stored["columns"]
            values, also = [name for name, *_ in defined["values"]], RESTORED_MARKS if "remove" in defined else ()
            for statement in take_back(self.stored["state"], values, batch.txid, also):
                execute(self.connection, statement)
        self._set(after)

    def prepare_skip(self, turn: Batch) -> None:
        """Keep out the attempts of the batch in `turn`, if necessary: see `core.batch.apart.decide_skip`."""
        after = decide_skip(self.name, self.kind, self.last, turn.attempt)
        if after is not None:
            self._set(after)

    def _digest(self, statements: StateStatements, assignment: Assignment, step: Apply) -> str | None:
        found: str | None = execute(self.connection, statements.digest()).fetchone()[0]
        if step is Apply.REPLAY:
            check_same_partials(self.name, self.last, assignment.attempt, found)
        return found

    def _set(self, last: LastWriter) -> None:
        values = {"txid": last.txid, "attempt_id": last.attempt_id, "token": last.token, "digest": last.digest}
        row = {"state": self.stored["state"], "status": str(last.status), **values}
        self.connection.execute(query("set_last_writer"), row)


def _writer(step: Apply, kind: StateKind) -> type[StateWriter]:
    if step is not Apply.REPLAY:
        return ApartWriter
    return OpaqueReplay if kind is StateKind.OPAQUE else TransactionalReplay


def ensure(connection: Connection, ledger: str, topology: str, aggregate: PersistentAggregate, *, new: bool) -> None:
    """Create a state that is `new` to the ledger, or check the state against its definition; then show the state.

    Raise SchemaMismatch if the state is missing or has another definition.
    """
    state = aggregate.state
    migrate_warehouse(connection, create=new)
    if new and _create(connection, ledger, aggregate):
        run_all(connection, report_views.statements(connection, aggregate))
        return
    last = check(connection, ledger, topology, aggregate).last
    # One that an earlier version moved here, in a call that was cut off, is not shown yet.
    shown = connection.execute(query("relation_exists"), {"name": f"report.{pg_name(state.name)}"}).scalar_one()
    make = report_views.missing if shown else report_views.statements
    run_all(connection, make(connection, aggregate))
    if new and last.txid:
        raise SchemaMismatch(
            f"{where(state.name, state.database)} is at txid {last.txid}, though it is new to the ledger: `txbatch drop "
            f"{topology} --database {state.database}` removes it there"
        )


def _create(connection: Connection, ledger: str, aggregate: PersistentAggregate) -> bool:
    """Create a state's table and store the state's owner. Return False if a state of the same name exists."""
    state, as_json = aggregate.state, canonical_json(columns(aggregate))
    row = {"state": state.name, "topology": aggregate.topology, "ledger": ledger, "kind": str(state.kind)}
    if connection.execute(query("insert_apart"), {**row, "columns": as_json}).first() is None:
        return False
    execute(connection, statements_of(aggregate).create_state())
    return True


def check(connection: Connection, ledger: str, topology: str, aggregate: PersistentAggregate) -> StateApart:
    """Return the state, with its row locked. Raise the errors of `owned`, SchemaMismatch for another shape."""
    state = aggregate.state
    there = owned(connection, state.name, str(state.database), ledger, topology)
    found = [f"the kind changes from {there.kind} to {state.kind}"] if there.kind != state.kind else []
    found += column_changes(state.name, there.stored["columns"], columns(aggregate))
    if found:
        raise SchemaMismatch(
            f"{there.name} is defined otherwise now: {'; '.join(found)}. {way_out(topology, apart=True)}"
        )
    return there


def owned(connection: Connection, state: str, database: str, ledger: str, topology: str) -> StateApart:
    """Return a state in the ledger, with the state's row locked.

    Raise DatabasesDisagree if the state is missing, SchemaMismatch if it belongs to another topology or ledger.
    """
    known = connection.execute(query("has_apart")).scalar_one()
    stored = connection.execute(query("lock_apart"), {"state": state}).mappings().first() if known else None
    if stored is None:
        raise DatabasesDisagree(
            f"{where(state, database)} is gone, though the ledger knows it: restore that database to a time after the last "
            "batch, and run again; or drop the topology and run it again from the start"
        )
    if stored["topology"] != topology:
        raise SchemaMismatch(
            f"{where(state, database)} belongs to topology {stored['topology']!r}; name another state, or, if topology "
            f"{stored['topology']!r} is gone, drop its tables there: `txbatch drop {stored['topology']} --database {database}`"
        )
    if stored["ledger"] != ledger:
        raise SchemaMismatch(
            f"{where(state, database)} belongs to another ledger, {stored['ledger']}: use that one or name another state; if "
            f"it is lost for good, `txbatch drop {topology} --database {database} --ledger {stored['ledger']}` drops that"
        )
    return StateApart(connection, database, stored)


def peek(connection: Connection, state: str) -> LastWriter:
    """Return the last writer of a state as of now, without a lock."""
    known = connection.execute(query("has_apart")).scalar_one()
    stored = connection.execute(query("apart"), {"state": state}).mappings().first() if known else None
    return last_writer(stored) if stored else LastWriter()


def where(state: str, database: str | None) -> str:
    """Return the name of a state apart and its database, for errors."""
    return f"state {state!r} in database {database!r}"


def last_writer(stored: RowMapping) -> LastWriter:
    """Return the last writer in a state's row."""
    status = ApartStatus(stored["status"])
    return LastWriter(stored["txid"], stored["attempt_id"], stored["token"], stored["digest"], status)


def owners(connection: Connection, topology: str) -> list[RowMapping]:
    """Return the ledgers that have states of a topology here: `ledger`, `states`, and `txid`, the newest txid."""
    if not connection.execute(query("has_apart")).scalar_one():
        return []
    return list(connection.execute(query("apart_owners"), {"topology": topology}).mappings())


def drop(connection: Connection, topology: str, ledger: str, only: str | None = None) -> list[str]:
    """Drop the states apart that a topology of the ledger has here, or only the state `only`; return the names."""
    if not connection.execute(query("has_apart")).scalar_one():
        return []
    found = connection.execute(query("apart_of"), {"topology": topology, "ledger": ledger}).scalars()
    names = [name for name in found if only in (None, name)]
    for name in names:
        drop_state(connection, name)
    return names


def drop_state(connection: Connection, name: str) -> None:
    """Drop a state here, with its row in `txbatch.apart`."""
    run_all(connection, report_views.drop_functions(connection, name))
    execute(connection, f"DROP VIEW IF EXISTS report.{pg_name(name)}")
    execute(connection, f"DROP TABLE IF EXISTS state.{pg_name(name)}")
    connection.execute(query("forget_apart"), {"state": name})
