"""The program of spark-submit: emits attempts, each from assignment to manifest. Holds no database credentials."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from multiprocessing.connection import Client, Connection
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from txbatch.core.batch.came_late import CameLate
from txbatch.core.batch.loaded import check_same
from txbatch.core.batch.manifest import Manifest, ReadPartition, StagedState, check_manifest
from txbatch.core.batch.transaction import Assignment
from txbatch.core.errors import (
    JobLoadsDifferently,
    PartitionUnreadable,
    SparkFailed,
    SpoutFailed,
    TerminalError,
    TransientError,
    TxbatchError,
)
from txbatch.core.text import how_many, safe_lines
from txbatch.core.topology.digests import loaded
from txbatch.core.topology.late import check_kept_aside
from txbatch.core.topology.quarantine import QuarantineState
from txbatch.core.topology.topology import Topology
from txbatch.core.upstream.look_ups import live_states
from txbatch.core.upstream.upstream import stream_numbers
from txbatch.launch.bulk import Attempt, Halving, Load, came_late, heartbeat, may_go_on, stage
from txbatch.launch.job_file import code_digest
from txbatch.spark.aggregate import BatchAggregator
from txbatch.spark.failures import in_our_words, java_is_gone
from txbatch.spark.kept_records import SharedJoins
from txbatch.spark.process.heartbeat import stop_when_superseded
from txbatch.spark.process.parent import die_with_parent
from txbatch.spark.process.session import configured, session
from txbatch.spark.process.shipped import ship_by_value
from txbatch.spark.process.stages import tell_stages
from txbatch.spark.reader import BatchReader, open_reader
from txbatch.spark.state_query import Tables
from txbatch.storage import parquet
from txbatch.storage.staging import AttemptFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txbatch.spark.process.shipped import Cloudpickle


def main(topology: Topology, argv: Sequence[str] | None = None) -> int:
    """Run the attempts in the folders `--attempt-folder`, and then, one after the other, attempts from `--socket`.

    Exit code 0: the manifest is written. 1: error.json has the reason. FENCED_EXIT_CODE: nobody waits for the attempt any
    more (R5). On the socket: receives the URI of a folder, answers `begun`, later `done` (success or not); the exit code is 0
    when the peer closes. Several folders, each in a line, hold attempts for one job. With a socket and no folder yet, the
    driver starts the session.
    """
    parser = argparse.ArgumentParser(description=f"Emit batches of the topology {topology.name}; run by spark-submit.")
    parser.add_argument(
        "--attempt-folder", required=True, nargs="*", help="URIs of the folders of attempts in the staging area"
    )
    parser.add_argument("--socket", help="from which the folders of further attempts come")
    parser.add_argument("--stages", type=Path, help="file for what Spark is at, while --socket is given")
    given = parser.parse_args(argv)
    die_with_parent()
    job = Path(sys.modules["__main__"].__file__ or "")
    with ExitStack() as ending:
        if given.socket is None:
            return 0 if Driver(topology, job, ending).emit_all(given.attempt_folder) else 1
        submitter = ending.enter_context(Client(given.socket))
        driver = Driver(topology, job, ending, f"txbatch {topology.name}", given.stages)
        _serve(driver, submitter, given.attempt_folder)
    return 0


def _serve(driver: Driver, submitter: Connection, folders: Sequence[str]) -> None:
    """Emit attempts until the peer closes, or Spark can take no more."""
    with suppress(EOFError, ConnectionError):
        if folders:
            driver.emit_all(folders)
            submitter.send_bytes(b"done")
        else:
            driver.start()
        while driver.alive:
            folders = submitter.recv_bytes().decode().split("\n")
            submitter.send_bytes(b"begun")
            driver.emit_all(folders)
            submitter.send_bytes(b"done")


class Driver:
    """Emits attempts of a topology in one session. The first attempt starts the session, `ending` stops the session."""

    def __init__(
        self, topology: Topology, job: Path, ending: ExitStack, name: str | None = None, stages: Path | None = None
    ) -> None:
        self.topology, self.job, self.name, self.stages = topology, job, name, stages
        self.code = code_digest(job)  # of what is loaded, whatever is written to the file later
        self.loaded = loaded(topology, str(job.parent.resolve()))
        self._ending, self._session = ending, cast("SparkSession | None", None)
        self._load = Load()
        self._modules = 0  # how many are loaded, as of the last look

    def start(self) -> None:
        """Start the session before any attempt. If the start fails, the first attempt reports the failure."""
        with suppress(Exception):
            self._spark()

    def emit_all(self, uris: Sequence[str]) -> bool:
        """Emit a single attempt, or several by one job; each folder of several holds the result."""
        folders = [AttemptFolder(uri) for uri in uris]
        return self.emit(folders[0]) if len(folders) == 1 else self.emit_bulk(folders)

    def emit(self, folder: AttemptFolder) -> bool:
        """Emit an attempt. Return True once the manifest is written; if False, error.json has the reason.

        Raise SystemExit if Spark's Java process is gone: the waiting process sees how Java ended.
        """
        try:
            assignment = folder.read_assignment()
            with stop_when_superseded(f"{assignment.topology} {assignment.attempt}", folder.read_heartbeat):
                self._emit(assignment, folder)
        except Exception as error:
            self._fail(folder, error)
            return False
        return True

    def emit_bulk(self, folders: Sequence[AttemptFolder]) -> bool:
        """Emit several attempts by one job. Each attempt gets a manifest or an error, unless a newer attempt replaced the
        attempt.

        Raise SystemExit like `emit`.
        """
        try:
            attempts = [(folder, folder.read_assignment()) for folder in folders]
            first, last = attempts[0][1], attempts[-1][1]
            with stop_when_superseded(
                f"{first.topology} {first.attempt} to {last.attempt}", lambda: heartbeat(folders)
            ):
                left = 2 * len(attempts).bit_length()
                Halving(self._emit_bulk, self._emit_alone, self._why, left, self._load).emit(attempts)
        except Exception as error:
            self._why(error)
            for folder in folders:
                _fail(folder, error, show=self.topology.show_records)
            return False
        return True

    def _fail(self, folder: AttemptFolder, error: Exception) -> str:
        """Write the failure into the folder, and return the failure."""
        why = self._why(error)
        _fail(folder, error, show=self.topology.show_records)
        return why

    def _why(self, error: Exception) -> str:
        if java_is_gone(error):
            raise SystemExit("txbatch: Spark's Java process is gone") from None
        return str(in_our_words(error, show=self.topology.show_records))

    @property
    def alive(self) -> bool:
        """Whether Spark can take another attempt."""
        try:
            return self._session is None or not self._session.sparkContext._jsc.sc().isStopped()
        except Exception:
            return False

    def _emit_bulk(self, attempts: Sequence[Attempt]) -> None:
        """Read and aggregate several batches by one job; then write the manifest of each attempt that may still go on."""
        for _, assignment in attempts:
            self._check(assignment)
        staged = stage(self._spark(attempts[0][1]), self.topology, attempts)
        manifests = [
            self._write_manifest(folder, assignment, *staged[assignment.attempt.txid])
            for folder, assignment in filter(may_go_on, attempts)
        ]
        _say_several(self.topology, manifests)

    def _emit_alone(self, attempt: Attempt) -> str | None:
        """Emit an attempt of several alone. Return the failure, also written into the attempt's folder."""
        folder, assignment = attempt
        try:
            AttemptFolder(f"{folder.uri}/partials").remove()
            self._emit(assignment, folder)
        except Exception as error:
            return self._fail(folder, error)
        return None

    def _check(self, assignment: Assignment) -> None:
        topology = self.topology.check()
        if assignment.topology != topology.name or assignment.code != self.code:
            raise JobLoadsDifferently(
                f"{self.job.name} is not what was planned for {assignment.topology} {assignment.attempt}: it changed since; "
                "emit again"
            )
        self._check_loaded(assignment)

    def _check_loaded(self, assignment: Assignment) -> None:
        """Refuse a job loaded differently here than in the task that began the attempt, as far as the two can be compared."""
        asked, of = assignment.loaded, f"{assignment.topology} {assignment.attempt}"
        if asked is None:
            return
        if asked.python == self.loaded.python:
            check_same(asked, self.loaded, os.environ, of)
        else:
            print(
                f"txbatch {of}: whether this job is the one that was checked is not compared: Spark's driver has Python "
                f"{self.loaded.python}, the task {asked.python}",
                flush=True,
            )

    def _emit(self, assignment: Assignment, folder: AttemptFolder) -> None:
        """Read, aggregate, write partials and, last, the manifest."""
        self._check(assignment)
        topology = self.topology
        with ExitStack() as emitters:
            readers, unreadable = _readers(emitters, self._spark(assignment), topology, assignment, folder)
            read = {name: reader.audit() for name, reader in readers.items()}
            came = came_late(assignment, readers)
            states = write_partials(topology, folder, readers)
        _say(self.topology, self._write_manifest(folder, assignment, read, states, came, unreadable))

    def _write_manifest(
        self,
        folder: AttemptFolder,
        assignment: Assignment,
        read: Mapping[str, Mapping[str, ReadPartition]],
        states: Mapping[str, StagedState],
        came: CameLate | None = None,
        unreadable: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    ) -> Manifest:
        manifest = Manifest(
            topology=assignment.topology,
            attempt=assignment.attempt,
            token=assignment.token,
            code=assignment.code,
            metadata_digest=assignment.digest,
            streams=read,
            states=states,
            unreadable=dict(unreadable),
            came_late=came,
        )
        check_manifest(manifest, assignment)
        folder.write_manifest(manifest)
        return manifest

    def _spark(self, assignment: Assignment | None = None) -> SparkSession:
        if self._modules != len(sys.modules):  # a function of the job may import another one, and looking takes 0.1 s
            from pyspark import cloudpickle

            ship_by_value(cast("Cloudpickle", cloudpickle), self.job)
            self._modules = len(sys.modules)
        if self._session is None:
            of = self.topology.name if assignment is None else f"{assignment.topology} {assignment.attempt}"
            self._session = self._ending.enter_context(session(self.name or f"txbatch {of}"))
            if self.stages is not None:
                tell_stages(self._session.sparkContext, self.stages)
        else:
            configured(self._session).catalog.clearCache()  # else what is read anew might come from the attempt before
        return self._session


