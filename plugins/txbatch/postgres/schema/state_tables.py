"""The tables of a topology's states: created once, compared ever after, never inside a commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from psycopg2.errors import LockNotAvailable
from sqlalchemy import Connection

from txbatch.core.definition.changes import check_owner
from txbatch.core.definition.stored import state_definition
from txbatch.core.errors import Unavailable
from txbatch.core.state.state import changes_name
from txbatch.core.stored_json import canonical_json
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.postgres.database.engine import execute, run_all
from txbatch.postgres.database.expressions import pg_name
from txbatch.postgres.database.generations import CURRENT, Generation, coming, past
from txbatch.postgres.database.queries import query
from txbatch.postgres.schema import report_views
from txbatch.postgres.state import new_values
from txbatch.postgres.state.folds import Folds
from txbatch.postgres.state.statements import statements_of
from txbatch.postgres.tables import batches as rows

# A contribution partition holds this many txids.
PARTITION_TXIDS = 1_000
# The txids for which there are partitions already, from one that is planned on.
AHEAD_TXIDS = PARTITION_TXIDS // 2


def ensure(connection: Connection, topology: str, aggregate: PersistentAggregate, txids: Sequence[int]) -> bool:
    """Create the state's tables and report view, with room for the contributions of `txids`, unless they exist.

    Return whether the state is new here; `definitions.check` has compared an existing state. A state apart has its tables in
    another database: see `postgres.apart.apart`. Raise SchemaMismatch if another topology has just taken the state's name.
    """
    state, row = aggregate.state, state_row(topology, aggregate)
    if connection.execute(query("insert_state"), row).first() is None:
        check_owner(state.name, rows.one(connection, "state", state=state.name)["topology"], topology)
        connection.execute(query("complete_state"), row)
        if state.database is None:
            run_all(connection, _missing(connection, aggregate))
            run_all(connection, report_views.missing(connection, aggregate))
            new_values.ensure(connection, aggregate)
        return False
    if state.database is not None:
        return True
    create(connection, aggregate, txids)
    run_all(connection, report_views.statements(connection, aggregate))
    new_values.ensure(connection, aggregate)
    return True


def state_row(topology: str, aggregate: PersistentAggregate) -> dict[str, Any]:
    """Return the ledger's row of a state by the present definition."""
    now = state_definition(aggregate)
    return {
        "state": aggregate.state.name,
        "topology": topology,
        "kind": now.kind,
        "contributions": now.contributions,
        "columns": canonical_json(now.columns),
        "database": now.database,
        "streams": canonical_json(now.streams),
    }


def create(
    connection: Connection, aggregate: PersistentAggregate, txids: Sequence[int], generation: Generation = CURRENT
) -> None:
    """Create the tables of a state, with room for the contributions of `txids`."""
    statements = statements_of(aggregate, generation=generation)
    execute(connection, statements.create_state())
    if aggregate.state.contributions:
        execute(connection, statements.create_contribution())
        run_all(connection, _missing(connection, aggregate, generation))
        for txid in txids:
            create_partition(connection, aggregate.state.name, txid, generation)


def _missing(connection: Connection, aggregate: PersistentAggregate, generation: Generation = CURRENT) -> list[str]:
    """Return the statements that create the base and the indexes of a state's contributions, unless they exist.

    The base and the indexes are created once, under a lock.
    """
    if not aggregate.state.contributions:
        return []
    folds = Folds.of(aggregate, generation)
    found = [] if _exists(connection, folds.base) else [folds.create_base(), folds.create_index()]
    if aggregate.sessions and aggregate.closes:
        ends = folds.create_ends(aggregate.sessions.closes_by)
        found += [create for index, create in ends.items() if not _exists(connection, index)]
    return found


def _exists(connection: Connection, relation: str) -> bool:
    return bool(connection.execute(query("relation_exists"), {"name": relation}).scalar_one())


def ensure_partitions(connection: Connection, topology: str, txid: int) -> None:
    """Create the partitions for the contributions of a txid and of the next txids, unless the partitions exist."""
    for state in connection.execute(query("states_of"), {"topology": topology}).mappings():
        if state["contributions"]:
            create_partition(connection, state["state"], txid + AHEAD_TXIDS)
            create_partition(connection, state["state"], txid)


