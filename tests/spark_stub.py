"""A program in the place of spark-submit: runs a job file with the driver of txbatch, but reads and aggregates by itself.

For jobs that read a FixedBatchSpout by Python functions. A process as Spark's is one, with its arguments, its heartbeat
and its error.json: where a test asks who waits, adopts and commits, a start of Spark shows nothing more.
"""

from __future__ import annotations

import os
import runpy
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "plugins"))

import pyarrow as pa
import pyarrow.parquet as pq
from support import record_batch
from without_spark import read_partitions

from txbatch.core.batch.manifest import check_manifest
from txbatch.core.batch.transaction import Assignment
from txbatch.direct.emitter import emit_batch
from txbatch.launch.driver import Driver
from txbatch.storage import parquet
from txbatch.storage.staging import AttemptFolder

NAME = "spark3-submit"  # one of those that Airflow's hook runs, which pyspark does not bring


def install(folder: Path) -> Path:
    """Make the program in a folder for PATH."""
    program = folder / NAME
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" "$@"\n')
    program.chmod(0o700)
    return folder


def emit(driver: Driver, assignment: Assignment, folder: AttemptFolder) -> None:
    """What `Driver._emit` does, without a session."""
    topology = driver.topology.check()
    told, partials = emit_batch(topology, assignment)
    states = {}
    for number, aggregate in enumerate(topology.aggregates):
        table = pa.Table.from_batches([record_batch(aggregate, partials[aggregate.state.name])])
        path = folder.path(f"partials/{number}/part.parquet")
        folder.filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
        pq.write_table(table, path, filesystem=folder.filesystem)
        of = told.states[aggregate.state.name]
        states[aggregate.state.name] = replace(parquet.describe(folder, number, aggregate), kept=of.kept, late=of.late)
    plans = assignment.plan.streams
    read = {name: read_partitions(topology.streams[name].spout, plan) for name, plan in plans.items()}
    manifest = replace(told, streams=read, states=states)
    check_manifest(manifest, assignment)
    folder.write_manifest(manifest)


def main(arguments: list[str]) -> int:
    """Run the application that these arguments of spark-submit name, and return its exit code."""
    replaced: Any = Driver
    replaced._emit = emit
    at = arguments.index("--attempt-folder") - 1
    sys.argv = arguments[at:]
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        return int(end.code or 0)
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # at once: Arrow's threads may be at work still, and Python would abort
