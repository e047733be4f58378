"""`txbatch follow` on a real ledger: two are killed, cut off and started anew while records come in; none counts twice.

`TXBATCH_SOAK_KILLS=50` does it fifty times.
"""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cli_support import DAYS, WORDS_OF_LOG, rows
from click.testing import Result
from forks import Fork
from sizes import some_of
from slowness import slowness
from sqlalchemy import Engine, text
from support import until

from txbatch.spouts.partitioned_log import PartitionedLog

Start = Callable[..., Fork]
KILLS = some_of(2, 5, "TXBATCH_SOAK_KILLS")
CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'txbatch words%'"
pytestmark = pytest.mark.timeout(300 + 20 * KILLS)


def counts(engine: Engine) -> dict[str, int]:
    with engine.connect() as connection:
        there = connection.execute(
            text("SELECT 1 FROM pg_views WHERE (schemaname, viewname) = ('report', 'words')")
        ).all()
        found = connection.execute(text('SELECT line, "count" FROM report.words')).tuples().all() if there else []
    return dict(found)


def wait_for(what: Callable[[], object], started: list[Fork], seconds: float = 60) -> None:
    def seen() -> object:
        for each in started:
            assert each.poll() is None, each.communicate()
        return what()

    until(seen, "waited too long", seconds=seconds, every=0.05)


@pytest.mark.rule("R3", "R5", "R6", "R10")
def test_followers_that_are_killed_and_cut_off_count_each_record_once(
    home: Path,
    postgres_url: str,
    engine: Engine,
    tmp_path: Path,
    write_job: Callable[[str, str], str],
    process_without_spark: Start,
) -> None:
    log, said, at_random = PartitionedLog(tmp_path / "log"), Counter[str](), random.Random(15)

    def more() -> None:
        lines = [f"w{at_random.randrange(5)}" for _ in range(at_random.randrange(1, 6))]
        said.update(lines)
        log.append(str(at_random.randrange(2)), lines)

    def begin() -> Fork:
        return process_without_spark("follow", job, "--json", TXBATCH_DATABASE_URL=postgres_url)

    def counted() -> bool:
        return counts(engine) == dict(said)

    more()
    job = write_job("words.py", WORDS_OF_LOG.format(root=str(tmp_path / "log")))
    followers = [begin(), begin()]
    try:
        wait_for(counted, followers)
        for number in range(KILLS):
            more()
            time.sleep(at_random.random() / 2)
            if number % 5 == 1:
                with engine.connect() as connection:
                    connection.execute(text(CUT))
            else:
                killed = followers.pop(number % 2)
                os.killpg(killed.pid, signal.SIGKILL)
                killed.communicate()
                followers.append(begin())
            more()
            assert all(number <= said[line] for line, number in counts(engine).items())
            wait_for(counted, followers)
        for each in followers:
            os.killpg(each.pid, signal.SIGKILL)
            each.communicate()
        followers = [begin()]
        more()
        wait_for(counted, followers)
        followers[0].send_signal(signal.SIGTERM)
        end = followers[0].communicate(timeout=60 * slowness())
        assert followers[0].returncode == 0, end
    finally:
        for each in followers:
            if each.poll() is None:
                os.killpg(each.pid, signal.SIGKILL)
                each.communicate()
    with engine.connect() as connection:
        open_ = "SELECT count(*) FROM txbatch.batch WHERE status IN ('planned', 'emitted')"
        assert connection.execute(text(open_)).scalar_one() == 0
        records = "SELECT sum(records) FROM report.batches WHERE status = 'committed'"
        assert connection.execute(text(records)).scalar_one() == said.total()


def follows(started: Fork) -> bool:
    """True once a command catches SIGTERM: the one that came again may find all counted before it has come so far."""
    caught = re.search(r"^SigCgt:\s*(\w+)$", Path(f"/proc/{started.pid}/status").read_text(), re.MULTILINE)
    assert caught is not None
    return bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)


def two_days(folder: Path, write_job: Callable[[str, str], str]) -> str:
    """A job that counts by days, and a source that has one in each of two years."""
    (folder / "in").mkdir()
    (folder / "in" / "a").write_text("2020-03-01T05:00:00+00:00,x\n2021-07-01T05:00:00+00:00,x\n")
    return write_job("days.py", DAYS.format(root=str(folder / "in")))


