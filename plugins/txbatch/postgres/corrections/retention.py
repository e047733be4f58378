"""Retention in PostgreSQL (R22): fold contributions into the base, slice by slice, each slice in one short transaction.

`core.corrections.retention` decides the txids to fold. Commits and reports go on meanwhile; plans of the topology wait for
one slice at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg2.errors import LockNotAvailable
from sqlalchemy import Connection, Engine

from txbatch import failpoints
from txbatch.core.corrections import retention
from txbatch.core.corrections.growth import LAST_BATCHES, BatchGrowth, Growth, StoredSize, growth
from txbatch.core.corrections.retention import Final, FoldableHistory, FoldableVersion, Folded, Slice
from txbatch.core.definition.job_rules import Jobs, no_jobs
from txbatch.core.state.keep import Keep
from txbatch.core.state.pruned import more_pruned, stored_spans
from txbatch.core.stored_json import canonical_json
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.topology.quarantine import quarantine_name
from txbatch.core.upstream.readers import held
from txbatch.postgres.database.engine import execute
from txbatch.postgres.database.expressions import listed, pg_text
from txbatch.postgres.database.queries import query
from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.schema.state_tables import PARTITION_TXIDS
from txbatch.postgres.state import python_merge
from txbatch.postgres.state.folds import Folds
from txbatch.postgres.state.statements import statements_of
from txbatch.postgres.tables import batches
from txbatch.postgres.upstream.upstream import looked_up, readers

_DAY_SECONDS = 86_400
_DROP_TIMEOUT = "SET LOCAL lock_timeout = '200ms'"


class Retention:
    """Fold the past of topologies. A second call goes on where the first call ended.

    `jobs` has the jobs with merge rules of their own.
    """

    def __init__(self, engine: Engine, jobs: Jobs = no_jobs) -> None:
        self.engine, self.jobs = engine, jobs

    def policies(self) -> Mapping[str, Keep | None]:
        """Return each topology's policy, as last set by its job; None: keep everything."""
        with transaction(self.engine) as connection:
            return {row.topology: Keep.stored(row.keep) for row in connection.execute(query("policies"))}

    def policy(self, topology: str) -> Keep | None:
        """Return a topology's policy. Raise UnknownName if the topology is unknown."""
        with transaction(self.engine) as connection:
            batches.topology_row(connection, topology)
            return Keep.stored(connection.execute(query("policy"), {"topology": topology}).scalar_one())

    def past(self, topology: str, keep: Keep) -> FoldableHistory:
        """Return the txids that may be folded under a policy, and the reasons to wait. Change nothing."""
        horizon, wanted = self.horizon(topology), self.wanted(topology, keep)
        with transaction(self.engine) as connection:
            given = {"topology": topology, "after": horizon, "wanted": wanted}
            rebuild = connection.execute(query("running_rebuild"), given).mappings().first()
            number = rebuild["rebuild"] if rebuild else None
            versions, pending = _versions(connection, given)
            return FoldableHistory(topology, horizon, wanted, versions, pending, number, _readers(connection, topology))

    def outlook(self, past: FoldableHistory) -> Slice:
        """Return the result of folding now. Change nothing."""
        found = retention.foldable(past.versions, past.reached)
        with transaction(self.engine) as connection:
            stored = _states(connection, past.topology) if found.all else ()
            states = [_state(past.topology, each, self.jobs) for each in stored]
            given = {"topology": past.topology, "after": past.horizon, "horizon": past.reached}
            attempts = connection.execute(query("attempts_to_forget"), given).scalar_one()
            rows_gone = sum(_number(connection, each.folds, found.all) for each in states)
            left = _quarantined(connection, past.topology, states, found)
            return Slice(past.reached, len(found.all), rows_gone, attempts, left)

    def growth(self, topology: str) -> Growth | None:
        """Return the size of a month's contributions, by the last batches. Return None if the size is unknown."""
        with transaction(self.engine) as connection:
            given = {"topology": topology, "batches": LAST_BATCHES}
            last = [BatchGrowth(*row) for row in connection.execute(query("pace_of_batches"), given)]
            stored = [StoredSize(*row) for row in connection.execute(query("contributions_stored"), given)]
        return growth(last, stored)

    def horizon(self, topology: str) -> int:
        """Return the txid up to which all states of the topology are folded. Raise UnknownName if the topology is unknown."""
        with transaction(self.engine) as connection:
            batches.topology_row(connection, topology)
            return min((state["horizon"] for state in _states(connection, topology)), default=0)

    def wanted(self, topology: str, keep: Keep) -> int:
        """Return the txid up to which the policy allows folding."""
        seconds = (keep.days or 0) * _DAY_SECONDS
        with transaction(self.engine) as connection:
            found = connection.execute(query("final_txids"), {"topology": topology, "seconds": seconds}).all()
        return retention.wanted(keep, [Final(row.txid, row.old) for row in found])

    def fold(self, topology: str, horizon: int) -> Iterator[Slice]:
        """Fold up to the txid `horizon`, and yield each committed slice. Raise TransientError if a rebuild runs.

        A version with a restate in flight, or with a restate above `horizon`, waits for a later call, and so do all later
        txids.
        """
        reached = self.horizon(topology)
        if not self._keeps_contributions(topology):
            return
        for done in retention.slices(topology, reached, horizon, self._fold):
            reached = max(reached, done.horizon)
            yield done
        if reached >= horizon:
            self._drop_empty(topology, reached)

    def _fold(self, topology: str, wanted: int) -> Slice:
        with transaction(self.engine) as connection:
            done = _fold(connection, topology, wanted, self.jobs)
            failpoints.hit("gc.before_commit")
            return done

    def _keeps_contributions(self, topology: str) -> bool:
        with transaction(self.engine) as connection:
            return bool(_states(connection, topology))

    def _drop_empty(self, topology: str, horizon: int) -> None:
        """Drop empty partitions of contributions below the horizon, unless a session reads them or may see rows in them."""
        with transaction(self.engine) as connection:
            folded_before = {"counted_in": connection.execute(query("own_transaction")).scalar_one()}
        with transaction(self.engine) as connection:
            if connection.execute(query("snapshots_before"), folded_before).first() is not None:
                return  # the next call drops it
            batches.lock_topology(connection, topology)
            for state in _states(connection, topology):
                for partition in _whole_below(Folds(topology, state["state"], state["columns"]), horizon):
                    _drop_if_empty(connection, *partition)


