"""One server, one history: crashes, standbys, promotions and copies lose no row, or are refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from servers import Server
from source_intervals import DAY, Sales, day
from source_intervals import TABLE as SALES
from source_tables import TABLE, Shop, known

from txbatch.core.batch.transaction import Metadata
from txbatch.core.errors import OtherHistory, PartitionUnreadable, RowsDiffer, SourceBehind, TxbatchError
from txbatch.spouts.tables import server as planned_by

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Server:
    """A stopped server with the table, prepared."""
    made = Server(tmp_path_factory.mktemp("t") / "t").make().start()
    with known(made.url):
        shop = Shop(made.url)
        shop.ask(TABLE)
        shop.prepare()
    made.stop()
    return made


@pytest.fixture
def server(template: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of this test alone."""
    made = template.copy(tmp_path_factory.mktemp("s") / "a").start()
    yield made
    made.kill()


@pytest.fixture
def shop(server: Server) -> Iterator[Shop]:
    with known(server.url):
        yield Shop(server.url)


def all_ids(shop: Shop) -> list[int]:
    return sorted(number for (number,) in shop.ask("SELECT id FROM shop.sale"))


@pytest.fixture(params=["with the wait", "without the wait"])
def waits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """The wait for the flush, and the mutation that leaves it out."""
    if request.param == "without the wait":
        monkeypatch.setattr(planned_by, "_FLUSHED", "SELECT %s IS NOT NULL")
    return bool(request.param == "with the wait")


def test_a_crash_gives_no_number_of_a_counted_transaction_to_others(shop: Shop, server: Server, waits: bool) -> None:
    """Rows of asynchronous commits are read, the server is killed before it flushes, and gives their numbers anew."""
    if not waits:
        server.ask("ALTER SYSTEM SET wal_writer_delay = '10s'")
        server.ask("ALTER SYSTEM SET wal_writer_flush_after = '1GB'")
        server.ask("SELECT pg_reload_conf()")
    shop.insert(1)
    assert shop.take() == [1]
    cursor = server.connect().cursor()
    cursor.execute("SET synchronous_commit = off")
    for number in (2, 3, 4):
        cursor.execute(f"INSERT INTO shop.sale VALUES ({number}, 's', 1)")
    counted = shop.take()
    server.kill()
    assert counted == [2, 3, 4]
    server.start()
    survived = all_ids(shop)
    shop.insert(12, 13)  # these have the numbers, where the crash gave them anew
    shop.insert(14)
    shop.insert(15)
    shop.insert(16)
    if waits:
        assert survived == [1, 2, 3, 4]
        assert [number for ids in shop.drain() for number in ids] == [12, 13, 14, 15, 16]
    else:
        assert survived == [1], "the crash lost nothing: then this test proves nothing"
        with pytest.raises(TxbatchError):  # the witness is what is left
            list(shop.drain())


@pytest.mark.parametrize("rule", [True, False], ids=["by the horizon", "by its snapshots"])
def test_a_standby_plans_by_its_horizon(
    shop: Shop, server: Server, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, rule: bool
) -> None:
    """An open transaction of the primary is in no snapshot of the standby; its rows come when it has ended."""
    if not rule:
        mutation = planned_by._SERVER.replace("pg_snapshot_xmin(", "pg_snapshot_xmax(")
        monkeypatch.setattr(planned_by, "_SERVER", mutation)
    standby = server.standby(tmp_path_factory.mktemp("b") / "b")
    try:
        open_, prepared = (begun(server, number) for number in (1, 2))
        prepared.execute("PREPARE TRANSACTION 'two'")
        shop.insert(3)
        found = read_on(standby, server)
        open_.execute("COMMIT")
        shop.insert(4)
        found += read_on(standby, server)
        server.ask("COMMIT PREPARED 'two'")
        shop.insert(5)
        found += read_on(standby, server)
        assert standby.ask("SELECT pg_is_in_recovery()") == [(True,)]
        assert (sorted(found) == all_ids(shop)) is rule
    finally:
        OFFSETS.clear()
        standby.kill()


OFFSETS: dict[str, Metadata] = {}


def begun(server: Server, number: int) -> Any:
    """A transaction that has inserted rows, in more subtransactions than a standby keeps of one."""
    cursor = server.connect().cursor()
    cursor.execute("BEGIN")
    cursor.execute(f"INSERT INTO shop.sale VALUES ({number}, 's', 1)")
    for point in range(70):
        cursor.execute(f"SAVEPOINT p{point}; INSERT INTO shop.sale VALUES ({number * 1000 + point}, 's', 1)")
    return cursor


def read_on(standby: Server, server: Server) -> list[int]:
    """What a standby that has caught up has to read."""
    standby.caught_up(server)
    with known(standby.url):
        shop = Shop(standby.url, offsets=dict(OFFSETS))
        found = [number for ids in shop.drain() for number in ids]
    OFFSETS.update(shop.offsets)
    return found


