"""The rows of a state as of a cut, and the changes between two cuts, as SQL: by the functions of `report`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg2.errors import DatatypeMismatch, UndefinedColumn, UndefinedFunction
from sqlalchemy import Connection
from sqlalchemy.exc import ProgrammingError

from txbatch.core.batch.transaction import Metadata
from txbatch.core.definition.job_rules import Jobs
from txbatch.core.state.append import BATCH
from txbatch.core.state.state import changes_columns, versions_name
from txbatch.core.upstream.closed_sessions import same_sessions
from txbatch.core.upstream.closed_windows import asked_before, asked_since, asks_touching, closed_columns
from txbatch.core.upstream.ranges import (
    Closing,
    Replaced,
    UpstreamState,
    defined_by,
    left_between,
    pruned_between,
    replaced_with,
    within_generation,
)
from txbatch.core.upstream.upstream import check_asked, check_keys, check_merged, reshaped
from txbatch.postgres.database.driver_errors import message_of
from txbatch.postgres.database.expressions import escape_percent, listed, pg_name, pg_text
from txbatch.postgres.database.generations import CURRENT, past
from txbatch.postgres.schema.python_history import PythonHistory
from txbatch.postgres.upstream.closed_sessions import CHANGED_BEHIND, ClosedSessions

_ROWS_AHEAD = 10_000


@dataclass(frozen=True, slots=True)
class AsOf:
    """The past of a state, as SQL: each cut by the generation that has the cut."""

    connection: Connection
    of: UpstreamState
    jobs: Jobs

    def changes(self, range_: Metadata) -> tuple[Sequence[str], str]:
        """Return the columns of the changes between two cuts, and the SQL of the changes, by the parameters `start` and `end`."""
        start, end = range_["start"], range_["end"]
        within, replaced = within_generation(self.of, start, end), replaced_with(self.of, start)
        if within and (own := self._own(replaced)):
            names = changes_columns(*shown_names(defined_by(self.of, replaced)))
            return names, escape_percent(own.changes(start, end))
        if within and replaced is None:
            changes = f"report.{escape_percent(pg_name(f'changes_{self.of.state}'))}"
            return self.of.columns, f"SELECT * FROM {changes}(%(start)s, %(end)s)"
        (keys, values, after), (keys_before, values_before, before) = (
            self.as_of(txid, name) for txid, name in ((end, "end"), (start, "start"))
        )
        if before and after:
            check_keys(self.of.state, keys, keys_before)
            after, before = (
                self._there(after, (*keys, *values), range_),
                self._there(before, (*keys_before, *values_before), range_),
            )
        if not after:  # a rebuild has made the state, of which there was nothing before
            names = changes_columns(*shown_names(defined_by(self.of, None)))
            return names, f"SELECT {listed(f'NULL AS {_quoted(name)}' for name in names)} WHERE false"
        names = changes_columns(keys, values)
        pairs = [
            sql
            for value in values
            for sql in (f"b.{_quoted(value)}" if value in values_before else "NULL", f"a.{_quoted(value)}")
        ]
        change = "CASE WHEN b.txid IS NULL THEN 'added' WHEN a.txid IS NULL THEN 'removed' ELSE 'changed' END"
        made = [
            *(f"COALESCE(a.{key}, b.{key})" for key in map(_quoted, keys)),
            change,
            *pairs,
            f"COALESCE(a.txid{self._went(replaced, keys) if within and replaced else ''}, %(end)s)",
        ]
        same = " AND ".join(f"b.{key} = a.{key}" for key in map(_quoted, keys)) or "true"
        differ = f"(b.txid IS NULL, {listed(pairs[::2])}) IS DISTINCT FROM (a.txid IS NULL, {listed(pairs[1::2])})"
        columns = listed(f"{sql} AS {_quoted(name)}" for sql, name in zip(made, names, strict=True))
        # Of nothing the types are those of what comes after it: a key has to be compared with another one.
        before = before or f"SELECT * FROM ({after}) n WHERE false"
        return names, f"SELECT {columns} FROM ({before}) b FULL JOIN ({after}) a ON {same} WHERE {differ}"

    def _went(self, replaced: Replaced, keys: Sequence[str]) -> str:
        """Return the SQL of the txid by which a key `b` was removed, as in the changes of the current generation."""
        if "sessions" in (defined_by(self.of, replaced) or {}):
            return ""  # of one that is no more nobody knows
        topology, versions = pg_text(self.of.topology), pg_name(versions_name(self.of.state))
        found = " AND ".join(["v.txid <= %(end)s", *(f"v.{key} = b.{key}" for key in map(_quoted, keys))])
        later = f"o.topology = {escape_percent(topology)} AND o.txid = v.txid AND v.position > 0 AND o.replaced_by <= %(end)s"
        return (
            f", (SELECT max(GREATEST(v.txid, o.replaced_by)) FROM {past(replaced.rebuild).reports}.{escape_percent(versions)} v "
            f"LEFT JOIN txbatch.batch o ON {later} WHERE {found})"
        )

    def as_of(self, txid: int, parameter: str) -> tuple[list[str], list[str], str]:
        """Return the keys and values of the state as of a cut, and the SQL of the rows; empty if the state did not exist."""
        replaced = replaced_with(self.of, txid)
        columns = defined_by(self.of, replaced)
        if not txid or columns is None:
            return [], [], ""
        if own := self._own(replaced):
            return *shown_names(columns), escape_percent(own.as_of(txid))
        schema = (past(replaced.rebuild) if replaced else CURRENT).reports
        return *shown_names(columns), f"SELECT * FROM {schema}.{_quoted(f'as_of_{self.of.state}')}(%({parameter})s)"

    def _there(self, shown: str, columns: Sequence[str], range_: Metadata) -> str:
        """Return the SQL of `shown` without windows or records that retention removed in the generation of a cut."""
        told = [
            f"{_quoted(by)} >= timestamptz 'epoch' + {before:d} * interval '1 microsecond'"
            for by, before in left_between(self.of, range_["start"], range_["end"])
            if by in columns
        ]
        told += [
            f"NOT ({_quoted(BATCH.name)} > {after:d} AND {_quoted(BATCH.name)} <= {last:d})"
            for after, last in pruned_between(self.of, range_)
        ]
        return f"SELECT * FROM ({shown}) t WHERE {' AND '.join(told)}" if told else shown

    def closed(self, closing: Closing, cut: int, range_: Metadata, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Yield the given columns of the windows a batch closed, as of a cut. Sessions closed before are left out."""
        keys, _, shown = self.as_of(cut, "cut")
        if not shown:
            return
        check_asked(self.of.state, columns, closed_columns(self.of, replaced_with(self.of, cut)))
        by = f"CAST(%(by)s AS bigint) AS {_quoted(self.of.closed[-1])}"
        given = {"cut": cut, "by": closing.txid, "first": closing.first, "end": closing.end}
        if closing.key in keys:
            first, end = (f"timestamptz 'epoch' + %({each})s * interval '1 microsecond'" for each in ("first", "end"))
            start = f"s.{_quoted(closing.key)}"
            windows = f"SELECT s.*, {by} FROM ({shown}) s WHERE {start} >= {first} AND {start} < {end}"
            yield from streamed(self.connection, self.of.state, columns, windows, given)
            return
        sessions, since = self._sessions(closing, cut, keys, range_), asked_since(range_)
        rows = f"SELECT s.*, {by} FROM ({sessions.rows(shown)}) s"
        also = [*keys, closing.key, CHANGED_BEHIND]
        for row in streamed(self.connection, self.of.state, [*columns, *also], rows, given):
            asked = dict(zip(also, row[len(columns) :], strict=True))
            if sessions.closed_since(closing.gap, cut, since, asked) is None:
                yield row[: len(columns)]

    def reopened(self, closing: Closing, range_: Metadata) -> int | None:
        """Return the first cut of a range as of which a part of a session was closed that is open at the range's end.

        `closing` is the last closing up to the range's end.
        """
        cut, since = range_["end"], asked_since(range_)
        keys, _, shown = self.as_of(cut, "cut")
        if not shown or closing.key in keys:
            return None
        sessions, asked = self._sessions(closing, cut, keys, range_), [*keys, closing.key, CHANGED_BEHIND]
        given = {"cut": cut, "first": closing.end, "since": since}
        rows = streamed(self.connection, self.of.state, asked, sessions.changed(shown), given)
        found = (sessions.closed_since(closing.gap, cut, since, dict(zip(asked, row, strict=True))) for row in rows)
        return min((each for each in found if each is not None), default=None)

    def _sessions(self, closing: Closing, cut: int, keys: Sequence[str], range_: Metadata) -> ClosedSessions:
        replaced = replaced_with(self.of, cut)
        reports = (past(replaced.rebuild) if replaced else CURRENT).reports
        now, before = defined_by(self.of, replaced) or {}, list[tuple[int, str | None]]()
        for each in asked_before(self.of, range_, cut):
            then = defined_by(self.of, each) or {}
            before.append((each.last, past(each.rebuild).reports if same_sessions(then, now) else None))
        touching = asks_touching(range_)
        return ClosedSessions(self.connection, self.of, reports, keys, closing.key, before, touching)

    def _own(self, replaced: Replaced | None) -> PythonHistory | None:
        """Return the fold of the state's past if the job's Python merges values; otherwise None.

        Raise TerminalError if the job is not available.
        """
        columns = defined_by(self.of, replaced) or {}
        aggregate = check_merged(self.of.state, self.of.topology, columns, self.jobs)
        if aggregate is None:
            return None
        return PythonHistory.of(self.connection, aggregate, past(replaced.rebuild) if replaced else CURRENT)


