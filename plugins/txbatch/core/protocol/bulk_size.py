"""The size of a job for fused batches (`core.protocol.bulk`): by bytes, by partitions and by bytes of plans."""

from __future__ import annotations

from dataclasses import dataclass, field

from txbatch.core.batch.plan import BatchPlan
from txbatch.core.protocol import bulk
from txbatch.core.stored_json import STORED_BYTES_MAX, Metadata, canonical_json
from txbatch.core.topology.topology import Topology

# A row for each partition goes to Spark with the records, and comes back from the audit.
PARTITIONS_MAX = 20_000
# Each plan by time names all files; in memory a plan is about ten times as large.
PLANS_BYTES_MAX = 64_000_000


@dataclass
class JobSize:
    """The size of the batches planned so far, to be emitted by one job."""

    topology: Topology
    bytes: int = 0
    partitions: int = 0
    plans_bytes: int = 0
    _pass: int | None = field(default=None, init=False)
    _adds: bool = field(default=False, init=False)

    def add(self, plan: BatchPlan, stored: Metadata | None = None) -> None:
        """Add a batch. Streams by time are read once for all batches. `stored` is the JSON of the plan, if at hand."""
        adds = bulk.adds_bytes(self.topology, plan)
        if self._pass is None:
            self._pass = (bulk.planned_bytes(self.topology, [plan]) or adds) - adds
            self.bytes += self._pass
        self._adds = self._adds or adds > 0
        self.bytes += adds
        self.partitions += sum(len(of.partitions) for of in plan.partitioned.values())
        self.plans_bytes += len(canonical_json(stored or plan.to_json(), STORED_BYTES_MAX))

    @property
    def full(self) -> bool:
        """True if the job is large enough. Bytes by time alone make no job full: smaller jobs only read the bytes more often."""
        if self._adds and self.bytes >= bulk.BYTES_MAX:
            return True
        return self.partitions >= PARTITIONS_MAX or self.plans_bytes >= PLANS_BYTES_MAX