def _readers(
    emitters: ExitStack, spark: SparkSession, topology: Topology, assignment: Assignment, folder: AttemptFolder
) -> tuple[dict[str, BatchReader], dict[str, dict[str, str]]]:
    """Return a reader of each stream in the batch, and the holes by stream; `emitters` closes the readers' emitters.

    Raise PartitionUnreadable if nothing at all can be read (R13).
    """
    readers: dict[str, BatchReader] = {}
    unreadable: dict[str, dict[str, str]] = {}
    exports = {name: folder.export_uri(number) for name, number in stream_numbers(topology).items()}
    for name, planned in assignment.plan.streams.items():
        reader = emitters.enter_context(open_reader(spark, topology.streams[name], assignment, exports.get(name)))
        holes = reader.leave_out_unreadable()
        unreadable[name] = {**planned.unreadable, **holes}
        if len(holes) < len(planned.ranges):
            readers[name] = reader
    if not readers:
        holes = {partition: why for each in unreadable.values() for partition, why in each.items()}
        raise PartitionUnreadable(f"{assignment.topology} {assignment.attempt}: nothing can be read: {holes}")
    return readers, {name: holes for name, holes in unreadable.items() if holes}


def write_partials(
    topology: Topology, folder: AttemptFolder, readers: Mapping[str, BatchReader]
) -> dict[str, StagedState]:
    """Write the partials of every state, in Parquet; a state gets none if the state's stream is not in the batch."""
    staged = {}
    live = {state: folder.export_uri(number) for state, number in live_states(topology).items()}
    plan = next(iter(readers.values())).assignment.plan
    joins, marks = SharedJoins.of(topology.aggregates), plan.marks(topology.watermarks)
    tables = Tables(plan.static, live, plan.planned_at, plan.base, joins)
    aggregators = [BatchAggregator(aggregate, readers, tables) for aggregate in topology.aggregates]
    with closing(joins):
        for number, aggregator in enumerate(aggregators):
            if aggregator.has_records:
                _write(aggregator, folder.partials_uri(number))
            staged[aggregator.state] = parquet.describe(folder, number, aggregator.aggregate, marks)
            aggregator.check_quarantine(staged[aggregator.state].kept, folder.partials_uri(number))
    for reader in readers.values():
        reader.check_unchanged()
    tables.check_unchanged(topology.looked_up.values())
    for aggregator in aggregators:
        aggregator.check_read(staged[aggregator.state])
    check_kept_aside(topology.name, topology.aggregates, staged)
    return staged


