"""The rows of an interval, in SQL: those with a time in the interval that a snapshot sees; and what such a plan leaves out.

>>> at = TimeColumn(Column("day", "date", "date"), None)
>>> at.within("2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00")
'"day" >= \\'2026-01-01\\'::date AND "day" < \\'2026-01-02\\'::date'
>>> first = {"interval": ["2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00"], "end": "9:9:", "records": 2, "history": []}
>>> second = {**first, "interval": ["2026-01-02T00:00:00+00:00", "2026-01-03T00:00:00+00:00"]}
>>> [(part["interval"][1], part["records"]) for part in parts_of(fused([second, first]))]
[('2026-01-03T00:00:00+00:00', 4)]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from txbatch.core.batch.transaction import Metadata
from txbatch.core.errors import BadRecord, PartitionUnreadable, SourceUnfit
from txbatch.core.records.fields import Field
from txbatch.core.sources.by_time import bounds
from txbatch.core.sources.snapshots import FIRST, Snapshot
from txbatch.spouts.tables import server
from txbatch.spouts.tables.columns import Column, expression
from txbatch.spouts.tables.connection import Session
from txbatch.spouts.tables.description import Table
from txbatch.spouts.tables.planning import Look
from txbatch.spouts.tables.windows import any_of, literal, quoted, window

# A local time and its moment in UTC differ as the bounds of an interval do, but for changes of the zone's clocks.
_CLOCKS = "interval '2 days'"


@dataclass(frozen=True, slots=True)
class TimeColumn:
    """The column with the time of a row. `timezone` is the zone of a column without one."""

    column: Column
    timezone: str | None

    @classmethod
    def of(cls, session: Session, table: Table, time: str, timezone: str | None) -> TimeColumn:
        """Return a table's column. Raise SourceUnfit if there is none, or a row may have no time."""
        column = table.columns.get(time)
        if column is None:
            raise SourceUnfit(f"{session.of}: no column {time!r} is there; mend the job, or the table")
        if column.nullable:
            raise SourceUnfit(
                f"{session.of}: {time} may be null, and a row without a time is in no interval: "
                f"ALTER TABLE {table.name} ALTER {quoted(time)} SET NOT NULL"
            )
        return cls(column, timezone)

    def within(self, start: str, end: str) -> str:
        """Return the condition of rows with a time from `start` to before `end`."""
        name, of = quoted(self.column.name), expression(self.column, self.timezone)
        first, last = self._bound(start), self._bound(end)
        found = f"{of} >= {first} AND {of} < {last}"
        if of == name or self.timezone is None:
            return found
        # An index has the local time alone.
        zone = literal(self.timezone)
        local = [f"({bound} AT TIME ZONE {zone})" for bound in (first, last)]
        return f"{found} AND {name} >= {local[0]} - {_CLOCKS} AND {name} < {local[1]} + {_CLOCKS}"

    def outside(self, low: datetime, high: datetime) -> str:
        """Return the condition of rows without a time, before one moment, or not before another; by the column alone.

        A constraint NOT NULL that is not valid, of PostgreSQL 18, holds for new rows alone.
        """
        name = quoted(self.column.name)
        return f"{name} < {self._local(low)} OR {name} >= {self._local(high)} OR {name} IS NULL"

    def _local(self, moment: datetime) -> str:
        bound = self._bound(moment.isoformat())
        zoned = self.column.type == "timestamp" and self.timezone is not None
        return f"({bound} AT TIME ZONE {literal(self.timezone or '')})" if zoned else bound

    def _bound(self, moment: str) -> str:
        """Return a moment in SQL; its day in UTC, of a column of days."""
        if self.column.type == "date":
            return f"'{datetime.fromisoformat(moment).astimezone(UTC).date().isoformat()}'::date"
        return f"'{datetime.fromisoformat(moment).isoformat()}'::timestamptz"


def seen(snapshot: str) -> str:
    """Return the condition of rows that a snapshot sees."""
    return any_of(window(FIRST, Snapshot.parse(snapshot)))


