"""Rebuild (R23): every position is counted again by the present job, into a new generation of the topology's states.

Versions are counted in the order of txids: a version committed meanwhile has a higher txid than all versions before.
Refusals are decided here; `postgres.corrections.rebuild` and `postgres.corrections.swap` carry out.

>>> str(Progress(12, 36, seconds_each=2.5))
'12 of 48 batches are counted, about 0:01:30 left'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Never, Protocol

from txbatch.core.batch.manifest import Manifest
from txbatch.core.batch.transaction import Assignment, Batch
from txbatch.core.definition.changes import source_changes, watermark_times
from txbatch.core.definition.redefinition import DropState, RenameValue, value_changes
from txbatch.core.definition.stored import StoredTopology, state_definition
from txbatch.core.errors import CannotRebuild, ReadByOthers, RebuildStopped, SchemaMismatch, WhyMissing
from txbatch.core.protocol.restate import PositionVersion
from txbatch.core.sources.spout import SpoutKind
from txbatch.core.stored_json import canonical_json
from txbatch.core.topology.topology import Topology
from txbatch.core.upstream.look_ups import live_states
from txbatch.core.upstream.readers import check_changed
from txbatch.core.upstream.upstream import UpstreamReader

# The way on where no rebuild is possible.
_BESIDE = "the new topology counts all records that the source still has"


@dataclass(frozen=True, slots=True)
class Rebuild:
    """A running rebuild. `definition` is the definition of the new states, `code` the digest of the counting job."""

    number: int
    topology: str
    job: str
    code: str
    why: str
    definition: Mapping[str, Any]

    def __str__(self) -> str:
        return f"rebuild {self.number} of {self.topology}"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a rebuild is: the number of counted versions, the number left, and the seconds for each version lately."""

    counted: int
    left: int
    seconds_each: float | None = None

    @property
    def remaining(self) -> timedelta | None:
        """About how long the rebuild still takes; None before anything is counted."""
        return None if self.seconds_each is None else timedelta(seconds=round(self.left * self.seconds_each))

    def after_one(self) -> Progress:
        """Return the progress once one more version is counted.

        >>> str(Progress(12, 36, seconds_each=2.5).after_one())
        '13 of 48 batches are counted, about 0:01:28 left'
        """
        return replace(self, counted=self.counted + 1, left=max(self.left - 1, 0))

    def __str__(self) -> str:
        left = "" if self.remaining is None or not self.left else f", about {self.remaining} left"
        return f"{self.counted:,} of {self.counted + self.left:,} batches are counted{left}"


@dataclass(frozen=True, slots=True)
class Swapped:
    """The new generation counts. `txid` is the newest txid of the old generation."""

    txid: int


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The result of a call: the rebuild counts, and `txid` is the newest txid counted before the rebuild.

    If an equal earlier call has swapped the rebuild already, `earlier` is True, and the call counted nothing.
    """

    rebuild: Rebuild
    txid: int
    earlier: bool = False

    def __str__(self) -> str:
        if self.earlier:
            return (
                f"{self.rebuild} was asked for in these words, with the job as it is now, and counts already: "
                "nothing was counted again. Give another why to count all once more"
            )
        return f"{self.rebuild} counts; up to txid {self.txid} the states before it are kept"


@dataclass(frozen=True, slots=True)
class Behind:
    """Nothing was swapped: the new generation lacks batches committed meanwhile."""


@dataclass(frozen=True, slots=True)
class Watched:
    """Nothing was swapped: transactions older than the complete new generation may still see an incomplete generation."""

    by: str


class Rebuilds(Protocol):
    """The port that carries out rebuilds: `postgres.corrections.rebuild`, and the twin `tests/twin/rebuild`.

    Each method is one transaction, and may be called again.
    """

    def begin(self, topology: Topology, job: str, code: str, why: str | None, by: str | None = None) -> Rebuild:
        """Begin a rebuild, or go on with the running rebuild. Raise TerminalError if another rebuild runs."""

    def done(self, topology: str, code: str, why: str | None) -> Rebuilt | None:
        """Return the newest rebuild if swapped, and if asked for with the same reason and job; None if not."""

    def progress(self, rebuild: Rebuild) -> Progress:
        """Return how far a rebuild is."""

    def next(self, rebuild: Rebuild) -> Batch | None:
        """Return the version to be counted next; None if all are counted."""

    def to_count(self, rebuild: Rebuild, at_most: int, behind: int = 0) -> Sequence[PositionVersion]:
        """Return the versions to be counted next, above the txid `behind`, in order, at most `at_most`, as of one moment."""

    def count(
        self,
        rebuild: Rebuild,
        topology: Topology,
        assignment: Assignment,
        manifest: Manifest,
        partials: Mapping[str, Any],
    ) -> bool:
        """Count the assignment's version. If the version is no longer the next, change nothing and return False."""

    def swap(self, rebuild: Rebuild, topology: Topology) -> Swapped | Behind | Watched:
        """Let the new generation count. If somebody still reads the old generation, raise Unavailable with the reader's name."""

    def drop_past(self, topology: str) -> list[int]:
        """Drop the generations replaced by rebuilds, and return the numbers of the rebuilds.

        Raise ChangeTooEarly if a topology still has to read the changes from a swap, or looks records up in an old generation.
        """


def definition_of(topology: Topology) -> dict[str, Any]:
    """Return the definition of the states for a rebuild, as JSON for the ledger."""
    defined = {aggregate.state.name: state_definition(aggregate) for aggregate in topology.aggregates}
    return {
        name: {
            "kind": each.kind,
            "contributions": each.contributions,
            "columns": each.columns,
            "streams": each.streams,
        }
        for name, each in defined.items()
    }


