"""The ledger as the protocol sees it: what it tells of a topology, and what it is asked to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from txbatch.core.batch.manifest import Manifest, ReadPartition
from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Assignment, Batch, Interval, Metadata, Run
from txbatch.core.definition.redefinition import Redefinition
from txbatch.core.topology.kept_windows import Left
from txbatch.core.topology.topology import Topology
from txbatch.core.upstream.upstream import Upstream

# Per stream and partition: what was read; None: nothing.
ReadBy = Mapping[str, Mapping[str, ReadPartition | None]]
# Per stream and partition: where the next batch starts.
Offsets = Mapping[str, Mapping[str, Metadata]]
# A run, and what its batch reads.
RunPlan = tuple[Run, Metadata]


@dataclass(frozen=True, slots=True)
class Head:
    """A topology as one run finds it: its own batch, the batches in flight, and what the next plan builds on."""

    topology: str
    next_txid: int
    own: Batch | None
    pending: tuple[Batch, ...]
    prev: Batch | None
    offsets: Offsets

    @property
    def prev_txid(self) -> int | None:
        """The txid that the next plan continues (R3)."""
        return self.prev.txid if self.prev else None


@dataclass(frozen=True, slots=True)
class Committed:
    """The outcome of a commit: `applied` False means it had been committed before."""

    batch: Batch
    applied: bool


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A batch without success, and the run that looked after it."""

    txid: int
    run: Run


@dataclass(frozen=True, slots=True)
class PositionVersion:
    """The version of a position that counts now (R17), or the batch itself where that does not count.

    `asked` is the batch that was asked for, `first` that of the position itself, of which `asked` may be a restate. `read` is
    what the version that counts read, by stream and partition, `first_read` what the first one did: None is a hole. `horizon`
    is the highest txid whose contributions are folded in a state of the topology (R22). Where a rebuild counted the version,
    `read` is what that read, by the plan `rebuilt`. `left` says by state which windows have left it (R30).
    """

    asked: Batch
    first: Batch
    current: Batch
    read: ReadBy
    first_read: ReadBy
    horizon: int = 0
    rebuilt: BatchPlan | None = None
    left: Mapping[str, Left] = field(default_factory=dict)

    @property
    def plan(self) -> BatchPlan:
        """The plan by which what counts was read."""
        return self.current.plan if self.rebuilt is None else self.rebuilt


class Ledger(Protocol):
    """The only source of truth. `postgres.ledger` is the real one, `memory.ledger` its twin; each method is one transaction."""

    @property
    def lease_seconds(self) -> int:
        """How long a run looks after its batch without a sign of life (R6)."""

    @property
    def upstream(self) -> Upstream:
        """What it tells of its states to topologies that read them."""

    def register(self, topology: Topology, job: str) -> None:
        """Make the topology known and its states ready; SchemaMismatch when its history is another's (R2, R23)."""

    def check_definition(self, topology: Topology, job: str) -> None:
        """SchemaMismatch where `register` would say so; changes nothing."""

    def redefinitions(self, topology: Topology) -> Sequence[Redefinition]:
        """Return what is defined otherwise now than it is stored, and what becomes of each change; empty: nothing (R23)."""

    def check_interval(self, topology: str, interval: Interval) -> None:
        """IntervalNotOver, or IntervalTaken, where `plan` would say so; changes nothing."""

    def head(self, topology: str, run: Run) -> Head:
        """How things stand, for planning."""

    def heads(self, topology: str, runs: Sequence[Run]) -> Sequence[Head]:
        """The same for each of several runs, as of one moment."""

    def last_txid(self, topology: str) -> int:
        """Return the highest txid that was ever used, 0 before the first: while it is the same, nobody has planned anything."""

    def closed_to(self, topology: str) -> Mapping[str, int]:
        """Return by state up to when its windows are closed, in microseconds; empty: none is (R26)."""

    def plan(self, head: Head, run: Run, metadata: Metadata, topology: Topology | None = None) -> Batch | None:
        """Store the next txid with its metadata (R1); None when the head moved meanwhile.

        SchemaMismatch when the topology that made the plan is not what is stored by now (R23).
        """

    def plan_many(
        self, head: Head, plans: Sequence[RunPlan], topology: Topology | None = None
    ) -> Sequence[Batch] | None:
        """Store the next txids, each planned after the one before, in one transaction (R1); None when the head moved meanwhile.

        Raises what the first is refused for; one behind it that is refused is not stored, nor are those after it.
        """

    def adopt(self, batch: Batch, run: Run) -> Batch | None:
        """Take over an abandoned batch, to finish it first; one by interval is aborted instead (R6).

        Returns None when the caller must read the head again. The run's key leads to its own batch alone. A half committed
        batch, which cannot be aborted, is taken over as well.
        """

    def note_wait(self, batch: Batch, run: Run) -> None:
        """Let others see that this run, which has no batch yet, waits for that one's end."""

    def start_attempt(self, batch: Batch, run: Run, code: str) -> Assignment:
        """Issue the next attempt: from now on no older one can change anything (R5)."""

    def renew_lease(self, assignment: Assignment) -> bool:
        """Say that the run is alive; False when the attempt is no longer the newest."""

    def renew_waiting_lease(self, batch: Batch, run: Run) -> bool:
        """Say that the run is alive while it waits; False when it does not look after this open batch any more (R6)."""

    def fail_attempt(self, assignment: Assignment, error: str) -> None:
        """Record why an attempt failed."""

    def record_manifests(self, recorded: Sequence[tuple[Assignment, Manifest]]) -> list[Batch]:
        """Take the work of attempts for committing (R7), by ascending txids: all, or nothing, and raise for the first refused."""

    def batch(self, topology: str, txid: int) -> Batch:
        """One batch; UnknownName when there is none."""

    def version(self, topology: str, txid: int) -> PositionVersion:
        """Return the version of a txid's position that counts now; UnknownName when there is no such txid."""

    def newest_attempt(self, batch: Batch) -> tuple[Assignment, Manifest | None]:
        """The newest attempt of a batch and its manifest, if it has one; UnknownName before the first attempt."""

    def committed_by(self, topology: str, run: Run) -> Batch | None:
        """Return the last batch that this run brought to its commit, its own or one that it adopted; None for none."""

    def committed_by_each(self, topology: str, prefix: str) -> list[int]:
        """Return the txids that runs named so, and a number, brought to their commits, own and adopted ones, in order."""

    def oldest_unfinished(self, topology: str, prefix: str, above: int) -> Unfinished | None:
        """Return the lowest txid above this one without success, not aborted, whose run's name begins so; None for none."""

    def turn_of(self, topology: str, txid: int) -> int | None:
        """The lowest txid below this one that is not final: it waits for that one (R6)."""

    def commit(
        self, topology: Topology, batch: Batch, partials: Mapping[str, Any], run: Run | None = None
    ) -> Committed:
        """Apply the partials of an attempt, whole or not at all (R6..R10): of the one that `batch` names, as it was read
        before they were loaded. StaleAttempt when a newer one has begun since (R5).

        `run` looks after the batch from then on: it is the one that committed it. It may end an older commit of its own that
        does not go on.
        """

    def success(self, topology: str, txid: int) -> bool:
        """Note that success ran; True the first time. TerminalError when the txid is not committed (R8)."""

    def abort(self, topology: str, txid: int, why: str) -> Batch:
        """Free an uncommitted batch's records (R16)."""

    def skip(self, topology: str, txid: int, why: str, partition: str | None = None) -> Batch:
        """Abort a batch and give its records up, all or those of a partition, by a txid of its own (R16)."""
