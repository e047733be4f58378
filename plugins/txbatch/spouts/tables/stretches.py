"""Cuts what a batch reads of a table into stretches, of which each is read by a task of Spark with a connection of its own.

Tasks read as of different moments, and an UPDATE moves a row to another block. So a task of several refuses versions of rows
newer than the cut: another task may have read such a row at its place before, and no task the row of another place. Each older
version is in one stretch alone: with as many rows as planned, each planned row was read once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from txbatch.core.records.fields import Field
from txbatch.spouts.tables.columns import selected
from txbatch.spouts.tables.connection import NEWER, Session
from txbatch.spouts.tables.copy_text import Stretch
from txbatch.spouts.tables.description import Table, leaves, sql_name
from txbatch.spouts.tables.windows import literal

# A connection is worth so many rows.
ROWS_PER_TASK = 100_000
# If a part has so many of a table's rows, nobody asks for the part's blocks.
_MOST = 0.25
# Of so many transactions at most a task knows that they had ended before the cut; of more, one task reads the part.
KNOWN_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a table that are read: those that meet a condition, and their number."""

    label: str
    meets: str
    records: int


def cut(
    session: Session,
    table: Table,
    fields: Sequence[Field],
    timezone: str | None,
    parts: Sequence[Part],
    cores: int | None,
) -> list[Stretch]:
    """Return the stretches of all parts, at least one for each; a small part is a single stretch. `cores` is None if each part
    is to be a single stretch.
    """
    columns = ", ".join(selected(field, table.columns[field.name], timezone) for field in fields)
    found = list[Stretch]()
    for part in parts:
        tasks = min(max(cores, 1), math.ceil(part.records / ROWS_PER_TASK)) if cores is not None else 1
        newer = _newer(session, table, part) if tasks > 1 else None
        for where, leaf, oid, file in _shares(session, table, part, tasks if newer else 1):
            only = "" if file is None or newer is None else f" AND {_refusing(newer)}"
            found.append(Stretch(part.label, f"SELECT {columns} {where}{only}", leaf, oid, file))
    return found


def _refusing(newer: str) -> str:
    """Return a condition that is true for each row, and ends the query at a newer version: the rows are looked at once."""
    return f"CASE WHEN {newer} THEN (xmin::text || {literal(' ' + NEWER)})::boolean ELSE true END"


def _newer(session: Session, table: Table, part: Part) -> str | None:
    """Return the condition of versions of a part's rows that this session does not see; None if there is no short one.

    A version that a row was inserted with has the row's own transaction, or one within that. A version is newer if its
    transaction had not ended: transactions before the oldest in progress had, and those of versions seen now.
    """
    oldest, next_ = session.row(
        "SELECT pg_snapshot_xmin(s)::text, pg_snapshot_xmax(s)::text FROM pg_current_snapshot() s"
    )
    # The least costly comparison comes first: few rows pass.
    since = f"xmin <> xact::xid AND age(xmin) BETWEEN 0 AND age('{int(oldest) % 2**32}'::xid)"
    known = list[str]()
    if oldest != next_:
        among = f"FROM {sql_name(table.name)} WHERE ({part.meets}) AND {since}"
        known = [xid for (xid,) in session.rows(f"SELECT DISTINCT xmin::text {among} LIMIT {KNOWN_MAX + 1}")]
    if len(known) > KNOWN_MAX:
        return None
    return since + (f" AND xmin::text <> ALL ('{{{','.join(known)}}}')" if known else "")


def _shares(session: Session, table: Table, part: Part, tasks: int) -> Iterator[tuple[str, str, int, int | None]]:
    """Yield what follows SELECT in each stretch of a part, with the leaf, its oid and its file."""
    meets, records = part.meets, part.records
    if tasks < 2:
        name = sql_name(table.name)
        yield f"FROM {name} WHERE {meets}", name, table.oid, None
        return
    leafs = leaves(session, table)
    if table.partitioned or records < _MOST * sum(leaf.rows for leaf in leafs):
        blocks = _blocks(session, table, meets)
    else:
        blocks = {leaf.oid: (records, 0, leaf.blocks) for leaf in leafs}
    for leaf in leafs:
        if leaf.oid in blocks:
            rows, first, end = blocks[leaf.oid]
            for among in _by_blocks(first, end, math.ceil(tasks * rows / max(records, 1))):
                yield f"FROM ONLY {leaf.name} WHERE ({meets}){among}", leaf.name, leaf.oid, leaf.filenode


def _blocks(session: Session, table: Table, meets: str) -> dict[int, tuple[int, int, int]]:
    """Return, for each leaf with rows of a part, the number of rows, the first block and the block after the last."""
    block = "(ctid::text::point)[0]::bigint"
    rows = session.rows(
        f"SELECT tableoid::bigint, count(*), min({block}), max({block}) + 1 FROM {sql_name(table.name)} WHERE {meets} GROUP BY 1"
    )
    return {oid: (count, first, end) for oid, count, first, end in rows}


def _by_blocks(first: int, end: int, parts: int) -> list[str]:
    """Return conditions that share blocks out. The first and the last have no limit: a row may come to stand elsewhere.

    >>> _by_blocks(10, 30, 2)
    [" AND ctid < '(20,0)'::tid", " AND ctid >= '(20,0)'::tid"]
    >>> _by_blocks(10, 11, 2)
    ['']
    """
    limits = sorted({first + (end - first) * part // parts for part in range(1, parts)} - {first})
    found = []
    for start, stop in pairwise([None, *limits, None]):
        above = "" if start is None else f" AND ctid >= '({start},0)'::tid"
        below = "" if stop is None else f" AND ctid < '({stop},0)'::tid"
        found.append(above + below)
    return found
