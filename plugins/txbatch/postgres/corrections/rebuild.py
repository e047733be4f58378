"""Rebuilds in PostgreSQL: count versions into the tables of a new generation, beside the current generation (R23).

Counting for a rebuild locks the rebuild's row. No batch's row is locked, nor anything a batch or a report waits for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Engine, RowMapping

from txbatch import failpoints
from txbatch.core.batch.manifest import Manifest, check_manifest, check_states
from txbatch.core.batch.transaction import Assignment, Batch
from txbatch.core.corrections import rebuild as decided
from txbatch.core.corrections.rebuild import Behind, Progress, Rebuild, Rebuilt, Swapped, Watched
from txbatch.core.definition.changes import check_owner
from txbatch.core.definition.stored import StoredTopology
from txbatch.core.errors import UnknownName
from txbatch.core.protocol.event_time import late_of
from txbatch.core.protocol.record_numbers import check_same_number
from txbatch.core.protocol.restate import PositionVersion
from txbatch.core.stored_json import STORED_BYTES_MAX, canonical_json
from txbatch.core.topology.topology import Topology
from txbatch.core.upstream.readers import check_past_read
from txbatch.postgres.corrections import swap
from txbatch.postgres.database.engine import execute, hurry
from txbatch.postgres.database.generations import Generation, coming, past
from txbatch.postgres.database.queries import query
from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.schema import state_tables
from txbatch.postgres.state.folds import Folds
from txbatch.postgres.state.statements import statements_of
from txbatch.postgres.state.writer import LedgerWriter, RestateWriter, StateWriter
from txbatch.postgres.tables import batches, definitions
from txbatch.postgres.upstream import upstream


class PostgresRebuilds:
    """`core.corrections.rebuild.Rebuilds` on a migrated database. Each method is one transaction."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def begin(self, topology: Topology, job: str, code: str, why: str | None, by: str | None = None) -> Rebuild:
        """Begin a rebuild, or go on with the running rebuild.

        Raise TerminalError if no rebuild can count the topology, if the reason is missing, or if another job's rebuild runs;
        SchemaMismatch for another source, NameTaken for a taken state name; UnknownName if the topology is not renamed yet.
        """
        with transaction(self.engine) as connection:
            definitions.check_name(connection, topology, job)
            batches.lock_topology(connection, topology.name)
            if (running := _running(connection, topology.name)) is not None:
                decided.check_same(running, topology, code)
                return running
            check(connection, topology)
            why = decided.reason(topology, why)
            given = {"topology": topology.name, "why": why, "by": by, "job": job, "code": code}
            definition = canonical_json(decided.definition_of(topology))
            number = batches.one(connection, "insert_rebuild", **given, definition=definition)["rebuild"]
            create(connection, topology, coming(number))
            failpoints.hit("rebuild.begun")
            return Rebuild(number, topology.name, job, code, why, decided.definition_of(topology))

    def running(self, topology: str) -> Rebuild | None:
        """Return the running rebuild of a topology, or None."""
        with transaction(self.engine) as connection:
            return _running(connection, topology)

    def done(self, topology: str, code: str, why: str | None) -> Rebuilt | None:
        """Return the newest rebuild if it was swapped and had the same job and the same reason; otherwise None."""
        with transaction(self.engine) as connection:
            row = connection.execute(query("newest_rebuild"), {"topology": topology}).mappings().first()
            if row is None or (row["status"], row["code"], row["why"]) != ("swapped", code, why):
                return None
            return Rebuilt(_rebuild(row), row["swapped_txid"], earlier=True)

    def all(self, topology: str) -> list[dict[str, Any]]:
        """Return the rebuilds of a topology, newest first, as in report.rebuilds."""
        with transaction(self.engine) as connection:
            return [dict(row) for row in connection.execute(query("rebuilds"), {"topology": topology}).mappings()]

    def progress(self, rebuild: Rebuild) -> Progress:
        """Return the progress of a rebuild. Raise TerminalError if the rebuild was cancelled."""
        with transaction(self.engine) as connection:
            row = connection.execute(query("rebuild_progress"), {"rebuild": rebuild.number}).mappings().first()
            if row is None:
                raise decided.runs_no_more(rebuild)
            return Progress(row["counted"], row["to_count"], row["seconds_each"])

    def next(self, rebuild: Rebuild) -> Batch | None:
        """Return the version to count next. Return None if all versions are counted."""
        with transaction(self.engine) as connection:
            return _next(connection, rebuild)

    def to_count(self, rebuild: Rebuild, at_most: int, behind: int = 0) -> list[PositionVersion]:
        """Return the next versions to count, above the txid `behind`, in order, at most `at_most`, as of one moment."""
        with transaction(self.engine.execution_options(isolation_level="REPEATABLE READ")) as connection:
            return batches.versions(connection, rebuild.topology, _to_count(connection, rebuild, at_most, behind))

    def count(
        self,
        rebuild: Rebuild,
        topology: Topology,
        assignment: Assignment,
        manifest: Manifest,
        partials: Mapping[str, Any],
    ) -> bool:
        """Count a version, whole or not at all. Return False if the version is no longer the next.

        Raise StaleAttempt or Incomplete if the manifest is not the assignment's work (R7), TerminalError if the rebuild no
        longer runs.
        """
        with transaction(self.engine) as connection:
            _lock(connection, rebuild)
            version = _next(connection, rebuild)
            if version is None or version.txid != assignment.attempt.txid:
                return False
            decided.check_whole(rebuild, assignment, manifest)
            check_manifest(manifest, assignment)
            check_states(manifest, [aggregate.state.name for aggregate in topology.aggregates])
            if streams := topology.numbered:
                check_same_number(batches.version(connection, topology.name, version.position), streams, manifest)
            ids = {"rebuild": rebuild.number, "position": version.position}
            before = connection.execute(query("rebuilt_version"), ids).scalar_one()
            keys = write(
                connection, topology, version, (assignment, manifest, partials), coming(rebuild.number), before
            )
            if before and batches.batch(connection, rebuild.topology, before).replaced_by != version.txid:
                for aggregate in topology.aggregates:
                    execute(connection, Folds.of(aggregate, coming(rebuild.number)).redate(version.txid))
            _insert(connection, rebuild, version, keys, assignment, manifest)
            failpoints.hit("rebuild.before_commit")
        failpoints.hit("rebuild.counted")
        return True

    def swap(self, rebuild: Rebuild, topology: Topology) -> Swapped | Behind | Watched:
        """Swap the new generation in, in one transaction that keeps plans and commits out.

        If sessions read the old generation for too long, its tables cannot be moved: raise Unavailable, with the sessions.
        """
        with transaction(self.engine) as connection:
            hurry(connection)
            _lock(connection, rebuild)
            swap.analyze(connection, topology, coming(rebuild.number))
        with transaction(self.engine) as connection:
            behind = _next(connection, rebuild) is not None
            watched = None if behind else swap.watchers(connection, rebuild)
        if behind or watched:
            return Watched(watched) if watched else Behind()
        with transaction(self.engine) as connection:
            swap.alone(connection, rebuild.topology)
            _lock(connection, rebuild)
            if _next(connection, rebuild) is not None or swap.watchers(connection, rebuild):
                return Behind()
            _check_states_stay(connection, topology, definitions.known(connection, topology))
            swapped = swap.swap(connection, rebuild, topology)
            failpoints.hit("rebuild.before_swap")
        failpoints.hit("rebuild.swapped")
        return Swapped(swapped)

    def cancel(self, topology: str) -> Rebuild:
        """Delete the running rebuild of a topology, with all counted versions. Raise UnknownName if no rebuild runs."""
        with transaction(self.engine) as connection:
            running = _running(connection, topology)
            if running is None:
                raise UnknownName(f"no rebuild of topology {topology!r} is running; see report.rebuilds")
            _lock(connection, running)
            state_tables.drop_generation(connection, coming(running.number))
            connection.execute(query("cancel_rebuild"), {"rebuild": running.number})
            return running

    def drop_past(self, topology: str) -> list[int]:
        """Drop the generations replaced by rebuilds; return the numbers of the rebuilds.

        Raise ChangeTooEarly if a topology still has to read the changes of a rebuild's swap, or looks up in a replaced
        generation. The error names the topology.
        """
        with transaction(self.engine) as connection:
            batches.lock_topology(connection, topology)
            swapped = connection.execute(query("last_swapped"), {"topology": topology}).scalar_one()
            check_past_read(upstream.readers(connection), upstream.looked_up(connection), topology, swapped)
            numbers = list(connection.execute(query("past_generations"), {"topology": topology}).scalars())
            for number in numbers:
                state_tables.drop_generation(connection, past(number))
                connection.execute(query("past_dropped"), {"rebuild": number})
            return numbers


