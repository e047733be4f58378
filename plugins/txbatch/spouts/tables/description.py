"""A table as its server describes the table, and what the table lacks for being read without loss."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from txbatch.core.errors import SourceUnfit, UnsafeSource
from txbatch.core.records.fields import Field
from txbatch.spouts.tables.columns import Column, misfit
from txbatch.spouts.tables.connection import Session
from txbatch.spouts.tables.windows import XACT, quoted

# The comment on the column that `txbatch source prepare` writes: by it the rows from before are known after a rewrite, too.
BEFORE = "txbatch: rows from before have "
GUARD = "txbatch_xact"
GUARDED = "xact is set by the server alone"
# Behind that in the trigger of new tables: a row that moves to another partition is inserted there with its old number.
MOVED = ", and an UPDATE moves no row of a source to another partition"
_DEFAULT = "pg_current_xact_id()"
# The trigger of a table whose rows change, and what the trigger does. By its name it fires before the guard.
RENUMBERING = "txbatch_xact_change"
RENUMBERS = "NEW.xact := pg_current_xact_id()"
# What `txbatch source prepare` makes, if it is not there.
_LACKS = {
    "column": "it has no column xact of type xid8",
    "index": "no valid index begins with xact",
    "guard": "no trigger guards xact in all sessions (ENABLE ALWAYS), so that rows with old numbers could come in unseen",
    "renumbering": "no trigger gives a changed row a new number in all sessions (ENABLE ALWAYS): "
    "make it by txbatch source prepare --changing",
}
_KINDS = {
    "v": "a view",
    "m": "a materialized view",
    "f": "a foreign table",
    "S": "a sequence",
    "c": "a type",
    "i": "an index",
}
_TABLE = """
SELECT c.oid::bigint, c.relkind::text, row_security_active(c.oid),
       c.relkind <> 'p' AND EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid), p.unlogged, p.subscribed,
       has_schema_privilege(c.relnamespace, 'USAGE'), has_table_privilege(c.oid, 'SELECT'), current_user::text
  FROM pg_class c CROSS JOIN LATERAL (
       SELECT min(t.name) FILTER (WHERE l.relpersistence <> 'p') AS unlogged,
              min(t.name) FILTER (WHERE EXISTS (SELECT FROM pg_subscription_rel WHERE srrelid = l.oid)) AS subscribed
         FROM (SELECT c.oid, '' AS name
                UNION ALL
               SELECT relid, format('its partition %%s', relid) FROM pg_partition_tree(c.oid) WHERE relid <> c.oid) t
         JOIN pg_class l ON l.oid = t.oid) p
 WHERE c.oid = to_regclass(%s)
