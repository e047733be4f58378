"""The preview of a restate: replace a version's contributions in temporary tables only, beside the ledger (R17)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Connection, Engine

from txbatch.core.corrections.verify import Again, Compared
from txbatch.core.definition.stored import StoredTopology
from txbatch.core.protocol.restate import PositionVersion
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.topology.topology import Topology
from txbatch.postgres.corrections.verify import compared
from txbatch.postgres.database.engine import execute
from txbatch.postgres.database.expressions import listed
from txbatch.postgres.database.generations import CURRENT, Generation
from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.state import python_merge
from txbatch.postgres.state.folds import Folds
from txbatch.postgres.state.statements import StateStatements, statements_of
from txbatch.postgres.state.writer import StateWriter
from txbatch.postgres.tables import definitions

OF_STATE = "SELECT {columns} FROM {state} JOIN {touched} USING ({keys})"


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of a restate on a state: the number of keys to fold again, the number of changed rows, and some changed rows."""

    compared: Compared
    touched: int
    rows_after: int


@dataclass(frozen=True, slots=True)
class _Beside(Generation):
    """The current generation, with contributions in a temporary table."""

    table: str = ""

    def contribution(self, name: str) -> str:
        """Return the temporary table."""
        return f"pg_temp.{self.table}"


@dataclass(frozen=True, slots=True)
class _Corrected(Folds):
    """The folds of a state in which the temporary table replaces a version's contributions."""

    beside: str = ""
    replaced: int = 0

    @property
    def contribution(self) -> str:
        """All contributions, stored or not."""
        names = [*self.keys, *self.values, "txid", *(["removed", "counted", "position"] if self.removable else [])]
        both = (CURRENT.contribution(self.state), self.beside)
        return f"({' UNION ALL '.join(f'SELECT {listed(names)} FROM {each}' for each in both)}) both_versions"

    def _replaced(self, when: str = "IS NOT NULL") -> str:
        return f"ARRAY[{self.replaced:d}::bigint] || {super(_Corrected, self)._replaced(when)}"


def effects(engine: Engine, topology: Topology, version: PositionVersion, again: Again) -> Iterator[Effect]:
    """Yield the effect on each state if `again` were counted in the version's place. Store nothing."""
    partials = again.partials()
    with transaction(engine.execution_options(isolation_level="REPEATABLE READ")) as connection:
        known = definitions.known(connection, topology)
        for number, aggregate in enumerate(topology.aggregates):
            name, beside = aggregate.state.name, _Beside(table=f"counted_{number}")
            statements = statements_of(aggregate, f"again_{number}", beside)
            StateWriter(connection, statements, again.assignment).load(partials[name], again.manifest.states[name])
            _contribute(connection, statements, version, known)
            yield _effect(connection, statements, version.current.txid)


def _contribute(
    connection: Connection, statements: StateStatements, version: PositionVersion, known: StoredTopology
) -> None:
    """Put the new partials into a temporary table, as the contributions of a restate."""
    aggregate, position = statements.aggregate, version.asked.position
    name, stored = aggregate.state.name, known.states[aggregate.state.name]
    table = f"CREATE TEMP TABLE {statements.contribution.partition('.')[2]} (LIKE {CURRENT.contribution(name)}) ON COMMIT DROP"
    execute(connection, table)
    if position >= stored.joined:
        uncounted = stored.uncounted(aggregate, position)
        execute(connection, statements.contribute(2**63 - 1, position, uncounted))  # above every txid


def _effect(connection: Connection, statements: StateStatements, replaced: int) -> Effect:
    aggregate, keys = statements.aggregate, listed(statements.keys)
    stored = CURRENT.contribution(aggregate.state.name)
    of_both = (
        f"SELECT {keys} FROM {stored} WHERE txid = {replaced:d} UNION SELECT {keys} FROM {statements.contribution}"
    )
    execute(connection, f"CREATE TEMP TABLE touched ON COMMIT DROP AS {of_both}")
    folds = _folds(aggregate, statements.contribution, replaced)
    after = python_merge.fold_in_python(connection, statements, folds, "pg_temp.touched")
    columns = listed([*statements.keys, *statements.values])
    before = OF_STATE.format(
        columns=columns, state=CURRENT.state(aggregate.state.name), touched="pg_temp.touched", keys=keys
    )
    found = compared(connection, statements, aggregate.columns, before, after)
    touched, rows = execute(
        connection, f"SELECT (SELECT count(*) FROM pg_temp.touched), (SELECT count(*) FROM ({after}) after)"
    ).fetchone()
    execute(connection, "DROP TABLE pg_temp.touched")
    return Effect(found, int(touched), int(rows))


def _folds(aggregate: PersistentAggregate, beside: str, replaced: int) -> _Corrected:
    own = Folds.of(aggregate)
    return _Corrected(own.topology, own.state, own.stored, own.own, own.generation, beside, replaced)
