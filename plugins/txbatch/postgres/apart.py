"""States apart (R21), in one transaction of the database that holds them. `postgres.warehouses` says when.

The row of `txbatch.apart` is the state's fence: locked before its rows are touched, and written with them.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, RowMapping

from txbatch.core.apart import (
    ApartStatus,
    Fence,
    Step,
    check_same_partials,
    decide_skip,
    decide_step,
    decide_take_back,
)
from txbatch.core.definition import column_changes, columns, way_out
from txbatch.core.errors import SchemaMismatch
from txbatch.core.manifest import StagedState
from txbatch.core.persistent_aggregate import PersistentAggregate
from txbatch.core.state import StateKind
from txbatch.core.transaction import Assignment, Batch, canonical_json
from txbatch.postgres import commit, report_views
from txbatch.postgres.expressions import pg_name
from txbatch.postgres.queries import query
from txbatch.postgres.state_tables import execute
from txbatch.postgres.statements import StateStatements, take_back
from txbatch.postgres.warehouse_migrations import migrate_warehouse


def ensure(connection: Connection, ledger: str, topology: str, aggregate: PersistentAggregate, *, new: bool) -> None:
    """Create a state that is `new` to the ledger, or check that it is there as now defined (SchemaMismatch)."""
    state = aggregate.state
    row = {"state": state.name, "topology": topology, "ledger": ledger, "kind": str(state.kind)}
    migrate_warehouse(connection, create=new)
    if new:
        as_json = canonical_json(columns(aggregate))
        if connection.execute(query("insert_apart"), {**row, "columns": as_json}).first() is not None:
            statements = StateStatements(aggregate)
            for statement in (statements.create_state(), *report_views.statements(connection, aggregate)):
                execute(connection, statement)
            return
    fence = fence_of(check(connection, ledger, topology, aggregate))
    if new and fence.txid:
        raise SchemaMismatch(
            f"{where(state.name, state.database)} is at txid {fence.txid}, though it is new to the ledger: `txbatch drop "
            f"{topology} --database {state.database}` removes it there"
        )


def check(connection: Connection, ledger: str, topology: str, aggregate: PersistentAggregate) -> RowMapping:
    """The state's row, locked. SchemaMismatch when it is not there, not ours, or of another shape."""
    state = aggregate.state
    stored = owned(connection, state.name, str(state.database), ledger, topology)
    there, name = where(state.name, state.database), state.name
    found = [f"it is {state.kind} now, was {stored['kind']}"] if stored["kind"] != state.kind else []
    found += column_changes(name, stored["columns"], columns(aggregate))
    if found:
        raise SchemaMismatch(f"{there} is defined otherwise now: {'; '.join(found)}. {way_out(topology)}")
    return stored


def owned(connection: Connection, state: str, database: str, ledger: str, topology: str) -> RowMapping:
    """The row of a state that the ledger knows, locked; SchemaMismatch when it is not there, or not this topology's."""
    known = connection.execute(query("has_apart")).scalar_one()
    stored = connection.execute(query("lock_apart"), {"state": state}).mappings().first() if known else None
    if stored is None:
        raise SchemaMismatch(
            f"{where(state, database)} is gone, though the ledger knows it: restore that database, or `txbatch drop "
            f"{topology} --leave-apart` and run it again from the start"
        )
    if stored["topology"] != topology:
        raise SchemaMismatch(f"{where(state, database)} belongs to topology {stored['topology']!r}; name another state")
    if stored["ledger"] != ledger:
        raise SchemaMismatch(
            f"{where(state, database)} belongs to another ledger, {stored['ledger']}: use that one or name another state; if "
            f"it is lost for good, `txbatch drop {topology} --database {database} --ledger {stored['ledger']}` drops that"
        )
    return stored


def peek(connection: Connection, state: str) -> Fence:
    """The fence of a state, as it stands, without a lock."""
    known = connection.execute(query("has_apart")).scalar_one()
    stored = connection.execute(query("apart"), {"state": state}).mappings().first() if known else None
    return fence_of(stored) if stored else Fence()


