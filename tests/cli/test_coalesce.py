"""`txbatch run --cron`: many intervals by one call; it stops at an error, and goes on there; killed, it leaves no Spark."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from subprocess import Popen

import psutil
import pytest
from click.testing import Result
from sqlalchemy import Engine, text
from support import until

from txbatch.postgres.reading.ledger_reader import LedgerReader

pytestmark = pytest.mark.timeout(300)
Txbatch = Callable[..., Result]
WriteJob = Callable[[str, str], str]
Start = Callable[..., Popen[str]]
# A day's only record is its date; a file of that name keeps it from being read.
DAYS = """
from pathlib import Path

class Days(FixedBatchSpout):
    by_interval = True

    def initialize_transaction(self, txid, prev_metadata, curr_metadata):
        return curr_metadata

    def batch(self, plan):
        day = plan["interval"][0][:10]
        if (Path(__file__).parent / day).exists():
            raise TimeoutError(f"{day} is away")
        return [(day,)]

topology = Topology("days")
topology.new_stream("in", Days("day string", 1, "")).group_by("day").persistent_aggregate(
    OpaqueState("days"), count=Count()
)
if __name__ == "__main__":
    raise SystemExit(emit(topology))
"""
WHOLE = ("--interval", "2013-03-08T00:00:00-05:00", "2013-03-13T00:00:00-04:00")
DAILY = ("--cron", "0 0 * * *", "--timezone", "America/New_York")


def counts(engine: Engine) -> dict[str, int]:
    with engine.connect() as connection:
        return {row[0]: row[1] for row in connection.execute(text('SELECT day, "count" FROM report.days'))}


def days(*numbers: int) -> dict[str, int]:
    return {f"2013-03-{number:02}": 1 for number in numbers}


@pytest.mark.rule("R2", "R10")
def test_it_stops_at_an_error_and_goes_on_when_it_is_called_again(
    txbatch: Txbatch, write_job: WriteJob, engine: Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job, away = write_job("days.py", DAYS), tmp_path / "2013-03-10"
    away.touch()
    stopped = txbatch("run", job, *WHOLE, *DAILY)
    assert stopped.exit_code == 1
    error, *advice = stopped.stderr.splitlines()[-4:]
    assert "TimeoutError: 2013-03-10 is away" in error
    assert f"  Next: {shlex.join(['txbatch', 'run', job, *WHOLE, *DAILY])}" in advice
    assert "already committed" not in stopped.stderr
    assert counts(engine) == days(8, 9)
    away.unlink()
    caplog.clear()
    again = txbatch("run", job, *WHOLE, *DAILY)
    assert again.exit_code == 0, again.stderr
    assert caplog.text.count("already committed as txid") == 3, "the failed one is finished first"
    assert counts(engine) == days(8, 9, 10, 11, 12)
    with engine.connect() as connection:
        hours = "extract(epoch FROM interval_end - interval_start)::int / 3600"
        query = text(f"SELECT {hours}, attempts FROM report.batches ORDER BY txid")
        found = [tuple(row) for row in connection.execute(query)]
    assert found == [(24, 1), (24, 1), (23, 2), (24, 1), (24, 1)]


def test_killed_it_leaves_no_process_behind(
    home: Path, postgres_url: str, process: Start, write_job: WriteJob, engine: Engine, tmp_path: Path
) -> None:
    """Between two batches, when its Spark has nothing to do."""
    held, job = tmp_path / "held", write_job("days.py", DAYS)
    armed = {"TXBATCH_DATABASE_URL": postgres_url, "TXBATCH_FAILPOINTS": f"emit.recorded=block:{held}"}
    with process("run", job, *WHOLE, *DAILY, **armed) as started:
        until(lambda: held.exists() or started.poll() is not None)
        assert started.poll() is None
        below = psutil.Process(started.pid).children(recursive=True)
        assert "java" in {each.name() for each in below}
        started.kill()
    until(lambda: not any(map(alive, below)), "a process is left", seconds=10)


def alive(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def test_days_that_are_committed_are_passed_over(txbatch: Txbatch, write_job: WriteJob, engine: Engine) -> None:
    job = write_job("days.py", DAYS)
    assert txbatch("run", job, "--interval", "2013-03-09T05:00Z", "2013-03-10T05:00Z").exit_code == 0
    assert txbatch("run", job, *WHOLE, *DAILY).exit_code == 0
    assert counts(engine) == days(8, 9, 10, 11, 12)
    assert [row["attempt"] for row in LedgerReader(engine).attempts("days")] == ["5:1", "4:1", "3:1", "2:1", "1:1"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (DAILY, "--cron cuts an interval: give --interval START END, too"),
        ((*WHOLE, "--timezone", "UTC"), "--timezone is the zone of --cron: give both"),
        ((*WHOLE, *DAILY, "--run-id", "mine"), "--cron makes a run of each interval: leave out --run-id"),
        ((*WHOLE, "--cron", "every day"), "'every day' is no cron expression: "),
        ((*WHOLE, "--cron", "0 0 30 2 *"), "'0 0 30 2 *' is no cron expression: "),
        (
            (*WHOLE, "--cron", "0 0 * * *", "--timezone", "America/Gotham"),
            "no zone 'America/Gotham' is known; write it ",
        ),
        (
            (*WHOLE, "--cron", "0 0 * * *"),
            "the interval's start 2013-03-08T05:00:00+00:00 is no time of '0 0 * * *' in UTC; the next one is 2013-03-09",
        ),
        (
            (*WHOLE, "--cron", "0 0 1 * *", "--timezone", "America/New_York"),
            "the interval's start 2013-03-08T00:00:00-05:00 is no time of '0 0 1 * *' in America/New_York; the next one is "
            "2013-04-01T00:00:00-04:00",
        ),
    ],
)
def test_a_bad_cron_is_refused(
    txbatch: Txbatch, write_job: WriteJob, engine: Engine, arguments: tuple[str, ...], told: str
) -> None:
    result = txbatch("run", write_job("days.py", DAYS), *arguments)
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.replace("│", "").split())
    assert LedgerReader(engine).status() == []
