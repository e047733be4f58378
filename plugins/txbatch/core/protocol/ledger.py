"""The ledger as the protocol sees it: the questions about a topology, and the changes to a topology."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from txbatch.core.batch.manifest import Manifest, ReadPartition
from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Assignment, Batch, Interval, Metadata, Run
from txbatch.core.definition.redefinition import Redefinition
from txbatch.core.errors import WindowsGone
from txbatch.core.protocol.lookback import CountedPlan, FoundLate, LookFacts
from txbatch.core.topology.kept_windows import Left
from txbatch.core.topology.topology import Topology
from txbatch.core.upstream.upstream import Upstream

# Per stream and partition: the records read; None: nothing was read.
ReadBy = Mapping[str, Mapping[str, ReadPartition | None]]
# Per stream and partition: where the next batch starts.
Offsets = Mapping[str, Mapping[str, Metadata]]
# A run, and the metadata of the run's batch.
RunPlan = tuple[Run, Metadata]


@dataclass(frozen=True, slots=True)
class Head:
    """A topology as one run finds it: the run's batch, the batches in flight, and the base of the next plan."""

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
    """The outcome of a commit. If the batch was committed before, `applied` is False."""

    batch: Batch
    applied: bool


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A batch without success, and the run that looked after the batch."""

    txid: int
    run: Run


@dataclass(frozen=True, slots=True)
class PositionVersion:
    """The version of a position that counts now (R17); if the batch does not count, the batch itself.

    `asked` is the requested batch, perhaps a restate; `first` is the first batch of the position. By stream and partition,
    `read` is the input of the counting version, `first_read` the input of the first one: None is a hole. `horizon` is the
    highest txid with contributions folded in a state of the topology (R22). If a rebuild counted the version, `read` is
    the input of the rebuild, by the plan `rebuilt`. By state, `left` names the windows gone from the state (R30).
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
        """The plan by which the counting version was read."""
        return self.current.plan if self.rebuilt is None else self.rebuilt


class Ledger(Protocol):
    """The only source of truth; each method is one transaction. `postgres.ledger` has the ledger, `memory.ledger` the twin."""

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

    def check_definition(self, topology: Topology, job: str) -> None:
        """Raise SchemaMismatch if `register` would, and change nothing."""

    def redefinitions(self, topology: Topology) -> Sequence[Redefinition]:
        """Return each difference between the topology and the stored definition, with the consequence of each (R23)."""

    def check_interval(self, topology: str, interval: Interval) -> None:
        """Raise IntervalNotOver or IntervalTaken if `plan` would, and change nothing."""

    def refused(self, topology: Topology, intervals: Sequence[Interval]) -> Sequence[WindowsGone]:
        """Return the errors of the first intervals, in order, refused by `plan` because windows have left (R30)."""

    def head(self, topology: str, run: Run) -> Head:
        """Return how the topology stands, for planning."""

    def heads(self, topology: str, runs: Sequence[Run]) -> Sequence[Head]:
        """Return the head for each of several runs, as of one moment."""

    def last_txid(self, topology: str) -> int:
        """Return the highest txid ever used, 0 before the first. While the number stays the same, nobody has planned anything."""

    def closed_to(self, topology: str) -> Mapping[str, int]:
        """Return by state up to when windows are closed, in microseconds; empty if none is closed (R26)."""

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
        """Take over an abandoned batch, to finish first; a batch by interval is aborted instead (R6).

        Return None if the caller must read the head again. The run's key still leads to the run's own batch alone. A half
        committed batch cannot be aborted, and is taken over as well.
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
        """Return a batch. Raise UnknownName if the topology has no such txid."""

    def version(self, topology: str, txid: int) -> PositionVersion:
        """Return the version that counts now for a txid's position. Raise UnknownName if the topology has no such txid."""

    def look_facts(self, batch: Batch, since: datetime | None) -> LookFacts:
        """Return the plan of the last look before a batch, and intervals of earlier batches: the newest intervals, and all
        intervals with an end after `since`.
        """

    def found_late(self, topology: str) -> Sequence[FoundLate]:
        """Return the late records met by committed batches, unless a later version counts the records."""

    def counted_plans(self, topology: str, since: datetime | None, until: datetime, most: int) -> Sequence[CountedPlan]:
        """Return committed positions with intervals from `since` to before `until`, with the counting plans: the `most` newest,
        newest first.
        """

    def newest_attempt(self, batch: Batch) -> tuple[Assignment, Manifest | None]:
        """Return a batch's newest attempt, with the manifest if stored. Raise UnknownName before the first attempt."""

    def committed_by(self, topology: str, run: Run) -> Batch | None:
        """Return the last batch committed by a run, own or adopted; None if the run committed no batch."""

    def committed_by_each(self, topology: str, prefix: str) -> list[int]:
        """Return in order the txids committed by runs named `prefix` and a number, own and adopted batches alike."""

    def oldest_unfinished(self, topology: str, prefix: str, above: int) -> Unfinished | None:
        """Return the lowest txid over `above` without success or abort, of runs with `prefix` in front of the name; or None."""

    def turn_of(self, topology: str, txid: int) -> int | None:
        """Return the lowest open txid below a txid, for which the batch waits (R6); None if all are final."""

    def commit(
        self, topology: Topology, batch: Batch, partials: Mapping[str, Any], run: Run | None = None
    ) -> Committed:
        """Apply the partials of an attempt, whole or not at all (R6..R10).

        `batch` names the attempt, as read before the partials were loaded: raise StaleAttempt if a newer one has begun since
        (R5). From then on `run` looks after the batch, as the run with the commit. If an older commit of the same run stands
        still, the run may end the older commit. Raise OutcomeUnknown if the answer to COMMIT was lost: the batch is committed
        or not, `Ledger.batch` returns which, and a call again commits no batch twice.
        """

    def success(self, topology: str, txid: int) -> bool:
        """Note that success ran, and return True the first time. Raise TerminalError if the txid is not committed (R8)."""

    def abort(self, topology: str, txid: int, why: str, attempt: Assignment | None = None) -> Batch:
        """Free an uncommitted batch's records (R16). Raise StaleAttempt if `attempt`, which aborts, is not the newest (R5)."""

    def skip(self, topology: str, txid: int, why: str, partition: str | None = None) -> Batch:
        """Abort a batch, and give up all records or a partition's records, by a new txid (R16)."""
