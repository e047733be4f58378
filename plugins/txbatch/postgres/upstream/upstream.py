"""States as sources of other topologies, in PostgreSQL: the changes between two txids, by the functions of `report`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, Engine

from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Metadata
from txbatch.core.definition.job_rules import Jobs, no_jobs
from txbatch.core.errors import CannotAsk, UnknownName
from txbatch.core.state.pruned import stored_spans
from txbatch.core.state.state import changes_columns, versions_name
from txbatch.core.topology.kept_windows import KeptWindows, Left, may_count_in
from txbatch.core.upstream.closed_windows import closings_of_range, first_closed
from txbatch.core.upstream.ranges import (
    Closing,
    Replaced,
    UpstreamState,
    check_gone,
    check_kept,
    check_same,
    replaced_with,
)
from txbatch.core.upstream.upstream import UpstreamReader, check_asked, check_dated, check_merged, unknown_state
from txbatch.postgres.database.expressions import escape_percent, pg_name
from txbatch.postgres.database.generations import CURRENT
from txbatch.postgres.database.queries import query
from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.schema.closings import closings_name
from txbatch.postgres.upstream.as_of import AsOf, shown_names, streamed


class PostgresUpstream:
    """`core.upstream.upstream.Upstream` on a ledger. Each method is one transaction with one snapshot.

    `jobs` has the jobs whose Python merges values.
    """

    def __init__(self, engine: Engine, jobs: Jobs = no_jobs) -> None:
        self._engine, self.jobs = engine, jobs

    @cached_property
    def engine(self) -> Engine:
        """The engine of snapshots, made when a topology first asks: most topologies read no state."""
        return self._engine.execution_options(isolation_level="REPEATABLE READ")

    def known(self, state: str) -> UpstreamState:
        """Return how far a state is. Raise UnknownName if the state is unknown, TerminalError if the state's past is not kept."""
        with transaction(self.engine) as connection:
            return self._known(connection, state)

    def facts(self, states: Collection[str]) -> Mapping[str, UpstreamState]:
        """Return how far several states are, in one snapshot; missing states are left out. Raise as `known` does."""
        found = dict[str, UpstreamState]()
        with transaction(self.engine) as connection:
            for state in states:
                with suppress(UnknownName):
                    found[state] = self._known(connection, state)
        return found

    def _known(self, connection: Connection, state: str) -> UpstreamState:
        found = known(connection, state)
        check_merged(state, found.topology, found.defined, self.jobs)
        return found

    def readers(self) -> Sequence[UpstreamReader]:
        """Return all streams that read a state."""
        with transaction(self.engine) as connection:
            return readers(connection)

    def changes(self, state: str, range_: Metadata, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Yield the given columns of the changes in a range of cuts, a row per key. Raise RecordsGone if a cut is not kept."""
        with transaction(self.engine) as connection:
            found = known(connection, state)
            check_same(found, range_)
            check_kept(found, range_)
            check_gone(found, range_)
            names, changed = AsOf(connection, found, self.jobs).changes(range_)
            check_asked(state, columns, names)
            yield from streamed(connection, state, columns, changed, {"start": range_["start"], "end": range_["end"]})

    def closings(self, state: str, range_: Metadata) -> Sequence[Closing]:
        """Return the batches in a range that closed windows of a state, by txid."""
        with transaction(self.engine) as connection:
            return [closing for closing, _ in _closings(connection, known(connection, state), range_)]

    def closed(self, state: str, range_: Metadata, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Yield the given columns of the windows closed in a range of cuts, as of their closing."""
        with transaction(self.engine) as connection:
            found = known(connection, state)
            check_same(found, range_)
            check_kept(found, range_)
            check_gone(found, range_)
            check_asked(state, columns, found.closed)
            as_of = AsOf(connection, found, self.jobs)
            for closing, cut in _closings(connection, found, range_):
                yield from as_of.closed(closing, cut, range_, columns)

    def reopened(self, state: str, range_: Metadata) -> int | None:
        """Return the first cut as of which a part of a session was closed that is open at the range's end, or None."""
        with transaction(self.engine) as connection:
            found = known(connection, state)
            (*_, (closing, _)) = _closings(connection, found, range_)
            return AsOf(connection, found, self.jobs).reopened(closing, range_)

    def rows(self, state: str, txid: int, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Yield the given columns of a state as of a cut, a row per key."""
        with transaction(self.engine) as connection:
            *_, shown = AsOf(connection, known(connection, state), self.jobs).as_of(txid, "txid")
            if shown:
                yield from streamed(connection, state, columns, shown, {"txid": txid})

    def positions(self, state: str, after: int) -> Sequence[tuple[int, int]]:
        """Return the positions counted, or counted again, after a txid, each with the last txid that counted it; by txid."""
        with transaction(self.engine) as connection:
            found = connection.execute(query("upstream_positions"), {"state": state, "after": after})
            return [(row.position, row.txid) for row in found]

    def counted_in_left(self, state: str, range_: Metadata) -> int | None:
        """Return the first txid of a range that may have counted in windows brought back by a rebuild, or None."""
        with transaction(self.engine) as connection:
            found = known(connection, state)
            replaced = replaced_with(found, range_["start"])
            if replaced is None or replaced.left is None:
                return None
            given = {"state": state, "rebuild": replaced.rebuild}
            left = Left.from_json(connection.execute(query("upstream_left"), given).scalar_one())
            of = {"topology": found.topology, "after": replaced.last, "until": range_["end"]}
            plans = connection.execute(query("upstream_plans"), of)
            return next((row.txid for row in plans if may_count_in(BatchPlan.from_json(row.metadata), left)), None)

    def records(self, state: str, position: int, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Yield the given columns of a position's records in a state, as of the first request for a record."""
        with transaction(self.engine) as connection:
            kept = (
                f"SELECT * FROM {escape_percent(CURRENT.state(state))} WHERE batch = %(position)s ORDER BY record, copy"
            )
            yield from streamed(connection, state, columns, kept, {"position": position})


def known(connection: Connection, state: str) -> UpstreamState:
    """Return how far a state is. Raise UnknownName if the state is unknown, TerminalError if the state's past is not kept."""
    row = connection.execute(query("upstream_state"), {"state": state}).mappings().first()
    if row is None:
        raise unknown_state(state)
    check_dated(state, row["database"], contributions=row["contributions"])
    versions = {"name": f"report.{pg_name(versions_name(state))}"}
    if not connection.execute(query("relation_exists"), versions).scalar_one():
        raise CannotAsk(f"state {state!r} was made by an earlier version; to ask for its changes, run its job again")
    given = {"state": state, "topology": row["topology"]}
    found = connection.execute(query("upstream_replaced"), given)
    replaced = [
        Replaced(
            each.rebuild,
            each.swapped_txid,
            each.horizon,
            each.gone,
            _left(**each.left) if each.left else None,
            stored_spans(each.pruned),
            each.defined,
        )
        for each in found
    ]
    made = row["created_at"].astimezone(UTC).isoformat(), row["joined"]
    columns = tuple(changes_columns(*shown_names(row["columns"])))
    closed = _columns_of_closed(connection, state)
    left = None if row["kept"] is None else _left(row["kept"], row["left_before"])
    pruned = stored_spans(row["pruned"])
    txid = connection.execute(query("newest_cut"), given).scalar_one()
    return UpstreamState(
        state,
        row["topology"],
        made,
        txid,
        row["horizon"],
        tuple(replaced),
        columns,
        closed,
        left,
        pruned if pruned or "prune" in row["columns"] else None,
        row["columns"],
    )


def _left(kept: Mapping[str, Any], before: int, txid: int = 0) -> tuple[str, int]:
    return KeptWindows.from_json(kept).by, before


def _closings(connection: Connection, of: UpstreamState, range_: Metadata) -> list[tuple[Closing, int]]:
    """Return the batches that closed the windows of a range, each with the cut as of which the windows are read."""
    given = {"topology": of.topology, "state": of.state, "after": first_closed(range_), "until": range_["end"]}
    found = [Closing(*row) for row in connection.execute(query("upstream_closings"), given)]
    return closings_of_range(of, range_, found)


def _columns_of_closed(connection: Connection, state: str) -> tuple[str, ...]:
    """Return the columns of a state's closed windows; empty if no window closes."""
    found = connection.execute(query("report_functions"), {"names": [closings_name(state)]}).mappings().first()
    return tuple(name for name, _ in found["columns"][2:]) if found else ()


def readers(connection: Connection) -> list[UpstreamReader]:
    """Return all streams that read a state, each with the cuts the stream needs."""
    found = connection.execute(query("upstream_readers"))
    return [
        UpstreamReader(row.topology, row.state, row.owner, frozenset(row.needs), row.between, frozenset(row.opened))
        for row in found
    ]


def looked_up(connection: Connection) -> list[UpstreamReader]:
    """Return the states that open batches look up in, with the cuts the batches need."""
    found = connection.execute(query("looked_up"))
    return [
        UpstreamReader(row.topology, row.state, row.owner, frozenset(row.needs), opened=frozenset([0])) for row in found
    ]