def check_rebuild(topology: Topology, known: StoredTopology) -> None:
    """Raise TerminalError if no rebuild can count the topology, SchemaMismatch if the batches were read from another source."""
    name = topology.name
    if not known.read:
        raise CannotRebuild(f"topology {name!r} has counted nothing yet: run it, by whatever definition")
    apart = sorted(each.state.name for each in topology.aggregates if each.state.database is not None)
    apart += sorted(state for state, stored in known.states.items() if stored.database is not None)
    if apart:
        raise CannotRebuild(
            f"state {apart[0]!r} is kept apart, and a rebuild swaps states of the ledger's own database only; define another "
            f"topology, with states of other names: {_BESIDE}"
        )
    for stream in topology.streams.values():
        if stream.spout.kind is SpoutKind.NON_TRANSACTIONAL:
            raise CannotRebuild(f"stream {stream.name!r} is non-transactional: nothing of it can be read a second time")
    for state in live_states(topology):
        if state.name in known.states or any(each.state.name == state.name for each in topology.aggregates):
            raise CannotRebuild(
                f"topology {name!r} looks up in its own state {state.name!r}, which a rebuild makes anew: what its batches found "
                f"there cannot be had again; define another topology, with states of other names: {_BESIDE}"
            )
    if found := "; ".join(source_changes(topology, known)):
        raise SchemaMismatch(
            f"topology {name!r}: {found}. A rebuild reads the source of its batches again: put the source back, or "
            f"define another topology, with states of other names: {_BESIDE}"
        )
    if found := "; ".join(watermark_times(topology, known)):
        raise SchemaMismatch(
            f"topology {name!r}: {found}. The old time decides which records of its batches are late, and a watermark never "
            f"goes back: put the old watermark back, or define another topology, with states of other names: {_BESIDE}"
        )


def check_value_names(topology: Topology, known: StoredTopology, readers: Iterable[UpstreamReader]) -> None:
    """Raise TerminalError if a value is renamed in a state with readers: the replaced generation keeps the old names."""
    read = {each.state: each.topology for each in readers}
    for aggregate in topology.aggregates:
        name = aggregate.state.name
        if name not in read or name not in known.states:
            continue
        for found in value_changes(aggregate, known.states[name].columns):
            if isinstance(found.step, RenameValue):
                raise ReadByOthers(
                    f"{found.what}, and topology {read[name]!r} reads the state, which would have the value by two names, before "
                    "and after the swap: rename the value first, by a job of which nothing else has changed, with `txbatch "
                    "change`; then rebuild"
                )


def check_states_stay(
    topology: Topology, states: Iterable[str], readers: Iterable[UpstreamReader], looked_up: Iterable[UpstreamReader]
) -> None:
    """Raise TerminalError if a rebuild drops a state with readers, ChangeTooEarly if an open batch looks up in the state."""
    stays = {aggregate.state.name for aggregate in topology.aggregates}
    check_changed(readers, looked_up, [DropState(state) for state in states if state not in stays])


def reason(topology: Topology, why: str | None) -> str:
    """Return why a rebuild begins. Raise TerminalError without a reason."""
    if why is None or not why.strip():
        raise WhyMissing(f'{topology.name}: say why all of it is counted again: --why "..."')
    return why


def runs_no_more(rebuild: Rebuild) -> RebuildStopped:
    """Return the error for counting in a rebuild that is over."""
    return RebuildStopped(f"{rebuild} does not run any more: it was cancelled, or is done; see report.rebuilds")


def check_same(rebuild: Rebuild, topology: Topology, code: str) -> None:
    """Refuse to go on with a rebuild by a changed job: the versions so far are counted by the job before."""
    if rebuild.code == code and canonical_json(rebuild.definition) == canonical_json(definition_of(topology)):
        return
    raise RebuildStopped(
        f"{rebuild} began with {rebuild.job} as it was then, and the job has changed since: put it back, or "
        f"`txbatch rebuild {rebuild.topology} --cancel` and begin again"
    )


def check_whole(rebuild: Rebuild, assignment: Assignment, manifest: Manifest) -> None:
    """Refuse a batch that was not read whole: TerminalError names an unreadable partition."""
    for stream, holes in manifest.unreadable.items():
        for partition, why in holes.items():
            raise RebuildStopped(
                f"{rebuild}: partition {partition!r} of stream {stream!r}, which txid {assignment.attempt.txid} read, cannot be "
                f"read now: {why}; call it again when it can be"
            )


def refuse_again(version: Batch, state: str) -> Never:
    """Raise TerminalError: without contributions, a state cannot take back a position's version that is counted already."""
    raise RebuildStopped(
        f"{version.topology}: txid {version.txid} counts txid {version.position} again, which is counted already, and state "
        f"{state!r} keeps no contributions: `txbatch rebuild {version.topology} --cancel` and begin again"
    )


def refolded(version: Batch, topology: Topology) -> bool:
    """True if a version is counted by folding the keys again; False for the position's first version: partials are added.

    Raise TerminalError if a state keeps nothing to fold, and adding would give another result.
    """
    if version.position == version.txid:
        return False
    for aggregate in topology.aggregates:
        if aggregate.removable and not aggregate.state.contributions:
            raise RebuildStopped(
                f"{version.topology}: txid {version.txid} counts txid {version.position} again, and state "
                f"{aggregate.state.name!r} removes keys and keeps no contributions: give it contributions=True, "
                f"`txbatch rebuild {version.topology} --cancel` and begin again"
            )
    return True
