"""Finds rows of tables that came late, or went, since a batch counted their interval: told to people, counted by no attempt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from txbatch import settings
from txbatch.core.batch.planned_table import PlannedTable, row_difference
from txbatch.core.errors import OtherHistory, TxbatchError
from txbatch.spouts.tables import description, server
from txbatch.spouts.tables.connection import Session, reading
from txbatch.spouts.tables.description import Table, sql_name
from txbatch.spouts.tables.intervals import TimeColumn, seen

# The most intervals of a stream that are looked at, the newest ones.
LOOKS_MAX = 1000
_TOGETHER = 100
# A statement has so long: without an index on the time, each interval is a scan of the table.
_SECONDS = 30


def changed_tables(counted: Iterable[PlannedTable]) -> Iterator[dict[str, Any]]:
    """Yield a row per interval whose rows differ from those counted; plans come newest first.

    A table that cannot be looked at, or only in its newest intervals, has one row more, without an interval, which says so. No
    error is raised for a table.
    """
    for (topology, stream), group in groupby(counted, key=lambda each: (each.topology, each.stream)):
        plans = list(group)
        source, some = plans[0].source, plans[:LOOKS_MAX]
        told = {"topology": topology, "stream": stream, "file": source["table"], "seen_by": None}
        try:
            changes = differences(source, [each.plan for each in some])
        except TxbatchError as error:
            yield {**told, "interval": None, "txid": None, "change": f"not looked at: {error.text}"}
            continue
        for each, change in zip(some, changes, strict=True):
            if change is not None:
                yield {**told, "interval": each.plan["interval"], "txid": each.txid, "change": change}
        looked, many = sum(_server(each.plan) == _server(some[0].plan) for each in some), max(plans[0].many, len(plans))
        if looked < many:
            of = f"{looked:,} of {many:,} intervals, the newest ones of this server"
            change = f"looked at in {of}; `txbatch verify {topology}` reads all"
            yield {**told, "interval": None, "txid": None, "change": change}


def _server(plan: Mapping[str, Any]) -> list[Any]:
    """Return the system, the database and the table of a plan. Timelines aside: a promoted standby goes on with the numbers of
    transactions.
    """
    return [plan["history"][place] for place in (0, 2, 3)]


def differences(source: Mapping[str, Any], plans: Sequence[Mapping[str, Any]]) -> list[str | None]:
    """Return how the rows of each plan's interval differ from those counted; None if no difference is seen.

    `source` is the identity of the spout. A plan of another server or table is not compared; OtherHistory if the first is
    one.
    """
    found = counts(source, plans)
    return [each and row_difference(plan["records"], *each) for plan, each in zip(plans, found, strict=True)]


def counts(source: Mapping[str, Any], plans: Sequence[Mapping[str, Any]]) -> list[tuple[int, int] | None]:
    """Return the number of rows of each plan's interval seen by the plan's snapshot, and of later rows.

    None for a plan of another server or table. Raise OtherHistory if the first plan is of another server or table.
    """
    name = source["source"]
    with reading(name, settings.source_url(name), source["table"]) as session:
        session.rows(f"SELECT set_config('statement_timeout', '{_SECONDS}s', true)")
        table = description.describe(session, source["table"])
        at = TimeColumn.of(session, table, source["time"], source.get("timezone"))
        here = [*session.row(server.SYSTEM), table.oid]
        same = [number for number, plan in enumerate(plans) if _server(plan) == here]
        if 0 not in same:
            raise OtherHistory(f"{session.of} is another table, or on another server, than when it was counted")
        found: list[tuple[int, int] | None] = [None] * len(plans)
        for numbers in (same[start : start + _TOGETHER] for start in range(0, len(same), _TOGETHER)):
            for number, counted in zip(numbers, _counts(session, table, at, [plans[n] for n in numbers]), strict=True):
                found[number] = counted
    return found


def _counts(
    session: Session, table: Table, at: TimeColumn, plans: Sequence[Mapping[str, Any]]
) -> list[tuple[int, int]]:
    """Return, for each plan, how many rows of the interval its snapshot sees, and how many it does not see."""
    counts = " UNION ALL ".join(
        f"SELECT {number}, count(*) FILTER (WHERE {seen(plan['end'])}), count(*) FILTER (WHERE NOT ({seen(plan['end'])})) "
        f"FROM {sql_name(table.name)} WHERE {at.within(*plan['interval'])}"
        for number, plan in enumerate(plans)
    )
    return [(there, late) for _, there, late in sorted(session.rows(counts))]
