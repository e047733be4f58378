"""Every aggregate in PostgreSQL: what batches, folds and the functions on the past make of it is what the core makes of it."""

from __future__ import annotations

from typing import Any

import pytest
from every_aggregate import KEYS, aggregates, every_aggregate, own_aggregates, records, shown, some_records
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from past_model import WAYS, Model, positions
from postgres_bench import Bench
from sqlalchemy import Connection, Engine
from support import code, record_batch, staged

from txbatch import NonTransactionalState, OpaqueState
from txbatch.core.aggregates.merge import Partial
from txbatch.core.batch.transaction import Assignment, TransactionAttempt
from txbatch.core.state.update import Change
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.direct.emitter import partials_of
from txbatch.postgres.corrections import retention
from txbatch.postgres.database.engine import execute
from txbatch.postgres.schema.report_views import create_report
from txbatch.postgres.state import python_merge
from txbatch.postgres.state.folds import Folds
from txbatch.postgres.state.statements import statements_of
from txbatch.postgres.state.writer import LedgerWriter

few = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
BATCH = st.lists(records, max_size=4)
# Per txid: the position that it counts again, its records, and whether it removes each key.
HISTORY = st.lists(
    st.tuples(st.none() | st.integers(0, 9), BATCH, st.tuples(st.booleans(), st.booleans())), min_size=1, max_size=5
)


def selected(connection: Connection, statement: str) -> dict[Any, list[Any]]:
    return {row[:1]: [shown(each) for each in row[1:]] for row in execute(connection, statement).fetchall()}


def finished(aggregate: PersistentAggregate, partial: Partial) -> list[Any]:
    of = {name: [n for n, c in enumerate(aggregate.columns) if c.value == name] for name in aggregate.aggregates}
    values = aggregate.aggregates.items()
    return [shown(each.finish(tuple(partial[n] for n in of[name]))) for name, each in values]


@pytest.mark.rule("R9", "R18")
@pytest.mark.parametrize("values", [aggregates, own_aggregates])
@given(batches=st.lists(BATCH, min_size=1, max_size=5))
@few
def test_batched_in_any_way_is_all_at_once(engine: Engine, values: Any, batches: list[list[dict[str, Any]]]) -> None:
    """By the upsert, with each key staged in several rows, and by the fold of what each batch contributed."""
    state = NonTransactionalState("s")
    (aggregate,) = every_aggregate(state=state, values=values(), guarantee="at_least_once").aggregates
    together = dict(partials_of(aggregate, [record for batch in batches for record in batch]))
    statements, folds = statements_of(aggregate), Folds.of(aggregate)
    with engine.connect() as connection:
        for made in (statements.create_state(), statements.create_contribution(), folds.create_base()):
            execute(connection, made)
        execute(connection, f"CREATE TABLE contribution.all_of_it PARTITION OF {folds.contribution} DEFAULT")
        execute(connection, create_report(aggregate))
        for txid, batch in enumerate(batches, 1):
            partials = [each for record in batch for each in partials_of(aggregate, [record])]
            attempt = Assignment("every", TransactionAttempt(txid, 1), "token", {"streams": {}}, code())
            writer = LedgerWriter(connection, statements, attempt)
            writer.apply(writer.load([record_batch(aggregate, partials)], staged(aggregate, partials)))
            execute(connection, f"DROP TABLE {statements.staged}")
        stored = ", ".join([*statements.keys, *statements.values])
        expected = {key: [shown(each) for each in partial] for key, partial in together.items()}
        assert selected(connection, f"SELECT {stored} FROM state.s") == expected
        assert selected(connection, python_merge.fold_in_python(connection, statements, folds)) == expected
        reported = selected(connection, "SELECT * FROM report.s")
        assert {key: row[:-1] for key, row in reported.items()} == {
            key: finished(aggregate, partial) for key, partial in together.items()
        }
        connection.rollback()


@pytest.mark.rule("R17", "R19", "R22")
@pytest.mark.parametrize("removable", [False, True])
@given(history=HISTORY, base=BATCH, horizon=st.integers(1, 6))
@few
def test_the_past_is_what_the_core_folds(
    engine: Engine, removable: bool, history: list[Any], base: list[dict[str, Any]], horizon: int
) -> None:
    """As of each txid, corrected, and what changed, also after retention folded a part of it."""
    topology = every_aggregate(state=OpaqueState("s"), **({"remove": "true"} if removable else {}))
    (aggregate,) = topology.aggregates
    Bench(engine, topology)
    with engine.connect() as connection:
        model = Model(connection, aggregate)
        fill(model, history, base)
        check(model, model.horizon)
        done = retention._fold(connection, "every", min(horizon, model.newest))
        check(model, max(done.horizon, model.horizon))
        connection.rollback()


def fill(model: Model, history: list[Any], base: list[dict[str, Any]]) -> None:
    plain, (removable,) = every_aggregate().aggregates[0], [model.aggregate.removable]
    folded = dict(partials_of(plain, base))
    shift, changes = 1 if folded else 0, []
    nothing = (None,) * len(plain.columns)
    for position, (_, batch, removes) in zip(positions([again for again, *_ in history]), history, strict=True):
        found = {key: Change(partial) for key, partial in partials_of(plain, batch)}
        for key in ((name,) for name, gone in zip(KEYS, removes, strict=False) if gone and removable):
            counted = key in found
            found[key] = Change(found[key].partial if counted else nothing, True, counted)
        changes.append((position + shift, found))
    model.fill(folded, changes)


def check(model: Model, horizon: int) -> None:
    def reported(**asked: Any) -> dict[Any, list[Any]]:
        keys = {*model.base, *model.given}
        folds = {key: model.fold(key, **asked) for key in keys}
        return {
            key: [*finished(model.aggregate, partial), shown(model.txid(key, **asked))]
            for key, partial in folds.items()
            if partial is not None
        }

    before, after = reported(at=horizon), reported(at=model.newest)
    for way in WAYS:
        execute(model.connection, f"SET LOCAL txbatch.far_back = {way}")
        for at in range(horizon, model.newest + 1):
            assert selected(model.connection, f"SELECT * FROM report.as_of_s({at})") == reported(at=at)
            assert selected(model.connection, f"SELECT * FROM report.corrected_s({at})") == reported(corrected=at)
        changed = selected(model.connection, f"SELECT k, change FROM report.changes_s({horizon}, {model.newest})")
        assert changed.keys() == {
            key for key in before.keys() | after.keys() if before.get(key, [])[:-1] != after.get(key, [])[:-1]
        }


@pytest.mark.rule("R19")
def test_who_may_read_reports_needs_no_other_right(engine: Engine) -> None:
    """What merges and finishes arrays is where a reader may call it, also in functions on the past."""
    topology = every_aggregate(state=OpaqueState("s"))
    Bench(engine, topology)
    with engine.connect() as connection:
        model = Model(connection, topology.aggregates[0])
        fill(model, [(None, some_records(20), ()), (0, some_records(20, seed=2), ()), (None, some_records(9), ())], [])
        whole = selected(connection, "SELECT * FROM report.as_of_s(3)")
        execute(connection, "CREATE ROLE every_reader; GRANT USAGE ON SCHEMA report TO every_reader")
        execute(connection, "GRANT SELECT ON ALL TABLES IN SCHEMA report TO every_reader; SET LOCAL ROLE every_reader")
        assert selected(connection, "SELECT * FROM report.as_of_s(3)") == whole
        assert selected(connection, "SELECT * FROM report.s") == whole
        assert len(selected(connection, "SELECT * FROM report.changes_s(1, 3)")) == len(KEYS)
        connection.rollback()
