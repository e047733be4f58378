"""Spouts without partitions: PlainSpout plans and reads in one object; BatchSpout is non-transactional."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from txbatch.core.batch.transaction import Metadata, TransactionAttempt
from txbatch.core.sources.spout import BatchCoordinator, Emitter, Spout, SpoutKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class PlainSpout(Spout, BatchCoordinator, Emitter):
    """A spout that is its own coordinator and emitter, with nothing to clean up."""

    def coordinator(self) -> BatchCoordinator:
        return self

    def emitter(self) -> Emitter:
        return self

    def close(self) -> None:
        """Release what the spout holds. Called when planning has ended, and when an attempt has read its records."""


class BatchSpout(Spout):
    """A source that cannot be read twice: non-transactional (Trident's IBatchSpout).

    No metadata is kept. A txid emitted again may have other records, and states need `guarantee="at_least_once"` (R11).
    """

    kind = SpoutKind.NON_TRANSACTIONAL

    @abstractmethod
    def emit_batch(self, spark: SparkSession, txid: int) -> DataFrame:
        """Return the records of a batch, possibly none, in a DataFrame with the spout's fields. Runs in the Spark driver.

        Called once in an attempt, and read once: the records are kept on the disks of Spark until the attempt ends.
        """

    def is_ready(self, txid: int) -> bool:
        """Return True if there is anything to emit; False uses no txid (R4). Runs in the coordinator task, without Spark."""
        return True

    def ack(self, txid: int) -> None:
        """Hear that the txid is committed for good. Called in the success task: twice, late or never (R8)."""

    def coordinator(self) -> BatchCoordinator:
        return _Coordinator(self)

    def emitter(self) -> Emitter:
        return _Emitter(self)


class _Coordinator(BatchCoordinator):
    def __init__(self, spout: BatchSpout) -> None:
        self.spout = spout

    def is_ready(self, txid: int) -> bool:
        return self.spout.is_ready(txid)

    def initialize_transaction(
        self, txid: int, prev_metadata: Metadata | None, curr_metadata: Metadata | None
    ) -> Metadata | None:
        """Plan nothing: return an empty plan."""
        return {}

    def success(self, txid: int) -> None:
        self.spout.ack(txid)


class _Emitter(Emitter):
    def __init__(self, spout: BatchSpout) -> None:
        self.spout = spout

    def emit_batch(self, spark: SparkSession, attempt: TransactionAttempt, metadata: Metadata) -> DataFrame:
        return self.spout.emit_batch(spark, attempt.txid)
