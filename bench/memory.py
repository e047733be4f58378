"""What the commit of a very large batch takes of its client's memory: fifty million new keys."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench import batches
from bench.commit import MILLION
from bench.database import Server, server
from bench.measure import Figure, Stopwatch
from bench.results import Results
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.migrate import migrate
from txbatch.postgres.ledger import PostgresLedger
from txbatch.storage.staging import AttemptFolder

KEYS = int(os.environ.get("BENCH_MEMORY_KEYS", 50 * MILLION))
PIECE = 2 * MILLION  # rows of a file: what Spark would leave, and what the client has to hold
MB = 1e6


def measure(section: str, results: Results) -> None:
    """Once: into an empty state, without contributions, by a process that does nothing but the commit."""
    with server() as running:
        url = running.url_of("bench")
        running.run("CREATE DATABASE bench")
        txid = stage(running, url)
        running.run("CHECKPOINT", database="bench")
        done = subprocess.run(
            [sys.executable, "-m", "bench.programs.commit_only", url, batches.staging(running.home).root, str(txid)],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
        )
    told = json.loads(done.stdout)
    print(f"    {KEYS:,} keys: {told['seconds']:.0f} s, client at most {told['peak_bytes'] / MB:.0f} MB", flush=True)
    runs = {"seconds": [Stopwatch(told["seconds"])], "client, MB": [Stopwatch(told["peak_bytes"] / MB)]}
    results.add(section, runs, FIGURES, keys=KEYS, files=KEYS // PIECE)


FIGURES = [
    Figure(f"client memory of a {KEYS // MILLION} M key commit, MB", "client, MB", None, 1000, 500, unit=1.0),
]
SECTIONS = {"50 M keys": measure}


def stage(running: Server, url: str) -> int:
    """The txid of a batch that is emitted: its files are written one by one, its keys in no order."""
    engine = connect(url)
    migrate(engine)
    ledger, defined = PostgresLedger(engine), batches.topology(contributions=False)
    ledger.register(defined, batches.JOB)
    batch, _ = batches.emitted(ledger, defined, batches.staging(running.home), write_keys)
    engine.dispose()
    return batch.txid


def write_keys(folder: AttemptFolder) -> int:
    """Every key once: file n has the keys that leave n over, shuffled."""
    place = folder.path("partials/0")
    folder.filesystem.makedirs(place, exist_ok=True)
    files = KEYS // PIECE
    for number in range(files):
        own = np.random.default_rng(number).permutation(np.arange(number, KEYS, files))
        keys = pc.binary_join_element_wise("key", pc.utf8_lpad(pa.array(own).cast(pa.string()), 11, "0"), "")
        table = pa.table({"key": keys, "count": pa.array(np.ones(len(own), np.int64))})
        pq.write_table(table, f"{place}/part-{number:03}.parquet", filesystem=folder.filesystem)
    return KEYS
