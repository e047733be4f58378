"""The swap of a rebuild: in one transaction, the rebuild's generation replaces the current generation of the states (R23).

No report sees a mix. The swap waits for two kinds of reports: a report that has begun to read a state holds the state's
tables; a report that began before the new generation had every batch may still read the state (see `watchers`). A report that
begins later sees all of the old generation or, once the swap is committed, all of the new generation.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psycopg2.errors import DependentObjectsStillExist, InvalidTableDefinition, LockNotAvailable
from sqlalchemy import Connection

from txbatch.core.corrections.rebuild import Rebuild
from txbatch.core.definition.changes import check_owner
from txbatch.core.errors import ReadByOthers, Unavailable
from txbatch.core.state.state import changes_name, report_names, versions_name
from txbatch.core.stored_json import canonical_json
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.topology.topology import Topology
from txbatch.postgres.database.engine import execute, hurry, run_all
from txbatch.postgres.database.expressions import pg_name
from txbatch.postgres.database.generations import CURRENT, Generation, coming, past
from txbatch.postgres.database.queries import query
from txbatch.postgres.schema import replaced_reports, report_views, state_tables
from txbatch.postgres.schema.kept_reports import KeptReports
from txbatch.postgres.schema.state_tables import PARTITION_TXIDS
from txbatch.postgres.tables import batches, definitions


def alone(connection: Connection, topology: str) -> None:
    """Keep plans and commits of the topology out until the transaction ends. Raise Unavailable if a commit does not end soon."""
    hurry(connection)
    try:
        connection.execute(query("lock_topology_alone"), {"topology": topology})
    except Exception as error:
        if isinstance(getattr(error, "orig", None), LockNotAvailable):
            raise Unavailable(
                f"{topology}: a batch is being committed, and the swap waits for that; try again"
            ) from error
        raise


def watchers(connection: Connection, rebuild: Rebuild) -> str | None:
    """Return the sessions that began before the new generation had every batch; None if none is left.

    Such a session would see the new generation without the last batch.
    """
    last = connection.execute(query("last_counted"), {"rebuild": rebuild.number}).mappings().first()
    if last is None:
        return None
    found = connection.execute(query("snapshots_before"), {"counted_in": last["counted_in"]}).mappings()
    return "; ".join("session {pid} of {role} since {since}".format_map(row) for row in found) or None


def analyze(connection: Connection, topology: Topology, generation: Generation) -> None:
    """Analyze the new tables for the planner before anybody reads the tables."""
    for aggregate in topology.aggregates:
        execute(connection, f"ANALYZE {generation.state(aggregate.state.name)}")


def check_readers(connection: Connection, state: str) -> None:
    """Raise TerminalError if a view not made by txbatch reads a state's tables: the view would keep the old generation."""
    tables = {"state": CURRENT.state(state), "contribution": CURRENT.contribution(state), "base": CURRENT.base(state)}
    found = connection.execute(query("others_of_state"), {**tables, "reports": report_names(state)}).scalars().all()
    if found:
        raise ReadByOthers(
            f"{', '.join(found)} reads {tables['state']} itself, and would keep the old generation: let it read "
            f"report.{pg_name(state)}, or drop it"
        )


def swap(connection: Connection, rebuild: Rebuild, topology: Topology) -> int:
    """Make the rebuild's generation the current generation; return the newest txid of the old generation.

    The caller has locked the topology's row exclusively. Raise Unavailable, with the sessions, if a table is in use;
    TerminalError, with the view, if a view depends on a dropped column.
    """
    old = [dict(row) for row in connection.execute(query("states_whole"), {"topology": topology.name}).mappings()]
    names = [row["state"] for row in old]
    _lock(connection, names)
    for name in names:
        check_readers(connection, name)
    _move(connection, names, CURRENT, past(rebuild.number), make=True)
    txid = int(connection.execute(query("newest_cut"), {"topology": topology.name}).scalar_one())
    run_all(connection, replaced_reports.keep_reports(connection, names, rebuild.number, txid))
    connection.execute(query("forget_windows_left"), {"topology": topology.name})
    defined = [aggregate.state.name for aggregate in topology.aggregates]
    _move(connection, defined, coming(rebuild.number), CURRENT)
    for schema in coming(rebuild.number).schemas:
        execute(connection, f"DROP SCHEMA {schema}")
    _forget(connection, [name for name in names if name not in defined])
    for aggregate in topology.aggregates:
        _define(connection, topology.name, aggregate)
    for counts in ("counts_as_rebuilt", "records_as_rebuilt", "records_to_as_rebuilt"):
        connection.execute(query(counts), {"rebuild": rebuild.number, "topology": topology.name})
    known = definitions.known(connection, topology)
    connection.execute(query("streams_as_rebuilt"), definitions.row(topology, rebuild.job, known))
    definitions.store(connection, topology, rebuild.job)
    _emit_again(connection, topology.name)
    done = {"rebuild": rebuild.number, "txid": txid, "past": canonical_json({row["state"]: _past(row) for row in old})}
    connection.execute(query("rebuild_swapped"), done)
    return txid


