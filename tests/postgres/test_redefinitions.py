"""What readers have of a state outlives a change of its definition, which meets readers, commits, kills and itself (R23)."""

from __future__ import annotations

from threading import Thread
from typing import Any

import pytest
from postgres_bench import Bench
from sqlalchemy import Engine, text
from support import LogSpout

from txbatch import Avg, Count, Max, Min, OpaqueState, Sum, Topology
from txbatch.core.errors import ChangeTooEarly, SchemaMismatch, TerminalError, Unavailable
from txbatch.postgres.corrections import definition_changes
from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.ledger import PostgresLedger

JOB, WHY = "jobs/job.py", "asked for"


def defined(state: Any = None, fields: str = "word string, n int", **values: Any) -> Topology:
    topology, spout = Topology("t"), LogSpout({"a": 1_000})
    spout.fields = fields
    grouped = topology.new_stream("in", spout).group_by("word")
    grouped.persistent_aggregate(state or OpaqueState("s"), **(values or {"count": Count()}))
    return topology


def counted(engine: Engine, topology: Topology, name: str, **words: Any) -> Bench:
    bench = Bench(engine, topology)
    (aggregate,) = topology.aggregates
    bench.whole({aggregate.state.name: [((word,), partial) for word, partial in words.items()]}, name)
    return bench


def columns(bench: Bench, view: str) -> list[str]:
    found = "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(:view) AND attnum > 0 ORDER BY attnum"
    return [name for (name,) in bench.rows(found, view=f'report."{view}"')]


@pytest.mark.rule("R23")
def test_reports_keep_their_columns_in_order_and_get_new_ones_at_the_end(engine: Engine) -> None:
    bench = counted(engine, defined(low=Min("n"), count=Count(), high=Max("n")), "1", dog=(1, 2, 3))
    first = defined(mean=Avg("n", since="now"), low=Min("n"), count=Count(), high=Max("n"))
    bench.ledger.change(first, JOB, WHY)
    assert columns(bench, "s") == ["word", "low", "count", "high", "txid", "mean"]
    second = defined(mean=Avg("n", since="now"), lowest=Min("n", was="low"), high=Max("n"), total=Sum("n", since="now"))
    bench.ledger.change(second, JOB, WHY)
    assert columns(bench, "s") == ["word", "lowest", "high", "txid", "mean", "total"]
    assert columns(bench, "s_changes")[:4] == ["word", "lowest", "high", "txid"]
    assert columns(bench, "s_changes")[-2:] == ["mean", "total"]
    bench.ledger.register(second, JOB)
    assert columns(bench, "s") == ["word", "lowest", "high", "txid", "mean", "total"]
    counted(engine, second, "2", dog=(6, 2, 0, 9, 6))
    assert bench.rows("SELECT lowest, high, mean, total FROM report.s") == [(0, 9, 3, 6)]
    assert bench.rows("SELECT lowest, high, mean, total FROM report.as_of_s(1)") == [(1, 3, None, None)]


@pytest.mark.rule("R23")
def test_readers_go_on_reading_and_no_others(engine: Engine) -> None:
    bench = counted(engine, defined(count=Count(), low=Min("n")), "1", dog=(1, 2))
    bench.run(
        'CREATE ROLE "an %analyst""s" NOLOGIN',
        "CREATE ROLE somebody NOLOGIN",
        "ALTER DEFAULT PRIVILEGES IN SCHEMA report GRANT SELECT ON TABLES TO somebody",
        'GRANT USAGE ON SCHEMA report TO "an %analyst""s"',
        'GRANT SELECT ON report.s TO "an %analyst""s" WITH GRANT OPTION',
        "GRANT SELECT ON report.s_changes TO PUBLIC",
    )
    try:
        views = "to_regclass('report.s'), to_regclass('report.s_changes')"
        granted = f"SELECT relname, relacl::text FROM pg_class WHERE oid IN ({views})"
        before = sorted(bench.rows(granted))
        bench.ledger.change(defined(count=Count()), JOB, WHY)
        assert sorted(bench.rows(granted)) == before
        with engine.connect() as connection:
            connection.exec_driver_sql('SET ROLE "an %%analyst""s"')
            assert connection.exec_driver_sql("SELECT count FROM report.s").scalar() == 1
    finally:
        bench.run(
            "ALTER DEFAULT PRIVILEGES IN SCHEMA report REVOKE SELECT ON TABLES FROM somebody",
            'DROP OWNED BY "an %analyst""s"',
            'DROP ROLE "an %analyst""s"',
            "DROP ROLE somebody",
        )


