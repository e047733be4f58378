"""Compare records read again with contributions and states (R24). The transaction is read-only: PostgreSQL refuses changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine, RowMapping

from txbatch.core.aggregates.aggregator import PartialColumn
from txbatch.core.aggregates.merge import GREATEST
from txbatch.core.batch.manifest import Manifest, ReadPartition
from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Assignment, BatchStatus, TransactionAttempt
from txbatch.core.corrections.audit import Audit
from txbatch.core.corrections.verify import (
    EXAMPLES_MAX,
    TOLERANCE,
    Compared,
    KeyDifference,
    Read,
    Recorded,
    reason_if_folded,
)
from txbatch.core.errors import BatchAborted, NotEmitted, Unverifiable
from txbatch.core.topology.persistent_aggregate import PersistentAggregate, ValueColumn
from txbatch.core.topology.topology import Topology
from txbatch.postgres.apart.warehouses import Warehouses
from txbatch.postgres.corrections import audit as auditor
from txbatch.postgres.database.engine import execute
from txbatch.postgres.database.expressions import listed, pg_name
from txbatch.postgres.database.queries import query
from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.state import python_merge
from txbatch.postgres.state.statements import StateStatements, statements_of
from txbatch.postgres.state.writer import StateWriter
from txbatch.postgres.tables import batches, definitions

READ_ONLY = "SET TRANSACTION READ ONLY"
# Beside the values of a state: which txid changed a key last.
_TXID = ValueColumn("txid", "txid", PartialColumn("", "bigint", GREATEST, ""))


@dataclass(frozen=True, slots=True)
class PostgresBooks:
    """`core.corrections.verify.Books` on a migrated database, and on the databases of states apart."""

    engine: Engine
    warehouses: Warehouses = field(default_factory=Warehouses)

    def audit(self, topology: Topology) -> Audit:
        """Return the contradictions in the ledger. The job must have the same definition as the ledger."""
        with _snapshot(self.engine) as connection:
            execute(connection, READ_ONLY)
            return auditor.audit(connection, topology)

    def current(self, topology: str) -> dict[int, bool]:
        """Return the committed positions, in order, and whether each is folded in all states.

        Raise UnknownName if the topology is unknown.
        """
        with transaction(self.engine) as connection:
            batches.topology_row(connection, topology)
            found = connection.execute(query("current_positions"), {"topology": topology})
            return {row.position: row.folded for row in found}

    def recorded(self, topology: str, txid: int) -> Recorded:
        """Return the current version of a txid's position.

        Raise UnknownName if the txid is unknown, TerminalError if the txid is not committed.
        """
        with transaction(self.engine.execution_options(isolation_level="REPEATABLE READ")) as connection:
            asked = batches.batch(connection, topology, txid)
            if asked.status is not BatchStatus.COMMITTED:
                uncounted = BatchAborted if asked.status is BatchStatus.ABORTED else NotEmitted
                raise uncounted(
                    f"{topology}: txid {txid} is {asked.status}, nothing of it counts; see `txbatch batches {topology}`"
                )
            row = batches.one(connection, "counted_versions", topology=topology, txids=[txid])
            plan, read = _planned_and_read(connection, topology, row)
        states, skipped = frozenset(row["keys"] or ()), row["kind"] == "skip"
        return Recorded(topology, row["position"], row["txid"], plan, read, states, row["code"], skipped, row["reason"])

    def foldable(self, topology: Topology, recorded: Recorded) -> list[Compared]:
        """Return the states in which the batch's contributions are folded, each with the reason."""
        with transaction(self.engine) as connection:
            return list(_folded(connection, topology, recorded).values())

    def compare(
        self, topology: Topology, recorded: Recorded, manifest: Manifest, partials: Mapping[str, Any]
    ) -> list[Compared]:
        """Compare a batch's partials with its contributions, by state. Raise Unverifiable if the batch was replaced meanwhile."""
        of = TransactionAttempt(recorded.txid, 0)
        assignment = Assignment(topology.name, of, manifest.token, recorded.plan.to_json(), manifest.code)
        with _snapshot(self.engine) as connection:
            _check_current(connection, recorded)
            why_not = _folded(connection, topology, recorded)
            counted = _counted(connection, topology, recorded)
            statements = [statements_of(aggregate, f"again_{n}") for n, (aggregate, _) in enumerate(counted)]
            for each in statements:
                name = each.aggregate.state.name
                StateWriter(connection, each, assignment).load(partials[name], manifest.states[name])
            again = [python_merge.once(connection, each) for each in statements]
            execute(connection, READ_ONLY)
            return [
                why_not.get(aggregate.state.name)
                or compared(connection, each, columns, _of_batch(each, columns, recorded.txid), once)
                for each, once, (aggregate, columns) in zip(statements, again, counted, strict=True)
            ]

    def states(self, topology: Topology) -> list[Compared]:
        """Compare each state with the total of the state's contributions, if the state has contributions."""
        with _snapshot(self.engine) as connection:
            statements = [
                statements_of(aggregate, f"state_{number}")
                for number, aggregate in enumerate(filter(_contributes, topology.aggregates))
            ]
            amounts = [python_merge.dated(connection, each) for each in statements]
            execute(connection, READ_ONLY)
            return [
                compared(connection, each, [*each.columns, _TXID], _stored(each, "txid"), dated)
                for each, dated in zip(statements, amounts, strict=True)
            ]

    def recount(self, topology: Topology, state: str, partials: Iterable[Any], newest: int) -> Compared:
        """Compare a state without contributions with the partials of all batches up to the txid `newest`."""
        from txbatch.postgres.state.copy_in import (
            copy_in,  # brings Arrow, which the command line does not need to start
        )

        aggregate = next(each for each in topology.aggregates if each.state.name == state)
        database = aggregate.state.database
        statements = statements_of(aggregate, "again")
        with transaction(self.engine) as connection:
            uncounted = definitions.known(connection, topology).states[state].uncounted(aggregate, 1)
        columns = [each for each in aggregate.columns if each.name not in uncounted]
        if not columns:
            return Compared(state, why_not="it counts since a later txid than the first, and keeps no contributions")
        engine = self.engine if database is None else self.warehouses.engine(database)
        with _snapshot(engine) as connection:
            execute(connection, statements.create_staged())
            keys = [key.name for key in aggregate.keys]
            names = [column.name for column in aggregate.partial_columns]
            copy_in(connection, statements.copy(), partials, keys, keys + names)
            once = python_merge.once(connection, statements)
            execute(connection, READ_ONLY)
            last = execute(connection, f"SELECT max(txid) FROM {statements.state}").fetchone()[0] or 0
            if last > newest:
                return Compared(state, why_not=f"txid {last} came meanwhile; verify again")
            return compared(connection, statements, columns, _stored(statements), once)

    def missing(self, topology: str) -> list[str]:
        """Return the uncounted parts: gaps between intervals, and holes that no batch has filled."""
        with transaction(self.engine) as connection:
            gaps = connection.execute(query("gaps"), {"topology": topology}).mappings()
            told = [
                " to ".join(row[end].replace(tzinfo=None).isoformat(" ", "minutes") for end in ("gap_start", "gap_end"))
                + " UTC is not counted"
                for row in gaps
            ]
            holes = connection.execute(query("unfilled_holes"), {"topology": topology}).mappings()
            hole = (
                "partition {partition!r} of stream {stream!r} could not be read in txid {txid}, and is not read since"
            )
            return [*told, *(hole.format_map(row) for row in holes)]


