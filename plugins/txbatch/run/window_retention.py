"""Rows of `txbatch gc` about windows that leave states (R30): a row for each state with a time to keep windows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from txbatch.core.corrections.window_retention import Leaving, Windows
from txbatch.core.topology.kept_windows import Left, describe_time, which

Row = dict[str, Any]


def leave(windows: Windows, topology: str, *, dry_run: bool = False, horizon: int | None = None) -> list[Row]:
    """Remove old windows from a topology's states, and return a row for each state. A dry run only counts, at this `horizon`."""
    done: dict[str, list[Left]] = {}
    if dry_run:
        found = windows.leaving(topology, horizon)
        done = {each.state: [left] for each in found if (left := windows.outlook(topology, each))}
        rows = (_row(each, done.get(each.state, []), each.before if each.some else each.since) for each in found)
        return [row | {"dry_run": True} for row in rows]
    for state, left in windows.leave(topology):
        done.setdefault(state, []).append(left)
    found = windows.leaving(topology)
    return [_row(each, done.get(each.state, []), each.since) for each in found]


def describe_windows(row: Mapping[str, Any]) -> str:
    """Return in a line how many windows of a state have left.

    >>> row = {"state": "hourly", "which": "that begin before 2026-01-05 10:00 UTC", "windows": 3, "records": 12}
    >>> describe_windows({**row, "waits_for": None})
    "state 'hourly': its windows that begin before 2026-01-05 10:00 UTC have left, 3 of them now (12 records)"
    """
    of = f"state {row['state']!r}: its windows"
    dry = row.get("dry_run", False)
    if row["which"] is None:
        gone = f"{of} stay for {row['keep']} once they have ended, and none has left"
    else:
        records = "" if row["records"] is None else f" ({row['records']:,} records)"
        have = "would leave, that is" if dry else "have left,"
        gone = f"{of} {row['which']} {have} {row['windows']:,}{'' if dry else ' of them now'}{records}"
    return f"{gone}; what is older than that waits for {row['waits_for']}" if row["waits_for"] else gone


def _row(leaving: Leaving, done: list[Left], before: int | None) -> Row:
    known = leaving.kept.records is not None
    return {
        "state": leaving.state,
        "keep": str(leaving.kept),
        "left_before": None if before is None else describe_time(before),
        "which": None if before is None else which(leaving.kept, before),
        "windows": sum(each.windows for each in done),
        "records": sum(each.records or 0 for each in done) if known else None,
        "waits_for": leaving.waits_for,
    }
