"""Everything that can happen to a topology, one action at a time. Each is carried out by the real coordinator and ledger.

No action remembers which process it belongs to: whatever was ever known to anyone may be said at any later time. So a
crash needs no action of its own (nobody goes on, and the lease ends), a retry is the same action again, and a zombie is
one that comes late. An outage is a parameter of reading and planning: only who looks can tell that a partition is away.

| action | who, and what can go wrong there |
|---|---|
| initialize | the task of that name finds its batch, adopts an abandoned one, or plans; partitions may be away |
| look, wake, crash | the same in slow motion: it stalls before it stores or adopts, and goes on too late, or never |
| turn | a commit task finds nobody looking after the txid below its own, and adopts it |
| attempt | emit_batch takes an attempt; from now on every older one is a zombie |
| emit | an attempt reads (but for partitions that are away) and offers its manifest: the newest, or a zombie |
| renew | an attempt says that it is alive: the newest, or a zombie |
| commit | a commit task that has loaded the work of some attempt, long ago perhaps, applies it |
| success | the success task, early, twice, late |
| expire | a run is dead or cut off: its lease ends |
| abort, skip | an operator frees a batch's records, or gives them up |
| stray, arrive, forget | a commit is cut off from the ledger that let it pass: it gets to the warehouse late, or never |
| cut | an abort that dies between the warehouse and the ledger |
| appear | a partition that was not there before |
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from model.ledgers import View
from model.oracle import Read, ranges_of, require
from model.source import STREAM, Record, Size, Source, records_of, topology_of
from support import Keyed, code, manifest_of, read_all, run

from txbatch import SpoutKind
from txbatch.core.batch.apart import LedgerView
from txbatch.core.batch.manifest import Manifest, StagedState
from txbatch.core.batch.transaction import Assignment, Batch, BatchStatus, Metadata, Run
from txbatch.core.errors import (
    AlreadyCommitted,
    BatchAborted,
    BrokenChain,
    CannotSkip,
    HalfCommitted,
    LeaseHeld,
    NotEmitted,
    NotItsTurn,
    PartitionUnreadable,
    StaleAttempt,
    StateAhead,
    TakenBack,
    TxbatchError,
    UnknownName,
)
from txbatch.core.protocol import coordinator
from txbatch.core.protocol.commit import StatePlan
from txbatch.core.protocol.ledger import Head
from txbatch.core.topology.topology import Topology
from txbatch.failpoints import FailpointReached
from txbatch.memory.ledger import MemoryLedger

CODE = code()
# How the protocol may refuse an action here. Any other error is a fault: every worker is honest.
REFUSALS = {
    AlreadyCommitted,
    BatchAborted,
    CannotSkip,
    NotEmitted,
    HalfCommitted,
    StaleAttempt,
    TakenBack,
    BrokenChain,
    LeaseHeld,
    NotItsTurn,
    PartitionUnreadable,
    UnknownName,
}


@dataclass(frozen=True, slots=True)
class Work:
    """What one attempt was told, and, once its manifest was taken: the batch as it was then, and the records it read."""

    assignment: Assignment
    batch: Batch | None = None
    read: frozenset[Record] | None = None


@dataclass(frozen=True, slots=True)
class Slow:
    """A run's initialize that stalls just before it changes the ledger: `metadata` None means before it adopts."""

    run: str
    at: Head | Batch
    metadata: Metadata | None = None


class Stalled(Exception):
    """Carries what a stalled process still means to do."""

    def __init__(self, slow: Slow) -> None:
        self.slow = slow


class StallingLedger:
    """Lets the real coordinator look, and stops it where it would change something."""

    def __init__(self, story: Story) -> None:
        self.head, self.upstream = story.view.ledger.head, story.view.ledger.upstream

    def plan(self, head: Head, run: Run, metadata: Metadata, topology: Topology) -> Batch | None:
        raise Stalled(Slow(run.name, head, metadata))

    def adopt(self, batch: Batch, run: Run) -> Batch | None:
        raise Stalled(Slow(run.name, batch))