def rows_of(at: TimeColumn, part: Mapping[str, Any]) -> str:
    """Return the condition of the rows of a plan."""
    return f"{at.within(*part['interval'])} AND ({seen(part['end'])})"


def parts_of(plan: Metadata) -> Sequence[Metadata]:
    """Return the plans of which a plan is made: itself, if the plan is of one batch."""
    parts: Sequence[Metadata] = plan.get("parts") or [plan]
    return parts


def fused(plans: Sequence[Metadata]) -> Metadata:
    """Return one plan of several. Neighbouring intervals with the same snapshot are read by one scan."""
    parts = list[dict[str, Any]]()
    for plan in sorted(plans, key=lambda each: datetime.fromisoformat(each["interval"][0])):
        last = parts[-1] if parts else None
        if last and {**last, **_own(plan)} == plan and _moment(last, 1) == _moment(plan, 0):
            last |= {
                "interval": [last["interval"][0], plan["interval"][1]],
                "records": last["records"] + plan["records"],
            }
        else:
            parts.append(dict(plan))
    ends = max(parts, key=lambda each: _moment(each, 1))["interval"][1]
    return {
        "interval": [parts[0]["interval"][0], ends],
        "records": sum(each["records"] for each in parts),
        "parts": parts,
    }


def _own(plan: Mapping[str, Any]) -> dict[str, Any]:
    return {name: plan[name] for name in ("interval", "records")}


def _moment(plan: Mapping[str, Any], end: int) -> datetime:
    return datetime.fromisoformat(plan["interval"][end])


@dataclass(frozen=True, slots=True)
class Timed:
    """What a spout by time reads: a table by a time column. `of` names the spout."""

    of: str
    table: str
    fields: Sequence[Field]
    time: str
    timezone: str | None
    plausible: tuple[str, str]
    accept: frozenset[str]


class IntervalPlanner(Look):
    """Plans intervals by one look at the server: all intervals have the same snapshot."""

    def __init__(self, session: Session, wanted: Timed) -> None:
        """Look. Raise BadRecord if a row of the table has a time that is not plausible: no interval may ever have the row."""
        super().__init__(session, wanted.table, wanted.fields, wanted.timezone)
        self.wanted = wanted
        self._at = TimeColumn.of(session, self.table, wanted.time, wanted.timezone)
        self._check_times()

    def plan(self, interval: Sequence[str], last: Metadata | None) -> Metadata:
        """Return the plan of an interval, as the server is. Refuse a server that has another history than the last plan."""
        if last is not None:
            server.check(self.session.of, self.server, self.table.oid, last, self.wanted.accept)
        plan = {"interval": list(interval), "end": str(self.server.snapshot)}
        if self.server.standby:
            self._check_horizon(plan)
        return {**plan, **self._counted(self._count([rows_of(self._at, plan)]))}

    def _check_horizon(self, plan: Metadata) -> None:
        """Refuse a plan that would leave out rows of the interval that are there: a standby plans by the primary's horizon."""
        beyond = f"{self._at.within(*plan['interval'])} AND NOT ({seen(plan['end'])})"
        if self.session.rows(f"SELECT FROM {self._name} WHERE {beyond} LIMIT 1"):
            raise PartitionUnreadable(
                f"{self.session.of}: a standby would leave out rows from {plan['interval'][0]} to {plan['interval'][1]} because "
                "of an open transaction of the primary; try again when it has ended, or read the primary"
            )

    def _check_times(self) -> None:
        low, high = bounds(self.wanted.of, self.wanted.plausible)
        name = quoted(self.wanted.time)
        found = self.session.rows(f"SELECT {name}::text FROM {self._name} WHERE {self._at.outside(low, high)} LIMIT 1")
        if found:
            first, last = self.wanted.plausible
            raise BadRecord(
                f"{self.session.of}: {found[0][0] or 'null'} is the {self.wanted.time} of a row, not between {first} and {last}; "
                "mend the row, or say plausible= of the spout"
            )
