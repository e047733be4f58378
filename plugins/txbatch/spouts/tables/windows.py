"""The rows of a range, in SQL: a window between two snapshots, or a stretch of the primary key among rows of one transaction.

>>> from txbatch.core.sources.snapshots import Snapshot
>>> window(Snapshot.parse("10:13:10,12"), Snapshot.parse("12:20:12,15"))
["xact = ANY ('{10}'::xid8[])", "xact >= '13'::xid8 AND xact < '20'::xid8 AND xact <> ALL ('{15}'::xid8[])"]
>>> window(Snapshot.parse("3:3:"), Snapshot.parse("9:9:"), but=7)
["xact >= '3'::xid8 AND xact < '7'::xid8", "xact >= '8'::xid8 AND xact < '9'::xid8"]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from txbatch.core.sources.snapshots import Snapshot, left_open

XACT = "xact"


def quoted(name: str) -> str:
    """Return a name for SQL.

    >>> quoted('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text for SQL; no setting of a session changes the meaning.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'" if "\\" not in text else _escaped(text)


def _escaped(text: str) -> str:
    return " E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def window(a: Snapshot, b: Snapshot, but: int | None = None) -> list[str]:
    """Return conditions, of which each row of the window from `a` to `b` meets one, and no other row meets any.

    Each condition reads a stretch of an index. `but` is a transaction whose rows are left out.
    """
    open_ = [xid for xid in left_open(a, b) if xid != but]
    found = [f"{XACT} = ANY ({_xids(open_)})"] if open_ else []
    stretches = [(a.xmax, b.xmax)]
    if but is not None and a.xmax <= but < b.xmax:
        stretches = [(a.xmax, but), (but + 1, b.xmax)]
    return found + [_stretch(start, end, b) for start, end in stretches if start < end]


def _stretch(start: int, end: int, b: Snapshot) -> str:
    still = [xid for xid in b.in_progress if start <= xid < end]
    among = f"{XACT} >= '{start}'::xid8 AND {XACT} < '{end}'::xid8"
    return f"{among} AND {XACT} <> ALL ({_xids(still)})" if still else among


def _xids(xids: Iterable[int]) -> str:
    return "'{" + ",".join(map(str, xids)) + "}'::xid8[]"


def keys_between(
    xact: int, key: Sequence[tuple[str, str]], start: Sequence[str] | None, end: Sequence[str] | None
) -> str:
    """Return the condition of rows of a transaction, after one key and up to another; `key` has the key's columns and types.

    >>> keys_between(765, [("id", "bigint")], ["70"], ["71"])
    'xact = \\'765\\'::xid8 AND ("id") > (\\'70\\'::bigint) AND ("id") <= (\\'71\\'::bigint)'
    """
    found = [f"{XACT} = '{xact}'::xid8"]
    columns = ", ".join(quoted(name) for name, _ in key)
    for sign, bound in ((">", start), ("<=", end)):
        if bound is not None:
            values = ", ".join(f"{literal(text)}::{type_}" for text, (_, type_) in zip(bound, key, strict=True))
            found.append(f"({columns}) {sign} ({values})")
    return " AND ".join(found)


def conditions(range_: Mapping[str, Any]) -> list[str]:
    """Return the conditions of a planned range, as `window` does."""
    if "key" in range_:
        return [keys_between(int(range_["xact"]), range_["key"], range_["start"], range_["end"])]
    a, b = Snapshot.parse(range_["start"]), Snapshot.parse(range_["end"])
    return window(a, b, int(range_["but"]) if "but" in range_ else None)


def any_of(found: Sequence[str]) -> str:
    """Return one condition for all; false of none."""
    return " OR ".join(f"({each})" for each in found) or "false"


def counted(table: str, found: Sequence[str]) -> str:
    """Return the query that counts the rows of a range."""
    parts = " UNION ALL ".join(f"SELECT count(*) AS n FROM {table} WHERE {each}" for each in found)
    return f"SELECT coalesce(sum(n), 0)::bigint FROM ({parts}) counted" if parts else "SELECT 0::bigint"
