"""What spark-submit runs: one emit attempt, from its assignment to its manifest. Holds no database credentials."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from txbatch.core.errors import DefinitionError, PartitionUnreadable, TerminalError
from txbatch.core.manifest import Manifest, StagedState, check_manifest
from txbatch.core.topology import Topology
from txbatch.core.transaction import Assignment
from txbatch.job_file import code_digest
from txbatch.spark.aggregate import BatchAggregator
from txbatch.spark.failures import in_our_words
from txbatch.spark.fence import stop_when_fenced
from txbatch.spark.parent import die_with_parent
from txbatch.spark.reader import BatchReader
from txbatch.spark.session import session, ship_by_value
from txbatch.storage.staging import AttemptFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(topology: Topology, argv: Sequence[str] | None = None) -> int:
    """Run the attempt whose folder `--attempt-folder` names.

    Exit code 0: its manifest is written; 1: error.json says why; FENCED_EXIT_CODE: nobody waits for it any more (R5).
    """
    parser = argparse.ArgumentParser(
        description=f"Emit one batch of the topology {topology.name}; run by spark-submit."
    )
    parser.add_argument("--attempt-folder", required=True, help="URI of the attempt's folder in the staging area")
    folder = AttemptFolder(parser.parse_args(argv).attempt_folder)
    die_with_parent()
    try:
        assignment = folder.read_assignment()
        stop_when_fenced(f"{assignment.topology} {assignment.attempt}", folder.read_fence)
        emit_batch(topology.check(), assignment, folder, Path(sys.modules["__main__"].__file__ or ""))
    except Exception as error:
        return _fail(folder, error)
    return 0


def emit_batch(
    topology: Topology, assignment: Assignment, folder: AttemptFolder, job: Path, spark: SparkSession | None = None
) -> Manifest:
    """Read, aggregate, write partials and, last, the manifest: in this session, which goes on, or in one of its own."""
    if assignment.topology != topology.name or assignment.code != code_digest(job):
        raise DefinitionError(
            f"{job.name} is not what was planned for {assignment.topology} {assignment.attempt}: it changed since; emit again"
        )
    ship_by_value(job.parent)
    name = f"txbatch {topology.name} {assignment.attempt}"
    with session(name) if spark is None else nullcontext(spark) as running:
        readers, unreadable = _readers(running, topology, assignment)
        read = {name: reader.audit() for name, reader in readers.items()}
        manifest = Manifest(
            topology=topology.name,
            attempt=assignment.attempt,
            token=assignment.token,
            code=assignment.code,
            metadata_digest=assignment.digest,
            streams=read,
            states=write_partials(topology, folder, readers),
            unreadable=unreadable,
        )
    check_manifest(manifest, assignment)
    folder.write_manifest(manifest)
    _say(assignment, manifest)
    return manifest


def _readers(
    spark: SparkSession, topology: Topology, assignment: Assignment
) -> tuple[dict[str, BatchReader], dict[str, dict[str, str]]]:
    """A reader of each stream in the batch, and the holes: PartitionUnreadable when nothing at all can be read (R13)."""
    readers: dict[str, BatchReader] = {}
    unreadable: dict[str, dict[str, str]] = {}
    for name, plan in assignment.metadata["streams"].items():
        reader = BatchReader(spark, topology.streams[name], assignment)
        holes = reader.holes()
        unreadable[name] = {**plan.get("unreadable", {}), **holes}
        if not holes or len(holes) < len(plan["partitions"]):
            readers[name] = replace(reader, left_out=frozenset(holes))
    if not readers:
        holes = {partition: why for each in unreadable.values() for partition, why in each.items()}
        raise PartitionUnreadable(f"{assignment.topology} {assignment.attempt}: nothing can be read: {holes}")
    return readers, {name: holes for name, holes in unreadable.items() if holes}


def write_partials(
    topology: Topology, folder: AttemptFolder, readers: Mapping[str, BatchReader]
) -> dict[str, StagedState]:
    """The partials of every state, as Parquet; a state whose stream is not in the batch gets none."""
    staged = {}
    for number, aggregate in enumerate(topology.aggregates):
        aggregator = BatchAggregator(aggregate, readers)
        if aggregator.has_records:
            try:
                aggregator.partials().write.parquet(folder.partials_uri(number))
            except Exception as error:
                raise aggregator.explain(error) from error
        staged[aggregate.state.name] = folder.describe(number, aggregate)
    for reader in readers.values():
        reader.records()  # refused where the source changed while it was read
    return staged


def _say(assignment: Assignment, manifest: Manifest) -> None:
    keys = ", ".join(f"{state.rows:,} keys for {name}" for name, state in manifest.states.items())
    print(
        f"txbatch {assignment.topology} {assignment.attempt}: read {manifest.records:,} records, staged {keys}",
        flush=True,
    )


def _fail(folder: AttemptFolder, error: Exception) -> int:
    """Say why, reason first, and what to look at below; the process that submitted this finds it in the folder."""
    problem = in_our_words(error)
    folder.write_error("terminal" if isinstance(problem, TerminalError) else "transient", str(problem))
    print(f"txbatch: {problem}", file=sys.stderr, flush=True)
    if problem is not error or error.__cause__:
        traceback.print_exception(error.__cause__ or error)
    return 1
