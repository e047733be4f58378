"""A state as the source of another topology: what its ledger tells, and how batches are planned by it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from txbatch.core.batch.transaction import Metadata
from txbatch.core.definition.job_rules import Jobs, defined, python_rule
from txbatch.core.errors import CannotAsk, MissingPart, RecordsGone, SchemaMismatch, TerminalError
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
    replaced_with,
)

if TYPE_CHECKING:
    from txbatch.core.batch.plan import StreamPlan
    from txbatch.core.batch.staging import AttemptFolder
    from txbatch.core.batch.transaction import Assignment
    from txbatch.core.records.fields import Field
    from txbatch.core.topology.persistent_aggregate import PersistentAggregate
    from txbatch.core.topology.topology import Topology

# What the identity of a spout says that reads a state; its `state` says which, its `emit` that it reads closed windows.
STATE_SPOUT, CHANGES, FINAL = "StateSpout", "changes", "final"


@dataclass(frozen=True, slots=True)
class UpstreamReader:
    """A stream of `topology` that reads a state of `owner`; `needs` are the cuts from which and to which it reads next.

    `between` says that it reads those between them, too. `opened` are the cuts from which open batches read; 0: all.
    """

    topology: str
    state: str
    owner: str | None
    needs: frozenset[int] = frozenset()
    between: bool = False
    opened: frozenset[int] = frozenset()

    def reads_all(self, swapped: int) -> bool:
        """True while an open batch reads all of the state, or one reads next what was swapped since it was read."""
        return any(0 < txid <= swapped for txid in self.needs) or any(txid <= swapped for txid in self.opened)


class Upstream(Protocol):
    """What a ledger tells of its states to topologies that read them. `postgres.upstream.upstream` is the real one."""

    def known(self, state: str) -> UpstreamState:
        """Return how far a state is. UnknownName when there is none, TerminalError for one whose past is not kept."""

    def readers(self) -> Sequence[UpstreamReader]:
        """Return all streams that read a state."""

    def changes(self, state: str, range_: Metadata, columns: Sequence[str]) -> Iterable[tuple[Any, ...]]:
        """Return these columns of what changed in a range of cuts, a row per key. RecordsGone for a cut that is not kept."""

    def closings(self, state: str, range_: Metadata) -> Sequence[Closing]:
        """Return the batches that closed windows of a state, of those of a range; by their txids."""

    def closed(self, state: str, range_: Metadata, columns: Sequence[str]) -> Iterable[tuple[Any, ...]]:
        """Return these columns of the windows that a range of cuts closed, as of their closing. RecordsGone as of `changes`."""

    def reopened(self, state: str, range_: Metadata) -> int | None:
        """Return the first cut as of which something was closed in a session that is open as of a range's end; None: in none."""

    def fields(self, state: str, txid: int) -> Mapping[str, str]:
        """Return the columns that a state shows as of a cut, each with what is aggregated, of a key nothing."""

    def rows(self, state: str, txid: int, columns: Sequence[str]) -> Iterable[tuple[Any, ...]]:
        """Return these columns of a state as of a cut, a row per key."""

    def positions(self, state: str, after: int) -> Sequence[tuple[int, int]]:
        """Return the positions that were counted, or counted again, after a txid, each with the last txid that did; by that."""

    def counted_in_left(self, state: str, range_: Metadata) -> int | None:
        """Return the first txid of a range that may have counted in windows which a rebuild brought back; None: none."""

    def records(self, state: str, position: int, columns: Sequence[str]) -> Iterable[tuple[Any, ...]]:
        """Return these columns of the records that a state keeps of a position, as they are when the first is asked for."""


class ExportedSpout(PartitionedSpout):
    """A spout of what the ledger keeps. Spark, which gets no password, reads what an attempt's submitter exported for it.

    `exported` is the URI of that file, in the attempt's folder.
    """

    exported: str | None = None

    @abstractmethod
    def next_range(self, upstream: Upstream, last: Metadata | None) -> Metadata | None:
        """Plan the next range after the last one; None for nothing new."""

    @abstractmethod
    def export(self, upstream: Upstream, ranges: Mapping[str, Metadata]) -> Iterable[tuple[Any, ...]]:
        """Return the records of these ranges."""

    def coordinator(self) -> UpstreamCoordinator:
        return UpstreamCoordinator(self)


class UpstreamCoordinator(PartitionedCoordinator):
    """Plans what is exported, of the `upstream` that the ledger is."""

    spout: ExportedSpout
    upstream: Upstream | None = None

    def ask(self, txid: int, partition: str, last: Metadata | None) -> Metadata | None:
        """Plan the next range. DefinitionError where there is no ledger to ask."""
        if self.upstream is None:
            raise MissingPart(f"{type(self.spout).__name__} is planned by a ledger, which knows the state; give one")
        return self.spout.next_range(self.upstream, last)


_AS_COUNTED = "a batch that read it then cannot be counted again, and stays as it is"


