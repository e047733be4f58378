"""For tests of jobs and of spouts: runs a topology in the test's process, without Spark and PostgreSQL; checks aggregators; and
the contract that each spout keeps.

Read `local`, `feeder`, `replaced`, `expressions`; then `combiner` and `values`; then `spout_contract` and `spout_reading`.
"""

from __future__ import annotations

from txbatch.testing.combiner import check_combiner
from txbatch.testing.feeder import FeederBatchSpout, FeederPartitionedSpout
from txbatch.testing.local import LocalTopology, run, submit_topology
from txbatch.testing.spout_contract import SpoutContract

__all__ = [
    "FeederBatchSpout",
    "FeederPartitionedSpout",
    "LocalTopology",
    "SpoutContract",
    "check_combiner",
    "run",
    "submit_topology",
]
