"""txbatch: exactly-once batch aggregation on Airflow, Spark and PostgreSQL.

The names for job files. The import needs the standard library only. Each name is imported when a job first asks for the name,
so a job pays for no spout and no aggregate but its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

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

__version__ = "0.2.0"
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
# The module of each name, below txbatch.
_PLACES = {
    "core.aggregates.aggregator": "Avg CombinerAggregator Count Max Min Sum",
    "core.aggregates.approx_distinct": "ApproxCountDistinct DistinctSketch",
    "core.aggregates.approx_quantile": "ApproxQuantile",
    "core.aggregates.collect_set": "CollectSet",
    "core.aggregates.counting": "BoolAnd BoolOr CountIf Histogram",
    "core.aggregates.min_max_by": "First Last MaxBy MinBy",
    "core.aggregates.reducer": "ReducerAggregator",
    "core.aggregates.top_n": "TopN",
    "core.aggregates.top_n_by": "TopNBy",
    "core.aggregates.variance": "StdDev Variance",
    "core.batch.transaction": "Interval TransactionAttempt",
    "core.errors": "PartitionUnreadable TerminalError TransientError",
    "core.sources.batch_spout": "BatchSpout PlainSpout",
    "core.sources.labels": "labelled partitions_of",
    "core.sources.spout": "BatchCoordinator Emitter OpaquePartitionedSpout PartitionedSpout Spout SpoutKind",
    "core.state.append": "AppendState",
    "core.state.keep": "Keep",
    "core.state.state": "NonTransactionalState OpaqueState TransactionalState",
    "core.topology.look_up": "LiveState StaticState",
    "core.topology.stream": "Stream",
    "core.topology.topology": "Topology",
    "core.windows.session_window": "session_window",
    "core.windows.window": "window",
    "spouts.file": "FileSpout",
    "spouts.fixed_batch": "FixedBatchSpout",
    "spouts.interval": "IntervalSpout",
    "spouts.kafka": "KafkaSpout OpaqueKafkaSpout",
    "spouts.partitioned_log": "OpaquePartitionedLogSpout PartitionedLogSpout",
    "spouts.postgres_changing": "OpaquePostgresSpout",
    "spouts.postgres_interval": "PostgresIntervalSpout",
    "spouts.postgres_table": "PostgresSpout",
    "spouts.state_spout": "StateSpout",
    "spouts.static_files": "StaticFiles",
    "storage.parquet_files": "ParquetFiles",
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names.split()}


def emit(topology: Topology, argv: Sequence[str] | None = None) -> int:
    """Emit batches, for `spark-submit`, at the end of a job file: `raise SystemExit(emit(topology))`. Returns the exit code."""
    from txbatch.launch.driver import main

    return main(topology, argv)


if not TYPE_CHECKING:  # else each misspelt name would have a type

    def __getattr__(name: str) -> object:
        """Import a name at the first use (PEP 562)."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        globals()[name] = found = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