def _planned_and_read(connection: Connection, topology: str, row: RowMapping) -> tuple[BatchPlan, Read]:
    """Return a version's plan and read partitions: by the newest swapped rebuild that counted the version, or by the batch."""
    if (again := batches.rebuilt(topology, row)) is not None:
        return again
    ids, read = {"topology": topology, "txid": row["txid"]}, dict[str, dict[str, ReadPartition]]()
    for part in connection.execute(query("read_partitions"), ids):
        read.setdefault(part.stream, {})[part.partition] = ReadPartition(part.records, part.fingerprint)
    return batches.batch(connection, **ids).plan, read


def _contributes(aggregate: PersistentAggregate) -> bool:
    return aggregate.state.contributions


def _counted(
    connection: Connection, topology: Topology, recorded: Recorded
) -> list[tuple[PersistentAggregate, list[ValueColumn]]]:
    """Return the states a batch contributed to, each with the columns of values that had joined by then (R23)."""
    known, counted = definitions.known(connection, topology).states, []
    for aggregate in filter(_contributes, topology.aggregates):
        name = aggregate.state.name
        if name in recorded.states and recorded.position >= known[name].joined:
            uncounted = known[name].uncounted(aggregate, recorded.position)
            counted.append((aggregate, [each for each in aggregate.partial_columns if each.name not in uncounted]))
    return counted