def streamed(
    connection: Connection, state: str, columns: Sequence[str], rows: str, given: Mapping[str, int]
) -> Iterator[tuple[Any, ...]]:
    """Yield the given columns of the rows that SQL selects of a state, without all rows in memory.

    Raise SchemaMismatch if the columns do not fit.
    """
    statement = f"SELECT {escape_percent(listed(map(pg_name, columns)))} FROM ({rows}) c"
    ahead = {
        "stream_results": True,
        "max_row_buffer": _ROWS_AHEAD,
    }  # of this statement: others follow on the connection
    try:
        found = connection.exec_driver_sql(statement, dict(given), execution_options=ahead)
    except ProgrammingError as error:
        if isinstance(error.orig, (UndefinedColumn, UndefinedFunction, DatatypeMismatch)):
            raise reshaped(state, message_of(error.orig)) from error
        raise
    for row in found:
        yield tuple(bytes(value) if isinstance(value, memoryview) else value for value in row)


def shown_names(columns: Mapping[str, Any] | None) -> tuple[list[str], list[str]]:
    """Return the keys and the values of a state, as in reports; empty if the state does not exist."""
    if columns is None:
        return [], []
    return [name for name, _ in columns["keys"]], [*columns["aggregates"]]


def _quoted(name: str) -> str:
    return escape_percent(pg_name(name))