def _write(aggregator: BatchAggregator, uri: str) -> None:
    """Write the partials of a state. Raise the error in txbatch's words."""
    try:
        aggregator.partials().write.option("maxRecordsPerFile", parquet.ROWS_PER_FILE_MAX).parquet(uri)
    except Exception as error:
        if (explained := aggregator.explain(error)) is error:
            raise
        raise explained from error


def _say(topology: Topology, manifest: Manifest) -> None:
    failed = next((each.state.name for each in topology.aggregates if isinstance(each.state, QuarantineState)), None)
    told = [f"{how_many(of.rows, 'key')} for {name}" for name, of in manifest.states.items() if name != failed]
    if failed:
        told.append(f"{how_many(manifest.states[failed].rows, 'record')} in quarantine")
    what, read = f"{manifest.topology} {manifest.attempt}", how_many(manifest.records, "record")
    print(f"txbatch {what}: read {read}, staged {', '.join(told)}", flush=True)


def _say_several(topology: Topology, manifests: Sequence[Manifest]) -> None:
    """Print one line: for a year of days, a line per batch would hide all other output."""
    if not manifests:
        return
    read, txids = sum(manifest.records for manifest in manifests), [manifest.attempt.txid for manifest in manifests]
    of = f"{how_many(len(txids), 'batch', 'batches')}, txids {txids[0]} to {txids[-1]}"
    print(f"txbatch {topology.name}: read {how_many(read, 'record')} of {of}", flush=True)


