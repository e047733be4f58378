"""docs/run/backup.md: a database that is dumped and restored, and what txbatch then does; its commands run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_support import refused, rows
from click.testing import Result
from sqlalchemy import make_url, text

from txbatch import settings
from txbatch.embedded import postgres
from txbatch.postgres.database.engine import connect
from txbatch.spouts.partitioned_log import PartitionedLog

pytestmark = pytest.mark.rule("R5", "R19", "R21")
Txbatch = Callable[..., Result]
WriteJob = Callable[[str, str], str]
SHELL = re.findall(
    r"```sh\n(.*?)```", (settings.project_root() / "docs" / "run" / "backup.md").read_text(encoding="utf-8"), re.S
)
JOB = """
topology = Topology("hosts", max_pending=2)
stream = topology.new_stream("log", OpaquePartitionedLogSpout({root!r}, max_records=2))
stream.group_by("line").persistent_aggregate(OpaqueState("hosts"{apart}), count=Count())
"""

DAYS = """
class Days(FixedBatchSpout):
    by_interval = True

    def initialize_transaction(self, txid, prev_metadata, curr_metadata):
        return curr_metadata

    def batch(self, plan):
        return [(plan["interval"][0][:10],)]

topology = Topology("days")
topology.new_stream("in", Days("day string", 1, "")).group_by("day").persistent_aggregate(OpaqueState("days"), count=Count())
"""


class Place:
    """A database server's dumps: the commands of the document, run by its own programs."""

    def __init__(self, url: str, copy: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.url, self.copy, self.folder, self.monkeypatch = url, copy, folder, monkeypatch

    def shell(self, block: int) -> None:
        """Run a block of the document, with `hosts` for the database and `restored` for the new one."""
        of = make_url(self.url)
        names = {"PGHOST": of.query["host"], "PGPORT": of.query["port"], "PGUSER": of.username}
        path = f"{postgres.bin_dir()}:{os.environ['PATH']}"
        said = SHELL[block].replace("mydatabase", str(of.database)).replace("restored", self.copy)
        done = subprocess.run(
            ["sh", "-ec", said],
            cwd=self.folder,
            env={**os.environ, **names, "PATH": path},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr

    def use_the_copy(self) -> None:
        """Point txbatch to what was restored."""
        self.monkeypatch.setenv("TXBATCH_DATABASE_URL", make_url(self.url).set(database=self.copy).render_as_string())


@pytest.fixture
def place(postgres_url: str, databases: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    copy = f"{make_url(postgres_url).database}_restored"
    found = Place(postgres_url, copy, tmp_path, monkeypatch)
    yield found
    server = connect(make_url(postgres_url).set(database="postgres").render_as_string())
    with server.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f'DROP DATABASE IF EXISTS "{copy}" WITH (FORCE)'))
    server.dispose()


@pytest.fixture
def log(tmp_path: Path) -> PartitionedLog:
    found = PartitionedLog(tmp_path / "log")
    found.append("a", ["x", "y", "x", "x"])
    return found


def test_a_restored_ledger_counts_what_came_since_again_and_nothing_twice(
    txbatch: Txbatch, place: Place, log: PartitionedLog, write_job: WriteJob
) -> None:
    job = write_job("hosts.py", JOB.format(root=str(log.root), apart=""))
    (first,) = rows(txbatch("run", job, "--run-id", "monday", "--json"))
    place.shell(0)
    rows(txbatch("run", job, "--run-id", "tuesday", "--json"))
    place.shell(1)
    place.use_the_copy()
    (status,) = rows(txbatch("status", "--json"))
    assert (status["committed_txid"], status["states"]) == (first["txid"], ["hosts"])
    (again,) = rows(txbatch("run", job, "--run-id", "monday", "--json"))
    assert again["txid"] == 1
    (tuesday,) = rows(txbatch("run", job, "--run-id", "tuesday", "--json"))
    assert (tuesday["txid"], tuesday["records"]) == (2, 2)
    assert [row["count"] for row in rows(txbatch("query", "hosts", "x", "y", "--json"))] == [3, 1]


def test_intervals_that_were_counted_since_are_asked_for_again(
    txbatch: Txbatch, place: Place, write_job: WriteJob
) -> None:
    job = write_job("days.py", DAYS)
    rows(txbatch("run", job, "--interval", "2013-01-01T00:00Z", "2013-01-02T00:00Z", "--json"))
    place.shell(0)
    rows(txbatch("run", job, "--interval", "2013-01-02T00:00Z", "2013-01-03T00:00Z", "--json"))
    place.shell(1)
    place.use_the_copy()
    done = rows(
        txbatch("run", job, "--interval", "2013-01-01T00:00Z", "2013-01-04T00:00Z", "--cron", "0 0 * * *", "--json")
    )
    assert [row["txid"] for row in done] == [1, 2, 3]
    found = rows(txbatch("query", "days", "2013-01-01", "2013-01-02", "2013-01-03", "--json"))
    assert [row["count"] for row in found] == [1, 1, 1]


def test_a_batch_in_flight_then_whose_files_are_gone_is_emitted_again(
    txbatch: Txbatch, place: Place, log: PartitionedLog, write_job: WriteJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = write_job("hosts.py", JOB.format(root=str(log.root), apart=""))
    with monkeypatch.context() as patch:
        patch.setenv("TXBATCH_FAILPOINTS", "commit.before_lock=raise")
        assert txbatch("run", job).exit_code == 1
    place.shell(0)
    rows(txbatch("run", job, "--until-idle", "--json"))  # commits it, and removes its files
    place.shell(1)
    place.use_the_copy()
    done = rows(txbatch("run", job, "--until-idle", "--json"))
    assert [(row["txid"], row["attempts"]) for row in done] == [(1, 2), (2, 1)]
    assert [row["count"] for row in rows(txbatch("query", "hosts", "x", "y", "--json"))] == [3, 1]


def test_a_restored_ledger_beside_a_warehouse_that_went_on_is_refused(
    txbatch: Txbatch,
    place: Place,
    log: PartitionedLog,
    write_job: WriteJob,
    databases: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TXBATCH_DATABASE_URL_WAREHOUSE", databases("warehouse"))
    job = write_job("hosts.py", JOB.format(root=str(log.root), apart=', database="warehouse"'))
    rows(txbatch("run", job, "--json"))
    place.shell(0)
    rows(txbatch("run", job, "--json"))
    place.shell(1)
    place.use_the_copy()
    refused(txbatch("run", job), "holds attempt 2:1, which the ledger does not know")
    assert "the ledger does not know" in txbatch("status").output


def test_a_copy_for_another_environment_is_another_ledger(
    txbatch: Txbatch,
    place: Place,
    log: PartitionedLog,
    write_job: WriteJob,
    databases: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TXBATCH_DATABASE_URL_WAREHOUSE", databases("warehouse"))
    job = write_job("hosts.py", JOB.format(root=str(log.root), apart=', database="warehouse"'))
    rows(txbatch("run", job, "--json"))
    place.shell(0)
    place.shell(1)
    place.shell(2)
    place.use_the_copy()
    refused(txbatch("run", job), "belongs to another ledger")