def check(connection: Connection, topology: Topology) -> None:
    """Raise TerminalError if no rebuild can count the topology, SchemaMismatch for another source or a taken state name."""
    known = definitions.known(connection, topology)
    decided.check_rebuild(topology, known)
    for aggregate in topology.aggregates:
        check_owner(aggregate.state.name, known.owners.get(aggregate.state.name, topology.name), topology.name)
    decided.check_value_names(topology, known, upstream.readers(connection))
    _check_states_stay(connection, topology, known)
    for state in known.states:
        swap.check_readers(connection, state)


def _check_states_stay(connection: Connection, topology: Topology, known: StoredTopology) -> None:
    decided.check_states_stay(topology, known.states, upstream.readers(connection), upstream.looked_up(connection))


def create(connection: Connection, topology: Topology, generation: Generation) -> None:
    for schema in generation.schemas:
        execute(connection, f"CREATE SCHEMA {schema}")
    for aggregate in topology.aggregates:
        state_tables.create(connection, aggregate, [1], generation)


def write(
    connection: Connection,
    topology: Topology,
    version: Batch,
    again: tuple[Assignment, Manifest, Mapping[str, Any]],
    generation: Generation,
    before: int = 0,
) -> dict[str, int]:
    """Write a version's new partials into each state of a generation; return the number of the version's keys by state.

    `before` is the version of the same position already in the generation; 0 if there is none.
    """
    (assignment, manifest, partials), refolded, keys = again, decided.refolded(version, topology), dict[str, int]()
    for number, aggregate in enumerate(topology.aggregates):
        statements = statements_of(aggregate, f"staged_{number}", generation)
        writer: StateWriter = LedgerWriter(connection, statements, assignment)
        if aggregate.state.contributions:
            state_tables.create_partition(connection, aggregate.state.name, version.txid, generation)
            if refolded:
                writer = RestateWriter(connection, statements, assignment, version.position, before)
        elif before:
            decided.refuse_again(version, aggregate.state.name)
        keys[writer.name] = writer.apply(writer.load(partials[writer.name], manifest.states[writer.name]))
        execute(connection, f"TRUNCATE {statements.staged}")  # for the next version, in the same transaction
    return keys


