"""Trains of batches on a real ledger: real processes that are killed anywhere in them, and called again until all is done."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_support import DAYS
from forks import Fork
from sqlalchemy import Engine, text

# Trains of two and then of four, whose partials are there when they are waited for; dies where KILL_AT says: at which failpoint
# and the how manieth time it is reached.
PROGRAM = """
import os, signal, sys
import txbatch.wiring
from txbatch import failpoints
from txbatch.cli.main import main
from txbatch.core.protocol import bulk as fused
from without_spark import WithoutSpark

class Beside(WithoutSpark):
    def begin(self, attempts):
        self.begun = attempts
    def wait(self):
        self.emit_bulk(self.begun)

txbatch.wiring.Application = Beside
fused.BATCHES_FIRST, fused.GROWS, fused.BATCHES_MAX = 2, 2, 4
where, left = os.environ["KILL_AT"].split()[0], int(os.environ["KILL_AT"].split()[1])

def reached(name):
    global left
    left -= name == where
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

with failpoints.watch(reached):
    main(prog_name="txbatch")
"""
# Failpoints, and the how manieth time each is reached.
KILLS = (
    "initialize.planned 2",
    "emit.attempt_started 2",
    "emit.manifest_written 2",
    "emit.recorded 1",
    "commit.loaded 2",
    "success.cleaned 1",
    "emit.recorded 3",
    "commit.before_commit 2",
    "commit.committed 2",
    "emit.manifest_written 1",
)
DAY = ("--interval", "2026-01-01T00Z", "2026-01-11T00Z", "--cron", "0 0 * * *")
pytestmark = pytest.mark.timeout(300)


@pytest.mark.rule("R3", "R5", "R6", "R10")
def test_killed_anywhere_in_trains_each_day_counts_once(
    home: Path,
    postgres_url: str,
    engine: Engine,
    tmp_path: Path,
    write_job: Callable[[str, str], str],
    fork: Callable[..., Fork],
) -> None:
    """Planned, begun, recorded, committed or succeeded, each a while further than the call before it came."""
    root = tmp_path / "in"
    root.mkdir()
    hours = [f"2026-01-{day:02}T{hour:02}:00+00:00,hour{hour}" for day in range(1, 11) for hour in range(day)]
    (root / "a").write_text("\n".join(hours) + "\n")
    job = write_job("days.py", DAYS.format(root=str(root)))
    for kill_at in (*KILLS, "nowhere 1"):
        called = fork(PROGRAM, "run", job, *DAY, TXBATCH_DATABASE_URL=postgres_url, KILL_AT=kill_at)
        _, err = called.communicate()
        assert called.returncode == (-signal.SIGKILL if kill_at in KILLS else 0), (kill_at, err)
        _check_counted(engine)
    with engine.connect() as connection:
        days = connection.execute(text("SELECT txid, status, records FROM report.batches ORDER BY txid")).tuples().all()
        counts = dict(connection.execute(text('SELECT name, "count" FROM report.days')).tuples().all())
    assert days == [(day, "committed", day) for day in range(1, 11)]
    assert counts == {f"hour{hour}": 10 - hour for hour in range(10)}


def _check_counted(engine: Engine) -> None:
    """Assert that what is committed is a beginning of all days, and the state what these contribute."""
    with engine.connect() as connection:
        committed = "SELECT txid FROM txbatch.batch WHERE status = 'committed' ORDER BY txid"
        txids = list(connection.execute(text(committed)).scalars())
        names = connection.execute(
            text("SELECT 1 FROM pg_views WHERE (schemaname, viewname) = ('report', 'days')")
        ).all()
        found = 'SELECT COALESCE(sum("count"), 0) FROM report.days'
        counted = connection.execute(text(found)).scalar_one() if names else 0
    assert txids == list(range(1, len(txids) + 1))
    assert counted == sum(txids)
