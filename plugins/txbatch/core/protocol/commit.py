"""The decision about a commit, as a value: a store reads the facts under its locks, and carries out the plan (R10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

from txbatch.core.batch.manifest import Manifest, StagedState, check_manifest, check_states
from txbatch.core.batch.plan import OfInterval, Ranges, StreamPlan, Successive
from txbatch.core.batch.transaction import Assignment, Batch, BatchKind, BatchStatus
from txbatch.core.definition.checks import check_definition
from txbatch.core.definition.digest import definition_digest
from txbatch.core.definition.stored import StateDefinition, StoredTopology
from txbatch.core.errors import BrokenChain, NotEmitted, NotItsTurn
from txbatch.core.protocol.fence import check_fence
from txbatch.core.protocol.ledger import Committed, Order
from txbatch.core.protocol.record_numbers import Bases, check_base, check_same_number
from txbatch.core.protocol.restate import PositionVersion, check_not_folded
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.topology.quarantine import QuarantineState, check_joined
from txbatch.core.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class CommitFacts:
    """The facts that a store reads under its locks before a commit.

    `assignment` and `manifest` are of the newest attempt, perhaps a newer one than the attempt with the loaded partials.
    `definition` is read if `asks_definition`, `version` for a restate, `bases` for numbered streams; all three for an emitted
    batch alone.
    """

    batch: Batch
    assignment: Assignment
    manifest: Manifest | None
    order: Order
    definition: StoredTopology | None = None
    version: PositionVersion | None = None
    bases: Bases = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StatePlan:
    """How a commit writes one state.

    A restate leaves out the columns `uncounted`, which joined after the position. If the whole state joined after the
    position, `counts` is False (R23).
    """

    aggregate: PersistentAggregate
    staged: StagedState
    uncounted: frozenset[str] = frozenset()
    counts: bool = True

    @property
    def name(self) -> str:
        """The state's name."""
        return self.aggregate.state.name

    @property
    def apart(self) -> bool:
        """True if the state is in another database (R21)."""
        return self.aggregate.state.database is not None


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """What a commit writes: the states, and the batch's record. A restate counts in place of the version `replaced` (R17)."""

    topology: Topology
    batch: Batch
    assignment: Assignment
    manifest: Manifest
    states: tuple[StatePlan, ...]
    replaced: int | None = None

    @property
    def here(self) -> list[StatePlan]:
        """The states in the ledger's own database."""
        return [each for each in self.states if not each.apart]

    @property
    def apart(self) -> list[StatePlan]:
        """The states in other databases, written last (R21)."""
        return [each for each in self.states if each.apart]

    @property
    def kept(self) -> Mapping[str, int]:
        """By state, how many records the batch kept; states without such a number are left out."""
        return {name: each.kept for name, each in self.manifest.states.items() if each.kept is not None}


def asks_definition(topology: Topology, batch: Batch, stored: str | None) -> bool:
    """True if a commit needs the stored definition; `stored` is its digest, None before the first.

    The definition is needed if it may differ, or to compare the batch's position with the first txid of a state or a value.
    """
    quarantines = any(isinstance(each.state, QuarantineState) for each in topology.aggregates)
    return batch.kind is BatchKind.RESTATE or quarantines or definition_digest(topology) != stored


def decide_commit(topology: Topology, committing: Batch, facts: CommitFacts) -> CommitPlan | Committed:
    """Return how to commit a batch, or the outcome if the batch is committed already.

    `committing` names the attempt with the loaded partials: a newer attempt may have begun since. Raise the errors of
    `check_commit` and `check_manifest`, Incomplete (R7), SchemaMismatch (R23), CannotRestate (R17), BrokenChain by `check_base`.
    """
    batch, manifest = facts.batch, facts.manifest
    if not check_commit(batch, committing, facts.order):
        return Committed(batch, applied=False)
    if manifest is None:  # unreachable: each emitted batch has one, and a new attempt makes the batch planned again
        raise NotEmitted(
            f"{batch.topology}: attempt {facts.assignment.attempt} has no manifest; clear the task emit_batch"
        )
    if facts.definition is not None:
        check_definition(topology, facts.definition.job, facts.definition)
    known = facts.definition.states if facts.definition is not None else {}
    check_manifest(manifest, facts.assignment)
    check_states(manifest, [aggregate.state.name for aggregate in topology.aggregates])
    check_joined(batch, manifest, topology.aggregates, lambda state: known[state].joined)
    replaced = _check_version_or_base(topology, manifest, facts)
    states = tuple(_state_plan(each, batch, manifest, known) for each in topology.aggregates)
    return CommitPlan(topology, batch, facts.assignment, manifest, states, replaced)