@pytest.mark.rule("R2")
def test_intervals_are_followed_by_the_clock(
    txbatch: Callable[..., Result],
    engine: Engine,
    tmp_path: Path,
    write_job: Callable[[str, str], str],
    monkeypatch: Any,
) -> None:
    """It ends by SIGTERM, and shows the newest batches."""
    job = two_days(tmp_path, write_job)
    monkeypatch.setattr("txbatch.run.follow._rest", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    done = rows(txbatch("follow", job, "--cron", "0 0 1 1 *", "--since", "2020-01-01T00Z", "--delay", "60", "--json"))
    assert [each["interval_start"][:4] for each in done][:3] == ["2020", "2021", "2022"]
    with engine.connect() as connection:
        assert connection.execute(text('SELECT "count" FROM report.days')).scalar_one() == 2
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.rule("R2", "R6")
def test_two_that_follow_the_clock_count_each_interval_once(
    home: Path,
    postgres_url: str,
    engine: Engine,
    tmp_path: Path,
    write_job: Callable[[str, str], str],
    process_without_spark: Start,
) -> None:
    """One is killed, and comes again; none of them gives up."""
    job = two_days(tmp_path, write_job)
    clock = ("--cron", "0 0 1 1 *", "--since", "2020-01-01T00Z", "--json")

    def begin() -> Fork:
        return process_without_spark("follow", job, *clock, TXBATCH_DATABASE_URL=postgres_url)

    def asked(query: str) -> Any:
        with engine.connect() as connection:
            return connection.execute(text(query)).scalar_one()

    years, followers = datetime.now(UTC).year - 2020, [begin(), begin()]
    try:
        wait_for(lambda: asked("SELECT count(*) FROM txbatch.batch WHERE status = 'committed'") > 0, followers)
        killed = followers.pop(0)
        os.killpg(killed.pid, signal.SIGKILL)
        killed.communicate()
        followers.append(begin())
        done = f"SELECT count(*) = {years} FROM txbatch.batch WHERE status = 'committed'"
        wait_for(lambda: asked(done) and all(map(follows, followers)), followers, seconds=200)
        time.sleep(1)
        for each in followers:
            assert each.poll() is None, each.communicate()
            each.send_signal(signal.SIGTERM)
            said = each.communicate(timeout=60 * slowness())
            assert each.returncode == 0, said
    finally:
        for each in followers:
            if each.poll() is None:
                os.killpg(each.pid, signal.SIGKILL)
                each.communicate()
    assert asked("SELECT count(*) = count(DISTINCT interval_start) FROM report.batches WHERE status = 'committed'")
    assert asked('SELECT "count" FROM report.days') == 2


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["--max-latency", "5"], "--max-latency is how long --min-batch is waited for"),
        (["--timezone", "UTC"], "--timezone is the zone of --cron"),
        (["--cron", "0 0 * * *", "--since", "2020-01-01T00Z"], "words does not read by time"),
    ],
)
def test_what_does_not_go_together_is_refused(
    txbatch: Callable[..., Result], tmp_path: Path, write_job: Callable[[str, str], str], given: list[str], why: str
) -> None:
    PartitionedLog(tmp_path / "log").append("0", ["a"])
    found = txbatch("follow", write_job("words.py", WORDS_OF_LOG.format(root=str(tmp_path / "log"))), *given)
    assert (found.exit_code, why in found.stderr) == (2, True), found.stderr


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([], "days reads by time: give --cron"),
        (["--cron", "0 0 * * *"], "days reads by time: give --cron"),
        (["--cron", "0 0 * * *", "--since", "2020-01-01T05:00Z"], "is no time of"),
        (["--cron", "now", "--since", "2020-01-01T05:00Z"], "is no cron expression"),
    ],
)
def test_by_time_it_must_be_said_where_it_begins(
    txbatch: Callable[..., Result], tmp_path: Path, write_job: Callable[[str, str], str], given: list[str], why: str
) -> None:
    found = txbatch("follow", write_job("days.py", DAYS.format(root=str(tmp_path))), *given)
    assert (found.exit_code, why in found.stderr) == (2, True), found.stderr
