"""txbatch: exactly-once batch aggregation on Airflow, Spark and PostgreSQL.

The names for job files. The import needs the standard library only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from txbatch.core.aggregates.aggregator import Avg, CombinerAggregator, Count, Max, Min, Sum
from txbatch.core.aggregates.approx_distinct import ApproxCountDistinct, DistinctSketch
from txbatch.core.aggregates.approx_quantile import ApproxQuantile
from txbatch.core.aggregates.collect_set import CollectSet
from txbatch.core.aggregates.counting import BoolAnd, BoolOr, CountIf, Histogram
from txbatch.core.aggregates.min_max_by import First, Last, MaxBy, MinBy
from txbatch.core.aggregates.reducer import ReducerAggregator
from txbatch.core.aggregates.top_n import TopN
from txbatch.core.aggregates.top_n_by import TopNBy
from txbatch.core.aggregates.variance import StdDev, Variance
from txbatch.core.batch.transaction import Interval, TransactionAttempt
from txbatch.core.errors import PartitionUnreadable, TerminalError, TransientError
from txbatch.core.sources.batch_spout import BatchSpout, PlainSpout
from txbatch.core.sources.labels import labelled, partitions_of
from txbatch.core.sources.spout import (
    BatchCoordinator,
    Emitter,
    OpaquePartitionedSpout,
    PartitionedSpout,
    Spout,
    SpoutKind,
)
from txbatch.core.state.append import AppendState
from txbatch.core.state.keep import Keep
from txbatch.core.state.state import NonTransactionalState, OpaqueState, TransactionalState
from txbatch.core.topology.look_up import LiveState, StaticState
from txbatch.core.topology.stream import Stream
from txbatch.core.topology.topology import Topology
from txbatch.core.windows.session_window import session_window
from txbatch.core.windows.window import window
from txbatch.spouts.file import FileSpout
from txbatch.spouts.fixed_batch import FixedBatchSpout
from txbatch.spouts.interval import IntervalSpout
from txbatch.spouts.kafka import KafkaSpout, OpaqueKafkaSpout
from txbatch.spouts.partitioned_log import OpaquePartitionedLogSpout, PartitionedLogSpout
from txbatch.spouts.postgres_changing import OpaquePostgresSpout
from txbatch.spouts.postgres_interval import PostgresIntervalSpout
from txbatch.spouts.postgres_table import PostgresSpout
from txbatch.spouts.state_spout import StateSpout
from txbatch.spouts.static_files import StaticFiles
from txbatch.storage.parquet_files import ParquetFiles

if TYPE_CHECKING:
    from collections.abc import Sequence

__version__ = "0.1.0"
__all__ = [
    "AppendState",
    "ApproxCountDistinct",
    "ApproxQuantile",
    "Avg",
    "BatchCoordinator",
    "BatchSpout",
    "BoolAnd",
    "BoolOr",
    "CollectSet",
    "CombinerAggregator",
    "Count",
    "CountIf",
    "DistinctSketch",
    "Emitter",
    "FileSpout",
    "First",
    "FixedBatchSpout",
    "Histogram",
    "Interval",
    "IntervalSpout",
    "KafkaSpout",
    "Keep",
    "Last",
    "LiveState",
    "Max",
    "MaxBy",
    "Min",
    "MinBy",
    "NonTransactionalState",
    "OpaqueKafkaSpout",
    "OpaquePartitionedLogSpout",
    "OpaquePartitionedSpout",
    "OpaquePostgresSpout",
    "OpaqueState",
    "ParquetFiles",
    "PartitionUnreadable",
    "PartitionedLogSpout",
    "PartitionedSpout",
    "PlainSpout",
    "PostgresIntervalSpout",
    "PostgresSpout",
    "ReducerAggregator",
    "Spout",
    "SpoutKind",
    "StateSpout",
    "StaticFiles",
    "StaticState",
    "StdDev",
    "Stream",
    "Sum",
    "TerminalError",
    "TopN",
    "TopNBy",
    "Topology",
    "TransactionAttempt",
    "TransactionalState",
    "TransientError",
    "Variance",
    "emit",
    "labelled",
    "partitions_of",
    "session_window",
    "window",
]


def emit(topology: Topology, argv: Sequence[str] | None = None) -> int:
    """Emit batches, for `spark-submit`, at the end of a job file: `raise SystemExit(emit(topology))`. Returns the exit code."""
    from txbatch.launch.driver import main

    return main(topology, argv)
