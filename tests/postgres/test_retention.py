"""Retention folds the past into one row a key; what reports show now, and at each txid from the horizon on, stays (R22)."""

from __future__ import annotations

from threading import Thread
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from past_model import BASE, HISTORY, KEYS, Model, few, positions
from postgres_bench import Bench, Calls, words
from sqlalchemy import Connection, Engine, text
from support import LogSpout, until, word_count

from txbatch import Avg, CombinerAggregator, Count, Max, OpaqueState, Topology, failpoints
from txbatch.core.aggregates.aggregator import PartialColumn
from txbatch.core.aggregates.merge import Merge
from txbatch.core.corrections.retention import SLICE_TXIDS
from txbatch.core.errors import NotFoldable
from txbatch.core.records.fields import Field
from txbatch.core.state.keep import Keep
from txbatch.core.state.update import Change
from txbatch.postgres.corrections import retention
from txbatch.postgres.corrections.retention import Retention
from txbatch.postgres.corrections.window_retention import PostgresWindows
from txbatch.postgres.state.folds import Folds
from txbatch.run.retention import Collector

pytestmark = pytest.mark.rule("R22")
HORIZONS = st.lists(st.integers(1, 7), min_size=1, max_size=3)
# A key that only what was folded holds, changed last by a restate that another one replaced.
ONE = (1, False, True)
RESTATED_TWICE: list[Any] = [(None, (ONE, None)), (0, (None, None)), (0, (None, None)), (None, (ONE, None))]


def filled(connection: Connection, topology: Topology, history: list[Any], base: Any, *, removable: bool) -> Model:
    model = Model(connection, topology.aggregates[0])
    folded = {(key,): (n,) * 4 for key, n in zip(KEYS, base or (), strict=False) if n is not None}
    shift, changes = 1 if folded else 0, []
    for position, (_, each) in zip(positions([again for again, _ in history]), history, strict=True):
        of_keys = {(key,): change for key, change in zip(KEYS, each, strict=True) if change is not None}
        marked = {
            key: Change((value,) * 4, *(marks if removable else (False, True)))
            for key, (value, *marks) in of_keys.items()
        }
        changes.append((position + shift, marked))
    model.fill(folded, changes)
    return model


def shown(model: Model, horizon: int) -> dict[int, Any]:
    """What reports say of each txid from the horizon on, by the functions of SQL."""
    return {
        at: {row[:1]: row[1:] for row in model.rows(f"SELECT * FROM report.as_of_s({at})")}
        for at in range(horizon, model.newest + 1)
    }


@pytest.mark.parametrize("removable", [False, True])
@example(history=RESTATED_TWICE, base=(1, None), horizons=[4], pending=None)
@given(history=HISTORY, base=BASE, horizons=HORIZONS, pending=st.none() | st.integers(1, 6))
@few
def test_what_can_be_asked_for_stays(
    engine: Engine, removable: bool, history: list[Any], base: Any, horizons: list[int], pending: int | None
) -> None:
    topology = Topology("t")
    stream = topology.new_stream("words", LogSpout({"a": 1})).each("1", "n bigint").group_by("word")
    remove: Any = {"remove": "true"} if removable else {}
    stream.persistent_aggregate(OpaqueState("s"), count=Count(), most=Max("n"), mean=Avg("n"), **remove)
    Bench(engine, topology)
    with engine.connect() as connection:
        model = filled(connection, topology, history, base, removable=removable)
        in_flight = pending is not None and pending <= model.newest
        if in_flight:
            names = ["topology", "txid", "position", "kind", "status", "key", "metadata"]
            row = ["t", model.newest + 1, pending, "restate", "planned", "r", "{}"]
            model.insert("txbatch.batch", [*names], row, "lease_until, created_at")
        folds = Folds.of(topology.aggregates[0])
        now = f"SELECT * FROM ({folds.now()}) f ORDER BY 1"
        before = model.rows(now)
        horizon = model.horizon
        for wanted in sorted(min(wanted, model.newest) for wanted in horizons):
            done = retention._fold(connection, "t", wanted)
            horizon = max(done.horizon, horizon)
            assert shown(model, horizon) == {at: model.report(at) for at in range(horizon, model.newest + 1)}
            assert model.rows(now) == before
            left = {row[0] for row in model.rows(f"SELECT DISTINCT position FROM {folds.contribution}")}
            if in_flight:
                of_it = {each.position for versions in model.given.values() for each in versions} & {pending}
                assert of_it <= left
            assert all(position > done.horizon for position in left)
        connection.rollback()


