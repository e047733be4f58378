"""Windows leave states in PostgreSQL (R30): step by step, each step in one short transaction under the topology's lock.

`core.corrections.window_retention` decides the windows to remove. Windows leave the rows of the state and its base: no
contribution has them any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Engine

from txbatch import failpoints
from txbatch.core.corrections.window_retention import STEP_ROWS, Leaving, WindowFacts, decided
from txbatch.core.definition.keep_policy import stored_windows
from txbatch.core.stored_json import canonical_json
from txbatch.core.topology.kept_windows import KeptWindows, Left
from txbatch.core.windows.watermark import BEGIN
from txbatch.postgres.database.expressions import escape_percent, listed, pg_name
from txbatch.postgres.database.queries import query
from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.state.folds import Folds
from txbatch.postgres.tables import batches as rows
from txbatch.postgres.tables import event_time
from txbatch.postgres.upstream.upstream import readers


class PostgresWindows:
    """`core.corrections.window_retention.Windows` on a ledger."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def policy(self, topology: str) -> dict[str, KeptWindows]:
        """Return how long windows stay in the states of a topology, as last set by its job."""
        with transaction(self.engine) as connection:
            return stored_windows(connection.execute(query("policy"), {"topology": topology}).scalar())

    def leaving(self, topology: str, horizon: int | None = None) -> list[Leaving]:
        """Return, for each state with a window policy, the windows to remove, as if all txids up to `horizon` were folded."""
        with transaction(self.engine) as connection:
            return _leaving(connection, topology, horizon)

    def outlook(self, topology: str, leaving: Leaving) -> Left | None:
        """Return the windows that would leave now, or None. Change nothing."""
        if not leaving.some or leaving.before is None:
            return None
        with transaction(self.engine) as connection:
            folds = _folds(connection, topology, leaving.state)
            step = _Step(connection, folds, leaving.kept, leaving.since, leaving.before)
            return Left(leaving.kept, leaving.before, _newest(connection, topology), *step.counted())

    def leave(self, topology: str) -> Iterator[tuple[str, Left]]:
        """Remove all windows that may leave, and yield each committed step with its state."""
        for state in [each.state for each in self.leaving(topology) if each.some]:
            while (done := self._step(topology, state)) is not None:
                yield state, done

    def _step(self, topology: str, state: str) -> Left | None:
        with transaction(self.engine) as connection:
            rows.lock_topology(connection, topology)
            leaving = next((each for each in _leaving(connection, topology) if each.state == state and each.some), None)
            done = None if leaving is None else _let_go(connection, topology, leaving)
            failpoints.hit("gc.windows_left")
            return done


def _let_go(connection: Connection, topology: str, leaving: Leaving) -> Left | None:
    """Remove some windows, and record their removal. Return None if no window leaves: old pieces may go on in a session."""
    folds, since, end = _folds(connection, topology, leaving.state), leaving.since, leaving.before or 0
    while since is None or since < end:
        step = _Step(connection, folds, leaving.kept, since, end).first()
        windows, records = step.let_go()
        if windows:
            done = Left(leaving.kept, step.before, _newest(connection, topology), windows, records)
            _note(connection, leaving.state, done)
            return done
        since = step.before
    return None


def _note(connection: Connection, state: str, left: Left) -> None:
    told = {"before": left.before, "txid": left.txid, "windows": left.windows, "records": left.records}
    connection.execute(query("let_windows_go"), {"state": state, "kept": canonical_json(left.kept.to_json()), **told})


def _folds(connection: Connection, topology: str, state: str) -> Folds:
    stored = connection.execute(query("states_with_contributions"), {"topology": topology}).mappings()
    return Folds(topology, state, next(row["columns"] for row in stored if row["state"] == state))


def _leaving(connection: Connection, topology: str, horizon: int | None = None) -> list[Leaving]:
    policies = stored_windows(connection.execute(query("policy"), {"topology": topology}).scalar())
    if not policies:
        return []
    gone, stored = (
        rows.windows_left(connection, topology),
        connection.execute(query("states_with_contributions"), {"topology": topology}),
    )
    horizons = {row.state: row.horizon for row in stored}
    return [
        decided(
            state, kept, gone.get(state), _known(connection, topology, state, kept, max(horizons[state], horizon or 0))
        )
        for state, kept in policies.items()
        if state in horizons
    ]


def _known(connection: Connection, topology: str, state: str, kept: KeptWindows, horizon: int) -> WindowFacts:
    rebuild = connection.execute(query("running_rebuild"), {"topology": topology}).mappings().first()
    then = connection.execute(query("closed_to_then"), {"topology": topology, "txid": horizon}).scalar() or {}
    return WindowFacts(
        horizon,
        then.get(state),
        event_time.closed_to(connection, topology).get(state),
        [kept.watermark_of(event_time.marks(connection, topology)), *_marks(connection, topology, kept, horizon)],
        _readers(connection, topology, state),
        rebuild["rebuild"] if rebuild else None,
    )


def _marks(connection: Connection, topology: str, kept: KeptWindows, horizon: int) -> list[int | None]:
    """Return the least watermarks of the plans above the horizon; None for a missing watermark."""
    asked = {
        "topology": topology,
        "horizon": horizon,
        "streams": list(kept.streams),
        "timed": list(kept.streams.values()),
    }
    return [None if row.without else row.mark for row in connection.execute(query("least_marks"), asked)]


