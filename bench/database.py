"""A PostgreSQL of the benches' own: tuned as its documentation advises, the same for every contestant."""

from __future__ import annotations

import json
import secrets
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import psycopg2
from sqlalchemy import make_url

from txbatch.embedded import postgres

LOCALHOST = "127.0.0.1"
SETTINGS = {
    "shared_buffers": "4GB",
    "max_wal_size": "16GB",
    "checkpoint_timeout": "30min",
    "work_mem": "64MB",
    "maintenance_work_mem": "512MB",
    "autovacuum": "off",  # no vacuum of one contestant's rows in another's time
}


class Server:
    """A running server; databases are made from templates by copying files."""

    def __init__(self, url: str, home: Path, password: str) -> None:
        self.url, self.home, self.password = url, home, password

    def run(self, *statements: str, database: str | None = None) -> None:
        """Run statements, each outside of a transaction."""
        connection = self.connect(database)
        connection.autocommit = True
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        connection.close()

    def connect(self, database: str | None = None) -> psycopg2.extensions.connection:
        """A plain connection."""
        url = make_url(self.url)
        return psycopg2.connect(
            host=url.query["host"], port=url.query["port"], user=url.username, dbname=database or url.database
        )

    def url_of(self, database: str) -> str:
        """The SQLAlchemy URL of a database."""
        return make_url(self.url).set(database=database).render_as_string(hide_password=False)

    def tcp_of(self, database: str) -> dict[str, str]:
        """The same for those who cannot use a socket in a folder: host, port, database, user, password."""
        url = make_url(self.url)
        where = {"host": LOCALHOST, "port": str(url.query["port"]), "database": database}
        return {**where, "user": url.username or "", "password": self.password}

    def told(self, database: str) -> dict[str, str]:
        """The same as the environment of a program: a password is no argument, which everyone can read."""
        return {"BENCH_DATABASE": json.dumps(self.tcp_of(database))}

    @contextmanager
    def copy_of(self, template: str) -> Iterator[str]:
        """A fresh copy of a database, in memory and after a checkpoint: the worst case for full-page images."""
        self.run(
            "DROP DATABASE IF EXISTS bench WITH (FORCE)",
            f"CREATE DATABASE bench TEMPLATE {template} STRATEGY file_copy",
        )
        self.run(
            "CREATE EXTENSION IF NOT EXISTS pg_prewarm",
            "SELECT pg_prewarm(oid) FROM pg_class WHERE relkind IN ('r', 'i') AND relnamespace::regnamespace::text = 'state'",
            "CHECKPOINT",
            database="bench",
        )
        try:
            yield "bench"
        finally:
            self.run("DROP DATABASE IF EXISTS bench WITH (FORCE)")


@contextmanager
def server(**settings: str) -> Iterator[Server]:
    """A server that is gone afterwards, with its data. Beside its socket it listens on a port, with a password."""
    # What the server is started with comes before anything that ALTER SYSTEM says.
    told = patch.dict(postgres._SETTINGS, SETTINGS | _tcp() | settings)
    with tempfile.TemporaryDirectory(prefix="txbatch-bench.") as folder, told:
        home = Path(folder)
        url = postgres.start(home)
        try:
            made = Server(url, home, secrets.token_hex(16))
            made.run(f"ALTER USER CURRENT_USER PASSWORD '{made.password}'")
            access = home / "postgres" / "pg_hba.conf"
            access.write_text(f"host all all {LOCALHOST}/32 scram-sha-256\n{access.read_text()}")
            made.run("SELECT pg_reload_conf()")
            yield made
        finally:
            postgres.stop(home)


def _tcp() -> dict[str, str]:
    with socket.create_server((LOCALHOST, 0)) as free:
        return {"listen_addresses": LOCALHOST, "port": str(free.getsockname()[1])}
