"""A table is read through a pooler that gives each transaction another session, and leaves the sessions as they were."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from source_tables import Shop, known, shop_in
from sqlalchemy import make_url
from support import until

from txbatch.embedded import postgres
from txbatch.local.ports import is_free, reserve_port

POOLER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
CONFIGURED = """\
[databases]
shop = host={host} port={port} dbname={database} user={user}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listens}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
logfile = {folder}/log
pidfile = {folder}/pid
"""
pytestmark = pytest.mark.skipif(POOLER is None, reason="pgbouncer is not installed: bin/test-tools")


@contextmanager
def pooled(url: str, folder: Path) -> Iterator[str]:
    """Context manager. The URL of a pooler in front of a database."""
    parsed = make_url(url)
    with reserve_port(6432) as port:
        told = {"host": parsed.query["host"], "port": parsed.query["port"], "user": parsed.username}
        text = CONFIGURED.format(**told, database=parsed.database, listens=port, folder=folder)
        (folder / "pgbouncer.ini").write_text(text)
        command = [*postgres._user_namespace(folder), str(POOLER), "-q", str(folder / "pgbouncer.ini")]
        with subprocess.Popen(command, env={"PATH": os.environ["PATH"]}) as pooler:
            try:
                until(lambda: not is_free(port), "the pooler does not listen", seconds=10)
                yield f"postgresql://anybody@127.0.0.1:{port}/shop"
            finally:
                pooler.terminate()


def test_rows_come_once_through_a_pooler_by_transactions(databases: Callable[[str], str], tmp_path: Path) -> None:
    with shop_in(databases("shop")) as shop, pooled(shop.url, tmp_path) as url:
        shop.insert(1, 2)
        before = of_sessions(url)
        with known(url):
            through = Shop(url)
            assert through.take() == [1, 2]
            shop.insert(3)
            ranges = through.plan()
            assert [row["id"] for row in through.read(ranges, cores=2)] == [3]
            assert through.take() is None
        assert of_sessions(url) == before


def of_sessions(url: str) -> list[object]:
    """The settings that others find in the pool's sessions."""
    import psycopg2

    connection = psycopg2.connect(url)
    cursor = connection.cursor()
    cursor.execute(
        "SELECT name, setting FROM pg_settings WHERE name ~ 'search_path|TimeZone|row_security|jit|DateStyle'"
    )
    found = cursor.fetchall()
    connection.close()
    return found