def _readers(connection: Connection, topology: str, state: str) -> list[tuple[str, int | None]]:
    """Return the open batches that read all of a state, and the topologies that have not read the state since its rebuild."""
    swapped = connection.execute(query("last_swapped"), {"topology": topology}).scalar_one()
    found = connection.execute(query("whole_readers"), {"state": state, "swapped": swapped})
    behind = (
        each for each in readers(connection) if each.state == state and any(0 < txid <= swapped for txid in each.needs)
    )
    return [*((row.topology, row.txid) for row in found), *((each.topology, None) for each in behind)]


def _newest(connection: Connection, topology: str) -> int:
    return int(connection.execute(query("newest_committed"), {"topology": topology}).scalar_one() or 0)


def _times(since: int | None, before: int) -> dict[str, int]:
    return {"since": BEGIN if since is None else max(BEGIN, since), "before": before}


def _between(time: str) -> str:
    since, before = (f"timestamptz 'epoch' + %({name})s * interval '1 microsecond'" for name in ("since", "before"))
    return f"{time} >= {since} AND {time} < {before}"


@dataclass(frozen=True, slots=True)
class _Step:
    """The windows one transaction removes from a state: all windows before a time that have not left yet."""

    connection: Connection
    folds: Folds
    kept: KeptWindows
    since: int | None
    before: int

    def first(self) -> _Step:
        """Return the first part of the step: whole windows, up to about `STEP_ROWS` rows."""
        by, base = f"b.{escape_percent(pg_name(self.kept.by))}", escape_percent(self.folds.base)
        micros = f"(EXTRACT(EPOCH FROM {by}) * 1000000)::bigint"
        sql = f"SELECT {micros} FROM {base} b WHERE {_between(by)} ORDER BY {by} OFFSET {STEP_ROWS - 1:d} LIMIT 1"
        found = self._run(sql).scalar()
        return self if found is None else replace(self, before=min(self.before, int(found) + 1))

    def counted(self) -> tuple[int, int | None]:
        """Return the number of windows in the step, and the number of their records."""
        return self._counted(f"({self._rows()})")

    def let_go(self) -> tuple[int, int | None]:
        """Delete the windows; return the number of windows and of their records."""
        self._run(f"CREATE TEMP TABLE leaving ON COMMIT DROP AS {self._rows()}")
        same = " AND ".join(f"s.{key} = l.k{n}" for n, key in enumerate(self._keys))
        for table in (self._state, escape_percent(self.folds.base)):
            self._run(f"DELETE FROM {table} s USING pg_temp.leaving l WHERE {same}")
        found = self._counted("pg_temp.leaving")
        self._run("DROP TABLE pg_temp.leaving")
        return found

    def _counted(self, rows: str) -> tuple[int, int | None]:
        windows, records = self._run(f"SELECT count(*) FILTER (WHERE l.begins), sum(l.records) FROM {rows} l").one()
        return windows, None if self.kept.records is None else int(records or 0)

    def _rows(self) -> str:
        """Return the query of the rows to delete, by their keys k0, k1, ...

        A session counts once: its first piece has `begins`.
        """
        gap, name = self.kept.gap, self.kept.records
        records = "NULL::bigint" if name is None else f"s.{escape_percent(pg_name(name))}"
        keys, by = (
            [f"s.{key} AS k{n}" for n, key in enumerate(self._keys)],
            f"s.{escape_percent(pg_name(self.kept.by))}",
        )
        if gap is None:
            return (
                f"SELECT {listed(keys)}, {records} AS records, true AS begins FROM {self._state} s WHERE {_between(by)}"
            )
        others, ended = listed(f"s.{key}" for key in self._keys[:-1]), ""
        if others:  # all pieces of a key that has one which ended: they are found by its ends, of what is not folded yet as well
            found = (f"SELECT {others} FROM {escape_percent(each)} s WHERE {_between(by)}" for each in self._ends)
            ended = f" WHERE ({others}) IN ({' UNION ALL '.join(found)})"
        pieces = f"SELECT {listed(keys)}, {by} AS ends, {records} AS records FROM {self._state} s{ended}"
        return self._whole_sessions(pieces, gap)

    def _whole_sessions(self, pieces: str, gap: int) -> str:
        """Return the query of the pieces whose whole session leaves."""
        *others, start = (f"p.k{n}" for n in range(len(self._keys)))
        of_key = f"PARTITION BY {listed(others)} " if others else ""
        over = f"OVER ({of_key}ORDER BY {start}"
        last = f"max(p.ends) {over} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
        begun = (
            f"SELECT p.*, ({start} > {last} + interval '{gap:d} microseconds') IS NOT FALSE AS begins FROM ({pieces}) p"
        )
        sessions = f"SELECT p.*, count(*) FILTER (WHERE p.begins) {over}) AS session FROM ({begun}) p"
        of_session = f"OVER (PARTITION BY {listed([*others, 'p.session'])})"
        whole = f"SELECT p.*, max(p.ends) {of_session} AS whole FROM ({sessions}) p"
        return f"SELECT p.* FROM ({whole}) p WHERE {_between('p.whole')}"

    def _run(self, sql: str) -> Any:
        return self.connection.exec_driver_sql(sql, _times(self.since, self.before))

    @property
    def _keys(self) -> list[str]:
        return [escape_percent(key) for key in self.folds.keys]

    @property
    def _ends(self) -> tuple[str, str]:
        return self.folds.base, self.folds.contribution

    @property
    def _state(self) -> str:
        return escape_percent(self.folds.generation.state(self.folds.state))