def _fail(folder: AttemptFolder, error: Exception, *, show: bool = True) -> None:
    """Write the failure into the folder: the submitting process reads the folder, and prints the failure.

    Print the details of an unknown failure, which the folder does not hold. If the folder is none of the submitting process, or
    cannot be written, print the failure as well. Raise SystemExit, with the failure, if the failure cannot be written.
    """
    problem = in_our_words(error, show=show)
    try:
        _write_error(folder, problem)
        told = folder.filesystem.exists(folder.path("assignment.json"))
    except (OSError, TransientError) as unwritten:
        raise SystemExit(f"txbatch: {problem} (the attempt's folder cannot be written: {unwritten})") from None
    if not told:
        print(f"txbatch: {problem}", file=sys.stderr, flush=True)
    if isinstance(problem, SparkFailed | SpoutFailed):
        trace = traceback.format_exception(error.__cause__ or error)
        print(safe_lines("".join(trace)), file=sys.stderr, flush=True)


def _write_error(folder: AttemptFolder, problem: TxbatchError) -> None:
    """Write the error of an attempt. On a full disk, first remove the attempt's partials, which nobody reads any more."""
    kind = "terminal" if isinstance(problem, TerminalError) else "transient"
    try:
        folder.write_error(kind, str(problem))
    except OSError:
        AttemptFolder(f"{folder.uri}/partials").remove()
        folder.write_error(kind, str(problem))