def check_known_rows(known: UpstreamState, range_: Metadata, upstream: Upstream) -> None:
    """RecordsGone where a range has a position counted again since a rebuild brought its rows back, which had been pruned.

    A position may have been counted again once more since the range was made: that hides when it was before.
    """
    replaced = replaced_with(known, range_["start"]) if range_["start"] else None
    if replaced is None or replaced == replaced_with(known, range_["end"]) or not pruned_to(replaced.pruned):
        return
    for position, txid in upstream.positions(known.state, replaced.last):
        if has_gone(replaced.pruned, position):
            raise RecordsGone(
                f"position {position} of state {known.state!r} was counted again by txid {txid} after a rebuild, and its rows "
                f"had been pruned before that: nobody knows what changed for who had read them; {ANEW}"
            )


def check_known_windows(known: UpstreamState, range_: Metadata, upstream: Upstream) -> None:
    """RecordsGone where something was counted in windows since a rebuild brought them back, which had left before that."""
    replaced = replaced_with(known, range_["start"]) if range_["start"] else None
    if replaced is None or replaced == replaced_with(known, range_["end"]) or replaced.left is None:
        return
    if (txid := upstream.counted_in_left(known.state, range_)) is not None:
        raise RecordsGone(
            f"txid {txid} may have counted in windows of state {known.state!r} after a rebuild, which had left it before that: "
            f"nobody knows what changed for who had read them; {ANEW}"
        )


def check_again(topology: Topology, upstream: Upstream, streams: Mapping[str, StreamPlan]) -> None:
    """RecordsGone for what a batch, which is to be counted again, read of states and is not kept any more."""
    for name in exported(topology).keys() & streams.keys():
        for state, range_ in streams[name].ranges.items():
            known = upstream.known(state)
            check_same(known, range_, _AS_COUNTED)
            check_kept(known, range_, _AS_COUNTED)
            check_gone(known, range_, _AS_COUNTED, again=True)


def check_dated(state: str, database: str | None, *, contributions: bool) -> None:
    """TerminalError for a state whose past is not kept: nobody can say what changed in it."""
    if database is not None or not contributions:
        where = "without contributions" if database is None else f"apart, in {database!r}"
        raise CannotAsk(
            f"state {state!r} is kept {where}: what changed in it is not known; keep it with contributions, here"
        )


def check_merged(state: str, topology: str, columns: Metadata, jobs: Jobs) -> PersistentAggregate | None:
    """Return the state as its job defines it, where Python of that merges values; None: none does.

    TerminalError where the job is not at hand, or defines the state otherwise: what changed in it is not known.
    """
    own = python_rule(columns)
    if own is None:
        return None
    try:
        return defined(jobs, topology, state, columns)
    except TerminalError as error:
        raise CannotAsk(
            f"state {state!r} merges {own}, which is Python of its job, and so what changed in it is known with that alone: "
            f"{error}"
        ) from error


def shown_columns(columns: Metadata) -> dict[str, str]:
    """Return the columns that a state shows as of a cut, each with what is aggregated, of a key nothing."""
    return {**{name: "" for name, _ in columns["keys"]}, **columns["aggregates"], "txid": ""}


def reshaped(state: str, why: str) -> SchemaMismatch:
    """Return the error of reading a state whose columns are not what they were, as where a rebuild has given them other types."""
    return SchemaMismatch(f"state {state!r} cannot be read as it was: {why}; {AS_READ}")


def check_keys(state: str, keys: Sequence[str], before: Sequence[str]) -> None:
    """RecordsGone when a rebuild gave a state other keys: nobody can say which of them changed."""
    if keys != before:
        raise RecordsGone(
            f"state {state!r} has the key {', '.join(keys)} since a rebuild, had {', '.join(before)}: what changed "
            f"cannot be told; {ANEW}"
        )


def check_columns(known: UpstreamState, fields: Iterable[Field], columns: Sequence[str], of: str = "changes") -> None:
    """SchemaMismatch names a field that what is read `of` a state does not have among its columns."""
    for each in fields:
        if each.name not in columns:
            raise SchemaMismatch(
                f"StateSpout: the {of} of state {known.state!r} have no {each.name!r}; they have {', '.join(columns)}"
            )


def check_asked(state: str, asked: Iterable[str], columns: Collection[str]) -> None:
    """SchemaMismatch where a batch is to read columns that a state does not have any more, as of the cuts that it reads."""
    for name in asked:
        if name not in columns:
            raise SchemaMismatch(
                f"state {state!r} has no {name!r}, which a batch reads; it has {', '.join(columns)}: a value was renamed, or is "
                f"gone, since the batch was planned, or the job reads another one now; {AS_READ}"
            )


def exported(topology: Topology) -> dict[str, ExportedSpout]:
    """Return the spouts of a topology that read states, by stream."""
    spouts = {name: stream.spout for name, stream in topology.streams.items()}
    return {name: spout for name, spout in spouts.items() if isinstance(spout, ExportedSpout)}


def export(topology: Topology, upstream: Upstream, assignment: Assignment, folder: AttemptFolder) -> None:
    """Write what a batch takes from states into the folder of an attempt: a file for each of its streams."""
    planned, numbers = assignment.plan.streams, stream_numbers(topology)
    for name, spout in exported(topology).items():
        if name in planned:
            records = spout.export(upstream, planned[name].ranges)
            with naming(f"stream {name!r}"):
                folder.write_export(numbers[name], topology.streams[name].fields, records)


def stream_numbers(topology: Topology) -> dict[str, int]:
    """Return the numbers by which the files of exported streams are named."""
    return {name: number for number, name in enumerate(exported(topology))}
