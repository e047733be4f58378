"""The rows of a ledger inside one transaction: read under locks, and written. `core.protocol` decides about batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from txbatch.core.batch.manifest import Manifest
from txbatch.core.batch.transaction import Assignment, Batch, Interval, Metadata, Run
from txbatch.core.protocol.commit import CommitFacts, CommitPlan
from txbatch.core.protocol.decisions import TakenIntervals
from txbatch.core.protocol.ledger import Head, Order, RunPlan
from txbatch.core.protocol.record_numbers import Bases
from txbatch.core.protocol.restate import PositionVersion
from txbatch.core.topology.kept_windows import Left
from txbatch.core.topology.topology import Topology
from txbatch.ledger.look_back_rows import LookBackRows


class Registered(NamedTuple):
    """A topology's row: the job, and the digest of the stored definition, None before the first."""

    job: str
    digest: str | None


class Rows(LookBackRows, Protocol):
    """The rows of a ledger inside one transaction. Locks are taken in the order topology, batch, state keys (R1)."""

    def lock_topology(self, topology: str) -> Registered:
        """Lock a topology against other plans. Raise UnknownName if the topology is missing."""

    def lock_batch(self, topology: str, txid: int, run: Run | None = None) -> Batch:
        """Lock a batch. Raise UnknownName if missing.

        If another session holds the row, wait up to 80 seconds; `run` may end its own stalled commit. Then raise LeaseHeld if
        the session is a commit of the batch, Unavailable if not.
        """

    def lock_open_batches(self, topology: str, txid: int) -> Sequence[Batch]:
        """Lock a batch and the batches in flight, by ascending txids, and return the batches in flight."""

    def batch(self, topology: str, txid: int) -> Batch:
        """Return a batch, without a lock."""

    def heads(self, topology: str, runs: Sequence[Run]) -> Sequence[Head]:
        """Return the head for each run."""

    def order(self, batch: Batch) -> Order:
        """Return the place of a batch among the others."""

    def store_definition(self, topology: Topology, job: str) -> None:
        """Store the definition. Raise SchemaMismatch if the history has another definition (R23)."""

    def pin_watermarks(self, topology: Topology, plans: Sequence[RunPlan]) -> Sequence[RunPlan]:
        """Return plans with the watermarks that decide which records are late (R25)."""

    def next_numbers(self, topology: Topology) -> Bases:
        """Return the number of the next record of each numbered stream (R29)."""

    def taken_intervals(self, topology: str, asked: Sequence[Interval]) -> TakenIntervals:
        """Return the intervals of batches that overlap the span of the given intervals."""

    def windows_left(self, topology: str) -> Mapping[str, Left]:
        """Return, by state, which windows have left (R30)."""

    def version(self, topology: str, txid: int) -> PositionVersion:
        """Return the current version of a txid's position. Raise UnknownName if the txid is missing."""

    def insert_batches(self, head: Head, plans: Sequence[RunPlan]) -> Sequence[Batch]:
        """Store plans as the next txids. The plans' runs find their batches from now on, and no longer wait."""

    def take_lease(self, batch: Batch, run: Run) -> None:
        """Let a run look after a batch."""

    def forget_wait(self, topology: str, run: Run) -> None:
        """Note that a run waits no longer."""

    def supersede_attempts(self, batch: Batch) -> None:
        """Mark the attempts of a batch as over."""

    def raise_fence(self, batch: Batch, run: Run, code: str) -> Assignment:
        """Issue the next attempt, looked after by the run."""

    def earlier_manifests(self, assignment: Assignment) -> Sequence[Manifest]:
        """Return the manifests of the earlier attempts of a batch."""

    def source(self, topology: str) -> Mapping[str, Metadata]:
        """Return the stored identity of each stream's source."""

    def take_manifest(self, assignment: Assignment, manifest: Manifest) -> Batch:
        """Store an attempt's manifest, and return the emitted batch."""

    def share_topology(self, committing: Batch) -> None:
        """Lock the topology's row against the swap of a rebuild alone: the first lock of a commit, shared with plans."""

    def commit_facts(self, topology: Topology, batch: Batch) -> CommitFacts:
        """Return the facts for `decide_commit` of a locked batch; all of them only if the batch is emitted."""

    def rebuild_told(self, topology: str) -> AbstractContextManager[None]:
        """Context manager. Put a running rebuild in front of the refusal of a definition."""

    def load(self, plan: CommitPlan, partials: Mapping[str, Any]) -> None:
        """Copy the partials of the states in the ledger's database into the store. Raise Incomplete by the manifest (R7)."""

    def replace(self, batch: Batch, replaced: int) -> None:
        """Let a restate count in place of the version `replaced` (R17)."""

    def apply(self, plan: CommitPlan) -> Mapping[str, int]:
        """Apply the copied partials of the plan (R9, R17); return the number of keys by state."""

    def mark_committed(self, plan: CommitPlan, keys: Mapping[str, int]) -> None:
        """Record the read ranges, the next offsets, and that the batch is committed."""

    def move_event_time(self, plan: CommitPlan) -> None:
        """Write the watermarks after the commit, and the windows closed by the batch (R25, R26)."""

    def commit_apart(self, plan: CommitPlan, partials: Mapping[str, Any]) -> None:
        """Apply the partials to the states in other databases, and commit there (R21)."""

    def succeed(self, topology: str, txid: int) -> bool:
        """Note the success of a committed batch; return False if the batch is not committed, or had success before."""

    def take_back(self, batch: Batch) -> None:
        """Undo the writes of a batch in other databases. Raise HalfCommitted if a database cannot (R21)."""

    def prepare_skip(self, pending: Sequence[Batch]) -> None:
        """Keep the oldest batch in flight from being half committed in other databases (R21)."""

    def free(self, batch: Batch, reason: str, *, replanned: bool) -> None:
        """Abort a batch: the records are free, and the partitions behind (R16, R25). `replanned`: the batch's run plans again."""

    def also_covering(self, batch: Batch) -> Sequence[int]:
        """Return the other txids, not aborted, with intervals that overlap the batch's interval."""

    def give_up(self, left: Batch, why: str, *, found_by_run: bool) -> Batch:
        """Store the next txid, which counts the records of `left` as read; `found_by_run`: the batch's runs find the txid."""
