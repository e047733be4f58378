"""A whole topology in memory, without Spark: for learning, and for testing a job's Python functions.

>>> from txbatch import Count, FixedBatchSpout, OpaqueState, Topology
>>> topology = Topology("sentences")
>>> sentences = topology.new_stream("sentences", FixedBatchSpout("sentence string", 1, "how are you", "are you there"))
>>> words = sentences.flat_map(lambda record: record["sentence"].split(), "word string").group_by("word")
>>> aggregate = words.persistent_aggregate(OpaqueState("sentences"), count=Count())
>>> run(topology).rows("sentences")["are",]
OpaqueValue(txid=2, value=(2,), prev=(1,), prev_txid=1)
"""

from __future__ import annotations

from dataclasses import dataclass

from txbatch.core.batch.loaded import Loaded
from txbatch.core.topology.digests import loaded
from txbatch.core.topology.topology import Topology
from txbatch.memory.application import MemoryApplication
from txbatch.memory.ledger import MemoryLedger
from txbatch.memory.run_locks import MemoryRunLocks
from txbatch.memory.staging import MemoryStaging
from txbatch.run.runner import Runner
from txbatch.run.steps import Steps


@dataclass(frozen=True, slots=True)
class MemoryJob:
    """`core.protocol.ports.Job` without a file."""

    topology: Topology
    name: str = "in memory"
    code: str = "in memory"

    def now(self) -> MemoryJob:
        """Return the job itself: there is no file to change."""
        return self

    def loaded(self) -> Loaded:
        """Return the parts of the job."""
        return loaded(self.topology)


def run(topology: Topology, ledger: MemoryLedger | None = None) -> MemoryLedger:
    """Run batch after batch until nothing is new. Spouts must be FixedBatchSpouts, operations Python functions."""
    ledger, staging = ledger or MemoryLedger(), MemoryStaging()
    steps = Steps(MemoryJob(topology.check()), ledger, staging, MemoryRunLocks())
    with Runner(steps, MemoryApplication(topology, staging)) as runner:
        for _ in runner.run(until_idle=True):
            pass
    return ledger