@pytest.mark.rule("R23")
@pytest.mark.parametrize("name", ["s", "renamed"])
def test_functions_on_the_past_stay_with_those_who_may_call_them(engine: Engine, name: str) -> None:
    bench = counted(engine, defined(count=Count(), low=Min("n")), "1", dog=(1, 2))
    bench.run(
        "CREATE ROLE reader NOLOGIN",
        "GRANT USAGE ON SCHEMA report TO reader",
        'GRANT SELECT ON report.s, report."s@versions", report.batches TO reader',
        "REVOKE EXECUTE ON FUNCTION report.as_of_s, report.why_s FROM PUBLIC",
        "GRANT EXECUTE ON FUNCTION report.as_of_s TO reader",
    )
    try:
        may = "SELECT has_function_privilege('reader', oid, 'EXECUTE') FROM pg_proc WHERE proname = :name"
        was = OpaqueState(name, was="s") if name != "s" else None
        bench.ledger.change(defined(was, count=Count()), JOB, WHY)
        asked = {each: bench.rows(may, name=f"{each}_{name}") for each in ("as_of", "why", "changes")}
        assert asked == {"as_of": [(True,)], "why": [(False,)], "changes": [(True,)]}
        with engine.connect() as connection:
            connection.exec_driver_sql("SET ROLE reader")
            assert connection.exec_driver_sql(f"SELECT count FROM report.as_of_{name}(1)").scalar() == 1
    finally:
        bench.run("DROP OWNED BY reader", "DROP ROLE reader")


@pytest.mark.rule("R23")
def test_whoever_owns_a_report_may_still_read_it_where_new_views_are_granted_by_default(engine: Engine) -> None:
    bench = counted(engine, defined(count=Count(), low=Min("n")), "1", dog=(1, 2))
    bench.run(
        "CREATE ROLE somebody NOLOGIN",
        "ALTER DEFAULT PRIVILEGES IN SCHEMA report GRANT SELECT ON TABLES TO somebody",
    )
    try:
        bench.ledger.change(defined(count=Count()), JOB, WHY)
        may = """SELECT a.grantee::regrole::text FROM pg_class c, aclexplode(COALESCE(c.relacl, acldefault('r', c.relowner))) a
                  WHERE c.oid = to_regclass('report.s') AND a.privilege_type = 'SELECT'"""
        assert bench.rows(may) == bench.rows("SELECT current_user::text")
    finally:
        bench.run(
            "ALTER DEFAULT PRIVILEGES IN SCHEMA report REVOKE SELECT ON TABLES FROM somebody",
            "DROP OWNED BY somebody",
            "DROP ROLE somebody",
        )


@pytest.mark.rule("R23")
def test_names_with_quotes_and_percent_signs(engine: Engine) -> None:
    state, fields = OpaqueState('50 % "off"'), 'word string, `n %s "x"` int'
    before = defined(state, fields, **{'low "%s"': Min('n %s "x"'), "gone %(a)s": Count()})
    counted(engine, before, "1", dog=(4, 2))
    wide = fields.replace(" int", " bigint")
    now = defined(
        state,
        wide,
        **{"lowest ''%%": Min('n %s "x"', was='low "%s"'), 'new "%"': Max('n %s "x"', since="now")},
    )
    bench = Bench.__new__(Bench)
    bench.engine, bench.ledger, bench.topology = engine, PostgresLedger(engine), now
    bench.ledger.change(now, JOB, "100 % sure, 'quoted' \"too\"")
    assert columns(bench, '50 % ""off""') == ["word", "lowest ''%%", "txid", 'new "%"']
    counted(engine, now, "2", dog=(-1, 2**40))
    with engine.connect() as connection:
        rows = connection.execute(text('SELECT * FROM report."50 % ""off"""'))
        assert [tuple(row) for row in rows] == [("dog", -1, 2, 2**40)]
    what = [row[0] for row in bench.rows("SELECT what FROM report.changes_of_definition ORDER BY what")]
    assert "value 'gone %(a)s' of state '50 % \"off\"' is gone" in what


@pytest.mark.rule("R23")
def test_a_state_that_is_renamed_takes_its_reports_and_readers_with_it(engine: Engine) -> None:
    bench = counted(engine, defined(), "1", dog=(1,))
    bench.run("CREATE ROLE reader NOLOGIN", "GRANT SELECT ON report.s, report.s_changes TO reader")
    try:
        bench.run("CREATE VIEW report.taken AS SELECT 1 AS one")
        with pytest.raises(SchemaMismatch, match=r"report\.taken is there already"):
            bench.ledger.change(defined(OpaqueState("taken", was="s")), JOB, WHY)
        now = defined(OpaqueState('wo"r%ds', was="s"))
        bench.ledger.change(now, JOB, WHY)
        counted(engine, now, "2", dog=(2,))
        granted = "SELECT relname FROM pg_class WHERE relacl::text ~ 'reader=r/' ORDER BY relname"
        assert bench.rows(granted) == [('wo"r%ds',), ('wo"r%ds_changes',)]
        with engine.connect() as connection:
            assert connection.execute(text('SELECT count FROM report."wo""r%ds"')).scalar() == 3
            assert connection.execute(text('SELECT count FROM report."as_of_wo""r%ds"(1)')).scalar() == 1
        left = "SELECT relname FROM pg_class WHERE relname ~ '^s(@[0-9]+|@txid|@versions|_changes)?$'"
        functions = "SELECT proname FROM pg_proc WHERE proname IN ('as_of_s', 'why_s', 'changes_s', 'corrected_s')"
        assert bench.rows(left) + bench.rows(functions) == []
        kept = "SELECT DISTINCT k FROM txbatch.batch, json_object_keys(keys) k"
        assert bench.rows(kept) == [('wo"r%ds',)]
    finally:
        bench.run("DROP OWNED BY reader", "DROP ROLE reader")


