"""The reports of a state: the state's view, the contributions of each batch, functions on the past, and comments on all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy import Connection

from txbatch.core.aggregates.aggregator import CombinerAggregator
from txbatch.core.errors import SchemaMismatch
from txbatch.core.state.state import changes_name, report_names, versions_name
from txbatch.core.topology.persistent_aggregate import GLOBAL_KEY, PersistentAggregate
from txbatch.core.topology.quarantine import QuarantineState
from txbatch.core.windows.session_window import SessionWindow
from txbatch.core.windows.timed import Timed
from txbatch.postgres.database.expressions import listed, pg_name, pg_text
from txbatch.postgres.database.functions import PREFIXES, Function
from txbatch.postgres.database.queries import query
from txbatch.postgres.schema.closings import closed_sessions, closings
from txbatch.postgres.schema.getter import getter
from txbatch.postgres.schema.session_history import history_of
from txbatch.postgres.schema.sessions import report_rows
from txbatch.postgres.state.folds import Folds

_BATCH = {
    "committed_at": ("b.committed_at", "When the batch was committed"),
    "interval_start": (
        "lower(b.data_interval)",
        "Begin of the time the batch covers; null where batches are not by time",
    ),
    "interval_end": (
        "upper(b.data_interval)",
        "End of the time the batch covers, exclusive; null where batches are not by time",
    ),
    "position": ("c.position", "The place the batch counts in: its own txid, or the restated txid"),
    "replaced_by": ("b.replaced_by", "The txid of the restate that counts instead; null while this batch counts"),
}
_MARKS = {
    "removed": ("c.removed", "Whether the batch dropped the value before it"),
    "counted": ("c.counted", "Whether records of the key count; false: the key went away"),
}

# What is said of where sessions end. By this it is told how a view is made: who changes that changes what is said.
SESSION_END = "When the last record of the session was"


def statements(connection: Connection, aggregate: PersistentAggregate) -> Iterator[str]:
    """Yield the statements that create the views and functions of a new state, with comments.

    Run each statement before the next is made. Raise SchemaMismatch if a name is taken.
    """
    check_free(connection, aggregate)
    yield from recreate_reports(connection, aggregate)


def check_free(connection: Connection, aggregate: PersistentAggregate) -> None:
    """Raise SchemaMismatch if a view in `report` has the name of one of the state's views."""
    for view in _views(aggregate):
        if _columns(connection, view):
            raise SchemaMismatch(
                f"state {aggregate.state.name!r}: report.{view} is there already, by another state or by hand; name the state "
                "otherwise"
            )


def recreate_reports(
    connection: Connection, aggregate: PersistentAggregate, there: Mapping[str, Sequence[str]] | None = None
) -> Iterator[str]:
    """Yield the statements that create again everything of a state in `report`, over the tables of the state's name.

    The views keep their columns in order: the present columns, or the columns in `there`; new columns come at the end.
    """
    name = aggregate.state.name
    kept = there or {view: [*_columns(connection, view)] for view in _views(aggregate)}
    yield from [create_report(aggregate, kept.get(name, ())), *comments(aggregate)]
    if aggregate.state.contributions:
        yield from [*_changes(aggregate, kept.get(changes_name(name), ())), *_versions(aggregate)]
    yield from _without_records(connection, aggregate, _views(aggregate))
    yield from _functions(connection, aggregate, past=aggregate.state.contributions)


def missing(connection: Connection, aggregate: PersistentAggregate) -> Iterator[str]:
    """Yield the statements for reports missing for a state of an older version. Names of other states are left alone."""
    past = False
    yield from _recreate_outdated(connection, aggregate)
    if aggregate.state.contributions:
        _, changes, versions = _views(aggregate)
        there = _columns(connection, changes)
        new = [view for view in (changes, versions) if not _columns(connection, view)]
        if there.keys() != set(_of_changes(aggregate)) and not _taken(connection, changes):
            yield from [*comments(aggregate), *_changes(aggregate, [*there])]
        if versions in new:
            yield from _versions(aggregate)
        yield from _without_records(connection, aggregate, new)
        past = not _taken(connection, versions)
    yield from _functions(connection, aggregate, past=past)


def _without_records(connection: Connection, aggregate: PersistentAggregate, views: Sequence[str]) -> Iterator[str]:
    """Yield the statements that revoke new views of a quarantine from readers without a right to records in quarantine.

    Default privileges grant everything in `report` to readers.
    """
    if isinstance(aggregate.state, QuarantineState):
        found = connection.execute(query("readers_without_records"), {"views": [*views]})
        yield from (f"REVOKE ALL ON report.{pg_name(row.view)} FROM {row.role}" for row in found)


def _recreate_outdated(connection: Connection, aggregate: PersistentAggregate) -> Iterator[str]:
    """Yield the statements that replace outdated views of windows and sessions, and the comments by which they are known."""
    if (window := aggregate.window) is None:
        return
    end = next(iter(window.derived_said), window.end_name)
    said = described(aggregate)[end]
    for view, create in zip(_views(aggregate), (create_report, create_changes), strict=False):
        there = _told(connection, view)
        if there.get(end, said) != said:
            yield create(aggregate, [*there])
            yield from _on_columns(view, {end: said})