def test_an_interval_waits_on_a_standby_for_what_the_primary_has_open(
    server: Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Rows that the standby shows are not in its horizon while an older transaction is open on the primary."""
    with known(server.url):
        primary = Sales(Shop(server.url))
        primary.shop.ask("DROP SCHEMA shop CASCADE")
        primary.shop.ask(SALES.format("timestamptz"))
        primary.shop.prepare()
        standby = server.standby(tmp_path_factory.mktemp("b") / "b")
    try:
        primary.sell(DAY, 1)
        open_ = server.connect().cursor()
        open_.execute("BEGIN; SELECT pg_current_xact_id(); CREATE TABLE shop.other ()")
        primary.sell(DAY, 2)
        with known(standby.url):
            standby.caught_up(server)
            here = Sales(Shop(standby.url))
            with pytest.raises(PartitionUnreadable, match="an open transaction of the primary"):
                here.plan(day(0))
            (empty,) = here.plan(day(5))
            assert empty["records"] == 0
            open_.execute("COMMIT")
            standby.caught_up(server)
            (plan,) = here.plan(day(0))
            assert here.ids(plan) == [1, 2]
    finally:
        standby.kill()


def test_a_task_on_a_standby_that_lags_reads_nothing(
    shop: Shop, server: Server, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an endpoint of several servers; rows that change may be fewer than planned, so that nobody would miss the rows."""
    monkeypatch.setattr(planned_by, "_LAG_SECONDS", 0)
    standby = server.standby(tmp_path_factory.mktemp("b") / "b")
    try:
        standby.caught_up(server)
        standby.ask("SELECT pg_wal_replay_pause()")
        standby.until(lambda: standby.ask("SELECT pg_get_wal_replay_pause_state()") == [("paused",)])
        shop.insert(1)
        (stretch,) = shop.cut(shop.plan())
        with shop.spout().session() as session:
            copy = shop.spout()._copy(session, ["id"])
        lagging = replace(copy, url=standby.url)
        with pytest.raises(SourceBehind, match="a task is at a server that lacks"):
            list(lagging.read(stretch))
        standby.ask("SELECT pg_wal_replay_resume()")
        standby.caught_up(server)
        for each in (copy, lagging):
            assert [row["id"] for rows in each.read(stretch) for row in rows.to_pylist()] == [1]
    finally:
        standby.kill()


def test_a_promoted_standby_is_refused_until_somebody_accepts_it(
    shop: Shop, server: Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shop.insert(1)
    assert shop.take() == [1]
    standby = server.standby(tmp_path_factory.mktemp("b") / "b")
    try:
        standby.caught_up(server)
        server.kill()
        standby.promote()
        with known(standby.url):
            promoted = Shop(standby.url, offsets=shop.offsets)
            promoted.insert(2)
            with pytest.raises(OtherHistory, match="on another timeline of its server") as refused:
                promoted.take()
            accepted = refused.value.text.rpartition("accept=")[2].strip("'")
            assert promoted.take(accept=accepted) == [2]
            promoted.ask("DELETE FROM shop.sale WHERE id = 2")
            with pytest.raises(RowsDiffer, match="had 1 rows when it was counted, 0 now"):
                promoted.take()
    finally:
        standby.kill()


def test_an_idle_server_at_a_new_segment_is_flushed(
    shop: Shop, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `archive_timeout` leaves a server: behind the flushed log is the header of a page, and no record."""
    shop.insert(1)
    assert shop.take() == [1]
    assert shop.take() is None
    server.ask("SELECT pg_switch_wal()")
    behind = "SELECT pg_current_wal_insert_lsn() - pg_current_wal_flush_lsn()"
    assert server.ask(behind) == [(40,)]
    monkeypatch.setattr(planned_by, "_PUSH_SECONDS", 60)
    monkeypatch.setattr(planned_by, "FLUSH_SECONDS", 1)
    assert shop.take() is None


def test_what_reading_itself_writes_to_the_log_is_flushed(
    shop: Shop, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first reader of new rows marks them in their pages: that is in the log, and flushed with the next commit alone."""
    monkeypatch.setattr(planned_by, "FLUSH_SECONDS", 5)
    shop.insert(1)
    server.ask("CHECKPOINT")
    assert shop.take() == [1]


@pytest.mark.whole
def test_a_copy_put_back_is_behind_or_has_other_rows(shop: Shop, server: Server, tmp_path: Path) -> None:
    """The same system and timeline: only what was counted tells."""
    shop.insert(1)
    assert shop.take() == [1]
    server.stop()
    copy = server.copy(tmp_path / "c")
    server.start()
    shop.insert(2)
    assert shop.take() == [2]
    server.kill()
    copy.start()
    try:
        with known(copy.url):
            restored = Shop(copy.url, offsets=shop.offsets)
            with pytest.raises(SourceBehind, match="is behind what was counted"):
                restored.take()
            restored.insert(12, 13)
            restored.insert(14)
            with pytest.raises(
                RowsDiffer, match="had 1 rows when it was counted, 2 now: rows were lost or changed there"
            ):
                restored.take()
    finally:
        copy.kill()


def test_a_restart_compares_the_whole_last_batch(shop: Shop, server: Server) -> None:
    shop.insert(1, 2)
    shop.insert(3)
    assert shop.take() == [1, 2, 3]
    shop.ask("DELETE FROM shop.sale WHERE id = 1")  # the newest transaction is as it was
    assert shop.take() is None
    server.stop()
    server.start()
    with pytest.raises(RowsDiffer, match="its server was started anew, and 2 of the 3 rows"):
        shop.take()
    end = shop.offsets["shop.sale"]["end"]
    shop.insert(4)
    assert shop.take(accept=end) == [4]


@pytest.mark.whole
def test_another_server_and_another_table_are_refused(shop: Shop, server: Server, tmp_path: Path) -> None:
    shop.insert(1)
    assert shop.take() == [1]
    shop.ask("ALTER TABLE shop.sale RENAME TO old")
    shop.ask(TABLE.partition(";")[2])
    shop.prepare()
    with pytest.raises(OtherHistory, match="another table than"):
        shop.take()
    other = Server(tmp_path / "o").make().start()
    try:
        with known(other.url):
            elsewhere = Shop(other.url, offsets=shop.offsets)
            elsewhere.ask(TABLE)
            elsewhere.prepare()
            with pytest.raises(OtherHistory, match="on another server than"):
                elsewhere.take()
    finally:
        other.kill()