def _running(connection: Connection, topology: str) -> Rebuild | None:
    row = connection.execute(query("running_rebuild"), {"topology": topology}).mappings().first()
    return None if row is None else _rebuild(row)


def _rebuild(row: RowMapping) -> Rebuild:
    return Rebuild(row["rebuild"], row["topology"], row["job"], row["code"], row["why"], row["definition"])


def _lock(connection: Connection, rebuild: Rebuild) -> None:
    if connection.execute(query("lock_rebuild"), {"rebuild": rebuild.number}).first() is None:
        raise decided.runs_no_more(rebuild)


def _next(connection: Connection, rebuild: Rebuild) -> Batch | None:
    found = _to_count(connection, rebuild, 1)
    return found[0] if found else None


def _to_count(connection: Connection, rebuild: Rebuild, at_most: int, behind: int = 0) -> tuple[Batch, ...]:
    given = {"topology": rebuild.topology, "rebuild": rebuild.number, "at_most": at_most, "behind": behind}
    return batches.batches(connection, "to_count", **given)


def _insert(
    connection: Connection,
    rebuild: Rebuild,
    version: Batch,
    keys: Mapping[str, int],
    assignment: Assignment,
    manifest: Manifest,
) -> None:
    kept = {name: each.kept for name, each in manifest.states.items() if each.kept is not None}
    counts = {name: canonical_json(of) if of else None for name, of in (("kept", kept), ("late", late_of(manifest)))}
    row = {"rebuild": rebuild.number, "txid": version.txid, "position": version.position, "keys": canonical_json(keys)}
    told = {**counts, "records": manifest.records}
    read = {"metadata": assignment.metadata, "streams": manifest.to_json()["streams"]}
    stored = {name: canonical_json(each, STORED_BYTES_MAX) for name, each in read.items()}
    connection.execute(query("insert_rebuilt"), {**row, **told, **stored})
