"""The contestants of `bench.pairs` in one checkout: obeys lines of JSON, and prints what each took as a line of JSON.

Arguments: the URL of the server, the folder with its data, a name of the checkout. Runs on the code of older checkouts, too: all
that is imported is there, and in the same place.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path

import psutil
import pyarrow as pa
from bench import batches, corrections, planning, small_commits
from bench.database import Server
from bench.measure import Contestant, Stopwatch
from bench.small_files import BATCHES, write

from txbatch import Topology

ROWS, KEYS, TXIDS, SETTLED_SECONDS = 100_000, 1_000_000, 100_000, 10
# Each batch has two of a thousand keys.
SPREAD = f"SELECT 'key' || (t + i * 7) % 1000, t FROM generate_series(1, {TXIDS}) t, generate_series(0, 1) i"
TOUCHED = "SELECT blks_hit + blks_read, active_time / 1000, numbackends FROM pg_stat_database WHERE datname = %s"
# What statements touch themselves: without the catalog, which each new session reads to plan them.
FORGET = "SELECT CAST(pg_stat_statements_reset(0, oid, 0) IS NULL AS int) FROM pg_database WHERE datname = %s"
THEMSELVES = """SELECT sum(shared_blks_hit + shared_blks_read), sum(total_exec_time) / 1000 FROM pg_stat_statements s
JOIN pg_database d ON d.oid = s.dbid WHERE datname = %s"""


class Mine(Server):
    """The server, with the databases of one checkout."""

    def __init__(self, url: str, home: Path, name: str) -> None:
        super().__init__(url, home / name, "")
        self.name = name
        self.home.mkdir()
        (pid,) = (home / "postgres" / "postmaster.pid").read_text().split("\n", 1)[:1]
        self.postmaster = psutil.Process(int(pid))

    def named(self, template: str) -> str:
        """Return the name of a database of this checkout."""
        return f"{self.name}_{template}"

    @contextmanager
    def copy_of(self, template: str) -> Iterator[str]:
        """Context manager. A fresh copy of a database of this checkout."""
        with super().copy_of(self.named(template)) as database:
            yield database

    def cpu(self) -> float:
        """Return the seconds of CPU of the server, with ended sessions."""
        used = sum(self.postmaster.cpu_times()[:4])
        for each in self.postmaster.children():
            with suppress(psutil.Error):
                used += sum(each.cpu_times()[:2])
        return used

    def touched(self, database: str) -> tuple[float, float]:
        """Return how many buffers statements in a database have touched, and their seconds, once its sessions have ended."""
        until = time.monotonic() + SETTLED_SECONDS
        while True:
            buffers, seconds, sessions = self.asked(TOUCHED, database)
            if not sessions or time.monotonic() > until:
                return buffers, seconds
            time.sleep(0.1)

    def asked(self, statement: str, database: str) -> tuple[float, ...]:
        """Return the first row of a statement on a database, asked in another one; zeros if there is no row."""
        connection = self.connect()
        with connection, connection.cursor() as cursor:
            cursor.execute(statement, (database,))
            row = cursor.fetchone() or (0, 0, 0)
        connection.close()
        return tuple(float(value or 0) for value in row)


class Watch(Stopwatch):
    """Counts the CPU of the server, too."""

    server: Mine

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Add the time of a block."""
        used = self.server.cpu()
        with super().timed():
            yield
        self.cpu += self.server.cpu() - used


