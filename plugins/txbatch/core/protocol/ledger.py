"""The ledger in the protocol: a topology's batches, and the changes to the batches.

`Questions` (what else is asked) and `PositionVersion` (restates) may be skipped at first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from txbatch.core.batch.manifest import Manifest
from txbatch.core.batch.transaction import Assignment, Batch, Metadata, Run
from txbatch.core.protocol.questions import Questions
from txbatch.core.protocol.restate import PositionVersion as PositionVersion
from txbatch.core.topology.topology import Topology
from txbatch.core.upstream.upstream import Upstream

# Per stream and partition: where the next batch starts.
Offsets = Mapping[str, Mapping[str, Metadata]]
# A run, and the metadata of the run's batch.
RunPlan = tuple[Run, Metadata]


@dataclass(frozen=True, slots=True)
class Head:
    """A topology as one run finds it: the run's batch, the batches in flight, and the base of the next plan.

    `prev` and `offsets` are as if the batches in flight were committed. `prev` is no restate, and may be a skip.
    """

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


class Order(NamedTuple):
    """A batch's place (R6): the lowest open txid below, the highest committed txid of all but restates, the committed offsets."""

    open_before: int | None
    last_committed: int | None
    offsets: Offsets


@dataclass(frozen=True, slots=True)
class Committed:
    """The batch is committed. `applied` is False if the batch was committed before, also by a call whose answer was lost."""

    batch: Batch
    applied: bool


class Ledger(Questions, Protocol):
    """The only source of truth. `postgres.ledger` has the ledger, `memory.ledger` the twin.

    Each method is one transaction of the ledger. Databases with states apart commit before (R21): a method that raises may have
    changed these. The questions besides the steps of a batch are in `Questions`.
    """

    @property
    def lease_seconds(self) -> int:
        """For how many seconds a run looks after a batch without a sign of life (R6)."""

    @property
    def upstream(self) -> Upstream:
        """The ledger's states, for topologies with spouts on them."""

    def register(self, topology: Topology, job: str, zone: str | None = None) -> None:
        """Store the definition, create the states. Raise SchemaMismatch if the history is of another definition (R2, R23).

        `zone` is the time zone in which a schedule cuts intervals: reports show the zone. None leaves the stored zone as is.
        """

    def head(self, topology: str, run: Run) -> Head:
        """Return how the topology stands, for planning."""

    def heads(self, topology: str, runs: Sequence[Run]) -> Sequence[Head]:
        """Return the head for each of several runs, as of one moment."""

    def plan(self, head: Head, run: Run, metadata: Metadata, topology: Topology | None = None) -> Batch | None:
        """Store the next txid with the metadata (R1). Return None if the head moved meanwhile.

        Raise SchemaMismatch if the plan was made by another definition of the topology than the stored one (R23).
        """

    def plan_many(
        self, head: Head, plans: Sequence[RunPlan], topology: Topology | None = None
    ) -> Sequence[Batch] | None:
        """Store the next txids in one transaction, each planned after the txid before (R1). Return None if the head moved.

        If the first plan is refused, raise the error. If a later plan is refused, store only the plans before.
        """

    def adopt(self, batch: Batch, run: Run) -> Batch | None:
        """Take over an abandoned batch, to finish first, or abort the batch if the run may not adopt (R6, `may_adopt`).

        Return None if the batch was aborted, is final, is looked after again, or is being committed: then read the head again.
        The run's key still leads to the run's own batch alone. A half committed batch cannot be aborted, and is taken over as
        well.
        """

    def note_wait(self, batch: Batch, run: Run) -> None:
        """Show others that a run, still without a batch, waits for the end of `batch`."""

    def start_attempt(self, batch: Batch, run: Run, code: str) -> Assignment:
        """Issue the next attempt: from now on no older attempt can change anything (R5)."""

    def renew_lease(self, assignment: Assignment) -> bool:
        """Note that the run is alive. Return False if the attempt is no longer the newest."""

    def renew_waiting_lease(self, batch: Batch, run: Run) -> bool:
        """Note that the waiting run is alive. Return False if the run no longer looks after the open batch (R6)."""

    def fail_attempt(self, assignment: Assignment, error: str) -> None:
        """Record why an attempt failed."""

    def record_manifests(self, recorded: Sequence[tuple[Assignment, Manifest]]) -> list[Batch]:
        """Take the manifests of attempts for committing (R7), by ascending txids. If one is refused, take none, and raise."""

    def batch(self, topology: str, txid: int) -> Batch:
        """Return a batch, read without a lock. Raise UnknownName if the topology has no such txid."""

    def version(self, topology: str, txid: int) -> PositionVersion:
        """Return the version that counts now for a txid's position. Raise UnknownName if the topology has no such txid."""

    def newest_attempt(self, batch: Batch) -> tuple[Assignment, Manifest | None]:
        """Return a batch's newest attempt, with the manifest if stored. Raise UnknownName before the first attempt."""

    def turn_of(self, topology: str, txid: int) -> int | None:
        """Return the lowest open txid below a txid, for which the batch waits (R6); None if all are final."""

    def commit(
        self, topology: Topology, committing: Batch, partials: Mapping[str, Any], run: Run | None = None
    ) -> Committed:
        """Apply the partials of an attempt, whole or not at all (R6..R10).

        `committing` names the attempt, as read before the partials were loaded.

        Committed: `run` has the lease of the batch from now on. If the batch was committed before, nothing is changed.
        Refused, by the rules: StaleAttempt if a newer attempt has begun since (R5), NotEmitted, NotItsTurn, BrokenChain,
        Incomplete, StateAhead, SchemaMismatch, CannotRestate, and UnknownName for a batch without an attempt.
        Try again: Unavailable, or LeaseHeld while another commit of the batch goes on. The row's lock is waited for up to 80
        seconds; `run` may end its own older commit if that commit is stalled.
        Unknown: OutcomeUnknown if the answer to COMMIT was lost. `Ledger.batch` settles nothing, for COMMIT may still be under
        way. A call that gets the row's lock finds the outcome, and commits no batch twice.
        """

    def success(self, topology: str, txid: int) -> bool:
        """Note that success ran, and return True the first time. Raise TerminalError if the txid is not committed (R8)."""

    def abort(
        self, topology: str, txid: int, why: str, attempt: Assignment | None = None, *, replanned: bool = False
    ) -> Batch:
        """Free an uncommitted batch's records (R16). Raise StaleAttempt if `attempt`, which aborts, is not the newest (R5).

        If `replanned`, the batch's run plans the records again, in each of the run's tries.
        """

    def skip(self, topology: str, txid: int, why: str, partition: str | None = None) -> Batch:
        """Abort a batch, and give up all records or a partition's records, by a new txid (R16).

        With `partition`, records of further partitions are free, and the batch's run plans the records again. Raise the errors
        of `skip.given_up`, TerminalError for a committed batch, NotItsTurn above an open txid, BrokenChain or IntervalTaken if
        a later batch has the records by now.
        """