def check_commit(batch: Batch, committing: Batch, order: Order) -> bool:
    """Return whether to apply the batch; False if the batch is committed already, by whatever attempt.

    Raise StaleAttempt (R5), NotEmitted if the newest attempt has no manifest, NotItsTurn or BrokenChain (R6).
    """
    if batch.status is BatchStatus.COMMITTED:
        return False
    check_fence(batch, committing.attempt, committing.token)
    if batch.status is not BatchStatus.EMITTED:
        raise NotEmitted(f"{batch.topology}: attempt {batch.attempt} has no manifest yet; run emit_batch first")
    check_turn(batch, order.open_before)
    if batch.kind is not BatchKind.RESTATE:  # a restate's records are committed, and never the next ones
        check_chain(batch, order)
    return True


def check_turn(batch: Batch, open_before: int | None) -> None:
    """Refuse to commit a batch before a lower txid that is open (R6)."""
    if open_before is not None:
        raise NotItsTurn(f"{batch.topology}: txid {batch.txid} waits for txid {open_before}")


def check_chain(batch: Batch, order: Order) -> None:
    """Refuse to commit a batch that does not continue the last committed batch (R6)."""
    broken = why_broken(batch, order)
    if broken is not None:
        raise BrokenChain(f"{batch.topology}: txid {batch.txid} {broken}: it is aborted and planned anew")


def why_broken(batch: Batch, order: Order) -> str | None:
    """Return how a batch fails to continue what is committed; None if the batch continues, or need not."""
    return _other_predecessor(batch, order) or _other_start(batch, order)


def _other_predecessor(batch: Batch, order: Order) -> str | None:
    """Return how the batch was planned after another txid than the last committed; None if not, or if no stream needs it."""
    plans = (*batch.plan.streams.values(), *batch.plan.idle.values())
    if batch.prev_txid != order.last_committed and any(_in_order(each, batch.by_interval) for each in plans):
        return f"was planned after txid {batch.prev_txid}, but txid {order.last_committed} is the last committed"
    return None


def _in_order(planned: StreamPlan, by_interval: bool) -> bool:
    """True if a stream's batches must be committed in the order of planning."""
    match planned:
        case Ranges():
            return False  # each partition has an order of its own
        case OfInterval():
            return not by_interval  # always False here: only a restate has the plan of an interval under another key
        case Successive():
            return True
        case _:
            assert_never(planned)


def _other_start(batch: Batch, order: Order) -> str | None:
    """Return how a partition starts elsewhere than at the end of the partition's last committed range; None if none does.

    A partition without a committed range may start anywhere, unless the range continues an earlier plan.
    """
    for stream, planned in batch.plan.partitioned.items():
        continued = frozenset(planned.continues)
        for partition, range_ in planned.partitions.items():
            last = order.offsets.get(stream, {}).get(partition)
            fits = partition not in continued if last is None else range_.start == last["end"]
            if not fits:
                return f"starts {partition} at {range_.start}, committed is {last['end'] if last else 'nothing'}"
    return None


def _check_version_or_base(topology: Topology, manifest: Manifest, facts: CommitFacts) -> int | None:
    """Return the txid of the version that a restate replaces, the current version (R17); None if the batch is no restate.

    Refuse a restate of a folded position (R22) or with another number of records, and other batches with another base (R29).
    """
    if facts.version is None:
        check_base(facts.batch, topology.numbered, facts.bases)
        return None
    check_not_folded(facts.version)
    check_same_number(facts.version, topology.numbered, manifest)
    return facts.version.current.txid


def _state_plan(
    aggregate: PersistentAggregate, batch: Batch, manifest: Manifest, known: Mapping[str, StateDefinition]
) -> StatePlan:
    name = aggregate.state.name
    if batch.kind is not BatchKind.RESTATE:
        return StatePlan(aggregate, manifest.states[name])
    stored = known[name]
    uncounted = stored.uncounted(aggregate, batch.position)
    return StatePlan(aggregate, manifest.states[name], uncounted, batch.position >= stored.joined)
