"""PostgreSQL servers of a test's own, that are killed, copied, promoted and restarted: the embedded programs, by hand."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg2

from txbatch.embedded import postgres

SETTINGS = {
    "listen_addresses": "",
    "port": "5432",
    "shared_buffers": "16MB",
    "max_connections": "40",
    "max_prepared_transactions": "10",
    "hot_standby_feedback": "on",
    "wal_level": "logical",
    "max_wal_senders": "4",
    "wal_keep_size": "64MB",
    "autovacuum": "off",
    "fsync": "off",  # a process that is killed loses nothing that was written
    "timezone": "UTC",
}


@dataclass
class Server:
    """A server in a folder of its own; its socket is there, too."""

    home: Path

    @property
    def data(self) -> Path:
        return self.home / "postgres"

    @property
    def url(self) -> str:
        return f"postgresql://txbatch@/postgres?host={self.data}&port=5432"

    def make(self) -> Server:
        """Create the data."""
        self.home.mkdir(parents=True, exist_ok=True)
        access = ("--username=txbatch", "--auth-local=trust", "--auth-host=reject", "--no-instructions", "--no-sync")
        postgres._run(self.home, "initdb", f"--pgdata={self.data.name}", "--encoding=UTF8", "--locale=C", *access)
        return self

    def start(self, **settings: str) -> Server:
        """Start it, and wait until it takes connections."""
        lines = {**SETTINGS, "unix_socket_directories": str(self.data), **settings}
        (self.data / "test.conf").write_text("".join(f"{name} = '{value}'\n" for name, value in lines.items()))
        config = self.data / "postgresql.conf"
        if "test.conf" not in config.read_text():
            config.write_text(config.read_text() + "\ninclude 'test.conf'\n")
        for name in ("postmaster.pid", ".s.PGSQL.5432.lock", ".s.PGSQL.5432"):
            (self.data / name).unlink(missing_ok=True)
        self.home.joinpath("log").touch()
        postgres._run(self.home, "pg_ctl", "start", "-w", "-t", "60", "-D", self.data.name, "-l", "log")
        return self

    def stop(self) -> None:
        """End it at once, as a shutdown does."""
        with suppress(postgres.EmbeddedPostgresError):
            postgres._run(self.home, "pg_ctl", "stop", "-m", "fast", "-D", self.data.name)

    def kill(self) -> None:
        """Kill every process of it: what is not flushed is gone."""
        pids = postgres.processes_in(self.data)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while postgres.processes_in(self.data):
            time.sleep(0.02)

    def copy(self, home: Path) -> Server:
        """A copy of a stopped server's data."""
        home.mkdir(parents=True)
        shutil.copytree(self.data, home / "postgres", ignore=shutil.ignore_patterns("postmaster.pid", ".s.*"))
        (home / "postgres").chmod(0o700)
        return Server(home)

    def standby(self, home: Path) -> Server:
        """Start a hot standby of this server."""
        home.mkdir(parents=True)
        command = (
            "pg_basebackup",
            "-D",
            "postgres",
            "-h",
            str(self.data),
            "-p",
            "5432",
            "-U",
            "txbatch",
            "-X",
            "stream",
        )
        postgres._run(home, *command, "-c", "fast", "--no-sync")
        made = Server(home)
        (made.data / "standby.signal").touch()
        return made.start(primary_conninfo=f"host={self.data} port=5432 user=txbatch")

    def promote(self) -> None:
        """Make a standby a primary."""
        postgres._run(self.home, "pg_ctl", "promote", "-w", "-D", self.data.name)

    def connect(self) -> psycopg2.extensions.connection:
        """A session that commits each statement."""
        connection = psycopg2.connect(self.url)
        connection.autocommit = True
        return connection

    def ask(self, statement: str) -> list[tuple[object, ...]]:
        """Run a statement."""
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    def until(self, ready: Callable[[], bool]) -> None:
        """Wait."""
        end = time.monotonic() + 60
        while not ready():
            assert time.monotonic() < end, "it did not come about"
            time.sleep(0.05)

    def caught_up(self, primary: Server) -> None:
        """Wait until a standby has replayed all that the primary has."""
        ((position,),) = primary.ask("SELECT pg_current_wal_insert_lsn()::text")
        primary.ask("SELECT pg_switch_wal()")
        self.until(lambda: self.ask(f"SELECT pg_last_wal_replay_lsn() >= '{position}'")[0][0] is True)
