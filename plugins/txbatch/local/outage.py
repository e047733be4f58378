"""`txbatch demo outage`: one of sixteen partitions is away while a batch is retried, and returns three batches later.

The partitions are folders of a log or, with `--kafka`, of a topic of a mock of Kafka on this machine.

The batch commits without the partition. The note of its run, `txbatch status`, `report.completeness` and `report.partitions`
name the hole. A later batch brings the missing records, and its note says so. In the end every record is in exactly one
committed batch.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from txbatch import settings
from txbatch.core.batch.holes import describe_hole, describe_holes
from txbatch.core.batch.staging import AttemptFolder
from txbatch.core.batch.transaction import Assignment, Batch, Run
from txbatch.core.errors import (
    EmissionFailed,
    JobNotFound,
    SourceNotReady,
    TransientError,
    Unexpected,
)
from txbatch.core.protocol.coordinator import NothingNew
from txbatch.core.protocol.decisions import Wait
from txbatch.launch.job_file import load_job
from txbatch.local.kafka_mock import HeldTopic, cluster
from txbatch.places import in_checkout
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.migrate import migrate
from txbatch.postgres.database.psql import make_reader
from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.reading.ledger_reader import LedgerReader
from txbatch.postgres.schema import state_tables
from txbatch.run.runner import Runner
from txbatch.spouts.partitioned_log import PartitionedLog
from txbatch.spouts.topics.look import parsed
from txbatch.storage.staging import Staging
from txbatch.tables import lines_of
from txbatch.wiring import open_runner

TOPOLOGY, TOPIC, SOURCE = "demo_outage", "outage", "demo_kafka"
PARTITIONS = [f"{number:02}" for number in range(16)]
AWAY, LOST_TXID, BACK_TXID = "03", 2, 5


class Log(Protocol):
    """Sixteen partitions that can be taken away."""

    def append(self, partition: str, records: Iterable[str]) -> None:
        """Append records; possible also while the partition is away for readers."""

    def take_away(self, partition: str) -> None:
        """Begin an outage."""

    def give_back(self, partition: str) -> None:
        """End the outage."""


@dataclass
class Topic:
    """A topic of the mock of Kafka, whose partitions are named as those of the log."""

    held: HeldTopic

    def append(self, partition: str, records: Iterable[str]) -> None:
        """Append records to a partition."""
        self.held.send({int(partition): list(records)})

    def take_away(self, partition: str) -> None:
        """Begin an outage."""
        self.held.take_away(int(partition))

    def give_back(self, partition: str) -> None:
        """End the outage."""
        self.held.give_back(int(partition))


@dataclass
class Outage:
    """Plays the outage on a log with sixteen partitions."""

    runner: Runner
    log: Log
    reader: LedgerReader
    appended: dict[str, int]

    def play(self) -> Iterator[str]:
        """Commit five batches, and yield a line for each event."""
        for txid in range(1, BACK_TXID + 1):
            self._append(txid)
            if txid == BACK_TXID:
                self.log.give_back(AWAY)
                yield f"partition {AWAY} is back"
            batch = self._planned(txid)
            if txid == LOST_TXID:
                yield self._lost_attempt(batch)
                self.log.take_away(AWAY)
                yield f"partition {AWAY} of {len(PARTITIONS)} is away; the batch is retried"
            yield self._committed(batch)
            yield from self._looks()

    def _append(self, txid: int) -> None:
        for number, partition in enumerate(PARTITIONS):
            self.log.append(partition, [f"{partition} {10 ** (txid - 1)}"] * (number + 1))
            self.appended[partition] = self.appended.get(partition, 0) + (number + 1) * 10 ** (txid - 1)

    def _planned(self, txid: int) -> Batch:
        found = self.runner.steps.initialize_transaction(_run(txid))
        if isinstance(found, Wait | NothingNew):
            raise SourceNotReady(f"txid {txid} could not be planned: {found}")
        return found

    def _lost_attempt(self, batch: Batch) -> str:
        def submit_and_lose(folder: AttemptFolder, assignment: Assignment) -> None:
            self.runner.submit(folder, assignment)
            raise EmissionFailed("its worker is lost before the ledger has the manifest")

        try:
            self.runner.steps.emit_batch(batch, _run(batch.txid), submit_and_lose)
        except TransientError as error:
            return f"attempt {batch.txid}:1 read all partitions, and {error.text}"
        raise AssertionError("the attempt was to be lost")

    def _committed(self, batch: Batch) -> str:
        steps = self.runner.steps
        emitted = steps.emit_batch(batch, _run(batch.txid), self.runner.submit)
        steps.commit(emitted)
        steps.success(emitted)
        holes = describe_holes(self.reader.holes_of(TOPOLOGY, [emitted.txid]))
        return f"txid {emitted.txid} is committed with attempt {emitted.attempt}{holes}"

    def _looks(self) -> Iterator[str]:
        """Yield what `txbatch status` and report.completeness show of the hole, if there is one."""
        (status,) = self.reader.status(TOPOLOGY)
        for hole in status["left_out"]:
            yield f"  txbatch status: {TOPOLOGY}: {describe_hole(hole)}"
        for row in self.reader.completeness(TOPOLOGY):
            if row["unreadable_since_txid"] is not None:
                to, since = row["consumed_to"], row["unreadable_since_txid"]
                yield f"  report.completeness: {row['partition']}: consumed_to {to}, unreadable_since_txid {since}"


def _run(txid: int) -> Run:
    return Run(f"outage:{txid}")


@contextmanager
def _log(root: Path, *, kafka: bool) -> Iterator[Log]:
    """Context manager. Yield the log: folders, or the topic of a mock of Kafka."""
    if not kafka:
        yield PartitionedLog(root)
        return
    with cluster() as made:
        made.create(TOPIC, len(PARTITIONS))
        os.environ[settings.source_variable(SOURCE)] = made.brokers
        yield Topic(HeldTopic(made, TOPIC))


def play(config: settings.Settings, *, kafka: bool = False) -> Iterator[str]:
    """Play the outage, in a database of the demos or named by the user. Yield a line for each event.

    The topology of an earlier demo is dropped first. Raise TxbatchError if the numbers are wrong.
    """
    if not in_checkout():
        raise JobNotFound(
            "the outage is played in a checkout of txbatch, which has jobs/outage.py: an installed one has not"
        )
    root = config.home / "demo" / "outage"
    shutil.rmtree(root, ignore_errors=True)
    engine = connect(config.database_url)
    migrate(engine)
    if config.embedded:
        make_reader(engine)
    if LedgerReader(engine).status(TOPOLOGY):
        with transaction(engine) as connection:
            state_tables.drop(connection, TOPOLOGY)
        Staging(config.staging).topology(TOPOLOGY).remove()
        yield f"dropped {TOPOLOGY} of an earlier demo"
    job = load_job("jobs/outage_kafka.py" if kafka else "jobs/outage.py", settings.project_root())
    with _log(root, kafka=kafka) as log, open_runner(job, config) as runner:
        outage = Outage(runner, log, LedgerReader(engine), {})
        yield from outage.play()
    yield from lines_of(_by_txid(LedgerReader(engine).partitions(TOPOLOGY)))
    found = {
        row["partition"]: row["amount"] for row in LedgerReader(engine).query(TOPOLOGY, [[each] for each in PARTITIONS])
    }
    if found != outage.appended:
        raise Unexpected(f"counted {found}, appended {outage.appended}")
    yield "equal: every record of every partition is counted once (a record of txid n weighs 10^(n-1))"


def _by_txid(rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return a row for each partition: for each txid, the offsets read, or the hole."""
    cells = {(_number(row["partition"]), row["txid"]): _cell(row) for row in rows}
    return [
        {"partition": each} | {f"txid {txid}": cells.get((each, txid), "") for txid in range(1, BACK_TXID + 1)}
        for each in PARTITIONS
    ]


def _number(partition: str) -> str:
    """Return the number of a partition, of the log or of the topic."""
    return f"{parsed(partition)[0]:02}" if "@" in partition else partition


def _cell(row: Mapping[str, Any]) -> str:
    return "unreadable" if row["status"] == "unreadable" else f"{row['start_offset']}..{row['end_offset']}"
