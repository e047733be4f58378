"""Carry out a changed definition (R23) under the topology's lock: all of it in the caller's transaction, or nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import assert_never

from psycopg2.errors import DependentObjectsStillExist
from sqlalchemy import Connection

from txbatch.core.definition.changes import after_steps, check_none_runs
from txbatch.core.definition.checks import check_change, check_names_kept
from txbatch.core.definition.redefinition import (
    AddState,
    AddValue,
    Define,
    DropState,
    DropValue,
    KeepContributions,
    OfState,
    Prune,
    Redefinition,
    RenameState,
    RenameStream,
    RenameTopology,
    RenameValue,
    Step,
    WidenColumn,
    how,
    steps_of,
)
from txbatch.core.definition.renames import renamed
from txbatch.core.definition.stored import StateDefinition, StoredTopology, state_definition
from txbatch.core.errors import ReadByOthers
from txbatch.core.state.pruned import begun, stored_spans
from txbatch.core.state.state import StateKind, changes_name
from txbatch.core.stored_json import canonical_json
from txbatch.core.text import one_line
from txbatch.core.topology.persistent_aggregate import PREVIOUS_PREFIX, PersistentAggregate
from txbatch.core.topology.topology import Topology
from txbatch.core.upstream.readers import check_changed
from txbatch.postgres.corrections import renamed_plans
from txbatch.postgres.database.engine import run_all
from txbatch.postgres.database.expressions import column_type, listed, pg_name, pg_text
from txbatch.postgres.database.generations import CURRENT
from txbatch.postgres.database.queries import query
from txbatch.postgres.schema import report_views, state_tables
from txbatch.postgres.schema.kept_reports import KeptReports
from txbatch.postgres.state import new_values
from txbatch.postgres.tables import batches, definitions
from txbatch.postgres.upstream import upstream


def change(connection: Connection, topology: Topology, job: str, why: str, by: str | None) -> list[Redefinition]:
    """Apply the changes to the states of a topology whose row is locked, and store by whom and why. Return the changes.

    Raise SchemaMismatch if a part needs a rebuild, ChangeTooEarly if a batch is open or a rebuild runs, Unavailable if an
    open report keeps a table, TerminalError if a view not made by txbatch depends on a dropped column or table.
    """
    known = definitions.known(connection, topology)
    found = check(connection, topology, job, known)
    if not found:
        return []
    steps = steps_of(found)
    if known.was is not None:
        connection.execute(query("rename_topology"), {"topology": topology.name, "was": known.was})
    for step in steps:
        if isinstance(step, RenameStream):
            renamed_plans.rename_stream(connection, topology.name, step)
        if isinstance(step, RenameState):
            renamed_plans.rename_looked_up(connection, step)
    stored, _ = renamed(topology, known)
    txid = batches.last_txid(connection, topology.name) + 1
    for state in (step.state for step in steps if isinstance(step, DropState)):
        with state_tables.holders_told(connection, state, "dropped"), _views_told(state):
            state_tables.drop_state(connection, state)
        connection.execute(query("forget_closings"), {"topology": topology.name, "state": state})
    for aggregate in topology.aggregates:
        name = aggregate.state.name
        own = [step for step in steps if isinstance(step, OfState) and step.state == name]
        if AddState(name) in own:
            state_tables.ensure(connection, topology.name, aggregate, [txid])
            connection.execute(query("state_joined"), {"state": name, "txid": txid})
        if (own or known.was) and aggregate.state.database is None and AddState(name) not in own:
            was = next((step.was for step in own if isinstance(step, RenameState)), name)
            with state_tables.holders_told(connection, was, "changed"), _views_told(was):
                _change_state(connection, aggregate, stored.states[name], was, own, txid)
    connection.execute(query("update_topology"), definitions.row(topology, job, known))
    definitions.check(connection, topology, job)
    said = {"topology": topology.name, "job": job, "why": one_line(why), "requested_by": by, "txid": txid}
    what = [{"how": how(each), "what": each.what} for each in found]
    connection.execute(query("insert_change"), {**said, "what": canonical_json(what)})
    return found


def check(connection: Connection, topology: Topology, job: str, known: StoredTopology) -> list[Redefinition]:
    """Return the changes. Raise the error of `change` for every reason known before a change is applied."""
    name = known.was or topology.name
    found = check_change(topology, job, known, batches.batches(connection, "open_batches", topology=name))
    check_none_runs(topology.name, found, definitions.rebuilt_now(connection, name))
    steps = steps_of(found)
    check_names_kept(name, connection.execute(query("oldest_past"), {"topology": name}).scalar_one(), steps)
    check_changed(upstream.readers(connection), upstream.looked_up(connection), steps)
    return found


def _change_state(
    connection: Connection,
    aggregate: PersistentAggregate,
    stored: StateDefinition,
    was: str,
    steps: Sequence[Step],
    txid: int,
) -> None:
    """Change a state's tables, the ledger's row of the state, and its reports. Readers of the reports go on reading."""
    name, now = aggregate.state.name, state_definition(aggregate)
    changed = after_steps(stored, steps, now, txid)
    reports = KeptReports.of(connection, was)
    run_all(connection, report_views.drop(connection, was))
    if was != name:
        report_views.check_free(connection, aggregate)
        state_tables.rename(connection, aggregate.topology, was, name)
        reports = reports.named(was, name)
    run_all(connection, _alterations(name, stored, steps))
    if KeepContributions(name) in steps:
        state_tables.keep_contributions(connection, aggregate, txid)
    row = {
        "columns": canonical_json(now.columns),
        "contributions": now.contributions,
        "values_since": canonical_json(changed.since) if changed.since else None,
    }
    connection.execute(query("change_state"), {"state": name, **row})
    if Prune(name) in steps and aggregate.state.prune:
        _prune_from_now(connection, aggregate)
    values = {step.was: step.value for step in steps if isinstance(step, RenameValue)}
    run_all(connection, report_views.recreate_reports(connection, aggregate, reports.columns(values)))
    run_all(connection, reports.grants(connection))
    run_all(connection, _said_since(aggregate, changed.since))
    new_values.rename(connection, aggregate, {now: was for was, now in values.items()})
    new_values.ensure(connection, aggregate)


def _prune_from_now(connection: Connection, aggregate: PersistentAggregate) -> None:
    """Store the horizon from which the rows of a state are removed."""
    found = connection.execute(query("states_with_contributions"), {"topology": aggregate.topology}).mappings()
    stored = next(each for each in found if each["state"] == aggregate.state.name)
    spans = begun(stored_spans(stored["pruned"]), stored["horizon"])
    connection.execute(query("rows_pruned"), {"state": aggregate.state.name, "pruned": canonical_json(spans)})


def _alterations(name: str, stored: StateDefinition, steps: Sequence[Step]) -> Iterator[str]:
    """Yield the statements that change each table of a state by the steps."""
    previous = stored.kind == StateKind.OPAQUE
    tables = [(CURRENT.state(name), ["", PREVIOUS_PREFIX] if previous else [""])]
    if stored.contributions:
        tables += [(CURRENT.contribution(name), [""]), (CURRENT.base(name), [""])]
    for table, prefixes in tables:
        yield from _altered(table, [action for prefix in prefixes for step in steps for action in _gone(step, prefix)])
        for before, after in [pair for step in steps for prefix in prefixes for pair in _renamed(step, prefix)]:
            yield f"ALTER TABLE {table} RENAME COLUMN {before} TO {after}"
        yield from _altered(table, [action for prefix in prefixes for step in steps for action in _made(step, prefix)])


def _altered(table: str, actions: Sequence[str]) -> list[str]:
    return [f"ALTER TABLE {table} {listed(actions)}"] if actions else []


def _gone(step: Step, prefix: str) -> list[str]:
    columns = step.columns if isinstance(step, DropValue) else ()
    return [f"DROP COLUMN {pg_name(prefix + column)}" for column in columns]


def _renamed(step: Step, prefix: str) -> list[tuple[str, str]]:
    columns = step.columns if isinstance(step, RenameValue) else ()
    return [(pg_name(prefix + before), pg_name(prefix + after)) for before, after in columns]


def _made(step: Step, prefix: str) -> list[str]:
    match step:
        case WidenColumn(_, column, type_):
            return [f"ALTER COLUMN {pg_name(prefix + column)} TYPE {column_type(type_)}"]
        case AddValue(_, _, columns):
            return [f"ADD COLUMN {pg_name(prefix + column)} {column_type(type_)}" for column, type_, _ in columns]
        case (
            DropValue()
            | RenameValue()
            | KeepContributions()
            | Prune()
            | DropState()
            | AddState()
            | RenameState()
            | RenameTopology()
            | RenameStream()
            | Define()
        ):
            return []
        case _:
            assert_never(step)


def _said_since(aggregate: PersistentAggregate, since: Mapping[str, int]) -> list[str]:
    """Return the comments of columns that began later: each names the txid since when the column counts."""
    said = report_views.described(aggregate)
    views = [aggregate.state.name, changes_name(aggregate.state.name)][: 1 + aggregate.state.contributions]
    return [
        f"COMMENT ON COLUMN report.{pg_name(view)}.{pg_name(value)} IS "
        + pg_text(f"{said[value]}; since txid {txid}, null before that")
        for view in views
        for value, txid in since.items()
    ]


@contextmanager
def _views_told(state: str) -> Iterator[None]:
    """Context manager. Raise TerminalError if a view not made by txbatch depends on a state's report.

    The error names the view: the view must be created again.
    """
    try:
        yield
    except DependentObjectsStillExist as error:
        detail = (error.diag.message_detail or "").replace("\n", "; ")
        raise ReadByOthers(
            f"state {state!r} cannot be changed, as a view or function that is not txbatch's is made of its report ({detail}): "
            "drop that, change the state, and make it anew"
        ) from error
