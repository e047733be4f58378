"""Retention: which positions are folded into one row a key, and can be restated no more (R22). Decided on values from a ledger.

Up to the horizon every position is folded, with all versions. So no position up to the horizon may have a counting version
above the horizon, or a restate in flight. Reports as of any txid from the horizon on then stay available.

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

# How many txids one transaction folds.
SLICE_TXIDS = 10


@dataclass(frozen=True, slots=True)
class FoldableVersion:
    """A committed version of a position; `replaced_by` is the txid of the next version."""

    position: int
    txid: int
    replaced_by: int | None = None


@dataclass(frozen=True, slots=True)
class Folded:
    """The txids with contributions to remove: the contributions of `counting` txids are folded into the base."""

    counting: tuple[int, ...]
    all: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FoldableHistory:
    """The versions above the horizon of a topology, and the horizon wanted by the policy.

    `pending` has the positions to be replaced by restates in flight, by the restates' txids. `rebuild` is the number of a
    running rebuild. `readers` has, by reading topology, the txid as of which the topology reads a state next.
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
        """The txid up to which the horizon can rise now."""
        if self.rebuild is not None or self.wanted <= self.horizon:
            return self.horizon
        wanted = as_read(self.wanted, self.readers)
        return max(self.horizon, reach(self.versions, wanted, frozenset(self.pending.values())))

    @property
    def waits_for(self) -> str | None:
        """What keeps the horizon below the wanted txid; None if the horizon can rise."""
        if self.reached >= self.wanted:
            return None
        if self.rebuild is not None:
            return f"rebuild {self.rebuild}, which counts what would be folded, to be swapped or cancelled"
        for reader, txid in sorted(self.readers.items()):
            if txid <= self.reached:
                return f"topology {reader!r}, which has read states as of txid {txid}, to run again"
        position = self.reached + 1
        for txid, restated in self.pending.items():
            if restated == position:
                return f"txid {txid}, which is going to count position {position} again"
        late = (each.txid for each in self.versions if each.position == position and each.replaced_by is None)
        txid = next(late, position)
        return f"txid {txid}, which counts position {position} again, to be older"


@dataclass(frozen=True, slots=True)
class Slice:
    """The work of one folding transaction: the new horizon, and the numbers of folded versions, removed rows and attempts.

    `quarantined` is how many records left the topology's quarantine.
    """

    horizon: int
    versions: int
    rows: int
    attempts: int = 0
    quarantined: int = 0


@dataclass(frozen=True, slots=True)
class Final:
    """A committed txid below all open txids. If committed before the time kept by the policy, the txid is `old`."""

    txid: int
    old: bool = False


class Retention(Protocol):
    """The port that folds the past of topologies: `postgres.corrections.retention`, and the twin `tests/twin/retention`."""

    def policies(self) -> Mapping[str, Keep | None]:
        """Return the policy of each topology, as last defined by the job; None keeps everything."""

    def policy(self, topology: str) -> Keep | None:
        """Return the policy of a topology. Raise UnknownName if no such topology is stored."""

    def horizon(self, topology: str) -> int:
        """Return up to which txid all states of the topology are folded. Raise UnknownName if no such topology is stored."""

    def past(self, topology: str, keep: Keep) -> FoldableHistory:
        """Return which versions may be folded by a policy, and what folding waits for. Change nothing."""

    def outlook(self, past: FoldableHistory) -> Slice:
        """Return the slice that folding would give now. Change nothing."""

    def fold(self, topology: str, horizon: int) -> Iterator[Slice]:
        """Fold up to `horizon`, and yield each slice at the commit. Raise TransientError while a rebuild runs."""


def reach(versions: Collection[FoldableVersion], wanted: int, pending: Collection[int]) -> int:
    """Return how far the horizon may rise. `pending` are the positions to be replaced by restates in flight."""
    late = [each for each in versions if each.replaced_by is None and (each.txid > wanted or each.position in pending)]
    below = min((each.position for each in late if each.position <= wanted), default=None)
    return wanted if below is None else reach(versions, below - 1, pending)


def as_read(wanted: int, readers: Mapping[str, int]) -> int:
    """Return how much of the wanted horizon readers allow, so that readers of states find the rows for the next read."""
    return min([wanted, *readers.values()])


def foldable(versions: Collection[FoldableVersion], horizon: int) -> Folded:
    """Return the txids to fold up to a reachable horizon."""
    gone = [each for each in versions if each.txid <= horizon]
    counting = [each.txid for each in gone if each.replaced_by is None]
    return Folded(tuple(sorted(counting)), tuple(sorted(each.txid for each in gone)))


def slices(topology: str, reached: int, horizon: int, fold: Callable[[str, int], Slice]) -> Iterator[Slice]:
    """Fold a topology up to a horizon with `fold`, and yield each slice; each slice has an own transaction."""
    step = SLICE_TXIDS
    while reached < horizon:
        wanted = min(horizon, reached + step)
        done = fold(topology, wanted)
        yield done
        if done.horizon <= reached and wanted == horizon:
            return
        # A position waits for the position's restate: if the restate is far above, the step is longer.
        step = SLICE_TXIDS if done.horizon > reached else 2 * step
        reached = max(reached, done.horizon)


def while_rebuilt(topology: str) -> RetentionWaits:
    """Return the error for folding during a rebuild."""
    return RetentionWaits(
        f"{topology}: a rebuild counts what would be folded; call again when it is swapped or cancelled"
    )


def own_of(topology: str, state: str, columns: Metadata, jobs: Jobs) -> PersistentAggregate | None:
    """Return the job's definition of a state, if values merge by the job's own rules; None if none does.

    Raise NotFoldable if the job is not at hand, or defines the state differently.
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
    """Return up to which txid a policy allows to fold. `final` has the final txids, oldest first.

    >>> wanted(Keep(txids=1), [Final(1), Final(2), Final(4)]), wanted(Keep(days=9), [Final(1, old=True), Final(2)])
    (2, 1)
    """
    txids = [each.txid for each in final]
    if keep.txids is None:
        return newest_to_fold(max((each.txid for each in final if each.old), default=0), txids)
    return newest_to_fold(txids[-1] - keep.txids if txids else 0, txids)


def newest_to_fold(wanted: int, final: Sequence[int]) -> int:
    """Return up to which txid may be folded; 0 for none. The newest final txid always stays as is.

    >>> newest_to_fold(9, [1, 2, 4]), newest_to_fold(1, [1, 2, 4]), newest_to_fold(9, [])
    (2, 1, 0)
    """
    return max((txid for txid in final[:-1] if txid <= wanted), default=0)
