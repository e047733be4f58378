"""The command `txbatch` in this process on a fresh database, with a stand-in for spark-submit; and the real one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from txbatch import FixedBatchSpout, settings
from txbatch.cli import main
from txbatch.core.aggregator import merger
from txbatch.core.fields import decimal_scale
from txbatch.core.manifest import Manifest, ReadPartition
from txbatch.core.topology import PersistentAggregate
from txbatch.core.transaction import Assignment
from txbatch.job_file import load_job
from txbatch.storage.staging import AttemptFolder
from txbatch.submission import Submission

ROOT = settings.project_root()
Txbatch = Callable[..., Result]
ARROW = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "boolean": pa.bool_(),
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "java").symlink_to(ROOT / ".txbatch" / "java")
    monkeypatch.setenv("TXBATCH_HOME", str(folder))
    return folder


@pytest.fixture
def txbatch(home: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Txbatch:
    """Calls a command on a fresh migrated database; partials are computed without Spark."""
    monkeypatch.setenv("TXBATCH_DATABASE_URL", postgres_url)
    monkeypatch.setattr("txbatch.runner.submit", submit_without_spark)

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(main, list(arguments), prog_name="txbatch")

    return call


def rows(result: Result) -> list[dict[str, Any]]:
    """What a command printed with --json."""
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


@pytest.fixture
def write_job(tmp_path: Path) -> Callable[[str, str], str]:
    """Writes a job file; its head imports everything."""

    def write(name: str, text: str) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("from txbatch import *\n" + text)
        return str(path)

    return write


def submit_without_spark(what: Submission, master: str) -> None:
    """What spark-submit does, for jobs that group the records of a FixedBatchSpout as they are."""
    folder = AttemptFolder(what.arguments[1])
    assignment, topology = folder.read_assignment(), load_job(what.application).topology
    states = {}
    for number, aggregate in enumerate(topology.aggregates):
        table = partials(aggregate, assignment)
        path = folder.path(f"partials/{number}/part.parquet")
        folder.filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
        pq.write_table(table, path, filesystem=folder.filesystem)
        states[aggregate.state.name] = folder.describe(number, aggregate)
    read = {name: {"": ReadPartition(1, "1")} for name in assignment.metadata["streams"]}
    manifest = Manifest(
        topology.name, assignment.attempt, assignment.token, assignment.code, assignment.digest, read, states
    )
    folder.write_manifest(manifest)


def partials(aggregate: PersistentAggregate, assignment: Assignment) -> pa.Table:
    spout = aggregate.stream.spout
    assert isinstance(spout, FixedBatchSpout)
    names = [field.name for field in aggregate.stream.fields]
    combine, found = merger(aggregate.merges), {}
    for record in spout.batch(assignment.metadata["streams"][aggregate.stream.name]):
        fields = dict(zip(names, record, strict=True))
        key = tuple(fields[each.name] for each in aggregate.keys)
        partial = tuple(
            value for each in aggregate.aggregates.values() for value in each.init(fields.get(each.input or ""))
        )
        found[key] = combine(found[key], partial) if key in found else partial
    types = [each.type for each in aggregate.keys] + [each.partial.type for each in aggregate.columns]
    columns = [each.name for each in aggregate.keys] + [each.name for each in aggregate.columns]
    values = list(zip(*((*key, *partial) for key, partial in found.items()), strict=True))
    arrays = [
        pa.array(list(column), ARROW.get(type_) or pa.decimal128(38, decimal_scale(type_) or 0))
        for column, type_ in zip(values, types, strict=True)
    ]
    return pa.table(arrays, names=columns)


@pytest.fixture
def process() -> Callable[..., subprocess.Popen[str]]:
    """Starts the command in a process group of its own, for what a test in this process cannot do."""

    def begin(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-P", "-c", "from txbatch.cli import main; main(prog_name='txbatch')", *arguments]
        given = {**os.environ, "PYTHONPATH": str(ROOT / "plugins"), **environment}
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, env=given, text=True, stdout=pipe, stderr=pipe, cwd=ROOT, start_new_session=True
        )

    return begin