"""
_COLUMNS = """
SELECT a.attname::text, b.typname::text, format_type(a.atttypid, a.atttypmod), a.attnotnull,
       CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END,
       pg_get_expr(d.adbin, d.adrelid), a.attmissingval::text, col_description(a.attrelid, a.attnum)
  FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
  JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
  LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
 WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_KEY = """
SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), t.typnamespace = 'pg_catalog'::regnamespace
  FROM pg_index i CROSS JOIN unnest(i.indkey[0:i.indnkeyatts - 1]) WITH ORDINALITY k (attnum, n)
  JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum JOIN pg_type t ON t.oid = a.atttypid
 WHERE i.indrelid = %s AND i.indisprimary ORDER BY k.n
"""
_INDEXED = """
SELECT EXISTS (
  SELECT FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
   WHERE i.indrelid = %s AND a.attname = 'xact' AND m.amname = 'btree' AND i.indisvalid AND i.indpred IS NULL)
"""
# Of the table and of each partition, which may be written by itself: how many guards of the kinds BEFORE INSERT and BEFORE
# UPDATE, for each row, are on, and how many triggers that give a changed row a new number. Only ENABLE ALWAYS is on in all
# sessions: one with session_replication_role = replica passes by other triggers.
_TRIGGERS = """
SELECT count(t.oid) FILTER (WHERE t.tgtype & 7 = 7), count(t.oid) FILTER (WHERE t.tgtype & 19 = 19),
       count(n.oid) FILTER (WHERE n.tgenabled = 'A'), count(n.oid)
  FROM (SELECT %s::oid AS oid UNION SELECT relid FROM pg_partition_tree(%s::oid)) r
  LEFT JOIN (pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid AND p.prosrc LIKE %s) ON t.tgrelid = r.oid
   AND t.tgenabled = 'A' AND t.tgqual IS NOT NULL
  LEFT JOIN (pg_trigger n JOIN pg_proc f ON f.oid = n.tgfoid AND f.prosrc LIKE %s) ON n.tgrelid = r.oid
   AND n.tgenabled <> 'D' AND n.tgqual IS NULL AND n.tgtype & 19 = 19 AND n.tgattr = ''
 GROUP BY r.oid ORDER BY r.oid
"""
_LEAVES = """
SELECT format('%%I.%%I', n.nspname, c.relname), c.oid::bigint, pg_relation_filenode(c.oid)::bigint,
       pg_relation_size(c.oid) / current_setting('block_size')::bigint, greatest(c.reltuples, 0)::bigint, c.relkind::text,
       has_table_privilege(c.oid, 'SELECT')
  FROM (SELECT %s::oid AS relid UNION SELECT relid FROM pg_partition_tree(%s::oid) WHERE isleaf) t
  JOIN pg_class c ON c.oid = t.relid JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind <> 'p' ORDER BY c.oid
"""
# Schemas of a ledger in which the role may write.
_WRITABLE = """
SELECT n.nspname::text FROM pg_namespace n
 WHERE (n.nspname IN ('txbatch', 'state') OR n.nspname LIKE 'contribution%')
   AND EXISTS (SELECT FROM pg_class b JOIN pg_namespace l ON l.oid = b.relnamespace
                WHERE (l.nspname, b.relname) = ('txbatch', 'batch'))
   AND (has_schema_privilege(n.oid, 'CREATE') OR has_schema_privilege(n.oid, 'USAGE') AND EXISTS (
     SELECT FROM pg_class c WHERE c.relnamespace = n.oid AND c.relkind IN ('r', 'p')
        AND has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')))
 ORDER BY 1
"""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A table that holds rows: the table itself, or a partition. `filenode` is another after each rewrite."""

    name: str
    oid: int
    filenode: int
    blocks: int
    rows: int


@dataclass(frozen=True, slots=True)
class Table:
    """A table, by the server's catalogs.

    `key` has the columns and types of the primary key; empty if no range of the key can be asked for. `before` is the
    transaction of the rows from before the column xact; None if unknown. `faults` say why the table cannot be read, `lacks` what
    `txbatch source prepare` makes.
    """

    name: str
    oid: int
    partitioned: bool
    columns: Mapping[str, Column]
    key: Sequence[tuple[str, str]]
    before: int | None
    faults: Sequence[str]
    lacks: frozenset[str]


class _Triggers(NamedTuple):
    """How many guards and renumbering triggers of each kind a table, or a partition, has; of the latter also those that are on
    in some sessions alone.
    """

    inserted: int
    updated: int
    renumber: int
    renumber_some: int


def sql_name(table: str) -> str:
    """Return the name of a table for SQL, from `schema.table`.

    >>> sql_name("shop.sale")
    '"shop"."sale"'
    """
    return ".".join(map(quoted, table.split(".", 1)))


def check_role(session: Session) -> None:
    """Raise UnsafeSource if the role of a source may write in a ledger."""
    if schemas := [name for (name,) in session.rows(_WRITABLE)]:
        raise UnsafeSource(
            f"{session.of} leads to a ledger's database, and its role may write in the schema {schemas[0]!r}: give the source a "
            "role of its own that can only read"
        )


def describe(session: Session, table: str, *, changing: bool = False) -> Table:
    """Return a table as the server describes the table. Raise SourceUnfit if there is none, or only a view of that name.

    `changing`: its rows change, and a changed row is read again.
    """
    found = session.rows(_TABLE, sql_name(table))
    if not found:
        raise SourceUnfit(
            f"{session.of}: no such table, or no right to its schema; mend the name, or GRANT USAGE on the schema"
        )
    oid, kind, secured, inherited, unlogged, subscribed, usage, select, role = found[0]
    faults = _faults_of_kind(kind, inherited, unlogged, subscribed)
    if not (usage and select):
        faults.append(f"the role {role!r} may not read it: GRANT it USAGE on the schema and SELECT on the table")
    if secured:
        faults.append(
            f"row security hides rows of it from the role {role!r}: GRANT it BYPASSRLS, or read it with another"
        )
    described = session.rows(_COLUMNS, oid)
    columns = {
        name: _column(name, type_, shown, modifier, nullable=not not_null)
        for name, type_, shown, not_null, modifier, *_ in described
    }
    lacks, before = frozenset[str](), None
    if not faults:
        xact = next((rest for name, *rest in described if name == XACT), None)
        before = _before(xact)
        triggers = _triggers(session, oid)
        faults += _faults_of_column(xact, triggers, changing=changing)
        lacks = frozenset() if faults else _lacks(session, oid, xact, triggers, changing=changing)
        faults += [_LACKS[each] for each in _LACKS if each in lacks]
    key = session.rows(_KEY, oid)
    usable = [(name, type_) for name, type_, _ in key] if all(plain for *_, plain in key) else []
    return Table(table, oid, kind == "p", columns, usable, before, faults, lacks)


def leaves(session: Session, table: Table) -> list[Leaf]:
    """Return the tables that hold the rows. Raise SourceUnfit if the role may not read all, or a partition is foreign."""
    found = []
    for name, oid, filenode, blocks, rows, kind, select in session.rows(_LEAVES, table.oid, table.oid):
        if kind != "r" or not select:
            why = (
                "is no table of this server"
                if kind != "r"
                else "may not be read by the role: GRANT it SELECT there, too"
            )
            raise SourceUnfit(f"{session.of}: its partition {name} {why}")
        found.append(Leaf(name, oid, filenode, blocks, rows))
    return found


def check(session: Session, table: Table, fields: Sequence[Field], timezone: str | None) -> None:
    """Raise SourceUnfit if the table lacks anything, or a field does not take the values of a column."""
    faults = [*table.faults]
    for field in fields:
        column = table.columns.get(field.name)
        why = f"no column {field.name!r} is there" if column is None else misfit(field, column, timezone)
        if why is not None:
            faults.append(why if column is None else f"{field.name}: {why}")
    if faults:
        told = "; ".join(faults)
        way = f": txbatch source prepare prints the SQL of what is missing ({table.name})" if table.lacks else ""
        raise SourceUnfit(f"{session.of}: {told}{way}")


def _column(name: str, type_: str, shown: str, modifier: int, *, nullable: bool) -> Column:
    if type_ == "numeric" and modifier >= 0:
        scale = (modifier - 4) & 0x7FF
        return Column(name, type_, shown, (modifier - 4) >> 16 & 0xFFFF, (scale ^ 1024) - 1024, nullable)
    return Column(name, type_, shown, nullable=nullable)


def _faults_of_kind(kind: str, inherited: bool, unlogged: str | None, subscribed: str | None) -> list[str]:
    """Return why a relation is no table to read. `unlogged` and `subscribed` name a partition; "" is the table itself."""
    found = [f"it is {_KINDS.get(kind, 'no table')}: read the table itself"] if kind not in ("r", "p") else []
    if unlogged is not None:
        found.append(f"{unlogged or 'it'} is an unlogged or temporary table, which a crash empties: SET LOGGED")
    if inherited:
        found.append("other tables inherit from it: read each by itself, or partition it")
    if subscribed is not None:
        found.append(
            f"{subscribed or 'it'} is a logical replica: its transactions are numbered by another server; read it there"
        )
    return found


def _faults_of_column(xact: Sequence[object] | None, triggers: Sequence[_Triggers], *, changing: bool) -> list[str]:
    """Return what a person has to mend of the described column xact, and of its triggers."""
    if xact is None:
        return []
    type_, _, not_null, _, default, *_ = xact
    if type_ != "xid8" or not not_null or default != _DEFAULT:
        return ["its column xact is not xid8 NOT NULL DEFAULT pg_current_xact_id(): rename that column, or mend it"]
    if not changing and any(each.renumber_some for each in triggers):
        return [
            f"the trigger {RENUMBERING} gives a changed row a new number, so that the row would be counted twice: read the table "
            "by OpaquePostgresSpout, or drop the trigger if rows stay as they are"
        ]
    return []


def _lacks(
    session: Session, oid: int, xact: Sequence[object] | None, triggers: Sequence[_Triggers], *, changing: bool
) -> frozenset[str]:
    """Return what `txbatch source prepare` has to make."""
    there = {
        "column": xact is not None,
        "index": xact is not None and session.row(_INDEXED, oid)[0],
        "guard": all(each.inserted and each.updated for each in triggers),
        "renumbering": not changing or all(each.renumber for each in triggers),
    }
    return frozenset(name for name, is_there in there.items() if not is_there)


def _triggers(session: Session, oid: int) -> list[_Triggers]:
    """Return the triggers of the table and of each partition."""
    return [_Triggers(*row) for row in session.rows(_TRIGGERS, oid, oid, f"%{GUARDED}%", f"%{RENUMBERS}%")]


def _before(xact: Sequence[object] | None) -> int | None:
    """Return the transaction of the rows from before."""
    *_, missing, comment = xact or (None, None)
    told = re.search(rf"{BEFORE}(\d+)", str(comment or "")) or re.fullmatch(r"\{(\d+)\}", str(missing or ""))
    return int(told[1]) if told else None