class Story:
    """One topology: its source, its ledger, and all that processes, dead or alive, may still know."""

    def __init__(self, size: Size, view: View, name: str = "model", topology: Topology | None = None) -> None:
        self.size, self.view, self.ledger = size, view, view.ledger
        self.topology = topology or topology_of(size, Source(size), name)
        self.name = self.topology.name
        self.source: Any = self.topology.streams[STREAM].spout
        self.works: dict[int, tuple[Work, ...]] = {}
        self.slow: Slow | None = None
        self.astray: tuple[int, int] | None = None
        self._manifests: dict[Any, Manifest] = {}
        self.ledger.register(self.topology, "jobs/model.py")

    @property
    def read(self) -> Read:
        """What each attempt has read, for the oracle."""
        return {txid: tuple((each.assignment.token, each.read) for each in works) for txid, works in self.works.items()}

    def run(self, name: str) -> Run:
        """The run of that name."""
        return run(name)

    # ---- initialize_transaction

    def initialize(self, name: str, away: Collection[str] = ()) -> Any:
        """The run's batch, or why there is none."""
        self.source.away = away
        return coordinator.initialize_transaction(self.ledger, self.topology, self.run(name))

    def look(self, name: str, away: Collection[str] = ()) -> None:
        """It sees what is to be done."""
        self.source.away = away
        try:
            coordinator.initialize_transaction(StallingLedger(self), self.topology, self.run(name))  # type: ignore[arg-type]
        except Stalled as stalled:
            self.slow = stalled.slow

    def wake(self) -> Batch | None:
        """It does what it saw, however late: the ledger must notice, and gives nothing."""
        slow, self.slow = self.slow, None
        assert slow is not None
        if isinstance(slow.at, Batch):
            return self.ledger.adopt(slow.at, self.run(slow.run))
        assert slow.metadata is not None
        return self.ledger.plan(slow.at, self.run(slow.run), slow.metadata, self.topology)

    def crash(self) -> None:
        """It forgets everything."""
        self.slow = None

    def wake_if_too_late(self) -> None:
        """Let it fail now when its txid is taken, or the batch it means to adopt is over: later it would find the same."""
        at = self.slow.at if self.slow else None
        if isinstance(at, Head):
            hopeless = at.next_txid <= len(self.view.seen(self.name).batches)
        else:
            hopeless = at is not None and self.ledger.batch(self.name, at.txid).status.final
        if hopeless:
            require(self.wake() is None, "a plan or an adoption went through that came too late (R1, R6)")

    def turn(self, name: str) -> None:
        """A run that has a batch adopts the one it waits for, when nobody looks after that."""
        own = self.ledger.head(self.name, run(name)).own
        if own is None or own.status.final:
            return
        coordinator.take_turn(self.ledger, own, run(name))
        found = self.ledger.head(self.name, run(name)).own
        require(found is not None and found.txid == own.txid, f"{name} adopted, and lost its own txid {own.txid} (R2)")

    # ---- emit_batch

    def attempt(self, name: str, txid: int) -> None:
        """A new attempt."""
        assignment = self.ledger.start_attempt(self.ledger.batch(self.name, txid), self.run(name), CODE)
        self.works = {**self.works, txid: (*self.works.get(txid, ()), Work(assignment))}

    def emit(self, txid: int, number: int, away: Collection[str] = ()) -> None:
        """An attempt reads what there is, and the ledger takes its manifest, or refuses it."""
        work = self.works[txid][number]
        plan = work.assignment.plan.streams[STREAM].ranges
        if self.size.kind is SpoutKind.TRANSACTIONAL and not plan.keys().isdisjoint(away):
            self.ledger.fail_attempt(work.assignment, "away")  # R12: no hole, the same again later
            raise PartitionUnreadable("away")
        read = records_of(plan, away)
        batch = self.ledger.record_manifests([(work.assignment, self.manifest(work.assignment, away))])[0]
        self._only_the_newest(txid, number, "its manifest was taken")
        works = list(self.works[txid])
        works[number] = replace(work, batch=batch, read=read)
        self.works = {**self.works, txid: tuple(works)}

    def manifest(self, assignment: Assignment, away: Collection[str]) -> Manifest:
        """What an honest attempt says: the same whenever it does."""
        at = assignment.attempt, assignment.token, assignment.digest, frozenset(away)
        if at not in self._manifests:
            self._manifests[at] = self._manifest(assignment, away)
        return self._manifests[at]

    def _manifest(self, assignment: Assignment, away: Collection[str]) -> Manifest:
        """A record's fingerprint follows from where it stands."""
        plan = assignment.plan.streams[STREAM]
        read = {name: each for name, each in read_all(assignment)[STREAM].items() if name not in away}
        holes = {**plan.unreadable, **{name: "away" for name in plan.ranges if name in away}}
        partials = {self.name: self.source.partials(records_of(plan.ranges, away))}
        unreadable = {STREAM: holes} if holes else {}
        return manifest_of(self.topology, assignment, partials, streams={STREAM: read}, unreadable=unreadable)

    def renew(self, txid: int, number: int) -> None:
        """An attempt's run is alive."""
        if self.ledger.renew_lease(self.works[txid][number].assignment):
            self._only_the_newest(txid, number, "its lease was renewed")

    # ---- commit, success

    def commit(self, txid: int, number: int) -> bool:
        """Apply the work of an attempt whose manifest was taken once; what does not continue is aborted, as the task does.

        Whether the batch is committed afterwards.
        """
        work = self.works[txid][number]
        assert work.batch is not None
        partials = self.view.as_partials(self.topology, self.staged(work))
        try:
            committed = self.ledger.commit(self.topology, work.batch, partials)
        except BrokenChain as error:
            self.ledger.abort(self.name, txid, str(error))
            return False
        if committed.applied:
            self._only_the_newest(txid, number, "its work was applied")
        return True

    def staged(self, work: Work) -> list[Keyed]:
        """What the attempt's files hold."""
        assert work.read is not None
        partials: list[Keyed] = self.source.partials(work.read)
        return partials

    # ---- a state apart: what happens between two databases

    def stray(self, txid: int, number: int) -> None:
        """A commit passes every check of the ledger, and is cut off from it before it gets to the warehouse."""
        if dies("commit.loaded", lambda: self.commit(txid, number)):
            self.astray = txid, number

    def arrive(self) -> None:
        """It gets there, however late: only the warehouse can notice. Arriving at once is a crash between both commits."""
        assert self.astray is not None
        (txid, number), self.astray = self.astray, None
        work = self.works[txid][number]
        assert work.read is not None
        partials = {self.name: self.source.partials(work.read)}
        (aggregate,) = self.topology.aggregates
        states = [StatePlan(aggregate, StagedState((), len(partials[self.name]), {}))]
        memory: MemoryLedger = self.ledger
        with suppress(StaleAttempt, StateAhead, TakenBack):
            memory.warehouses.commit(memory.uuid, work.assignment, states, partials, lambda *_: LedgerView())

    def forget(self) -> None:
        """It never gets there."""
        self.astray = None

    def cut(self, txid: int) -> None:
        """An abort dies when the warehouse has taken back what the batch wrote."""
        dies("abort.apart_committed", lambda: self.ledger.abort(self.name, txid, "wrong"))

    def success(self, txid: int) -> None:
        """Tell the world."""
        self.ledger.success(self.name, txid)
        status = self.ledger.batch(self.name, txid).status
        require(status is BatchStatus.COMMITTED, f"success of txid {txid}, which is {status} (R8)")

    # ---- what befalls a batch

    def expire(self, txid: int) -> None:
        """Its lease ends."""
        self.view.end_lease(self.name, txid)

    def abort(self, txid: int) -> None:
        """An operator frees its records."""
        self.ledger.abort(self.name, txid, "wrong")

    def skip(self, txid: int) -> None:
        """An operator gives its records up."""
        given_up = self.ledger.skip(self.name, txid, "poison")
        names = ranges_of(self.ledger.batch(self.name, txid)), ranges_of(given_up)
        require(names[0] == names[1], f"skip of txid {txid} gave up other records: {names} (R16)")

    def appear(self, partition: str) -> None:
        """A partition is there for the first time."""
        self.source.appear(partition)

    def _only_the_newest(self, txid: int, number: int, what: str) -> None:
        newest = len(self.works[txid]) - 1
        require(
            number == newest, f"of txid {txid} attempt {number + 1} is not the newest, {newest + 1} is; but {what} (R5)"
        )


def dies(point: str, call: Callable[[], Any]) -> bool:
    """Whether a process came to this point, where it died."""
    os.environ["TXBATCH_FAILPOINTS"] = f"{point}=raise"
    try:
        call()
    except FailpointReached:
        return True
    finally:
        del os.environ["TXBATCH_FAILPOINTS"]
    return False


Action = tuple[str, tuple[Any, ...]]


def do(story: Story, action: Action) -> TxbatchError | None:
    """Carry out an action; a refusal is an answer too."""
    name, arguments = action
    method: Callable[..., Any] = getattr(story, name)
    try:
        method(*arguments)
    except TxbatchError as error:
        require(type(error) in REFUSALS, f"{name}{arguments}: {error!r}")
        return error
    return None
