"""The SQL by which a table becomes a source: a column that only the server sets, its index and its guard.

Each statement can be run alone and again. The column is added with the guard in one transaction: no row comes in between.
"""

from __future__ import annotations

from txbatch.spouts.tables.description import BEFORE, GUARD, GUARDED, MOVED, RENUMBERING, RENUMBERS, Table, sql_name
from txbatch.spouts.tables.windows import literal, quoted


def statements(table: Table) -> list[str]:
    """Return the statements that make what a table lacks; none of a table that lacks nothing.

    A column of the name that is another column is left alone: a person decides what becomes of such a column.
    """
    name = sql_name(table.name)
    found = []
    guard = _guard(table.name) if "guard" in table.lacks else []
    guard += _renumbering(table.name) if "renumbering" in table.lacks else []
    if "column" in table.lacks:
        found.append(_transaction([*_column(name), *guard]))
    elif guard:
        found.append(_transaction(guard))
    if "index" in table.lacks:
        # A partitioned table takes no index concurrently.
        found.append(f"CREATE INDEX {'' if table.partitioned else 'CONCURRENTLY '}ON {name} (xact)")
    return found


def _transaction(parts: list[str]) -> str:
    return ";\n".join(["BEGIN", *parts, "COMMIT"])


def _column(name: str) -> list[str]:
    comment = literal(f"COMMENT ON COLUMN {name}.xact IS ")
    return [
        f"ALTER TABLE {name} ADD COLUMN xact xid8 NOT NULL DEFAULT pg_current_xact_id()",
        f"DO $do$ BEGIN EXECUTE {comment} || quote_literal({literal(BEFORE)} || pg_current_xact_id()::text); END $do$",
    ]


def _guard(table: str) -> list[str]:
    name, function = sql_name(table), f"{quoted(table.split('.', 1)[0])}.{GUARD}"
    made = []
    for event, when in (("INSERT", "pg_current_xact_id()"), ("UPDATE OF xact", "OLD.xact")):
        trigger = f"{GUARD}_{event.split()[0].lower()}"
        made += [
            f"CREATE OR REPLACE TRIGGER {trigger} BEFORE {event} ON {name} FOR EACH ROW WHEN (NEW.xact IS DISTINCT FROM {when}) "
            f"EXECUTE FUNCTION {function}()",
            f"ALTER TABLE {name} ENABLE ALWAYS TRIGGER {trigger}",
        ]
    return [
        f"CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS "
        f"$body$ BEGIN RAISE EXCEPTION {literal(GUARDED + MOVED)}; END $body$",
        *made,
    ]


def _renumbering(table: str) -> list[str]:
    name, function = sql_name(table), f"{quoted(table.split('.', 1)[0])}.{RENUMBERING}"
    return [
        f"CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS "
        f"$body$ BEGIN {RENUMBERS}; RETURN NEW; END $body$",
        f"CREATE OR REPLACE TRIGGER {RENUMBERING} BEFORE UPDATE ON {name} FOR EACH ROW EXECUTE FUNCTION {function}()",
        f"ALTER TABLE {name} ENABLE ALWAYS TRIGGER {RENUMBERING}",
    ]