def create_partition(connection: Connection, state: str, txid: int, generation: Generation = CURRENT) -> None:
    """Create the partition for the contributions of a txid, unless the partition exists."""
    first = (txid - 1) // PARTITION_TXIDS * PARTITION_TXIDS + 1
    name = generation.partition(state, first)
    if connection.execute(query("relation_exists"), {"name": name}).scalar_one():
        return
    parent, end = generation.contribution(state), first + PARTITION_TXIDS
    # Made apart and attached: this waits for no open report, as CREATE TABLE ... PARTITION OF would.
    execute(connection, f"CREATE TABLE {name} (LIKE {parent} INCLUDING ALL, CHECK (txid >= {first} AND txid < {end}))")
    execute(connection, f"ALTER TABLE {parent} ATTACH PARTITION {name} FOR VALUES FROM ({first}) TO ({end})")


def drop(connection: Connection, topology: str) -> list[str]:
    """Drop the tables and views of a topology's states, with the topology's rows in the ledger; return the states' names.

    States apart are dropped before, by `Warehouses.drop`. Raise Unavailable, with the sessions, if a state is read for too
    long. A commit under way ends first: a commit locks its batch, and then the tables of the states.
    """
    if connection.execute(query("lock_topology_alone"), {"topology": topology}).first() is None:
        raise rows.unknown_topology(topology)
    names = [row["state"] for row in connection.execute(query("states_of"), {"topology": topology}).mappings()]
    for name in names:
        with holders_told(connection, name, "dropped"):
            drop_state(connection, name)
    for number in list(connection.execute(query("rebuild_numbers"), {"topology": topology}).scalars()):
        for generation in (coming(number), past(number)):
            drop_generation(connection, generation)
    connection.execute(query("forget_rebuilds"), {"topology": topology})
    connection.execute(query("forget_topology"), {"topology": topology})
    return names


def drop_generation(connection: Connection, generation: Generation) -> None:
    """Drop a generation that does not count: a rebuild's next generation, or a replaced generation."""
    for schema in (generation.reports, *generation.schemas):
        execute(connection, f"DROP SCHEMA IF EXISTS {schema} CASCADE")


def drop_state(connection: Connection, name: str) -> None:
    """Drop the tables and reports of a state, and the ledger's row of the state."""
    run_all(connection, report_views.drop(connection, name))
    for table in (CURRENT.base(name), CURRENT.contribution(name), CURRENT.state(name)):
        execute(connection, f"DROP TABLE IF EXISTS {table}")
    connection.execute(query("forget_state"), {"state": name})


def rename(connection: Connection, topology: str, was: str, state: str) -> None:
    """Rename a state's tables and the ledger's rows of the state; the caller creates the state's reports again."""
    names = {"topology": topology, "was": was, "state": state}
    for row in connection.execute(query("relations_of_state"), {"state": was}).mappings():
        kind, relation = ("INDEX" if row["index"] else "TABLE"), f"{row['schema']}.{pg_name(row['name'])}"
        execute(connection, f"ALTER {kind} {relation} RENAME TO {pg_name(state + row['rest'])}")
    connection.execute(query("rename_state"), names)
    connection.execute(query("rename_counted"), names)


def keep_contributions(connection: Connection, aggregate: PersistentAggregate, txid: int) -> None:
    """Let a state keep contributions from a txid on; earlier counts are folded (R22)."""
    execute(connection, statements_of(aggregate).create_contribution())
    folds = Folds.of(aggregate)
    run_all(connection, [*_missing(connection, aggregate), folds.copy_state()])
    create_partition(connection, aggregate.state.name, txid)
    connection.execute(query("fold_state"), {"state": aggregate.state.name, "horizon": txid - 1})


@contextmanager
def holders_told(connection: Connection, state: str, done: str) -> Iterator[None]:
    """Context manager. Raise Unavailable, with the sessions that use a state, if a lock on the state is not granted in time.

    `done` is the refused change, for example "dropped".
    """
    execute(connection, "SAVEPOINT unlocked")
    try:
        yield
    except LockNotAvailable as error:
        execute(connection, "ROLLBACK TO unlocked")
        rows = connection.execute(query("who_uses"), {"state": state, "changes": changes_name(state)}).mappings()
        held = "; ".join("session {pid} of {role} ({state}) since {since}".format_map(row) for row in rows)
        raise Unavailable(
            f"state {state!r} cannot be {done} while others use it: {held or 'they have ended by now'}; let them end "
            "(or SELECT pg_terminate_backend(pid)), and try again"
        ) from error
