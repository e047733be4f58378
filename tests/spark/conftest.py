"""One Spark session for the tests of this folder, as spark-submit would configure it, and one attempt's work in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from sizes import EVERYTHING
from spark.emitting import Emitter

from txbatch import settings
from txbatch.core.batch.manifest import Manifest, check_manifest
from txbatch.core.batch.transaction import Assignment, Run, TransactionAttempt
from txbatch.core.protocol import planning
from txbatch.core.protocol.ledger import Head
from txbatch.core.topology.persistent_aggregate import RECORDS_COLUMN
from txbatch.core.topology.topology import Topology
from txbatch.launch.driver import write_partials
from txbatch.launch.job_file import Job
from txbatch.launch.submission import submission
from txbatch.spark.process.session import configured
from txbatch.spark.reader import open_reader
from txbatch.storage.staging import AttemptFolder

Rows = dict[tuple[Any, ...], tuple[Any, ...]]
# To write and compile Java for a few records takes longer than to read them. Where all is tried, Spark does so, as for users.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
EXPRESSIONS = {} if EVERYTHING else INTERPRETED
# Garbage need not be looked for twice a minute; Python workers begin with what they would import.
WARM = {"spark.cleaner.periodicGC.interval": "1h", "spark.python.daemon.module": "warm_daemon"}


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    home = tmp_path_factory.mktemp("home")
    (home / "java").symlink_to(settings.project_root() / ".txbatch" / "java")
    nothing = Assignment("tests", TransactionAttempt(1, 1), "token", {"streams": {}}, "code")
    what = submission(Job("tests", Path(__file__), Topology("tests"), "code"), nothing, "unused", home, local=True)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in what.environment.items():
            patch.setenv(name, value)
        # Of the tests' own modules: executors import the module of a function, and what that module imports.
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)  # for warm_daemon
        patch.setenv("SPARK_LOCAL_DIRS", str(tmp_path_factory.mktemp("scratch")))
        builder = SparkSession.builder.master("local[2]").appName("tests")
        conf = {**what.conf, **WARM, **EXPRESSIONS, "spark.sql.warehouse.dir": str(home / "warehouse")}
        session = builder.config(map=conf).getOrCreate()
        yield configured(session)
        session.stop()


@pytest.fixture
def compiled(spark: SparkSession) -> Iterator[None]:
    """Expressions of this test are compiled: of many records that is quicker."""
    for name in EXPRESSIONS:
        spark.conf.unset(name)
    yield
    for name, value in EXPRESSIONS.items():
        spark.conf.set(name, value)


@dataclass
class Emitted:
    """What an attempt in the test's own session read and staged."""

    manifest: Manifest
    partials: Mapping[str, Rows]

    def read(self, stream: str = "in") -> dict[str, int]:
        """Records per partition."""
        return {name: read.records for name, read in self.manifest.streams[stream].items()}


@pytest.fixture
def emit(spark: SparkSession, tmp_path: Path) -> Callable[..., Emitted]:
    """Plans the first batch of a topology and emits it, as `txbatch.launch.driver` does, without a process of its own."""

    def run(
        topology: Topology,
        metadata: Mapping[str, Any] | None = None,
        txid: int = 1,
        exports: Mapping[str, str] = MappingProxyType({}),
    ) -> Emitted:
        metadata = metadata or plan(topology)
        assert metadata is not None
        assignment = Assignment(topology.name, TransactionAttempt(txid, 1), "token", metadata, "code")
        folder = AttemptFolder((tmp_path / f"attempt-{len(os.listdir(tmp_path))}").as_uri())
        spark.catalog.clearCache()
        with ExitStack() as emitters:
            readers = {
                name: emitters.enter_context(open_reader(spark, topology.streams[name], assignment, exports.get(name)))
                for name in assignment.metadata["streams"]
            }
            read = {name: reader.audit() for name, reader in readers.items()}
            staged = write_partials(topology, folder, readers)
        manifest = Manifest(topology.name, assignment.attempt, "token", "code", assignment.digest, read, staged)
        check_manifest(manifest, assignment)
        partials = {each.state.name: rows(folder, n, len(each.keys)) for n, each in enumerate(topology.aggregates)}
        return Emitted(manifest, partials)

    return run


def plan(topology: Topology, offsets: Mapping[str, Any] | None = None) -> Mapping[str, Any] | None:
    """The metadata of the next batch, given what was consumed."""
    head = Head(topology.name, 1, None, (), None, offsets or {})
    return planning.plan_batch(topology, head, Run("test"))


def rows(folder: AttemptFolder, number: int, keys: int) -> Rows:
    """Staged partials by key."""
    found: Rows = {}
    for name in folder.filesystem.find(folder.path(f"partials/{number}")):
        if name.endswith(".parquet"):
            for row in pq.read_table(name, filesystem=folder.filesystem).to_pylist():
                del row[RECORDS_COLUMN]
                values = tuple(row.values())
                assert values[:keys] not in found
                found[values[:keys]] = values[keys:]
    return found


@pytest.fixture
def read_partials() -> Callable[[AttemptFolder, int, int], Rows]:
    return rows


@pytest.fixture
def emitter(spark: SparkSession, tmp_path: Path, read_partials: Any) -> Emitter:
    (tmp_path / "attempts").mkdir()
    return Emitter(spark, tmp_path / "attempts", read_partials)