def where(state: str, database: str | None) -> str:
    """A state apart, as errors name it."""
    return f"state {state!r} in database {database!r}"


def fence_of(stored: RowMapping) -> Fence:
    """The fence that stands in a state's row."""
    status = ApartStatus(stored["status"])
    return Fence(stored["txid"], stored["attempt_id"], stored["token"], stored["digest"], status)


def apply(
    connection: Connection,
    stored: RowMapping,
    statements: StateStatements,
    assignment: Assignment,
    committed: int | None,
    partials: Any,
    staged: StagedState,
) -> None:
    """R9 for one state and one attempt, as far as its fence lets it; `committed` as in `core.apart.decide_step`."""
    state, attempt, fence = statements.aggregate.state, assignment.attempt, fence_of(stored)
    name = where(state.name, state.database)
    step = decide_step(name, state.kind, fence, assignment, committed)
    if step is Step.DONE:
        return
    loaded = commit.load(connection, statements, partials, staged, assignment)
    digest = None
    if state.kind is StateKind.TRANSACTIONAL:
        digest = execute(connection, statements.digest()).fetchone()[0]
        if step is Step.REPLAY:
            check_same_partials(name, fence, attempt, digest)
    with commit.naming(connection, statements, assignment):
        commit.apply(connection, statements, loaded, attempt.txid, apart=True, replay=step is Step.REPLAY)
    _set_fence(connection, state.name, Fence(*_ids(assignment), digest, ApartStatus.APPLIED))


def _ids(assignment: Assignment) -> tuple[int, int, str]:
    return assignment.attempt.txid, assignment.attempt.attempt_id, assignment.token


def take_back_batch(connection: Connection, stored: RowMapping, database: str, batch: Batch) -> None:
    """What attempts of an uncommitted batch wrote here is undone, and none of them can write any more (R16)."""
    kind, fence = StateKind(stored["kind"]), fence_of(stored)
    after = decide_take_back(where(stored["state"], database), kind, fence, batch.attempt)
    if after is None:
        return
    if fence.applied(batch.txid) and kind is StateKind.OPAQUE:
        values, removable = [name for name, *_ in stored["columns"]["values"]], "remove" in stored["columns"]
        for statement in take_back(stored["state"], values, batch.txid, removable=removable):
            execute(connection, statement)
    _set_fence(connection, stored["state"], after)


def prepare_skip(connection: Connection, stored: RowMapping, database: str, turn: Batch) -> None:
    """See `core.apart.decide_skip`."""
    name, kind = where(stored["state"], database), StateKind(stored["kind"])
    after = decide_skip(name, kind, fence_of(stored), turn.attempt)
    if after is not None:
        _set_fence(connection, stored["state"], after)


def _set_fence(connection: Connection, state: str, fence: Fence) -> None:
    values = {"txid": fence.txid, "attempt_id": fence.attempt_id, "token": fence.token, "digest": fence.digest}
    connection.execute(query("set_fence"), {"state": state, **values, "status": str(fence.status)})


def owners(connection: Connection, topology: str) -> list[RowMapping]:
    """Whose states a topology has here: `ledger`, `states`, and `txid`, the newest one."""
    if not connection.execute(query("has_apart")).scalar_one():
        return []
    return list(connection.execute(query("apart_owners"), {"topology": topology}).mappings())


def drop(connection: Connection, topology: str, ledger: str) -> list[str]:
    """Drop the states apart that a topology of this ledger has here; returns their names."""
    if not connection.execute(query("has_apart")).scalar_one():
        return []
    names = list(connection.execute(query("apart_of"), {"topology": topology, "ledger": ledger}).scalars())
    for name in names:
        execute(connection, f"DROP VIEW IF EXISTS report.{pg_name(name)}")
        execute(connection, f"DROP TABLE IF EXISTS state.{pg_name(name)}")
        connection.execute(query("forget_apart"), {"state": name})
    return names
