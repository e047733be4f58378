"""Sessions closed by a batch, as of their closing, found by the index on the last times of pieces (R26, R27).

Other versions of the sessions' keys are found by key. `core.upstream.closed_sessions` decides whether a session had been
closed before. The question arises only for sessions changed behind the time closed by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy import Connection

from txbatch.core.records.time_buckets import micros_of
from txbatch.core.state.state import versions_name
from txbatch.core.upstream.closed_sessions import Asked, Before, SessionVersion, first_closed
from txbatch.core.upstream.ranges import UpstreamState
from txbatch.postgres.database.expressions import escape_percent, listed, pg_name, pg_text
from txbatch.postgres.database.queries import query

# What a row says beside what reports show: whether something changed in the session behind what was closed then.
CHANGED_BEHIND = "_txbatch_changed_behind"


@dataclass(frozen=True)
class ClosedSessions:
    """The closed sessions of a state, in the schema `reports` of a generation. `end` is the column of the last time.

    The last of the `keys` is the start. `before` are the generations of earlier cuts: the last cut of each, and its schema or
    None, if the generation had no such sessions.
    """

    connection: Connection
    of: UpstreamState
    reports: str
    keys: Sequence[str]
    end: str
    before: Sequence[tuple[int, str | None]] = ()
    touching: bool = True

    def rows(self, shown: str) -> str:
        """Return the SQL of the sessions in `shown` that end from `first` to before `end`.

        `shown` selects the state as of `cut`.
        """
        end = _quoted(self.end)
        ended = f"SELECT {self._others('v')} FROM {self._versions} v WHERE {_within(f'v.{end}')} AND v.txid <= %(cut)s"
        also = f"{self._changed_behind()} AS {_quoted(CHANGED_BEHIND)}"
        return f"SELECT s.*, {also} FROM {self._of_keys(ended, shown)} WHERE {_within(f's.{end}')}"

    def changed(self, shown: str) -> str:
        """Return the SQL of sessions that end at `first` or later and changed behind the closed time since the cut `since`."""
        of, replaced = f"SELECT {self._others('v')} FROM {self._versions} v WHERE v.txid", self._replaced()
        came = f"{of} > %(since)s AND v.txid <= %(cut)s AND {self._behind()}"
        gone = f"{of} = ANY (ARRAY({replaced} AND b.replaced_by > %(since)s))"
        keys = f"{came} UNION {gone}"
        # What was swapped is asked of all: it may have been closed in any session.
        read = f"({shown}) s" if self._views_before else self._of_keys(keys, shown)
        behind = self._changed_behind()
        also = f"{behind} AS {_quoted(CHANGED_BEHIND)}"
        return f"SELECT s.*, {also} FROM {read} WHERE s.{_quoted(self.end)} >= {_time('first')} AND {behind}"

    def _others(self, row: str) -> str:
        return listed(f"{row}.{_quoted(each)}" for each in self.keys[:-1])

    def _of_keys(self, keys: str, shown: str) -> str:
        """Return the SQL of the rows of `shown` with the keys, without the start; all rows if there is no key but the start."""
        if len(self.keys) == 1:
            return f"({shown}) s"
        # OFFSET 0: each key by a search of its own, for which the planner must not make one join of all.
        same = " AND ".join(f"a.{each} = c.{each}" for each in map(_quoted, self.keys[:-1]))
        asked = f"SELECT DISTINCT * FROM ({keys}) k"
        return f"({asked}) c CROSS JOIN LATERAL (SELECT * FROM ({shown}) a WHERE {same} OFFSET 0) s"

    def closed_since(self, gap: int, cut: int, since: int, row: Mapping[str, Any]) -> int | None:
        """Return the first cut, from `since` on, as of which a part of a session was closed; `row` is the session, by names.

        Return None if no part was closed before the cut of the session.
        """
        if not row[CHANGED_BEHIND]:
            return None
        session = micros_of(row[self.keys[-1]]), micros_of(row[self.end])
        before = [
            Before([*self._versions_of(row, last, self._view(reports))] if reports else [], last)
            for last, reports in self.before
        ]
        own = [*self._versions_of(row, cut, self._versions)]
        return first_closed(session, own, cut, Asked(gap, self._closings, since, self.touching), before)

    def _changed_behind(self) -> str:
        """Return the SQL condition for a session with a change behind the closed time.

        The condition is true if a version that begins within the session was replaced, or begins before the time closed when
        the version came; if an earlier generation had a version there; and, if `touching`, if a version that reaches into the
        session from before was replaced.
        """
        start, end = (_quoted(each) for each in (self.keys[-1], self.end))
        same = "".join(f"v.{each} = s.{each} AND " for each in map(_quoted, self.keys[:-1]))
        own = (
            f"EXISTS (SELECT FROM {self._versions} v WHERE {same}v.{start} BETWEEN s.{start} AND s.{end} AND v.txid <= %(cut)s "
            f"AND (v.txid IN ({self._replaced()}) OR {self._behind()}))"
        )
        of_earlier = (
            f"EXISTS ({self._replaced()}) AND EXISTS (SELECT FROM {self._versions} v "
            f"WHERE {same}v.{start} < s.{start} AND v.{end} >= s.{start} AND v.txid IN ({self._replaced()}))"
        )
        before = (
            f"EXISTS (SELECT FROM {view} v WHERE {same}v.{start} <= s.{end} AND v.{end} >= s.{start})"
            for view in self._views_before
        )
        return f"({' OR '.join([own, *([of_earlier] if self.touching else []), *before])})"

    def _replaced(self) -> str:
        """Return the SQL of the txids replaced as of the cut."""
        topology = escape_percent(pg_text(self.of.topology))
        return f"SELECT b.txid FROM txbatch.batch b WHERE b.topology = {topology} AND b.replaced_by <= %(cut)s"

    def _behind(self) -> str:
        """Return the SQL condition that a version `v` begins before the time closed when the version came."""
        topology, state = escape_percent(pg_text(self.of.topology)), escape_percent(pg_text(self.of.state))
        closed_to = (
            f"SELECT (b.closed_to ->> {state})::bigint FROM txbatch.batch b WHERE b.topology = {topology} AND b.txid < v.txid "
            "AND b.status = 'committed' AND b.closed_to IS NOT NULL ORDER BY b.txid DESC LIMIT 1"
        )
        return f"v.{_quoted(self.keys[-1])} < timestamptz 'epoch' + ({closed_to}) * interval '1 microsecond'"

    def _versions_of(self, row: Mapping[str, Any], cut: int, view: str) -> Iterator[SessionVersion]:
        """Yield all versions of a row's key in a view, up to a cut."""
        others = range(len(self.keys) - 1)
        given = {f"k{n}": row[self.keys[n]] for n in others} | {"cut": cut}
        same = "".join(f"v.{_quoted(self.keys[n])} = %(k{n})s AND " for n in others)
        replaced = "CASE WHEN v.position > 0 THEN b.replaced_by END"
        statement = (
            f"SELECT v.{_quoted(self.keys[-1])}, v.{_quoted(self.end)}, v.txid, {replaced} FROM {view} v "
            f"LEFT JOIN txbatch.batch b ON b.topology = {escape_percent(pg_text(self.of.topology))} AND b.txid = v.txid "
            f"WHERE {same}v.txid <= %(cut)s"
        )
        for each in self.connection.exec_driver_sql(statement, given):
            yield SessionVersion.of(*each)

    @cached_property
    def _closings(self) -> list[tuple[int, int]]:
        """The commits with the time up to which sessions are closed, by txid."""
        given = {"topology": self.of.topology, "state": self.of.state}
        return [(row.txid, row.closed_to) for row in self.connection.execute(query("upstream_closed_to"), given)]

    @property
    def _versions(self) -> str:
        return self._view(self.reports)

    @property
    def _views_before(self) -> list[str]:
        return [self._view(reports) for _, reports in self.before if reports]

    def _view(self, reports: str) -> str:
        return f"{reports}.{_quoted(versions_name(self.of.state))}"


def _within(sql: str) -> str:
    return f"{sql} >= {_time('first')} AND {sql} < {_time('end')}"


def _time(parameter: str) -> str:
    return f"timestamptz 'epoch' + %({parameter})s * interval '1 microsecond'"


def _quoted(name: str) -> str:
    return escape_percent(pg_name(name))