def drop(connection: Connection, state: str) -> Iterator[str]:
    """Yield the statements that drop everything of a state in `report`."""
    yield from drop_functions(connection, state)
    for view in _views_of(connection, state):
        yield f"DROP VIEW IF EXISTS {view}"


def drop_functions(connection: Connection, state: str) -> Iterator[str]:
    """Yield the statements that drop the functions of a state."""
    names = {"names": [f"{prefix}_{state}" for prefix in PREFIXES]}
    for row in connection.execute(query("report_functions"), names).mappings():
        yield f"DROP FUNCTION {row['signature']}"


def lock(connection: Connection, state: str) -> Iterator[str]:
    """Yield the statements that keep readers out of a state's views until the transaction ends, and lock nothing else.

    A reader locks a view before the view's tables. If the swap took the tables first, the swap and a reader would wait for
    each other. LOCK TABLE would lock all tables a view reads, and so the ledger.
    """
    for view in _views_of(connection, state):
        if connection.execute(query("relation_exists"), {"name": view}).scalar_one():
            yield f"ALTER VIEW {view} RESET (check_option)"


def _views_of(connection: Connection, state: str) -> list[str]:
    """Return the views that a state may have, by the state's name alone."""
    report, *more = report_names(state)
    return [f"report.{pg_name(view)}" for view in (report, *(view for view in more if not _taken(connection, view)))]


def _functions(connection: Connection, aggregate: PersistentAggregate, *, past: bool) -> Iterator[str]:
    """Yield the statements that create the functions of a state, unless equal functions exist.

    `past`: also functions on the past. Functions on the past that no longer fit are dropped: the job's Python now merges the
    values.
    """
    types = _columns(connection, aggregate.state.name)
    functions: list[Function] = [getter(aggregate, types)]
    if aggregate.closes and aggregate.state.database is None:
        functions.append(_closed(aggregate, types))
    if past:
        functions += history_of(aggregate, types).functions()
    made = [function.name for function in functions]
    names = {"names": [f"{prefix}_{aggregate.state.name}" for prefix in PREFIXES] if past else made}
    there = {row["name"]: row for row in connection.execute(query("report_functions"), names).mappings()}
    for name in there.keys() - set(made):
        yield f"DROP FUNCTION {there[name]['signature']}"
    for function in functions:
        found = there.get(function.name)
        same = found is not None and (found["columns"] or []) == function.columns
        if found and not same:
            yield f"DROP FUNCTION {found['signature']}"
        if not (found and same and found["body"] == function.body):
            yield from function.statements()


def _closed(aggregate: PersistentAggregate, types: Mapping[str, str]) -> Function:
    """Return the function for the closed windows or sessions of a state."""
    match aggregate.window:
        case SessionWindow() as sessions:
            return closed_sessions(aggregate, sessions, types)
        case Timed() as window:
            return closings(aggregate, window, types)
        case None:
            raise AssertionError(f"{aggregate.state.name}: it has no windows")


def _views(aggregate: PersistentAggregate) -> list[str]:
    """Return the names of a state's views."""
    name = aggregate.state.name
    return report_names(name) if aggregate.state.contributions else [name]


def _columns(connection: Connection, view: str) -> dict[str, str]:
    """Return the columns of a view in `report` with their types; empty if the view does not exist."""
    found = connection.execute(query("columns_of"), {"name": f"report.{pg_name(view)}"})
    return {row.name: row.type for row in found}


def _told(connection: Connection, view: str) -> dict[str, str | None]:
    """Return the columns of a view in `report` with their comments."""
    found = connection.execute(query("columns_of"), {"name": f"report.{pg_name(view)}"})
    return {row.name: row.said for row in found}


def _taken(connection: Connection, view: str) -> bool:
    return connection.execute(query("state"), {"state": view}).first() is not None


def create_report(aggregate: PersistentAggregate, there: Sequence[str] = ()) -> str:
    """Return the view people report on: keys, finished values, and the txid that last changed the row."""
    name = pg_name(aggregate.state.name)
    counted = " WHERE c.counted" if aggregate.removable else ""
    rows = f"({report_rows(aggregate, aggregate.sessions)})" if aggregate.sessions else f"state.{name}"
    return f"CREATE OR REPLACE VIEW report.{name} AS SELECT {_selected(aggregate, there)} FROM {rows} c{counted}"


def shown_query(aggregate: PersistentAggregate, there: Sequence[str], rows: str) -> str:
    """Return the report's columns, in the order of `there`, over another query of keys, partials and txids."""
    return f"SELECT {_selected(aggregate, there)} FROM ({rows}) c"


