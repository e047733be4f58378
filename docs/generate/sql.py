"""The page on SQL: the views and functions of a ledger, and those that a state brings, as the catalog of PostgreSQL has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, text

from docs.generate.markdown import block, page, plain, table
from docs.generate.samples import shop
from txbatch.postgres.ledger import PostgresLedger

VIEWS = text("""
SELECT c.relname AS view, obj_description(c.oid, 'pg_class') AS said, a.attname AS name,
       format_type(a.atttypid, a.atttypmod) AS type, col_description(c.oid, a.attnum) AS meaning
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
 WHERE c.relnamespace = 'report'::regnamespace AND c.relkind = 'v'
 ORDER BY c.relname COLLATE "C", a.attnum
""")
FUNCTIONS = text("""
SELECT p.proname AS name, pg_get_function_arguments(p.oid) AS takes, pg_get_function_result(p.oid) AS returns,
       p.prokind = 'a' AS folds, COALESCE(obj_description(p.oid, 'pg_proc'), '') AS said
  FROM pg_proc p WHERE p.pronamespace = 'report'::regnamespace
 ORDER BY p.proname COLLATE "C", pg_get_function_arguments(p.oid) COLLATE "C"
""")
# The views of the ledger by the question that they answer; others come at the end.
QUESTIONS = {
    "How far is it?": ("topologies", "states", "completeness", "gaps", "waiting", "windows_left", "closings"),
    "What was counted?": (
        "batches",
        "attempts",
        "partitions",
        "batch_reads",
        "batch_runs",
        "exceptional_txids",
        "state_coverage",
    ),
    "What was corrected?": (
        "restatements",
        "changes_of_definition",
        "values_since",
        "rebuilds",
        "past_states",
        "retention",
    ),
}
STATES = {
    "sales": 'A state by keys: `group_by("shop")`, with a count and a sum.',
    "hourly": 'A state by windows: `group_by(window("sold_at", "1 hour"), "shop")`, with late records aside.',
    "visits": 'A state by sessions: `group_by(session_window("sold_at", "30 minutes"), "customer")`.',
    "shop_quarantine": "The quarantine of the topology `shop`: records for which a Python function fails.",
}


@dataclass(frozen=True)
class Column:
    """A column of a view."""

    name: str
    type: str
    meaning: str


@dataclass(frozen=True)
class View:
    """A view of the schema `report`."""

    name: str
    said: str
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Function:
    """A function or an aggregate of the schema `report`."""

    name: str
    takes: str
    returns: str
    folds: bool
    said: str


def sql(engine: Engine) -> str:
    """Return the page. The engine is one of a migrated ledger without a topology; the topology `shop` is added."""
    with engine.connect() as connection:
        views, functions = _views(connection), _functions(connection)
    PostgresLedger(engine).register(shop(), "jobs/shop.py")
    with engine.connect() as connection:
        of_states = {name: view for name, view in _views(connection).items() if name not in views}
        more = [each for each in _functions(connection) if each not in functions]
    return page(
        "SQL: views and functions",
        "Here you find each view and function of the schema `report`, with columns, types and meanings.",
        "You need a role that reads `report`. All times are `timestamptz`; a statement sees whole batches alone.",
        [*_of_ledger(views), *_of_functions(functions), *_of_states(of_states, more)],
    )


def _views(connection: Connection) -> dict[str, View]:
    found: dict[str, View] = {}
    for row in connection.execute(VIEWS):
        before = found.get(row.view, View(row.view, row.said or "", ()))
        column = Column(row.name, row.type, row.meaning or "")
        found[row.view] = View(before.name, before.said, (*before.columns, column))
    return found


def _functions(connection: Connection) -> list[Function]:
    return [Function(row.name, row.takes, row.returns, row.folds, row.said) for row in connection.execute(FUNCTIONS)]


def _of_ledger(views: Mapping[str, View]) -> Iterator[str]:
    asked = {name for names in QUESTIONS.values() for name in names}
    rest = tuple(name for name in views if name not in asked)
    for question, names in {**QUESTIONS, "Other views": rest}.items():
        if names:
            yield from (f"## {question}", "")
        for name in names:
            yield from _view(views[name])


def _view(view: View) -> Iterator[str]:
    yield from (f"### report.{view.name}", "", plain(view.said), "")
    yield from table(
        ("column", "type", "meaning"), [(f"`{c.name}`", f"`{c.type}`", plain(c.meaning)) for c in view.columns]
    )


def _of_functions(functions: list[Function]) -> Iterator[str]:
    yield from ("## Functions of the ledger", "")
    yield from ("The functions of aggregates (`merge_top`, `fold_bins`, ...) are called by views and commits.", "")
    for each in functions:
        yield from _function(each, level=3)


def _function(function: Function, level: int = 4) -> Iterator[str]:
    yield from (f"{'#' * level} report.{function.name}", "")
    kind = "AGGREGATE " if function.folds else ""
    yield from block("sql", f"{kind}report.{function.name}({function.takes})\nRETURNS {_result(function.returns)}")
    yield from (plain(function.said), "")


def _result(returns: str) -> str:
    """Return a result with a line for each column: types of results have no commas of their own."""
    if not returns.startswith("TABLE("):
        return returns
    columns = returns.removeprefix("TABLE(").removesuffix(")").split(", ")
    return "TABLE(\n    " + ",\n    ".join(columns) + "\n)"


def _of_states(views: Mapping[str, View], functions: list[Function]) -> Iterator[str]:
    yield from ("## What a state brings", "")
    yield from (
        "Each state has a view of its name and functions that end in its name. The examples are of a topology `shop`,",
        "whose records have `sold_at`, `shop`, `customer` and `amount`. Keys and values are columns, by their own names.",
        "",
    )
    for state, what in STATES.items():
        yield from (f"### The state {state}", "", what, "")
        for view in views.values():
            if _owner(view.name) == state:
                yield from _state_view(view)
        for each in functions:
            if _owner(each.name) == state:
                yield from _function(each)


def _owner(name: str) -> str:
    """Return the state to which a view or a function belongs: the state in STATES with the longest name within the name."""
    return max((state for state in STATES if state in name), key=len, default="")


def _state_view(view: View) -> Iterator[str]:
    yield from (f"#### report.{view.name} (view)", "", plain(view.said), "")
    yield from table(
        ("column", "type", "meaning"), [(f"`{c.name}`", f"`{c.type}`", plain(c.meaning)) for c in view.columns]
    )
