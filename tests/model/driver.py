"""The driver itself, explored: runs that go all the way, die before any call of a port, or are overtaken there by another.

What runs is `txbatch.run` as it is, on the twins in memory. A story is a row of actions; each is carried out whole, but a
run may be stopped before its n-th call of a port, for good, or until something else has happened.

| action | who, and what can go wrong there |
|---|---|
| advance | a commit task, or `txbatch run`: `Advance.to_commit`, then success |
| share | an emit task of a topology that coalesces: `shared_emission.emit` |
| die | the process ends before a call |
| other | another run does the same in between |
| zombie | the leases end in between, and another run does the same: who was first goes on too late |
| abort | an operator frees the lowest open batch in between |
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from model.oracle import require
from support import LogSpout, word_count

from txbatch import SpoutKind
from txbatch.core.batch.transaction import Batch, BatchStatus, Run
from txbatch.core.errors import (
    BrokenChain,
    LeaseHeld,
    NotItsTurn,
    StaleAttempt,
    TerminalError,
    TransientError,
    TxbatchError,
)
from txbatch.core.protocol.coordinator import NothingNew
from txbatch.core.protocol.decisions import Wait
from txbatch.memory.application import MemoryApplication
from txbatch.memory.ledger import MemoryLedger
from txbatch.memory.run_locks import MemoryRunLocks
from txbatch.memory.runner import MemoryJob
from txbatch.memory.staging import MemoryStaging
from txbatch.run import shared_emission
from txbatch.run.advance import Advance, Finished
from txbatch.run.steps import Steps

RUNS = ("r0", "r1")
CALLS_MAX = 60
BETWEEN = ("die", "other", "zombie", "abort")
# How the driver may end but by its answers: its task is tried again, or an operator has interfered.
REFUSALS = (StaleAttempt, TerminalError, TransientError)
Action = tuple[str, str, int, str]


class Died(BaseException):
    """The process is gone: nobody in it notices."""


class Words(LogSpout):
    """A word of its own for each record."""

    def batch(self, plan: Mapping[str, Any]) -> list[tuple[str]]:
        ranges = plan["partitions"].items()
        return [(f"{name} {at}",) for name, of in ranges for at in range(of["start"], of["end"])]


class Watched:
    """A port that says of each call that it is about to be made."""

    def __init__(self, port: Any, about_to: Callable[[], None]) -> None:
        self.port, self.about_to = port, about_to

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.port, name)
        return self._watched(found) if callable(found) else found

    def _watched(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **named: Any) -> Any:
            self.about_to()
            return call(*arguments, **named)

        return watched


@contextmanager
def renewed_once(call: Callable[[], object], *, seconds: float, name: str) -> Iterator[None]:
    """The clock of leases: a sign of life, and then time stands still."""
    call()
    yield


@dataclass(frozen=True, slots=True)
class Node:
    """A state, and the actions that led there."""

    tables: Any
    folders: Any
    story: tuple[Action, ...]


class World:
    """A topology with a record for each batch, and its ledger, staging area and locks in memory."""

    def __init__(self, records: int, max_pending: int, kind: SpoutKind = SpoutKind.TRANSACTIONAL) -> None:
        self.now = datetime(2024, 1, 1, tzinfo=UTC)
        self.ledger = MemoryLedger(clock=lambda: self.now)
        self.staging, self.locks = MemoryStaging(), MemoryRunLocks()
        self.topology = word_count(Words({"a": records}, size=1, kind=kind), "driver", max_pending=max_pending)
        self.job, self.records = MemoryJob(self.topology), records
        self.application = MemoryApplication(self.topology, self.staging)
        self.ledger.register(self.topology, self.job.name)
        self.calls, self.fences, self.answers = 0, dict[int, int](), Counter[str]()
        self.fenced_off = False

    # ---- what may happen

    def do(self, action: Action) -> bool:
        """Carry out an action; False when its run made fewer calls than that."""
        name, who, at, between = action
        self.calls, self.fences = 0, {each.txid: each.fence for each in self.batches()}

        def about_to() -> None:
            self.calls += 1
            if self.calls == at:
                self.happens(name, who, between)

        with suppress(Died):
            self.goes(name, who, about_to)
        require(self.calls < CALLS_MAX, f"{who} comes to no end")
        require(not self.fenced_off, "a first try fenced off what was under way")
        return at <= self.calls

    def happens(self, name: str, who: str, between: str) -> None:
        if between == "die":
            raise Died
        if between == "zombie":
            self.expire()
        if between == "abort":
            txid = next((each.txid for each in self.batches() if not each.status.final), None)
            if txid is not None:
                self.ledger.abort("driver", txid, "wrong")
        else:
            begun = (each for each in self.batches() if each.fence > self.fences.get(each.txid, 0))
            under_way = {each.txid: each.fence for each in begun}  # by this very process
            self.goes(name, next(each for each in RUNS if each != who), lambda: None)
            if (name, between) == ("share", "other"):
                now = {txid: self.ledger.batch("driver", txid).fence for txid in under_way}
                self.fenced_off = self.fenced_off or now != under_way  # an error here would be an attempt's that failed

    def goes(self, name: str, who: str, about_to: Callable[[], None]) -> None:
        """One process of this run, as far as it gets; what the driver answers must be so."""
        ledger, staging = Watched(self.ledger, about_to), Watched(self.staging, about_to)
        steps = Steps(self.job, ledger, staging, self.locks, renewed_once)
        answer: Any
        try:
            answer = getattr(self, name)(steps, Run(who), Watched(self.application, about_to))
        except TxbatchError as error:
            answered = (BrokenChain, LeaseHeld, NotItsTurn)  # by what the driver does next, or by a Wait
            require(isinstance(error, REFUSALS) and not isinstance(error, answered), f"{name} of {who}: {error!r}")
            answer = error
        self.answers[f"{name} {type(answer).__name__}"] += 1

    def advance(self, steps: Steps, run: Run, application: Any) -> Finished | Wait | NothingNew:
        found = Advance(steps, run, application.emit).to_commit()
        match found:
            case Finished(batch):
                require(self.ledger.batch("driver", batch.txid).status is BatchStatus.COMMITTED, f"{batch} is not")
                planned = [
                    word for each in self.batches() for word in self._words(each) if each.status.value != "aborted"
                ]
                require(
                    batch.key == run.key or len(planned) == self.records, f"{run.name} has no batch of its own (R6)"
                )
                steps.success(batch)
            case Wait(batch):
                require(batch.lease_run != run.name, f"{run.name} waits for itself (R6)")
            case NothingNew():
                pass
        return found

    def share(self, steps: Steps, run: Run, application: Any) -> Any:
        found = steps.initialize_transaction(run)
        if not isinstance(found, Batch) or found.status.final:
            return found

        @contextmanager
        def start() -> Iterator[Any]:
            yield application

        answer = shared_emission.emit(steps, found, run, start, first_try=True)
        if isinstance(answer, shared_emission.WaitForOthers):
            require(shared_emission.somebody_emits(self.locks, "driver"), f"{run.name} waits for nobody's application")
        return answer

    def expire(self) -> None:
        """Time passes, and nobody renewed a lease."""
        tables = self.ledger.tables.copy()
        tables.leases = dict.fromkeys(tables.leases, self.now - timedelta(seconds=1))
        self.ledger.tables = tables

    # ---- what must be so

    def batches(self) -> list[Batch]:
        self.ledger.turn_of("driver", 0)  # any transaction looks at the clock
        return self.ledger.tables.batches_of("driver")

    def check(self) -> None:
        """Whatever happened, each record counts as often as it stands in a committed batch: never, or once."""
        batches = self.batches()
        committed = [each for each in batches if each.status is BatchStatus.COMMITTED]
        words = Counter(word for each in committed for word in self._words(each))
        counted = {key[0]: row.value[0] for key, row in self.ledger.rows("driver").items()}
        require(counted == words, f"state is {counted}, committed is {dict(words)} (R9)")
        require(max(words.values(), default=0) <= 1, f"counted twice: {dict(words)}")
        below = max((each.txid for each in committed), default=0)
        require(all(each.status.final for each in batches if each.txid < below), "committed out of order (R6)")
        pending = sum(not each.status.final for each in batches)
        require(pending <= self.topology.max_pending, f"{pending} batches are in flight (R6)")

    def drain(self) -> None:
        """All are gone; new runs come, one after the other: then each record counts."""
        for number in range(4 + 3 * self.records):
            self.expire()
            before = self.answers.copy()
            self.goes("advance", f"fresh {number}", lambda: None)
            if (self.answers - before)["advance NothingNew"]:
                break
        self.check()
        open_ones = [each.txid for each in self.batches() if not each.status.final]
        require(not open_ones, f"nobody brings {open_ones} to an end (R6)")
        require(len(self.ledger.rows("driver")) == self.records, "records were lost")

    def _words(self, batch: Batch) -> list[str]:
        spout: Any = self.topology.streams["words"].spout
        return [word for (word,) in spout.batch(batch.plan.streams["words"].plan)]

    # ---- states

    def node(self, story: tuple[Action, ...]) -> Node:
        return Node(self.ledger.tables, self.staging.folders, story)

    def enter(self, node: Node) -> None:
        self.ledger.tables, self.staging.folders = node.tables, node.folders

    def kind(self) -> Any:
        """All that makes a difference to what may happen: everything but the tokens."""
        batches = tuple(
            (b.txid, b.status, b.key, b.fence, b.lease_run, b.lease_live, b.prev_txid, b.succeeded)
            for b in self.batches()
        )
        plans = tuple(tuple(self._words(batch)) for batch in self.batches())
        folders = sorted((at[1], at[2], content.manifest is not None) for at, content in self.staging.folders.items())
        keys = tuple(sorted(self.ledger.tables.batch_keys.items()))
        return batches, plans, tuple(folders), keys


def explore(world: World, *, attempts: int, actions: tuple[str, ...], depth: int) -> int:
    """Every state within so many actions; returns how many there are. Violation, with its story, for the first that is wrong."""
    start = world.node(())
    seen, todo = {world.kind()}, deque([start])
    while todo:
        node = todo.popleft()
        for child in _children(world, node, actions):
            kind = world.kind()
            if kind in seen:
                continue
            seen.add(kind)
            if len(child.story) < depth and max((b.fence for b in world.batches()), default=0) < attempts:
                todo.append(child)
            _judged(world, child)
    return len(seen)


def _children(world: World, node: Node, actions: tuple[str, ...]) -> Iterator[Node]:
    for name in actions:
        for who in RUNS:
            for between in BETWEEN:
                for at in range(1, CALLS_MAX):
                    action = name, who, at, between
                    world.enter(node)
                    try:
                        came_there = world.do(action)
                    except AssertionError as error:
                        raise AssertionError(f"{error}: {[*node.story, action]}") from None
                    yield world.node((*node.story, action))
                    if not came_there:
                        break


def _judged(world: World, node: Node) -> None:
    try:
        world.enter(node)
        world.check()
        world.drain()
    except AssertionError as error:
        raise AssertionError(f"{error}: {list(node.story)}") from None
    finally:
        world.enter(node)
