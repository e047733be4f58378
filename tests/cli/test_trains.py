"""Trains of batches on a real ledger: real processes that are killed anywhere in them, and called again until all is done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_support import DAYS
from sqlalchemy import Engine, text

from txbatch import settings

ROOT = settings.project_root()
# Trains of two and then of four, whose partials are there when they are waited for; dies at the KILL_AT'th failpoint.
PROGRAM = """
import os, signal, sys
import txbatch.wiring
from txbatch import failpoints
from txbatch.cli.main import main
from txbatch.core import fused
from without_spark import WithoutSpark

class Beside(WithoutSpark):
    def begin(self, attempts):
        self.begun = attempts
    def wait(self):
        self.emit_fused(self.begun)

txbatch.wiring.Application = Beside
fused.BATCHES_FIRST, fused.GROWS, fused.BATCHES_MAX = 2, 2, 4
left = int(os.environ["KILL_AT"])

def reached(name):
    global left
    left -= 1
    if left == 0:
        print(name, file=sys.stderr)
        os.kill(os.getpid(), signal.SIGKILL)

with failpoints.watched(reached):
    main(prog_name="txbatch")
"""
DAY = ("--interval", "2026-01-01T00Z", "2026-01-11T00Z", "--cron", "0 0 * * *")
pytestmark = pytest.mark.timeout(300)


@pytest.mark.rule("R3", "R5", "R6", "R10")
def test_killed_anywhere_in_trains_each_day_counts_once(
    home: Path, postgres_url: str, engine: Engine, tmp_path: Path, write_job: Callable[[str, str], str]
) -> None:
    """Planned, begun, recorded, committed or succeeded, each a while further than the call before it came."""
    root = tmp_path / "in"
    root.mkdir()
    hours = [f"2026-01-{day:02}T{hour:02}:00+00:00,hour{hour}" for day in range(1, 11) for hour in range(day)]
    (root / "a").write_text("\n".join(hours) + "\n")
    call = [sys.executable, "-P", "-c", PROGRAM, "run", write_job("days.py", DAYS.format(root=str(root))), *DAY]
    path = f"{ROOT / 'plugins'}:{ROOT / 'tests'}"
    killed_at = set[str]()
    for kill_at in (3, 6, 9, 12, 19, 23, 14, 29, 37, 45, 1_000):
        environment = {**os.environ, "TXBATCH_DATABASE_URL": postgres_url, "PYTHONPATH": path, "KILL_AT": str(kill_at)}
        done = subprocess.run(call, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        killed_at.add(done.stderr.splitlines()[-1])
        _check_counted(engine)
    assert done.returncode == 0, done.stderr
    assert {"initialize.planned", "emit.attempt_started", "emit.recorded", "commit.loaded"} <= killed_at
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