def _folded(connection: Connection, topology: Topology, recorded: Recorded) -> dict[str, Compared]:
    """Return the states in which retention has folded the batch's contributions (R22)."""
    found = connection.execute(query("horizons"), {"topology": topology.name}).mappings()
    why = {row["state"]: reason_if_folded(recorded.txid, row["horizon"]) for row in found}
    return {state: Compared(state, why_not=reason) for state, reason in why.items() if reason}


def _check_current(connection: Connection, recorded: Recorded) -> None:
    row = batches.one(connection, "counted_versions", topology=recorded.topology, txids=[recorded.txid])
    if row["txid"] != recorded.txid:
        raise Unverifiable(f"txid {recorded.txid} was replaced by {row['txid']} meanwhile; verify again")


@contextmanager
def _snapshot(engine: Engine) -> Iterator[Connection]:
    """Context manager. Open one snapshot; the block loads temporary tables before the block makes the transaction `READ_ONLY`."""
    with transaction(engine.execution_options(isolation_level="REPEATABLE READ")) as connection:
        yield connection


def _of_batch(statements: StateStatements, columns: Sequence[ValueColumn], txid: int) -> str:
    """Return the query of a batch's stored contributions."""
    selected = listed([*statements.keys, *(pg_name(column.name) for column in columns)])
    return f"SELECT {selected} FROM {statements.contribution} WHERE txid = {txid:d}"


def _stored(statements: StateStatements, *more: str) -> str:
    counted = " WHERE counted" if statements.marks else ""
    return f"SELECT {listed([*statements.keys, *statements.values, *more])} FROM {statements.state}{counted}"


def compared(
    connection: Connection, statements: StateStatements, columns: Sequence[ValueColumn], stored: str, again: str
) -> Compared:
    """Compare the keys and columns of two queries."""
    aggregate = statements.aggregate
    keys = int(execute(connection, f"SELECT count(*) FROM ({stored}) stored").fetchone()[0])
    found = execute(connection, differing(statements.keys, columns, stored, again)).fetchall()
    key_names, names = [key.name for key in aggregate.keys], [column.name for column in columns]
    examples = tuple(
        KeyDifference(
            dict(zip(key_names, key, strict=False)),  # a global value has no name for its key
            dict(zip(names, before, strict=True)) if here else None,
            dict(zip(names, after, strict=True)) if there else None,
        )
        for _, key, here, before, there, after in found
    )
    return Compared(aggregate.state.name, keys, found[0][0] if found else 0, examples)


def differing(keys: Sequence[str], columns: Sequence[ValueColumn], stored: str, again: str) -> str:
    """Return the query of differing keys: how many, and some of them.

    A key differs if only one of the two queries has the key, or if a column has another value.
    """
    same = " AND ".join(f"s.{key} = a.{key}" for key in keys)
    differ = [differs(column) for column in columns]
    values = [pg_name(column.name) for column in columns]
    sides = [f"{side}.{keys[0]} IS NOT NULL, ARRAY[{_texts(side, values)}]" for side in "sa"]
    key = listed(f"COALESCE(s.{key}, a.{key})::text" for key in keys)
    where = " OR ".join([f"s.{keys[0]} IS NULL", f"a.{keys[0]} IS NULL", *differ])
    return (
        f"SELECT count(*) OVER (), ARRAY[{key}], {listed(sides)} FROM ({stored}) s FULL JOIN ({again}) a ON {same} "
        f"WHERE {where} ORDER BY 2 LIMIT {EXAMPLES_MAX}"
    )


def _texts(side: str, values: Sequence[str]) -> str:
    return listed(f"{side}.{value}::text" for value in values)


def differs(column: ValueColumn) -> str:
    """Return the condition under which two values differ.

    If the order of adding may change the last digits, the values must lie further apart than rounding can bring them.
    """
    name = pg_name(column.name)
    distinct = f"s.{name} IS DISTINCT FROM a.{name}"
    if column.partial.exact:
        return distinct
    s, a = (f"{side}.{name}::numeric" for side in "sa")  # doubles would overflow
    size = f"greatest(abs({s}), abs({a}))"
    close = f"{size} < 'Infinity' AND abs({s} - {a}) <= {TOLERANCE} * {size}"
    return f"({distinct} AND ({close}) IS NOT TRUE)"