def _past(row: dict[str, Any]) -> dict[str, Any]:
    """Return the record to keep of a replaced state."""
    names = ("kind", "contributions", "columns", "streams", "horizon", "values_since", "joined", "pruned")
    return {name: row[name] for name in names} | ({"left": row["left"]} if row["left"] else {})


def _lock(connection: Connection, names: list[str]) -> None:
    """Lock the tables and reports of all states at once: no report waits longer than the locking takes."""
    tables = [each for name in names for each in _there(connection, name, CURRENT)]
    execute(connection, "SAVEPOINT unlocked")
    try:
        for name in names:
            run_all(connection, report_views.lock(connection, name))
        execute(connection, f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE")
    except LockNotAvailable as error:
        execute(connection, "ROLLBACK TO unlocked")
        held = [
            "session {pid} of {role} ({state}) since {since}".format_map(row)
            for name in names
            for row in connection.execute(query("who_uses"), {"state": name, "changes": changes_name(name)}).mappings()
        ]
        raise Unavailable(
            f"the states {', '.join(names)} are read by others: {'; '.join(dict.fromkeys(held)) or 'they have ended by now'}; "
            "the swap waits until they end, or try again"
        ) from error


def _there(connection: Connection, name: str, generation: Generation) -> list[str]:
    """Return the existing tables of a state."""
    tables = (generation.state(name), generation.contribution(name), generation.base(name))
    return [each for each in tables if connection.execute(query("relation_exists"), {"name": each}).scalar_one()]


def _move(
    connection: Connection, names: list[str], source: Generation, target: Generation, *, make: bool = False
) -> None:
    """Move the tables of states from schema to schema; `make` creates the target schemas."""
    for schema in target.schemas if make else ():
        execute(connection, f"CREATE SCHEMA {schema}")
    for name in names:
        partitions = connection.execute(query("partitions_of"), {"name": source.contribution(name)}).scalars().all()
        for partition in partitions:
            execute(connection, f"ALTER TABLE {source.schemas[3]}.{partition} SET SCHEMA {target.schemas[3]}")
        for table in _there(connection, name, source):
            kind = table.partition(".")[0].removesuffix(source.suffix)
            execute(connection, f"ALTER TABLE {table} SET SCHEMA {kind}{target.suffix}")


def _forget(connection: Connection, names: list[str]) -> None:
    """Drop the reports and the ledger's rows of states that are missing in the new definition."""
    for name in names:
        with _dependents_told(name):
            run_all(connection, report_views.drop(connection, name))
        connection.execute(query("forget_state"), {"state": name})


def _define(connection: Connection, topology: str, aggregate: PersistentAggregate) -> None:
    """Store the new definition of a state, and let the state's reports read the new tables."""
    name, row = aggregate.state.name, state_tables.state_row(topology, aggregate)
    there = connection.execute(query("state"), {"state": name}).mappings().first()
    if connection.execute(query("replace_state"), row).first() is None:
        check_owner(name, batches.one(connection, "state", state=name)["topology"], topology)
    if aggregate.state.contributions:
        for txid in _room(connection, topology):
            state_tables.create_partition(connection, name, txid)
    if there is None:
        run_all(connection, report_views.statements(connection, aggregate))
        return
    with _dependents_told(name):
        _report(connection, aggregate, anew=there["contributions"] != aggregate.state.contributions)


def _report(connection: Connection, aggregate: PersistentAggregate, *, anew: bool) -> None:
    """Replace the reports of a state in place, then restore the grants.

    If `anew`, or if columns are gone or have another type, drop the reports and create them again.
    """
    name = aggregate.state.name
    kept = KeptReports.of(connection, name)
    execute(connection, "SAVEPOINT replaced")
    try:
        if anew:
            raise InvalidTableDefinition
        execute(
            connection, f"DROP VIEW IF EXISTS report.{pg_name(versions_name(name))}"
        )  # functions read it by its name
        run_all(connection, report_views.recreate_reports(connection, aggregate))
    except InvalidTableDefinition:
        execute(connection, "ROLLBACK TO replaced")
        run_all(connection, report_views.drop(connection, name))
        run_all(connection, report_views.recreate_reports(connection, aggregate, kept.columns({})))
    run_all(connection, kept.grants(connection))


@contextmanager
def _dependents_told(state: str) -> Iterator[None]:
    """Context manager. Raise TerminalError, with the names, if views depend on a dropped column or report."""
    try:
        yield
    except DependentObjectsStillExist as error:
        told = (error.diag.message_detail or "").replace("\n", "; ")
        raise ReadByOthers(
            f"report.{pg_name(state)} changes its columns, and views of your own depend on these columns: {told}; drop "
            "your views, and recreate your views after the rebuild"
        ) from error


def _room(connection: Connection, topology: str) -> list[int]:
    """Return the txids whose contributions need partitions: the oldest txid in flight, and the next txids."""
    *in_flight, following = batches.next_txids(connection, topology)
    return [*in_flight, following, following + PARTITION_TXIDS // 2]


def _emit_again(connection: Connection, topology: str) -> None:
    """Supersede every attempt made by the old definition: none of them can commit any more (R5)."""
    batches.batches(connection, "lock_open_batches", topology=topology)
    for txid in connection.execute(query("emit_again"), {"topology": topology}).scalars().all():
        connection.execute(query("supersede_attempts"), {"topology": topology, "txid": txid})
