"""`txbatch follow` with real Spark: from a file that is closed to its number in the report, and what memory it takes.

BENCH_FILES files come, one each six seconds: 300 of them are half an hour.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from bench.database import Server, server
from bench.measure import Figure, Stopwatch
from bench.results import Results

FILES, EVERY_SECONDS, WARM = int(os.environ.get("BENCH_FILES", "50")), 6.0, 10
# Memory at first, once Java has compiled what it runs, and at last: of so many batches.
WARM_JAVA, PART = 20, max(10, FILES // 10)
JOB = """
from txbatch import *

topology = Topology("followed")
words = topology.new_stream("words", FileSpout({root!r}))
words.group_by("line").persistent_aggregate(OpaqueState("words"), count=Count())
if __name__ == "__main__":
    raise SystemExit(emit(topology))
"""
SEEN = "SELECT coalesce(sum(count), 0) FROM report.words"
WAIT_SECONDS = 120


def measure(section: str, results: Results) -> None:
    """One follower; the first batches, which start Spark and warm it, are told apart."""
    with server() as running:
        folder = running.home / "followed"
        folder.mkdir()
        job = running.home / "followed.py"
        job.write_text(JOB.format(root=str(folder)))
        running.run("CREATE DATABASE followed")
        with _follower(running, job) as process:
            seconds, memory = zip(*_files(running, folder, process), strict=True)
    warm = [Stopwatch(each) for each in seconds[WARM:]]
    late = Stopwatch(statistics.quantiles(seconds[WARM:], n=20)[-1])
    before, after = (statistics.median(part) for part in (memory[WARM_JAVA : WARM_JAVA + PART], memory[-PART:]))
    print(
        f"    p95 {late.seconds:.2f} s, median {statistics.median(seconds[WARM:]):.2f} s; {before:.0f}, then {after:.0f} MB"
    )
    runs = {
        "file closed to number visible": warm,
        "its p95": [late],
        "memory at first, MB": [Stopwatch(before)],
        "memory at last, MB": [Stopwatch(after)],
    }
    figures = [
        Figure("following: file closed to number visible, p95, s", "its p95", None, 3, 1.5, unit=1),
        Figure("following: memory at last / at first", "memory at last, MB", "memory at first, MB", 1.05, 1.0),
    ]
    results.add(section, runs, figures, files=FILES, every_seconds=EVERY_SECONDS)


@contextmanager
def _follower(running: Server, job: Path) -> Iterator[subprocess.Popen[bytes]]:
    where = {
        "TXBATCH_DATABASE_URL": running.url_of("followed"),
        "TXBATCH_STAGING": (running.home / "staging").as_uri(),
    }
    command, environment = str(Path(sys.executable).with_name("txbatch")), {**os.environ, **where}
    subprocess.run([command, "migrate"], env=environment, check=True, capture_output=True)
    with (running.home / "follower.log").open("wb") as log:
        process = subprocess.Popen([command, "follow", str(job)], env=environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(WAIT_SECONDS)


def _files(running: Server, folder: Path, process: subprocess.Popen[bytes]) -> Iterator[tuple[float, float]]:
    """Seconds until each file's number is visible, and the memory of all processes of the follower then, in MB."""
    for number in range(1, FILES + 1):
        hidden = folder / f".{number:04}"
        hidden.write_text("a\nb\n" * 50)
        began = time.monotonic()
        hidden.rename(folder / f"{number:04}.txt")
        while _seen(running) < 100 * number:
            assert process.poll() is None, (running.home / "follower.log").read_text()[-2000:]
            assert time.monotonic() - began < WAIT_SECONDS, "waited too long"
            time.sleep(0.02)
        took = time.monotonic() - began
        yield took, _megabytes(process.pid)
        time.sleep(max(0.0, EVERY_SECONDS - took))


def _seen(running: Server) -> int:
    connection = running.connect("followed")
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('report.words') IS NOT NULL")
        if cursor.fetchone() != (True,):
            return 0
        cursor.execute(SEEN)
        (found,) = cursor.fetchone() or (0,)
    connection.close()
    return int(found)


def _megabytes(pid: int) -> float:
    """Resident memory of a process and of those that it started; one that ends just now counts for nothing."""
    process, total = psutil.Process(pid), 0
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            total += each.memory_info().rss
    return total / (1 << 20)


SECTIONS = {"following": measure}
