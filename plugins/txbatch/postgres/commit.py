"""The commit: state rows, contributions, offsets and the batch's record change in one transaction, or not at all (R10)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import psycopg2.errors
from sqlalchemy import Connection

from txbatch import failpoints
from txbatch.core.errors import BadRecord, Incomplete, StateAhead
from txbatch.core.ledger import Committed
from txbatch.core.manifest import StagedState, check_manifest, check_states
from txbatch.core.protocol import check_commit
from txbatch.core.state import StateKind
from txbatch.core.topology import Topology
from txbatch.core.transaction import Assignment, Batch, canonical_json
from txbatch.postgres import definitions, ranges, rows
from txbatch.postgres.engine import translated
from txbatch.postgres.queries import query
from txbatch.postgres.state_tables import execute
from txbatch.postgres.statements import (
    INDEX_PROBES,
    INDEX_WALK,
    INDEX_WALK_BYTES_MAX,
    INDEX_WALK_VERSION_MIN,
    StateStatements,
)

if TYPE_CHECKING:
    from txbatch.postgres.warehouses import Warehouses

Partials = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Loaded:
    """Staged rows of one state, and the bytes they came in."""

    rows: int
    bytes: int


def commit_batch(
    connection: Connection, warehouses: Warehouses, topology: Topology, batch: Batch, loaded: Batch, partials: Partials
) -> Committed:
    """Apply the newest attempt of a batch whose row is locked; the caller commits.

    `loaded` is the batch as it was read before the partials were: they may be those of an older attempt by now (R5).
    States apart come last: what they need is committed there, in `warehouses`, when this returns (R21).
    """
    assignment, manifest = rows.newest_attempt(connection, batch)
    ids: dict[str, Any] = {"topology": batch.topology, "txid": batch.txid}
    if not check_commit(batch, loaded, *rows.order(connection, batch)) or manifest is None:
        return Committed(batch, applied=False)
    definitions.check(connection, topology)
    check_manifest(manifest, assignment)
    check_states(manifest, [aggregate.state.name for aggregate in topology.aggregates])
    here = [aggregate for aggregate in topology.aggregates if aggregate.state.database is None]
    states = {each.state.name: StateStatements(each, f"staged_{n}") for n, each in enumerate(here)}
    loaded_rows = {
        name: load(connection, statements, partials[name], manifest.states[name], assignment)
        for name, statements in states.items()
    }
    failpoints.hit("commit.loaded")
    keys = {name: staged.rows for name, staged in manifest.states.items()}
    for name, statements in states.items():
        with naming(connection, statements, assignment):
            keys[name] = apply(connection, statements, loaded_rows[name], batch.txid)
    ranges.record(connection, batch, ranges.read(manifest))
    kept = {name: staged.kept for name, staged in manifest.states.items() if staged.kept is not None}
    told = {"records": manifest.records, "keys": canonical_json(keys), "kept": canonical_json(kept) if kept else None}
    connection.execute(query("batch_committed"), {**ids, **told})
    connection.execute(query("attempt_committed"), {**ids, "attempt_id": batch.fence})
    warehouses.commit(connection, topology, assignment, manifest, partials)
    failpoints.hit("commit.before_commit")
    return Committed(rows.batch(connection, **ids), applied=True)


def load(
    connection: Connection, statements: StateStatements, batches: Any, staged: StagedState, assignment: Assignment
) -> Loaded:
    """COPY the partials into a temporary table and compare them with the manifest (R7); Incomplete when they differ."""
    from txbatch.postgres.csv_stream import copy_in  # brings Arrow, which most who know the ledger do not need

    execute(connection, statements.create_staged())
    keys = [key.name for key in statements.aggregate.keys]
    columns = keys + [each.name for each in statements.partial_columns]
    with naming(connection, statements, assignment):
        sent = copy_in(connection, statements.copy(), batches, keys, columns)
    found = execute(connection, statements.totals()).fetchone()
    expected = (str(staged.rows), *(staged.totals[column.name] for column in statements.partial_columns))
    if found != expected:
        raise Incomplete(
            f"{assignment.topology} {assignment.attempt}: state {statements.aggregate.state.name!r} was loaded as rows and "
            f"totals {found}, the manifest says {expected}; emit again"
        )
    return Loaded(staged.rows, sent)


def apply(
    connection: Connection,
    statements: StateStatements,
    loaded: Loaded,
    txid: int,
    *,
    apart: bool = False,
    replay: bool = False,
) -> int:
    """R9 for the staged partials of one state; returns the keys it had.

    `apart`: the state is not in the ledger's database; `replay`: an earlier attempt of the txid has been there (R21).
    Raises StateAhead when a row is already at this txid (unless it is a replay), or at a later one.
    """
    unchanged = replay and statements.kind is StateKind.TRANSACTIONAL
    if unchanged:
        _raise_if_ahead(connection, statements, txid, apart=True)
    if replay and statements.kind is StateKind.OPAQUE:
        for statement in statements.take_back(txid):
            execute(connection, statement)
    execute(connection, "SAVEPOINT before_state")
    loaded, changed = _merge(connection, statements, loaded, txid)
    if changed != loaded.rows and not unchanged:
        execute(connection, "ROLLBACK TO before_state")
        _raise_if_ahead(connection, statements, txid, apart=False)
        raise StateAhead(
            f"state {statements.aggregate.state.name!r}: {changed} of {loaded.rows} rows were written, a trigger or a policy "
            "kept the others: state changed outside the ledger; nothing was committed"
        )
    if statements.removable:
        execute(connection, statements.remove(txid, apart=apart))
    if statements.aggregate.state.contributions and not apart:
        execute(connection, statements.contribute(txid, txid))
    return loaded.rows


@contextmanager
def naming(connection: Connection, statements: StateStatements, assignment: Assignment) -> Iterator[None]:
    """What PostgreSQL cannot store is a BadRecord that names batch and state, and of a key that is too long the beginning."""
    where = f"{assignment.topology} {assignment.attempt}, state {statements.aggregate.state.name!r}"
    try:
        yield
    except BadRecord as error:
        raise BadRecord(f"{where}: {error}") from error
    except psycopg2.Error as error:
        problem = translated(error)
        if not isinstance(problem, BadRecord):
            raise
        told = ""
        if isinstance(error, psycopg2.errors.ProgramLimitExceeded):
            execute(connection, f"ROLLBACK TO before_state; {INDEX_PROBES}")
            start, size = execute(connection, statements.longest_key()).fetchone()
            told = f"; the longest key has {size:,} bytes and begins {start!r}: shorten it or filter it out in the job"
        raise BadRecord(f"{where}: {problem}{told}") from error


def _merge(connection: Connection, statements: StateStatements, loaded: Loaded, txid: int) -> tuple[Loaded, int]:
    """Upsert; what was loaded, one row a key, and how many rows were written."""
    try:
        return loaded, _upsert(connection, statements, loaded, txid)
    except (psycopg2.errors.CardinalityViolation, psycopg2.errors.UniqueViolation):
        execute(connection, "ROLLBACK TO before_state")
    loaded = replace(loaded, rows=_collapse(connection, statements))
    return loaded, _upsert(connection, statements, loaded, txid)


def _upsert(connection: Connection, statements: StateStatements, loaded: Loaded, txid: int) -> int:
    """R9; returns the rows that were written."""
    version = getattr(connection.connection.dbapi_connection, "server_version", 0)
    fits = len(statements.keys) == 1 and loaded.bytes <= INDEX_WALK_BYTES_MAX
    walk = fits and version >= INDEX_WALK_VERSION_MIN
    execute(connection, INDEX_WALK if walk else INDEX_PROBES)
    return int(execute(connection, statements.upsert(txid, walk=walk)).rowcount)


def _collapse(connection: Connection, statements: StateStatements) -> int:
    """Combine several staged rows of one key (R9); returns the rows left."""
    for statement in statements.collapse():
        execute(connection, statement)
    return int(execute(connection, f"SELECT count(*) FROM {statements.staged}").fetchone()[0])


def _raise_if_ahead(connection: Connection, statements: StateStatements, txid: int, *, apart: bool) -> None:
    execute(connection, INDEX_PROBES)
    ahead = execute(connection, statements.ahead(txid, apart=apart)).fetchone()
    if ahead:
        raise StateAhead(
            f"state {statements.aggregate.state.name!r}, key {ahead[1:]}: the row is at txid {ahead[0]}, the batch is txid "
            f"{txid}: state changed outside the ledger; nothing was committed"
        )
