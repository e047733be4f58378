"""For tests of jobs: runs a topology in the test's process, without Spark and PostgreSQL, and checks aggregators.

Read `local`, `feeder`, `replaced`, `expressions`; then `combiner` and `values`.
"""

from __future__ import annotations

from txbatch.testing.combiner import check_combiner
from txbatch.testing.feeder import FeederBatchSpout, FeederPartitionedSpout
from txbatch.testing.local import LocalTopology, run, submit_topology

__all__ = ["FeederBatchSpout", "FeederPartitionedSpout", "LocalTopology", "check_combiner", "run", "submit_topology"]