class Contestants:
    """What is compared."""

    def __init__(self, mine: Mine) -> None:
        self.mine = mine
        small_commits._timed = self._in_a_row

    def prepare(self, name: str) -> None:
        """Make the databases and files of a contestant, unless there are any."""
        mine = self.mine
        if name == "commit of 100,000 rows":
            batches.fill(mine, mine.named("without"), KEYS, contributions=False)
        elif name == "commit of 100,000 rows with contributions":
            batches.fill(mine, mine.named("with"), KEYS, contributions=True)
        elif name == "commit of 33 keys":
            batches.fill(mine, mine.named("keys"), small_commits.KEYS, contributions=True)
        elif name == "planning 1,000 batches, of files":
            self._migrate("migrated")
        elif name == "status among 100,000 txids":
            corrections.fill(mine, mine.named("paged"), TXIDS, SPREAD, 2)
            mine.run(f"ALTER DATABASE {mine.named('paged')} SET pg_stat_statements.track = 'top'")
            mine.run("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        self.runs[name]

    def _migrate(self, template: str) -> None:
        """Make a database with an empty ledger."""
        database = self.mine.named(template)
        self.mine.run(f"CREATE DATABASE {database}")
        engine = vars(planning)["connect"](self.mine.url_of(database))  # its module has moved
        vars(planning)["migrate"](engine)
        engine.dispose()

    @cached_property
    def runs(self) -> dict[str, Contestant]:
        """The contestants by name."""
        starts = [planning.START + number * planning.HOUR for number in range(BATCHES)]
        named = [vars(planning)["Run"](f"bench+{number}") for number in range(BATCHES)]  # its module has moved
        timed = [planning._of_hour(run, start) for run, start in zip(named, starts, strict=True)]
        files = planning._by_file(write(self.mine.home / "files"))
        plan = partial(planning._planned, self.mine)
        return {
            "commit of 100,000 rows": partial(self._commit, "without"),
            "commit of 100,000 rows with contributions": partial(self._commit, "with"),
            "commit of 33 keys": partial(small_commits._ours, self.mine),
            "planning 1,000 batches, of files": partial(plan, files, named, [BATCHES]),
            "planning 1,000 batches, train by train": partial(plan, files, named, planning.TRAINS),
            "planning 1,000 batches, by the hour": partial(plan, planning._by_hour(self.mine.home), timed, [BATCHES]),
            "status among 100,000 txids": self._status,
            "txbatch --version": partial(self._command, "--version"),
        }

    def _commit(self, kind: str, watch: Stopwatch) -> None:
        defined: Topology = batches.topology(contributions=kind == "with")
        batches.timed_commit(self.mine, kind, defined, self._partials, watch)

    @cached_property
    def _partials(self) -> pa.Table:
        return batches.table(batches.key_numbers(ROWS, KEYS, 0.5))

    def _in_a_row(self, commit: Callable[[int], None], watch: Stopwatch) -> None:
        """Time small commits as the bench does, with the CPU of the server."""
        took = []
        used = 0.0
        for number in range(small_commits.IN_A_ROW + small_commits.WARM):
            if number == small_commits.WARM:
                used = time.process_time() + self.mine.cpu()
            began = time.perf_counter()
            commit(number)
            took.append(time.perf_counter() - began)
        used = time.process_time() + self.mine.cpu() - used
        watch.seconds = statistics.median(took[small_commits.WARM :])
        watch.cpu = used / small_commits.IN_A_ROW

    def _status(self, watch: Stopwatch) -> None:
        database = self.mine.named("paged")
        before = self.mine.touched(database)
        self.mine.asked(FORGET, database)
        self._command("status", watch)
        buffers, seconds = (now - then for now, then in zip(self.mine.touched(database), before, strict=True))
        own_buffers, own_seconds = self.mine.asked(THEMSELVES, database)
        watch.notes |= {"buffers": buffers, "server": seconds, "own buffers": own_buffers, "own server": own_seconds}

    def _command(self, what: str, watch: Stopwatch) -> None:
        command = str(Path(sys.executable).with_name("txbatch"))
        url = self.mine.url_of(self.mine.named("paged"))
        with watch.timed():
            subprocess.run(
                [command, what], env={**os.environ, "TXBATCH_DATABASE_URL": url}, check=True, capture_output=True
            )


def main(url: str, home: str, name: str) -> None:
    """Obey until the lines end."""
    mine = Mine(url, Path(home), name)
    contestants, Watch.server = Contestants(mine), mine
    for line in sys.stdin:
        what, asked = json.loads(line)
        watch = Watch()
        if what == "prepare":
            with watch.timed():
                contestants.prepare(asked)
        else:
            contestants.runs[asked](watch)
        print(json.dumps({"seconds": watch.seconds, "cpu": watch.cpu, "notes": watch.notes}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
