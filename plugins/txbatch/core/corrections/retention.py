"""Retention: which positions are folded into one row a key, and can be restated no more (R22). Decided on what a ledger has read.

Up to the horizon every position is folded, with all its versions; so none of them may have a version above it that counts, nor
be waited for by a restate in flight. What reports showed at any txid from the horizon on can then still be asked for.

>>> versions = [FoldableVersion(1, 1), FoldableVersion(2, 2, replaced_by=4), FoldableVersion(3, 3), FoldableVersion(2, 4)]
>>> reach(versions, 3, pending=()), reach(versions, 4, pending=()), reach(versions, 4, pending={3})
(1, 4, 1)
>>> foldable(versions, 4)
Folded(counting=(1, 3, 4), all=(1, 2, 3, 4))
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from txbatch.core.batch.transaction import Metadata
from txbatch.core.definition.job_rules import Jobs, defined, own_rule
from txbatch.core.errors import NotFoldable, RetentionWaits, TerminalError
from txbatch.core.state.keep import Keep
from txbatch.core.topology.persistent_aggregate import PersistentAggregate

# As many txids are folded by one transaction.
SLICE_TXIDS = 10


@dataclass(frozen=True, slots=True)
class FoldableVersion:
    """A committed version of a position; `replaced_by` is the txid that counts in its place since."""

    position: int
    txid: int
    replaced_by: int | None = None


@dataclass(frozen=True, slots=True)
class Folded:
    """Txids whose contributions go: of those that are `counting` they are folded into the base."""

    counting: tuple[int, ...]
    all: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Past:
    """What a ledger has above the horizon of a topology, and how far its policy wants that to rise.

    `pending` are the positions that restates in flight are going to replace, by their txids. `rebuild` is the one that runs.
    `readers` says, by topology that reads a state of this one, as of which txid it reads next.
    """

    topology: str
    horizon: int
    wanted: int
    versions: Collection[FoldableVersion] = ()
    pending: Mapping[int, int] = field(default_factory=dict)
    rebuild: int | None = None
    readers: Mapping[str, int] = field(default_factory=dict)

    @property
    def reached(self) -> int:
        """How far the horizon can rise now."""
        if self.rebuild is not None or self.wanted <= self.horizon:
            return self.horizon
        wanted = as_read(self.wanted, self.readers)
        return max(self.horizon, reach(self.versions, wanted, frozenset(self.pending.values())))

    @property
    def waits_for(self) -> str | None:
        """What keeps it from what is wanted; None: nothing does."""
        if self.reached >= self.wanted:
            return None
        if self.rebuild is not None:
            return f"rebuild {self.rebuild}, which counts what would be folded, to be swapped or cancelled"
        for reader, txid in sorted(self.readers.items()):
            if txid <= self.reached:
                return f"topology {reader!r}, which has read its states as of txid {txid} and needs them until it has run again"
        position = self.reached + 1
        for txid, restated in self.pending.items():
            if restated == position:
                return f"txid {txid}, which is going to count position {position} again"
        late = (each.txid for each in self.versions if each.position == position and each.replaced_by is None)
        txid = next(late, position)
        return f"txid {txid}, which counts position {position} again, to be older"


@dataclass(frozen=True, slots=True)
class Slice:
    """What one transaction folded: up to which txid, of how many versions, and how many rows and failed attempts went.

    `quarantined` is how many records left the topology's quarantine.
    """

    horizon: int
    versions: int
    rows: int
    attempts: int = 0
    quarantined: int = 0


@dataclass(frozen=True, slots=True)
class Final:
    """A committed txid below all that are open; `old`: it was committed before what a policy keeps by time."""

    txid: int
    old: bool = False


class Retention(Protocol):
    """What folds the past of topologies. `postgres.corrections.retention` is the real one, `tests/twin/retention` its twin."""

    def policies(self) -> Mapping[str, Keep | None]:
        """Return what each topology keeps, as its job last said; None: everything."""

    def policy(self, topology: str) -> Keep | None:
        """Return what a topology keeps. UnknownName when there is no such topology."""

    def horizon(self, topology: str) -> int:
        """Return up to which txid all states of the topology are folded. UnknownName when there is no such topology."""

    def past(self, topology: str, keep: Keep) -> Past:
        """Return what may be folded, so that this is kept, and what that waits for. Changes nothing."""

    def outlook(self, past: Past) -> Slice:
        """Return what folding would come to now. Changes nothing."""

    def fold(self, topology: str, horizon: int) -> Iterator[Slice]:
        """Fold up to this txid, and yield each slice as it is committed. TransientError while a rebuild runs."""


def reach(versions: Collection[FoldableVersion], wanted: int, pending: Collection[int]) -> int:
    """Return how far the horizon may rise. `pending` are the positions that a restate in flight is going to replace."""
    late = [each for each in versions if each.replaced_by is None and (each.txid > wanted or each.position in pending)]
    below = min((each.position for each in late if each.position <= wanted), default=None)
    return wanted if below is None else reach(versions, below - 1, pending)


def as_read(wanted: int, readers: Mapping[str, int]) -> int:
    """Return how much of what is wanted may be folded, so that readers of states find what they read next."""
    return min([wanted, *readers.values()])


def foldable(versions: Collection[FoldableVersion], horizon: int) -> Folded:
    """Return what is folded up to a horizon that can be reached."""
    gone = [each for each in versions if each.txid <= horizon]
    counting = [each.txid for each in gone if each.replaced_by is None]
    return Folded(tuple(sorted(counting)), tuple(sorted(each.txid for each in gone)))


def slices(topology: str, reached: int, horizon: int, fold: Callable[[str, int], Slice]) -> Iterator[Slice]:
    """Yield what `fold` folds of a topology up to a horizon, each slice in a transaction of its own."""
    step = SLICE_TXIDS
    while reached < horizon:
        wanted = min(horizon, reached + step)
        done = fold(topology, wanted)
        yield done
        if done.horizon <= reached and wanted == horizon:
            return
        # A position waits for the restate that replaced it: where that is far above, the step is longer.
        step = SLICE_TXIDS if done.horizon > reached else 2 * step
        reached = max(reached, done.horizon)


def while_rebuilt(topology: str) -> RetentionWaits:
    """Return the error of folding what a rebuild counts."""
    return RetentionWaits(
        f"{topology}: a rebuild counts what would be folded; call again when it is swapped or cancelled"
    )


def own_of(topology: str, state: str, columns: Metadata, jobs: Jobs) -> PersistentAggregate | None:
    """Return the state as its job defines it, where values merge by rules of its own; None: none does.

    NotFoldable where that job is not at hand, or defines the state otherwise.
    """
    own = own_rule(columns)
    if own is None:
        return None
    try:
        return defined(jobs, topology, state, columns)
    except TerminalError as error:
        raise NotFoldable(
            f"{topology}: state {state!r} merges {own}, a rule of its job's own, by which gc folds with that job alone: {error}"
        ) from error


def wanted(keep: Keep, final: Sequence[Final]) -> int:
    """Return up to which txid may be folded, so that this is kept of what is final, oldest first.

    >>> wanted(Keep(txids=1), [Final(1), Final(2), Final(4)]), wanted(Keep(days=9), [Final(1, old=True), Final(2)])
    (2, 1)
    """
    txids = [each.txid for each in final]
    if keep.txids is None:
        return newest_to_fold(max((each.txid for each in final if each.old), default=0), txids)
    return newest_to_fold(txids[-1] - keep.txids if txids else 0, txids)


def newest_to_fold(wanted: int, final: Sequence[int]) -> int:
    """Return up to which txid may be folded: the newest final one always stays as it is; 0: none.

    >>> newest_to_fold(9, [1, 2, 4]), newest_to_fold(1, [1, 2, 4]), newest_to_fold(9, [])
    (2, 1, 0)
    """
    return max((txid for txid in final[:-1] if txid <= wanted), default=0)
