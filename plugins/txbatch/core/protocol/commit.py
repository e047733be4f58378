"""The decision about a commit, as a value: a store reads the facts under its locks, and carries out the plan (R10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from txbatch.core.batch.manifest import Manifest, StagedState, check_manifest, check_states
from txbatch.core.batch.transaction import Assignment, Batch, BatchKind
from txbatch.core.definition.checks import check_definition
from txbatch.core.definition.digest import definition_digest
from txbatch.core.definition.stored import StateDefinition, StoredTopology
from txbatch.core.errors import NotEmitted
from txbatch.core.protocol import decisions
from txbatch.core.protocol.ledger import Committed, Order
from txbatch.core.protocol.record_numbers import Bases, check_base, check_same_number
from txbatch.core.protocol.restate import PositionVersion, check_not_folded
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.topology.quarantine import QuarantineState, check_joined
from txbatch.core.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class CommitFacts:
    """The facts that a store reads under its locks before a commit.

    `assignment` and `manifest` are of the newest attempt. `definition` is read if `asks_definition`, `version` for a restate,
    `bases` for numbered streams; all three for an emitted batch alone.
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

    `committing` names the attempt with the loaded partials: a newer attempt may have begun since. Raise StaleAttempt (R5),
    NotItsTurn, BrokenChain (R6), Incomplete (R7), SchemaMismatch (R23), CannotRestate (R17).
    """
    batch, manifest = facts.batch, facts.manifest
    if not decisions.check_commit(batch, committing, facts.order):
        return Committed(batch, applied=False)
    if manifest is None:  # no emitted batch is without: a new attempt makes the batch planned again
        raise NotEmitted(
            f"{batch.topology}: attempt {facts.assignment.attempt} has no manifest; clear the task emit_batch"
        )
    if facts.definition is not None:
        check_definition(topology, facts.definition.job, facts.definition)
    known = facts.definition.states if facts.definition is not None else {}
    check_manifest(manifest, facts.assignment)
    check_states(manifest, [aggregate.state.name for aggregate in topology.aggregates])
    check_joined(batch, manifest, topology.aggregates, lambda state: known[state].joined)
    replaced = _replaced(topology, manifest, facts)
    states = tuple(_state_plan(each, batch, manifest, known) for each in topology.aggregates)
    return CommitPlan(topology, batch, facts.assignment, manifest, states, replaced)


def _replaced(topology: Topology, manifest: Manifest, facts: CommitFacts) -> int | None:
    """Return the txid of the version that a restate replaces, the current version (R17); None if the batch is no restate."""
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