@pytest.mark.rule("R23")
def test_a_topology_that_is_renamed_takes_all_of_the_ledger_with_it(engine: Engine) -> None:
    bench = counted(engine, defined(), "1", dog=(1,))
    now = Topology("sales", was="t")
    now.new_stream("in", bench.topology.streams["in"].spout).group_by("word").persistent_aggregate(
        OpaqueState("s"), count=Count()
    )
    with pytest.raises(SchemaMismatch, match=r"topology 'sales' was 't'\. Put the old definition back"):
        bench.ledger.register(now, JOB)
    bench.ledger.change(now, JOB, WHY)
    counted(engine, now, "2", dog=(2,))
    for table in ("topology", "state", "batch", "batch_key", "attempt", "partition", "consumed", "change"):
        assert {name for (name,) in bench.rows(f"SELECT topology FROM txbatch.{table}")} == {"sales"}, table
    assert bench.rows("SELECT count, committed_at IS NOT NULL FROM report.s_changes ORDER BY txid") == [
        (1, True),
        (2, True),
    ]
    assert bench.rows("SELECT count FROM report.as_of_s(1)") == [(1,)]
    assert "'sales'" in bench.rows("SELECT obj_description(to_regclass('report.s'))")[0][0]


@pytest.mark.rule("R23")
def test_names_stay_while_what_a_rebuild_replaced_can_be_asked_for(engine: Engine) -> None:
    bench = counted(engine, defined(), "1", dog=(1,))
    bench.run(
        "INSERT INTO txbatch.rebuild (topology, status, why, job, code, definition, ended_at, swapped_txid, past)"
        " VALUES ('t', 'swapped', 'x', 'jobs/job.py', '', '{}', now(), 1, '{}')"
    )
    now = defined(OpaqueState("words", was="s"))
    with pytest.raises(ChangeTooEarly, match="keep their names while what they were before rebuild 1 can be asked for"):
        bench.ledger.change(now, JOB, WHY)
    bench.run("UPDATE txbatch.rebuild SET dropped_at = now()")
    assert len(bench.ledger.change(now, JOB, WHY)) == 1


@pytest.mark.rule("R23")
def test_who_changed_what_and_why_and_since_when_it_counts(engine: Engine) -> None:
    bench = counted(engine, defined(), "1", dog=(1,))
    bench.ledger.change(defined(count=Count(), most=Max("n", since="now")), JOB, "asked for", "ann")
    kept = "SELECT topology, txid, how, what, why, requested_by, job FROM report.changes_of_definition"
    what = "value 'most' of state 's' is new, int"
    assert bench.rows(kept) == [("t", 2, "from now on", what, "asked for", "ann", JOB)]
    assert bench.rows("SELECT * FROM report.values_since") == [("t", "s", "most", 2)]
    said = "SELECT col_description(to_regclass('report.s'), 4)"
    assert bench.rows(said) == [("Max of n; since txid 2, null before that",)]
    assert bench.rows("SELECT word, count, txid, most FROM report.s") == [("dog", 1, 1, None)]


@pytest.mark.rule("R23")
def test_a_view_that_others_made_is_named(engine: Engine) -> None:
    bench = counted(engine, defined(count=Count(), low=Min("n")), "1", dog=(1, 2))
    bench.run("CREATE VIEW public.top AS SELECT word, count FROM report.s")
    with pytest.raises(
        TerminalError, match=r"state 's' cannot be changed, as a view .*view public\.top depends on view report\.s"
    ):
        bench.ledger.change(defined(count=Count()), JOB, WHY)
    assert bench.rows("SELECT word, count FROM public.top") == [("dog", 1)]
    assert bench.rows("SELECT low FROM report.s") == [(2,)]
    assert bench.rows("SELECT count(*) FROM txbatch.change") == [(0,)]