def create_changes(aggregate: PersistentAggregate, there: Sequence[str] = ()) -> str:
    """Return the view of each batch's contributions to each key, with the batch's time."""
    state, topology = aggregate.state.name, pg_text(aggregate.topology)
    more = {name: sql for name, (sql, _) in _about_batch(aggregate).items()}
    return (
        f"CREATE OR REPLACE VIEW report.{pg_name(changes_name(state))} AS "
        f"SELECT {_selected(aggregate, there, more)} FROM contribution.{pg_name(state)} c "
        f"JOIN txbatch.batch b ON b.topology = {topology} AND b.txid = c.txid"
    )


def _selected(aggregate: PersistentAggregate, there: Sequence[str], more: Mapping[str, str] | None = None) -> str:
    """Return keys, the window's end, values, the txid and `more`; columns already `there` come first."""
    columns = {
        **_keys(aggregate),
        **aggregate.window_end(_keys(aggregate)),
        **_values(aggregate),
        "txid": "c.txid",
        **(more or {}),
    }
    names = dict.fromkeys([*(name for name in there if name in columns), *columns])
    return listed(f"{columns[name]} AS {pg_name(name)}" for name in names)


def comments(aggregate: PersistentAggregate) -> list[str]:
    """Return the comments on the state's view and columns."""
    state, topology = aggregate.state.name, aggregate.topology
    rows = f"one row per session, of {aggregate.sessions.described}" if aggregate.sessions else "one row per key"
    said = f"State {state!r} of topology {topology!r}: {rows}, whole batches only"
    return _comments(state, said, {**described(aggregate), "txid": "The batch that changed this row last"})


def _changes(aggregate: PersistentAggregate, there: Sequence[str]) -> list[str]:
    return [create_changes(aggregate, there), *comments_on_changes(aggregate)]


def _of_changes(aggregate: PersistentAggregate) -> list[str]:
    """Return the columns of the view of changes."""
    return [*described(aggregate), "txid", *_about_batch(aggregate)]


def comments_on_changes(aggregate: PersistentAggregate) -> list[str]:
    """Return the comments on the view of changes and its columns."""
    state, topology = aggregate.state.name, aggregate.topology
    said = f"What each batch contributed to state {state!r} of topology {topology!r}: one row per key and batch"
    about = {name: text for name, (_, text) in _about_batch(aggregate).items()}
    return _comments(changes_name(state), said, {**described(aggregate), "txid": "The batch", **about})


def _versions(aggregate: PersistentAggregate) -> list[str]:
    state, topology = aggregate.state.name, aggregate.topology
    said = f"What the functions on the past of state {state!r} of topology {topology!r} fold: partials, one row per key and txid"
    keys = {key.name: "Key" for key in aggregate.keys or (GLOBAL_KEY,)}
    values = {column.name: f"Partial of {column.value}" for column in aggregate.columns}
    marks = {name: text for name, (_, text) in _MARKS.items() if aggregate.removable}
    numbers = {"position": "Whose place the txid takes; 0: what retention folded", "txid": "The batch"}
    return [
        Folds.of(aggregate).create_versions(),
        *_comments(versions_name(state), said, keys | values | marks | numbers),
    ]


def _about_batch(aggregate: PersistentAggregate) -> dict[str, tuple[str, str]]:
    """Return the columns on the batch, without names that the state has already."""
    own = {name.lower() for name in described(aggregate)}
    about = _MARKS | _BATCH if aggregate.removable else _BATCH
    return {name: column for name, column in about.items() if name not in own}


def _keys(aggregate: PersistentAggregate) -> dict[str, str]:
    return {key.name: f"c.{pg_name(key.name)}" for key in aggregate.keys}


def _values(aggregate: PersistentAggregate) -> dict[str, str]:
    stored = {
        name: [f"c.{pg_name(column.name)}" for column in aggregate.columns if column.value == name]
        for name in aggregate.aggregates
    }
    return {name: each.finish_sql(stored[name]) for name, each in aggregate.aggregates.items()}


def described(aggregate: PersistentAggregate) -> dict[str, str]:
    """Return the descriptions of keys and values."""
    keys = {key.name: "Key" for key in aggregate.keys}
    if aggregate.window is not None:
        keys |= aggregate.window.derived_said
    values = {name: _aggregated(each) for name, each in aggregate.aggregates.items()}
    if (sessions := aggregate.sessions) is not None:
        values[sessions.end_name] = f"{SESSION_END}: {values[sessions.end_name]}"
    return keys | values


def _aggregated(aggregator: CombinerAggregator) -> str:
    of = "" if aggregator.input else " of the records"
    return f"{aggregator.described}{of}" if aggregator.where is None else aggregator.described


def _comments(view: str, text: str, columns: Mapping[str, str]) -> list[str]:
    return [f"COMMENT ON VIEW report.{pg_name(view)} IS {pg_text(text)}", *_on_columns(view, columns)]


def _on_columns(view: str, columns: Mapping[str, str]) -> list[str]:
    name = f"report.{pg_name(view)}"
    return [f"COMMENT ON COLUMN {name}.{pg_name(column)} IS {pg_text(said)}" for column, said in columns.items()]
