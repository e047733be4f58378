"""Batches to commit: keys of 14 characters, half of them in the state already or all of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from bench.database import Server
from bench.measure import Stopwatch
from txbatch.core.aggregates.aggregator import Count
from txbatch.core.batch.manifest import Manifest, ReadPartition
from txbatch.core.batch.transaction import Batch, Metadata, Run
from txbatch.core.protocol import coordinator
from txbatch.core.sources.spout import BatchCoordinator, Emitter, Spout, SpoutKind
from txbatch.core.state.state import OpaqueState
from txbatch.core.topology.topology import Topology
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.migrate import migrate
from txbatch.postgres.ledger import PostgresLedger
from txbatch.storage import parquet
from txbatch.storage.staging import AttemptFolder, Staging

KEY = "key%011d"
JOB = "jobs/bench.py"
CODE = "0" * 64
FILES = 2


class NumberedSpout(Spout, BatchCoordinator):
    """Plans batch after batch and reads nothing: the benches write the partials themselves."""

    kind = SpoutKind.OPAQUE
    fields = "key string"

    @property
    def identity(self) -> Metadata:
        return {"spout": "NumberedSpout"}

    def planned_bytes(self, metadata: Metadata) -> int | None:
        return 0

    def coordinator(self) -> BatchCoordinator:
        return self

    def emitter(self) -> Emitter:
        raise NotImplementedError("nothing is read")

    def initialize_transaction(
        self, txid: int, prev_metadata: Metadata | None, curr_metadata: Metadata | None
    ) -> Metadata | None:
        return {"number": txid}


def topology(*, contributions: bool, max_pending: int = 1) -> Topology:
    """Counts by key, opaque."""
    made = Topology("bench", max_pending=max_pending)
    grouped = made.new_stream("keys", NumberedSpout()).group_by("key")
    grouped.persistent_aggregate(OpaqueState("counts", contributions=contributions), count=Count())
    return made


def key_numbers(rows: int, keys: int, updates: float, seed: int = 7) -> list[int]:
    """Which keys a batch has: that part of it from the state's `keys`, the others new."""
    chosen = random.Random(seed)
    known = chosen.sample(range(keys), int(rows * updates))
    return known + [keys + number for number in range(rows - len(known))]


def table(numbers: Sequence[int], seed: int = 7) -> pa.Table:
    """A batch's partials in no order, as Spark leaves them."""
    order = list(numbers)
    random.Random(seed).shuffle(order)
    return pa.table({"key": [KEY % number for number in order], "count": pa.array([1] * len(order), pa.int64())})


def fill(server: Server, database: str, keys: int, *, contributions: bool) -> None:
    """A migrated database whose state holds `keys` keys, each counted once."""
    fill_by(server, database, topology(contributions=contributions), table([]), keyed({"count": 1}, keys))


def fill_by(server: Server, database: str, defined: Topology, nothing: pa.Table, rows: str) -> None:
    """A migrated database whose state holds the rows of a statement; txid 1 is a batch of nothing."""
    server.run(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)", f"CREATE DATABASE {database}")
    engine = connect(server.url_of(database))
    migrate(engine)
    ledger = PostgresLedger(engine)
    ledger.register(defined, JOB)
    batch, _ = emitted(ledger, defined, Staging("memory://bench"), nothing)
    ledger.commit(defined, batch, {"counts": []})
    server.run(rows, "VACUUM (FREEZE, ANALYZE)", database=database)
    engine.dispose()


def keyed(columns: Mapping[str, object], keys: int) -> str:
    """The statement that gives each of so many keys these columns, in SQL."""
    names, values = ", ".join(columns), ", ".join(map(str, columns.values()))
    return (
        f"INSERT INTO state.counts (key, {names}, txid) SELECT 'key' || lpad(i::text, 11, '0'), {values}, 1 "
        f"FROM generate_series(0, {keys - 1}) i ORDER BY 1"
    )


def timed_commit(server: Server, template: str, defined: Topology, partials: pa.Table, watch: Stopwatch) -> None:
    """All that the commit task does, in a copy of a database: reading the staged Parquet, R7's checks, COPY, upsert, COMMIT."""
    with server.copy_of(template) as database:
        engine = connect(server.url_of(database))
        ledger = PostgresLedger(engine)
        ledger.register(defined, JOB)
        batch, folder = emitted(ledger, defined, staging(server.home), partials)
        manifest = ledger.newest_attempt(batch)[1]
        assert manifest
        server.run("CHECKPOINT", database=database)
        with watch.timed():
            assert ledger.commit(defined, batch, {"counts": parquet.read(folder, manifest.states["counts"])}).applied
        engine.dispose()
        folder.remove()


def emitted(
    ledger: PostgresLedger,
    defined: Topology,
    staging: Staging,
    partials: pa.Table | Callable[[AttemptFolder], int],
    run: Run | None = None,
) -> tuple[Batch, AttemptFolder]:
    """The batch of a run, else the next, with these partials staged and its manifest recorded, as by Spark; and where.

    A function stages its own, and returns how many rows.
    """
    run = run or Run(f"bench {uuid4().hex}", run_id=uuid4().hex)
    batch = coordinator.initialize_transaction(ledger, defined, run)
    assert isinstance(batch, Batch)
    assignment = ledger.start_attempt(batch, run, CODE)
    folder = staging.attempt(assignment)
    rows = partials(folder) if callable(partials) else write(folder, partials)
    manifest = Manifest(
        assignment.topology,
        assignment.attempt,
        assignment.token,
        assignment.code,
        assignment.digest,
        streams={"keys": {"": ReadPartition(rows, "0")}},
        states={"counts": parquet.describe(folder, 0, defined.aggregates[0])},
    )
    return ledger.record_manifests([(assignment, manifest)])[0], folder


def write(folder: AttemptFolder, partials: pa.Table) -> int:
    """Parquet files as Spark leaves them: one a shuffle partition, snappy. Returns the rows."""
    filesystem, place = folder.filesystem, folder.path("partials/0")
    filesystem.makedirs(place, exist_ok=True)
    size = -(-partials.num_rows // FILES)
    for number in range(FILES if partials.num_rows else 0):
        pq.write_table(partials.slice(number * size, size), f"{place}/part-{number}.parquet", filesystem=filesystem)
    return int(partials.num_rows)


def staging(home: Path) -> Staging:
    """A staging area beside the server's data."""
    return Staging((home / "staging").as_uri())
