"""What a test of a job imports: its topology run in this process, without Spark and PostgreSQL, and a check of aggregators.

Read `local`, `feeder`, `replaced`, `expressions`; then `combiner` and `values`.
"""

from __future__ import annotations

from txbatch.testing.combiner import check_combiner
from txbatch.testing.feeder import FeederBatchSpout, FeederPartitionedSpout
from txbatch.testing.local import LocalTopology, run, submit_topology

__all__ = ["FeederBatchSpout", "FeederPartitionedSpout", "LocalTopology", "check_combiner", "run", "submit_topology"]
