"""A day of ten thousand files, nothing late: with a lookback of three days, without one, and by a spout that does not look.

Three days are counted before, of all files but three; the fourth day comes in these three. What is measured is its run.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from bench.database import Server, server
from bench.measure import Contestant, Figure, Stopwatch, interleaved, paired
from bench.results import Results
from bench.small_files import FILES
from bench.year import txbatch

DAYS, LINES, ROUNDS = 4, 40, 5
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
JOB = """
from txbatch import *

class Blind(IntervalSpout):
    def arrived(self, before, now):
        return {{}}

topology = Topology("days")
spout = {spout}({root!r}, "at timestamp, shop string", time="at"{lookback})
topology.new_stream("in", spout).group_by("shop").persistent_aggregate(OpaqueState("days"), count=Count())
if __name__ == "__main__":
    raise SystemExit(emit(topology))
"""
SPOUTS = {
    "lookback": ("IntervalSpout", ', lookback="3 days"'),
    "told alone": ("IntervalSpout", ""),
    "not looked": ("Blind", ""),
}


def measure(section: str, results: Results) -> None:
    """Each goes on from a copy of the same ledger."""
    with server() as running:
        root = running.home / "days"
        root.mkdir()
        jobs = {name: _job(running.home / f"days_{n}.py", root, *SPOUTS[name]) for n, name in enumerate(SPOUTS)}
        for number in range(FILES - 3):
            _write(root, number, number % (DAYS - 1))
        running.run("CREATE DATABASE counted")
        txbatch(running, "counted", "migrate")
        whole = "--interval", _at(0), _at(DAYS - 1), "--cron", "0 0 * * *"
        txbatch(running, "counted", "run", str(jobs["lookback"]), *whole)
        for number in range(FILES - 3, FILES):
            _write(root, number, DAYS - 1)
        contestants: dict[str, Contestant] = {name: partial(_run, running, job) for name, job in jobs.items()}
        runs = interleaved(contestants, ROUNDS)
        for against in ("told alone", "not looked"):
            runs |= paired(runs, "lookback", against)
        results.add(section, runs, FIGURES, files=FILES, lines_a_file=LINES)


def _run(running: Server, job: Path, watch: Stopwatch) -> None:
    with running.copy_of("counted") as database:
        took = txbatch(running, database, "run", str(job), "--interval", _at(DAYS - 1), _at(DAYS))
        watch.seconds, watch.cpu = took.seconds, took.cpu
        connection = running.connect(database)
        with connection, connection.cursor() as cursor:
            cursor.execute("SELECT txid, records, kind FROM report.batches ORDER BY txid DESC LIMIT 1")
            assert cursor.fetchone() == (DAYS, 3 * LINES, "ordinary")
        connection.close()


def _job(path: Path, root: Path, spout: str, lookback: str) -> Path:
    path.write_text(JOB.format(root=str(root), spout=spout, lookback=lookback))
    return path


def _write(root: Path, number: int, day: int) -> None:
    noon = FIRST + timedelta(days=day, hours=12)
    lines = (f"{(noon + timedelta(seconds=each)).isoformat()},shop {each % 7}\n" for each in range(LINES))
    (root / f"{number:05}.csv").write_text("".join(lines))


def _at(day: int) -> str:
    return (FIRST + timedelta(days=day)).isoformat()


FIGURES = [
    Figure(
        f"a day of {FILES:,} files, nothing late: lookback of 3 days / told alone, in pairs",
        *("lookback / told alone", None, 1.05, 1.02),
        unit=1,
    ),
    Figure("the same / by a spout that does not look, in pairs", "lookback / not looked", None, 1.05, 1.02, unit=1),
]
SECTIONS = {"lookback": measure}
