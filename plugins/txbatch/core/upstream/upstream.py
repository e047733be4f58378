"""A state as the source of another topology: the ledger's answers about the state, and the planning of batches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from txbatch.core.batch.transaction import Metadata
from txbatch.core.definition.job_rules import Jobs, defined, python_rule
from txbatch.core.errors import CannotAsk, MissingPart, RecordsGone, SchemaMismatch, TerminalError, UnknownName
from txbatch.core.naming import naming
from txbatch.core.sources.spout import PartitionedCoordinator, PartitionedSpout
from txbatch.core.state.pruned import has_gone, pruned_to
from txbatch.core.upstream.ranges import (
    ANEW,
    AS_READ,
    Closing,
    UpstreamState,
    check_gone,
    check_kept,
    check_same,
    defined_by,
    replaced_with,
)

if TYPE_CHECKING:
    from txbatch.core.batch.plan import StreamPlan
    from txbatch.core.batch.staging import AttemptFolder
    from txbatch.core.batch.transaction import Assignment
    from txbatch.core.records.fields import Field
    from txbatch.core.topology.persistent_aggregate import PersistentAggregate
    from txbatch.core.topology.topology import Topology

# Words in the identity of a spout on a state; `state` has the name, and `emit` says whether closed windows are read.
STATE_SPOUT, CHANGES, FINAL = "StateSpout", "changes", "final"


@dataclass(frozen=True, slots=True)
class UpstreamReader:
    """A stream of `topology` that reads a state of `owner`; `needs` are the first and last cuts of the next reading.

    If cuts in between are read, too, `between` is True. `opened` are the cuts from which open batches read; 0 reads all.
    """

    topology: str
    state: str
    owner: str | None
    needs: frozenset[int] = frozenset()
    between: bool = False
    opened: frozenset[int] = frozenset()

    def reads_all(self, swapped: int) -> bool:
        """True while an open batch reads all of the state, or the next reading goes across the swap."""
        return any(0 < txid <= swapped for txid in self.needs) or any(txid <= swapped for txid in self.opened)


class Upstream(Protocol):
    """The ledger's answers about states, for topologies with spouts on them: `postgres.upstream.upstream` and a twin."""

    def known(self, state: str) -> UpstreamState:
        """Return how far a state is. Raise UnknownName if the state is missing, TerminalError if the past is not kept."""

    def facts(self, states: Collection[str]) -> Mapping[str, UpstreamState]:
        """Return how far several states are, as of one moment; missing states are left out. Raise as `known` does."""

    def readers(self) -> Sequence[UpstreamReader]:
        """Return all streams that read a state."""

    def changes(self, state: str, range_: Metadata, columns: Sequence[str]) -> Iterable[tuple[Any, ...]]:
        """Return columns of the changes in a range of cuts, a row per key. Raise RecordsGone if a cut is not kept."""

    def closings(self, state: str, range_: Metadata) -> Sequence[Closing]:
        """Return the batches of a range that closed windows of a state, by txid."""

    def closed(self, state: str, range_: Metadata, columns: Sequence[str]) -> Iterable[tuple[Any, ...]]:
        """Return columns of the windows closed in a range of cuts, as of the closing. Raise RecordsGone as `changes` does."""

    def reopened(self, state: str, range_: Metadata) -> int | None:
        """Return the first cut as of which a part of a session was closed, for sessions open at a range's end; None without."""

    def rows(self, state: str, txid: int, columns: Sequence[str]) -> Iterable[tuple[Any, ...]]:
        """Return columns of a state as of a cut, a row per key."""

    def positions(self, state: str, after: int) -> Sequence[tuple[int, int]]:
        """Return the positions counted or restated after a txid, each with the last counting txid, in the order of last txids."""

    def counted_in_left(self, state: str, range_: Metadata) -> int | None:
        """Return a range's first txid that may have counted in windows brought back by a rebuild; None if no txid may."""

    def records(self, state: str, position: int, columns: Sequence[str]) -> Iterable[tuple[Any, ...]]:
        """Return columns of a state's records of a position, as of the asking for the first record."""