@dataclass(frozen=True, slots=True)
class _State:
    """A state to fold; `own` is the job's definition of the state, if values merge by the job's own rules."""

    folds: Folds
    own: PersistentAggregate | None = None


def _fold(connection: Connection, topology: str, wanted: int, jobs: Jobs = no_jobs) -> Slice:
    batches.lock_topology(connection, topology)
    if connection.execute(query("running_rebuild"), {"topology": topology}).first() is not None:
        raise retention.while_rebuilt(topology)
    stored = _states(connection, topology)
    states = [_state(topology, each, jobs) for each in stored]
    given = {"topology": topology, "after": min((each["horizon"] for each in stored), default=0)}
    wanted = retention.as_read(wanted, _readers(connection, topology))
    versions, pending = _versions(connection, {**given, "wanted": wanted})
    failpoints.hit("gc.versions_read")
    reached = retention.reach(versions, wanted, frozenset(pending.values()))
    found = retention.foldable(versions, reached)
    left = _quarantined(connection, topology, states, found)
    gone = [_fold_state(connection, each, found) for each in states]
    connection.execute(query("close_alone"), given)
    connection.execute(query("raise_horizon"), {**given, "horizon": reached})
    for each, of, number in zip(stored, states, gone, strict=True):
        if of.folds.prunes and number:
            spans = more_pruned(stored_spans(each["pruned"]), reached)
            connection.execute(query("rows_pruned"), {"state": each["state"], "pruned": canonical_json(spans)})
    attempts = connection.execute(query("forget_attempts"), {**given, "horizon": reached}).rowcount
    failpoints.hit("gc.folded")
    return Slice(reached, len(found.all), sum(gone), attempts, left)


def _versions(connection: Connection, given: Mapping[str, Any]) -> tuple[Sequence[FoldableVersion], Mapping[int, int]]:
    """Return the versions that may be folded, and by txid the positions that restates in flight are going to replace."""
    found = connection.execute(query("unfolded_versions"), given).all()
    versions = [FoldableVersion(row.position, row.txid, row.replaced_by) for row in found if not row.pending]
    return versions, {row.txid: row.position for row in found if row.pending}


def _readers(connection: Connection, topology: str) -> Mapping[str, int]:
    swapped = connection.execute(query("last_swapped"), {"topology": topology}).scalar_one()
    pruning = {each["state"]: each["horizon"] for each in _states(connection, topology) if "prune" in each["columns"]}
    return held([*readers(connection), *looked_up(connection)], topology, swapped, pruning)


def _quarantined(connection: Connection, topology: str, states: Iterable[_State], found: Folded) -> int:
    """Return the number of records to remove from the topology's quarantine."""
    kept = [each.folds for each in states if each.folds.state == quarantine_name(topology)]
    return sum(_number(connection, folds, found.counting) for folds in kept)


def _number(connection: Connection, folds: Folds, txids: Sequence[int]) -> int:
    counted = execute(connection, f"SELECT count(*) FROM {folds.contribution} c WHERE {_among(txids)}").fetchone()
    return int(counted[0])


def _states(connection: Connection, topology: str) -> Sequence[Any]:
    return connection.execute(query("states_with_contributions"), {"topology": topology}).mappings().all()


def _state(topology: str, stored: Mapping[str, Any], jobs: Jobs) -> _State:
    """Return how to fold a state. Raise NotFoldable if folding needs a job that is not available."""
    own = retention.own_of(topology, stored["state"], stored["columns"], jobs)
    return _State(Folds.of(own) if own else Folds(topology, stored["state"], stored["columns"]), own)


