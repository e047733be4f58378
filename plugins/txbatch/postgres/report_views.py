"""What people report on: a state's view, the view of what each batch contributed to it, and what their columns mean."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection

from txbatch.core.aggregator import CombinerAggregator
from txbatch.core.errors import SchemaMismatch
from txbatch.core.persistent_aggregate import PersistentAggregate
from txbatch.core.state import changes_name
from txbatch.postgres.expressions import listed, pg_name, pg_text
from txbatch.postgres.queries import query

_BATCH = {
    "committed_at": ("b.committed_at", "When the batch was committed"),
    "interval_start": (
        "lower(b.data_interval)",
        "Begin of the time the batch covers; null where batches are not by time",
    ),
    "interval_end": ("upper(b.data_interval)", "End of that time, which is not part of it"),
}
_MARKS = {
    "removed": ("c.removed", "Whether the batch dropped the value before it"),
    "counted": ("c.counted", "Whether records of the key count; false: the key went away"),
}


def statements(connection: Connection, aggregate: PersistentAggregate) -> list[str]:
    """What makes the views of a new state, with comments; SchemaMismatch when one of their names is taken."""
    for view, there in _found(connection, aggregate).items():
        if there:
            raise SchemaMismatch(
                f"state {aggregate.state.name!r}: report.{view} is there already, by another state or by hand; name the state "
                "otherwise"
            )
    made = [create_report(aggregate), *comments(aggregate)]
    return (
        [*made, create_changes(aggregate), *comments_on_changes(aggregate)] if aggregate.state.contributions else made
    )


def missing(connection: Connection, aggregate: PersistentAggregate) -> list[str]:
    """What a state that an older version made lacks of these."""
    changes = changes_name(aggregate.state.name)
    if not aggregate.state.contributions or _found(connection, aggregate)[changes]:
        return []
    return [*comments(aggregate), create_changes(aggregate), *comments_on_changes(aggregate)]


def _found(connection: Connection, aggregate: PersistentAggregate) -> dict[str, bool]:
    """Which of a state's views are there."""
    name = aggregate.state.name
    names = [name, changes_name(name)] if aggregate.state.contributions else [name]
    return {
        view: connection.execute(query("relation_exists"), {"name": f"report.{pg_name(view)}"}).scalar_one()
        for view in names
    }


def create_report(aggregate: PersistentAggregate) -> str:
    """The view people report on: keys, finished values, and the txid that last changed the row."""
    name = pg_name(aggregate.state.name)
    columns = [*_keys(aggregate), *_values(aggregate), "c.txid"]
    there = " WHERE c.counted" if aggregate.removable else ""
    return f"CREATE VIEW report.{name} AS SELECT {listed(columns)} FROM state.{name} c{there}"


def create_changes(aggregate: PersistentAggregate) -> str:
    """The view of what each batch contributed to each key, with the batch's time."""
    state, topology = aggregate.state.name, pg_text(aggregate.topology)
    more = [f"{sql} AS {name}" for name, (sql, _) in _about_batch(aggregate).items()]
    return (
        f"CREATE VIEW report.{pg_name(changes_name(state))} AS "
        f"SELECT {listed([*_keys(aggregate), *_values(aggregate), 'c.txid', *more])} FROM contribution.{pg_name(state)} c "
        f"JOIN txbatch.batch b ON b.topology = {topology} AND b.txid = c.txid"
    )


def comments(aggregate: PersistentAggregate) -> list[str]:
    """What the state's view and its columns mean."""
    state, topology = aggregate.state.name, aggregate.topology
    said = f"State {state!r} of topology {topology!r}: one row per key, whole batches only"
    return _comments(state, said, {**_said(aggregate), "txid": "The batch that changed this row last"})


def comments_on_changes(aggregate: PersistentAggregate) -> list[str]:
    """The same for the view of the changes."""
    state, topology = aggregate.state.name, aggregate.topology
    said = f"What each batch contributed to state {state!r} of topology {topology!r}: one row per key and batch"
    about = {name: text for name, (_, text) in _about_batch(aggregate).items()}
    return _comments(changes_name(state), said, {**_said(aggregate), "txid": "The batch", **about})


def _about_batch(aggregate: PersistentAggregate) -> dict[str, tuple[str, str]]:
    """Columns of the batch, but for names that the state has itself."""
    own = {name.lower() for name in _said(aggregate)}
    about = _MARKS | _BATCH if aggregate.removable else _BATCH
    return {name: column for name, column in about.items() if name not in own}


def _keys(aggregate: PersistentAggregate) -> list[str]:
    return [f"c.{pg_name(key.name)}" for key in aggregate.keys]


def _values(aggregate: PersistentAggregate) -> list[str]:
    stored = {
        name: [f"c.{pg_name(column.name)}" for column in aggregate.columns if column.value == name]
        for name in aggregate.aggregates
    }
    return [f"{each.finish_sql(stored[name])} AS {pg_name(name)}" for name, each in aggregate.aggregates.items()]


def _said(aggregate: PersistentAggregate) -> dict[str, str]:
    """What keys and values are."""
    keys = {key.name: "Key" for key in aggregate.keys}
    return keys | {name: _aggregated(each) for name, each in aggregate.aggregates.items()}


def _aggregated(aggregator: CombinerAggregator) -> str:
    of = f" of {aggregator.input}" if aggregator.input else " of the records"
    return f"{type(aggregator).__name__}{of}"


def _comments(view: str, text: str, columns: Mapping[str, str]) -> list[str]:
    name = f"report.{pg_name(view)}"
    on_columns = [f"COMMENT ON COLUMN {name}.{pg_name(column)} IS {pg_text(said)}" for column, said in columns.items()]
    return [f"COMMENT ON VIEW {name} IS {pg_text(text)}", *on_columns]