class ExportedSpout(PartitionedSpout):
    """A spout on the ledger's states. The submitter of an attempt exports the records: Spark gets no password.

    `exported` is the URI of the exported file, in the attempt's folder.
    """

    exported: str | None = None

    @abstractmethod
    def next_range(self, known: UpstreamState, last: Metadata | None) -> Metadata | None:
        """Return the next range after the last, by how far the state is; None if nothing is new."""

    @abstractmethod
    def checked_range(self, known: UpstreamState, range_: Metadata, upstream: Upstream) -> Metadata | None:
        """Return a range to plan, after one look at its records; None if the range has nothing to read."""

    @abstractmethod
    def export(self, upstream: Upstream, ranges: Mapping[str, Metadata]) -> Iterable[tuple[Any, ...]]:
        """Return the records of ranges."""

    def coordinator(self) -> UpstreamCoordinator:
        return UpstreamCoordinator(self)


class UpstreamCoordinator(PartitionedCoordinator):
    """The coordinator of an exported spout, planning by the ledger, `upstream`; `facts` tell how far states are."""

    spout: ExportedSpout
    upstream: Upstream | None = None
    facts: Mapping[str, UpstreamState] = {}

    def ask(self, txid: int, partition: str, last: Metadata | None) -> Metadata | None:
        """Plan the next range. Raise DefinitionError without a ledger, UnknownName if the state is missing."""
        if self.upstream is None:
            raise MissingPart(f"{type(self.spout).__name__} is planned by a ledger, which knows the state; give one")
        known = known_in(self.facts, partition)
        found = self.spout.next_range(known, last)
        return self.spout.checked_range(known, found, self.upstream) if found else None


def known_in(facts: Mapping[str, UpstreamState], state: str) -> UpstreamState:
    """Return how far a state is. Raise UnknownName if the state is missing."""
    if state not in facts:
        raise unknown_state(state)
    return facts[state]


def unknown_state(state: str) -> UnknownName:
    """Return the error for a missing state."""
    return UnknownName(f"no state {state!r} is known: run the job that makes it first; `txbatch status` lists them")


_AS_COUNTED = "batches that read the state before cannot be counted again, and stay unchanged"


def check_known_rows(known: UpstreamState, range_: Metadata, upstream: Upstream) -> None:
    """Raise RecordsGone if a range has a position with pruned rows brought back by a rebuild, and restated after the rebuild.

    Restates since the range was made count as well: a later restate hides the time of an earlier one.
    """
    replaced = replaced_with(known, range_["start"]) if range_["start"] else None
    if replaced is None or replaced == replaced_with(known, range_["end"]) or not pruned_to(replaced.pruned):
        return
    for position, txid in upstream.positions(known.state, replaced.last):
        if has_gone(replaced.pruned, position):
            raise RecordsGone(
                f"position {position} of state {known.state!r} was counted again by txid {txid} after a rebuild, and its rows "
                f"had been pruned before that: the changes for earlier readers are unknown; {ANEW}"
            )


def check_known_windows(known: UpstreamState, range_: Metadata, upstream: Upstream) -> None:
    """Raise RecordsGone if a txid may have counted in windows that had left and were brought back by a rebuild."""
    replaced = replaced_with(known, range_["start"]) if range_["start"] else None
    if replaced is None or replaced == replaced_with(known, range_["end"]) or replaced.left is None:
        return
    if (txid := upstream.counted_in_left(known.state, range_)) is not None:
        raise RecordsGone(
            f"txid {txid} may have counted in windows of state {known.state!r} after a rebuild, although the windows had left "
            f"before: the changes for earlier readers are unknown; {ANEW}"
        )


def check_again(topology: Topology, facts: Mapping[str, UpstreamState], streams: Mapping[str, StreamPlan]) -> None:
    """Raise RecordsGone if a batch to be counted again has read a cut of a state that is not kept any more."""
    for name in exported(topology).keys() & streams.keys():
        for state, range_ in streams[name].ranges.items():
            known = known_in(facts, state)
            check_same(known, range_, _AS_COUNTED)
            check_kept(known, range_, _AS_COUNTED)
            check_gone(known, range_, _AS_COUNTED, again=True)