def _fold_state(connection: Connection, state: _State, found: Folded) -> int:
    """Fold the counting versions into the base, delete all versions, and return the number of deleted rows."""
    if not found.all:
        return 0
    folds = state.folds
    statements = _pruned(folds, found) if folds.prunes else _into_base(folds, _based(connection, state, found))
    for statement in statements:
        execute(connection, statement)
    deleted = execute(connection, f"DELETE FROM {folds.contribution} c WHERE {_among(found.all)}").rowcount
    return int(deleted)


def _pruned(folds: Folds, found: Folded) -> Sequence[str]:
    """Return the statements that delete the state's rows of the counting versions.

    Each row has one contribution, and nothing of the row is kept.
    """
    same = " AND ".join(f"s.{key} = c.{key}" for key in folds.keys)
    state = folds.generation.state(folds.state)
    return (f"DELETE FROM {state} s USING {folds.contribution} c WHERE {same} AND {_among(found.counting)}",)


def _into_base(folds: Folds, based: str) -> Sequence[str]:
    keys, values = listed(folds.keys), folds.values
    same = " AND ".join(f"b.{key} = f.{key}" for key in folds.keys)
    columns = listed([*folds.keys, *values, "txid"])
    assigned = listed(f"{name} = EXCLUDED.{name}" for name in [*values, "txid"])
    return (
        f"CREATE TEMP TABLE based ON COMMIT DROP AS {based}",
        f"DELETE FROM {folds.base} b USING pg_temp.based f WHERE {same} AND NOT f.stands",
        f"INSERT INTO {folds.base} ({columns}) SELECT {columns} FROM pg_temp.based WHERE stands ORDER BY {keys} "
        f"ON CONFLICT ({keys}) DO UPDATE SET {assigned}",
        "DROP TABLE pg_temp.based",
    )


def _based(connection: Connection, state: _State, found: Folded) -> str:
    """Return the query of the folded keys, with their values from the base and the counting versions.

    `stands` is false if a key no longer exists.
    """
    versions, folds = _versions_of(state.folds, found), state.folds
    if state.own and state.own.by_python:
        return python_merge.amounts(connection, statements_of(state.own, "gone"), versions, "based")
    keys, merged = listed(folds.keys), listed(folds.merged())
    return (
        f"SELECT {keys}, {merged}, max(r.txid) AS txid, bool_or(r.stands) AS stands FROM ({versions}) r GROUP BY {keys}"
    )


def _versions_of(folds: Folds, found: Folded) -> str:
    """Return the query of the folded contributions and the base of their keys; values are null where `stands` is false."""
    keys, marks = listed(folds.keys), folds.removable
    later = (
        f"SELECT b.replaced_by FROM txbatch.batch b WHERE b.topology = {pg_text(folds.topology)} AND b.txid = c.txid"
    )
    columns = listed([*folds.keys, *folds.values])
    gone = f"SELECT * FROM {folds.contribution} c WHERE {_among(found.all)}"
    contributed = (
        f"SELECT {columns}, GREATEST(c.txid, ({later})) AS txid, {_among(found.counting)} AS stands"
        f"{', removed, counted, position' * marks} FROM gone c"
    )
    based = (
        f"SELECT {columns}, txid, true AS stands{', false AS removed, true AS counted, 0::bigint AS position' * marks} "
        f"FROM {folds.base} WHERE ({keys}) IN (SELECT {keys} FROM gone)"
    )
    read = f"{contributed} UNION ALL {based}"
    if marks:  # `prev_txid` is a name that no value has: here the position of the last removal
        last = f"max(position) FILTER (WHERE stands AND removed) OVER (PARTITION BY {keys}) AS prev_txid"
        stands = "stands AND counted AND position >= COALESCE(prev_txid, 0) AS stands"
        read = f"SELECT {columns}, txid, {stands} FROM (SELECT *, {last} FROM ({read}) u) v"
    standing = listed([*folds.keys, *(f"CASE WHEN stands THEN {value} END AS {value}" for value in folds.values)])
    return f"WITH gone AS MATERIALIZED ({gone}) SELECT {standing}, txid, stands FROM ({read}) w"


def _among(txids: Sequence[int]) -> str:
    return f"c.txid = ANY ('{{{listed(map(str, txids))}}}'::bigint[])"


def _whole_below(folds: Folds, horizon: int) -> Iterator[tuple[str, str]]:
    """Yield the contributions' table with each partition that holds nothing above the horizon."""
    for first in range(1, horizon - PARTITION_TXIDS + 2, PARTITION_TXIDS):
        yield folds.contribution, folds.generation.partition(folds.state, first)


def _drop_if_empty(connection: Connection, table: str, partition: str) -> None:
    if not connection.execute(query("relation_exists"), {"name": partition}).scalar_one():
        return
    if execute(connection, f"SELECT EXISTS (SELECT FROM {partition})").fetchone()[0]:
        return
    execute(connection, f"SAVEPOINT unlocked; {_DROP_TIMEOUT}")
    try:
        execute(connection, f"ALTER TABLE {table} DETACH PARTITION {partition}; DROP TABLE {partition}")
    except LockNotAvailable:
        execute(connection, "ROLLBACK TO unlocked")  # somebody reads it: the next call drops it