def report(bench: Bench) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in bench.rows("SELECT word, count, txid FROM report.word_count ORDER BY word")]


def history(bench: Bench, batches: int) -> None:
    for number in range(batches):
        bench.whole(words(**{"dog": 1, f"cat {number % 3}": 2}), f"run {number}")


def test_it_goes_on_beside_commits_and_where_it_was_ended(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    history(bench, 25)
    kept = Retention(bench.engine)
    for point in ("gc.folded", "gc.before_commit"):
        with monkeypatch.context() as patch:
            patch.setenv("TXBATCH_FAILPOINTS", f"{point}=raise")
            with pytest.raises(failpoints.FailpointReached):
                list(kept.fold("word_count", 20))
    assert kept.horizon("word_count") == 0
    assert next(kept.fold("word_count", 20)).horizon == SLICE_TXIDS  # ended after its first slice
    others = [Thread(target=lambda: list(kept.fold("word_count", 20))) for _ in range(2)]
    for other in others:
        other.start()
    for number in range(25, 30):
        bench.whole(words(dog=1, bird=1), f"run {number}")
    for other in others:
        other.join()
    assert kept.horizon("word_count") == 20
    assert report(bench) == [("bird", 5, 30), ("cat 0", 18, 25), ("cat 1", 16, 23), ("cat 2", 16, 24), ("dog", 30, 30)]
    assert bench.rows("SELECT min(txid), count(*) FROM contribution.word_count") == [(21, 20)]
    then = bench.rows("SELECT word, count, txid FROM report.as_of_word_count(20) ORDER BY word")
    assert [tuple(row) for row in then] == [("cat 0", 14, 19), ("cat 1", 14, 20), ("cat 2", 12, 18), ("dog", 20, 20)]


@pytest.mark.rule("R1")
def test_the_states_of_a_topology_are_locked_by_name_as_plans_and_commits_lock_them(engine: Engine) -> None:
    """Of two, `a` lies behind `b` in the table, and is held: who waits for it does not hold `b` meanwhile."""
    topology = Topology("t")
    stream = topology.new_stream("words", LogSpout({"a": 100}))
    for name in "ab":
        stream.group_by("word").persistent_aggregate(OpaqueState(name), count=Count())
    bench, calls = Bench(engine, topology), Calls()
    for number in range(3):
        bench.whole({name: [(("dog",), (1,))] for name in "ab"}, f"run {number}")
    bench.run("UPDATE txbatch.state SET horizon = horizon WHERE state = 'a'")
    lock = "SELECT state FROM txbatch.state WHERE state = '{}' FOR {}"
    with engine.connect() as plan, engine.connect() as other:
        plan.execute(text(lock.format("a", "SHARE")))
        calls.start("fold", lambda: list(Retention(engine).fold("t", 2)))
        waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        until(lambda: bench.rows(waits))
        assert other.execute(text(lock.format("b", "NO KEY UPDATE NOWAIT"))).scalar() == "b"
        other.rollback()
        plan.rollback()
    assert [slice_.horizon for slice_ in calls.join()["fold"]] == [2]


def test_a_position_that_was_restated_late_is_folded_where_the_order_matters(engine: Engine) -> None:
    """It waits for its restate, which is more than a step away, and everything behind it does."""
    topology = Topology("t")
    stream = topology.new_stream("words", LogSpout({"a": 1})).each("1", "n bigint").group_by("word")
    stream.persistent_aggregate(OpaqueState("s"), remove="true", count=Count())
    bench = Bench(engine, topology)
    with engine.begin() as connection:
        model = Model(connection, topology.aggregates[0])
        model.fill({}, [(5 if txid == 50 else txid, {("a",): Change((1,))}) for txid in range(1, 61)])
    kept = Retention(engine)
    list(kept.fold("t", 40))
    assert kept.horizon("t") == 4
    list(kept.fold("t", 55))
    assert kept.horizon("t") == 55
    assert bench.rows("SELECT count, txid FROM contribution_base.s") == [(54, 55)]
    assert bench.rows("SELECT word, count FROM report.as_of_s(60)") == [("a", 59)]


def test_partitions_without_rows_are_dropped(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    history(bench, 3)
    bench.run("UPDATE txbatch.state SET horizon = 1000")
    bench.run("DELETE FROM contribution.word_count")
    kept = Retention(bench.engine)
    with bench.engine.connect() as reader:
        reader.exec_driver_sql("SELECT * FROM contribution.word_count")
        kept._drop_empty("word_count", 1000)
        there = "SELECT to_regclass('contribution_partition.\"word_count@1\"') IS NOT NULL"
        assert reader.exec_driver_sql(there).scalar_one()
    kept._drop_empty("word_count", 1000)
    assert bench.rows(there) == [(False,)]


def test_a_report_that_was_begun_before_reads_what_was_there_then(bench: Bench) -> None:
    """A partition is dropped for all at once, whatever their snapshots: one that saw its rows would miss them."""
    history(bench, 4)
    kept, asked = Retention(bench.engine), "SELECT word, count FROM report.as_of_word_count(2) ORDER BY word"
    reading = bench.engine.execution_options(isolation_level="REPEATABLE READ")
    with reading.connect() as reader:
        reader.exec_driver_sql("SELECT count(*) FROM txbatch.migration")  # its snapshot; it holds no table of the state
        list(kept.fold("word_count", 3))
        bench.run("DELETE FROM contribution.word_count")
        bench.run("UPDATE txbatch.state SET horizon = 1000")
        kept._drop_empty("word_count", 1000)
        assert [tuple(row) for row in reader.exec_driver_sql(asked)] == [("cat 0", 2), ("cat 1", 2), ("dog", 2)]
    kept._drop_empty("word_count", 1000)
    assert bench.rows("SELECT to_regclass('contribution_partition.\"word_count@1\"') IS NULL") == [(True,)]


class BitOr(Merge):
    """A merge of a user's own, which the ledger knows by its name alone."""

    name = "bit_or"

    def both(self, left: int, right: int) -> int:
        return left | right

    def pair_sql(self, state: str, partial: str) -> str:
        return f"COALESCE({state} | {partial}, {state}, {partial})"

    def fold_sql(self, column: str) -> str:
        return f"bit_or({column})"


class Flags(CombinerAggregator):
    def columns(self, input: Field | None) -> tuple[PartialColumn, ...]:
        return (PartialColumn("", "bigint", BitOr(), "bit_or(n)"),)


def test_what_merges_by_a_rule_of_the_jobs_own_is_not_folded_and_no_other_topology_waits_for_it(engine: Engine) -> None:
    topology = Topology("own", keep=Keep(txids=1))
    stream = topology.new_stream("in", LogSpout({"a": 100})).group_by("word")
    stream.persistent_aggregate(OpaqueState("own"), flags=Flags())
    own = Bench(engine, topology)
    counted = word_count(LogSpout({"a": 100}))
    counted.keep = Keep(txids=1)
    other = Bench(engine, counted)
    for name in "123":
        own.whole({"own": [(("dog",), (4,))]}, name)
        other.whole(words(dog=1), name)
    told = (
        "state 'own' merges 'flags' by bit_or, a rule of its job's own, by which gc folds with that job alone: the job"
    )
    for dry_run in (True, False):
        found = {row["topology"]: row for row in collector(engine).all(dry_run=dry_run)}
        assert (found["own"]["horizon"], found["word_count"]["horizon"]) == (0, 2)
        assert told in found["own"]["waits_for"]
        with pytest.raises(NotFoldable, match=told):
            collector(engine).one("own", dry_run=dry_run)
    (folded,) = Retention(engine, lambda name: topology).fold("own", 2)
    assert (folded.horizon, own.rows("SELECT word, flags, txid FROM contribution_base.own")) == (2, [("dog", 4, 2)])


def collector(engine: Engine) -> Collector:
    class NoLeftovers:
        def number(self, topology: str, final: int) -> int:
            return 0

        remove = number

    return Collector(Retention(engine), NoLeftovers(), PostgresWindows(engine))


def test_a_month_of_batches_is_told_by_what_the_last_ones_keep(engine: Engine, bench: Bench) -> None:
    kept = Retention(engine)
    for number in range(2):
        bench.whole(words(**{f"word{each}": 1 for each in range(600)}), str(number))
    assert kept.growth("word_count") is None  # one followed the other at once
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE txbatch.batch SET created_at = created_at - interval '1 day' WHERE txid = 1")
    found = kept.growth("word_count")
    assert found is not None
    assert (found.batches, found.contributions) == (30, 18_000)
    assert 50 < found.size / found.contributions < 500