def check_dated(state: str, database: str | None, *, contributions: bool) -> None:
    """Raise TerminalError if the past of a state is not kept, so that changes are unknown."""
    if database is not None or not contributions:
        where = "without contributions" if database is None else f"apart, in {database!r}"
        raise CannotAsk(
            f"state {state!r} is kept {where}: what changed in it is not known; keep it with contributions, here"
        )


def check_merged(state: str, topology: str, columns: Metadata, jobs: Jobs) -> PersistentAggregate | None:
    """Return the job's definition of a state, if values merge by the job's Python; None if none does.

    Raise TerminalError if the job is not at hand, or defines the state differently: the changes are then unknown.
    """
    own = python_rule(columns)
    if own is None:
        return None
    try:
        return defined(jobs, topology, state, columns)
    except TerminalError as error:
        raise CannotAsk(
            f"state {state!r} merges {own}, which is Python of its job, so changes need the job, and the job cannot be loaded: "
            f"{error}"
        ) from error


def shown_at(known: UpstreamState, txid: int) -> dict[str, str]:
    """Return a state's columns as of a cut, each with the aggregate; only the txid if a generation did not have the state."""
    columns = defined_by(known, replaced_with(known, txid) if txid else None)
    return shown_columns(columns or {"keys": (), "aggregates": {}})


def shown_columns(columns: Metadata) -> dict[str, str]:
    """Return a state's columns as of a cut, each with the aggregate; for a key, an empty text."""
    return {**{name: "" for name, _ in columns["keys"]}, **columns["aggregates"], "txid": ""}


def reshaped(state: str, why: str) -> SchemaMismatch:
    """Return the error for reading a state with changed columns, for example with other types since a rebuild."""
    return SchemaMismatch(f"state {state!r} cannot be read as before: {why}; {AS_READ}")


def check_keys(state: str, keys: Sequence[str], before: Sequence[str]) -> None:
    """Raise RecordsGone if a rebuild gave a state other keys, so that changed keys are unknown."""
    if keys != before:
        raise RecordsGone(
            f"state {state!r} has the key {', '.join(keys)} since a rebuild, had {', '.join(before)}: what changed "
            f"cannot be told; {ANEW}"
        )


def check_columns(known: UpstreamState, fields: Iterable[Field], columns: Sequence[str], of: str = "changes") -> None:
    """Raise SchemaMismatch, with the name of the field, if the columns read `of` a state lack a field."""
    for each in fields:
        if each.name not in columns:
            raise SchemaMismatch(
                f"StateSpout: the {of} of state {known.state!r} have no {each.name!r}; they have {', '.join(columns)}"
            )


def check_asked(state: str, asked: Iterable[str], columns: Collection[str]) -> None:
    """Raise SchemaMismatch if a batch reads columns missing from a state as of the batch's cuts."""
    for name in asked:
        if name not in columns:
            raise SchemaMismatch(
                f"state {state!r} has no {name!r}, which a batch reads; it has {', '.join(columns)}: a value was renamed, or is "
                f"gone, since the batch was planned, or the job reads another one now; {AS_READ}"
            )


def exported(topology: Topology) -> dict[str, ExportedSpout]:
    """Return a topology's spouts on states, by stream."""
    spouts = {name: stream.spout for name, stream in topology.streams.items()}
    return {name: spout for name, spout in spouts.items() if isinstance(spout, ExportedSpout)}


def export(topology: Topology, upstream: Upstream, assignment: Assignment, folder: AttemptFolder) -> None:
    """Write a batch's records from states into the folder of an attempt: a file for each stream."""
    planned, numbers = assignment.plan.streams, stream_numbers(topology)
    for name, spout in exported(topology).items():
        if name in planned:
            records = spout.export(upstream, planned[name].ranges)
            with naming(f"stream {name!r}"):
                folder.write_export(numbers[name], topology.streams[name].fields, records)


def stream_numbers(topology: Topology) -> dict[str, int]:
    """Return the numbers in the names of exported streams' files."""
    return {name: number for number, name in enumerate(exported(topology))}