@pytest.mark.rule("R23")
def test_an_open_report_is_waited_for_and_named(engine: Engine) -> None:
    bench = counted(engine, defined(count=Count(), low=Min("n")), "1", dog=(1, 2))
    now = defined(count=Count())
    with engine.connect() as reader:
        reader.exec_driver_sql("SELECT * FROM report.s")
        pid = reader.exec_driver_sql("SELECT pg_backend_pid()").scalar()
        told = rf"state 's' cannot be changed while others use it: session {pid} of "
        with transaction(engine) as connection:
            connection.exec_driver_sql("SET LOCAL lock_timeout = '10ms'")
            with pytest.raises(Unavailable, match=told):
                definition_changes.change(connection, now, JOB, WHY, None)
        assert bench.rows("SELECT low FROM state.s") == [(2,)]
    bench.ledger.change(now, JOB, WHY)
    counted(engine, now, "2", dog=(1,))


@pytest.mark.rule("R23")
def test_killed_at_any_statement_it_has_changed_nothing_or_all(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    before = defined(OpaqueState("s", contributions=False), count=Count(), low=Min("n"))
    bench = counted(engine, before, "1", dog=(1, 2))
    now = defined(fields="word string, n bigint", lowest=Min("n", was="low"), most=Max("n", since="now"))
    ran, run = [0], definition_changes.state_tables.run_all

    class Killed(BaseException):
        pass

    def run_all(connection: Any, given: Any) -> None:
        for statement in given:
            run(connection, [statement])
            ran[0] -= 1
            if ran[0] == 0:
                raise Killed

    for module in (definition_changes, definition_changes.state_tables):
        monkeypatch.setattr(module, "run_all", run_all)
    stored = "SELECT columns::text, contributions, horizon, values_since::text FROM txbatch.state"
    was, tried = bench.rows(stored), 0
    while True:
        tried += 1
        ran[0] = tried
        try:
            bench.ledger.change(now, JOB, WHY)
            break
        except Killed:
            assert bench.rows(stored) == was
            assert bench.rows("SELECT count, low FROM report.s") == [(1, 2)]
            assert bench.rows("SELECT to_regclass('contribution.s'), count(*) FROM txbatch.change") == [(None, 0)]
    assert tried > 20
    counted(engine, now, "2", dog=(-5, 7))
    assert bench.rows("SELECT lowest, most FROM report.s") == [(-5, 7)]
    assert bench.rows("SELECT lowest, most, txid FROM contribution_base.s") == [(2, None, 1)]
    assert bench.rows("SELECT horizon FROM txbatch.state") == [(1,)]


@pytest.mark.rule("R23")
def test_two_at_once_apply_it_once(engine: Engine) -> None:
    bench = counted(engine, defined(), "1", dog=(1,))
    now, found = defined(count=Count(), most=Max("n", since="now")), list[Any]()

    def change() -> None:
        found.append(PostgresLedger(engine).change(now, JOB, WHY))

    threads = [Thread(target=change) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(len, found)) == [0, 1]
    assert bench.rows("SELECT count(*) FROM txbatch.change") == [(1,)]


@pytest.mark.rule("R23")
def test_a_process_of_the_job_as_it_was_can_neither_plan_nor_commit(engine: Engine) -> None:
    before, now = defined(count=Count(), low=Min("n")), defined(count=Count())
    bench = counted(engine, before, "1", dog=(1, 2))
    planned = bench.planned("2")
    with pytest.raises(ChangeTooEarly, match="txid 2"):
        bench.ledger.change(now, JOB, WHY)
    bench.ledger.abort("t", planned.txid, "in the way")
    bench.ledger.change(now, JOB, WHY)
    for refused in (lambda: bench.planned("3"), lambda: bench.ledger.register(before, JOB)):
        with pytest.raises(SchemaMismatch, match="value 'low' of state 's' is new"):
            refused()
    batch = Bench(engine, now).emitted({"s": [(("dog",), (1,))]}, "3")
    with pytest.raises(SchemaMismatch, match="value 'low' of state 's' is new"):
        bench.commit(batch, {"s": [(("dog",), (1, 0))]})
    assert bench.rows("SELECT count FROM report.s") == [(1,)]


@pytest.mark.rule("R23")
def test_a_state_of_an_older_ledger_without_its_aggregates(engine: Engine) -> None:
    bench = counted(engine, defined(count=Count(), mean=Avg("n")), "1", dog=(2, 7, 2))
    bench.run("UPDATE txbatch.state SET columns = (columns::jsonb - 'aggregates')::json")
    found = bench.ledger.change(defined(count=Count()), JOB, WHY)
    assert [each.what for each in found] == [
        "value 'mean_count' of state 's' is gone",
        "value 'mean_sum' of state 's' is gone",
    ]
    assert bench.rows("SELECT count FROM report.s") == [(2,)]
    assert bench.rows("SELECT columns->'aggregates' FROM txbatch.state") == [({"count": "Count"},)]
