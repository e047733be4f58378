"""All states that can be reached, breadth first: the first violation found has the shortest story."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from model.choices import choices
from model.drain import drain
from model.ledgers import MemoryView
from model.oracle import Violation, check, check_still_final, require
from model.source import Size
from model.story import Action, Story, do
from model.symmetry import Symmetry, every_run, runs_apart

from txbatch.memory.ledger import MemoryLedger

Trace = tuple[Action, Any] | None


@dataclass
class Report:
    """What was covered."""

    size: Size
    states: int = 0
    transitions: int = 0
    depth: int = 0
    drained: int = 0
    seconds: float = 0.0
    capped: bool = False
    answers: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        covered = "CAPPED, not all states" if self.capped else "all states"
        refused = ", ".join(f"{name} {count:,}" for name, count in self.answers.most_common())
        return (
            f"{self.size}\n  {covered}: {self.states:,} states, {self.transitions:,} transitions, depth {self.depth}, "
            f"{self.drained:,} states drained to the end, {self.seconds:.1f} s of CPU\n  refused: {refused}"
        )


@dataclass(frozen=True, slots=True)
class Node:
    """A state to go on from, and the actions that led there, newest first."""

    tables: Any
    works: Any
    slow: Any
    lengths: Any
    there: Any
    astray: Any
    trace: Trace
    depth: int
    fingerprint: bytes


class Explorer:
    """Explores one size. `drain_every` n: of about every n-th state it is seen that the story ends well. `exact`: nothing
    counts as the same but what is, so that `kinds` says whether `symmetry` was right to.
    """

    def __init__(
        self,
        size: Size,
        ledger: type[MemoryLedger] = MemoryLedger,
        *,
        states: int | None = None,
        drain_every: int = 10,
        exact: bool = False,
    ) -> None:
        self.story = Story(size, MemoryView(ledger))
        self.states, self.drain_every = states, drain_every
        self.report = Report(size)
        self.symmetry, self.exact = Symmetry(self.story), exact
        self.kinds: set[bytes] = set()

    def all_states(self) -> Report:
        """Every state, or as many as are allowed; raises Violation."""
        began = time.process_time()
        start = self.node(None, 0)
        seen, todo = {start.fingerprint}, deque([start])
        while todo and not self.report.capped:
            node = todo.popleft()
            for child in self.expand(node):
                if child.fingerprint not in seen:
                    seen.add(child.fingerprint)
                    self.enter(child)
                    self.kinds.add(self.symmetry.digest() if self.exact else child.fingerprint)
                    self.judge(node, child)
                    todo.append(child)
            self.report.depth = node.depth
            self.report.capped = self.states is not None and len(seen) > self.states
        self.report.states, self.report.seconds = len(seen), time.process_time() - began
        return self.report

    def walks(self, seed: int, count: int, steps: int) -> Report:
        """Seeded random walks, for sizes with too many states."""
        began, random, start, seen = time.process_time(), Random(seed), self.node(None, 0), set()
        for _ in range(count):
            node = start
            for _ in range(steps):
                self.enter(node)
                child = self.step(node, random.choice(list(self.actions())))
                if child is not None:
                    seen.add(child.fingerprint)
                    self.judge(node, child)
                    node = child
            self.report.depth = max(self.report.depth, node.depth)
        self.report.states, self.report.seconds, self.report.capped = len(seen), time.process_time() - began, True
        return self.report

    def expand(self, node: Node) -> Iterator[Node]:
        """Each state one action away, while the story stands there."""
        self.enter(node)
        before = self.symmetry.digest(exact=True)
        for action in list(self.actions()):
            child = self.step(node, action)
            if child is not None:
                yield child
        self.enter(node)
        if self.symmetry.digest(exact=True) != before:
            raise Violation("a transaction changed what others see of the ledger before it ended")

    def actions(self) -> Iterator[Action]:
        """What the state offers."""
        self.story.ledger.turn_of(self.story.name, 0)  # any transaction looks at the clock
        batches = self.story.ledger.tables.batches_of(self.story.name)
        return choices(self.story, batches, every_run if self.exact else runs_apart)

    def step(self, node: Node, action: Action) -> Node | None:
        """The state after an action; None when it was refused, and so changed nothing."""
        self.enter(node)
        self.report.transitions += 1
        try:
            error = do(self.story, action)
            if error is None:
                self.final_ones(node)
                self.latecomers(node)
        except Violation as violation:
            raise told(violation, (action, node.trace)) from None
        if error is not None:
            self.report.answers[type(error).__name__] += 1
        if error is not None or self.unchanged(node):
            return None
        return self.node((action, node.trace), node.depth + 1)

    def final_ones(self, node: Node) -> None:
        """What was final is as it was, also where the state is the same otherwise."""
        for at, batch in node.tables.batches.items():
            now = self.story.ledger.tables.batches[at]
            if batch.status.final and now is not batch:
                same = replace(now, succeeded=batch.succeeded, lease_live=batch.lease_live)
                require(same == batch, f"txid {batch.txid} was final as {batch}, and is now {now}")

    def latecomers(self, node: Node) -> None:
        """Whoever is too late from now on tries at once, and must change nothing: ever later, he would find the same.

        That is what lets states be one that differ only in what such processes know.
        """
        self.story.wake_if_too_late()
        story, was = self.story, node.tables.batches
        for at, batch in story.ledger.tables.batches.items():
            if not batch.status.final or (at in was and was[at].status.final):
                continue
            exactly = self.symmetry.digest(exact=True)
            here = Node(*self.here(), None, 0, exactly)
            for number, work in enumerate(story.works.get(batch.txid, ())):
                for action in (("emit", (batch.txid, number)), ("renew", (batch.txid, number))):
                    do(story, action)
                if work.read is not None:
                    do(story, ("commit", (batch.txid, number)))
            if self.symmetry.digest(exact=True) != exactly or story.works != here.works:
                raise Violation(f"an attempt of txid {batch.txid} changed something when it was {batch.status} (R5)")
            self.enter(here)

    def unchanged(self, node: Node) -> bool:
        """Whether the story still stands there, for certain."""
        now, slow, lengths = self.story.ledger.tables, self.story.slow, self.story.source.lengths
        there, astray = self.story.ledger.warehouses.states, self.story.astray
        beside = slow is node.slow and lengths == node.lengths and there == node.there and astray == node.astray
        return self.story.works is node.works and beside and now == node.tables

    def judge(self, before: Node, node: Node) -> None:
        """Every invariant, in a state that the story stands in for the first time."""
        try:
            seen = self.story.view.seen(self.story.name)
            check(seen, self.story.read, self.story.source, self.story.size.max_pending)
            self.enter(before)
            check_still_final(self.story.view.seen(self.story.name).final(), seen.final())
            if int.from_bytes(node.fingerprint[:4]) % self.drain_every == 0:
                self.enter(node)
                self.report.drained += 1
                drain(self.story)
        except Violation as violation:
            raise told(violation, node.trace) from None

    def node(self, trace: Trace, depth: int) -> Node:
        """Where the story stands. Nothing of it is ever changed in place."""
        return Node(*self.here(), trace, depth, self.symmetry.digest(exact=self.exact))

    def here(self) -> tuple[Any, ...]:
        """All of which a state consists."""
        story = self.story
        there = story.ledger.warehouses.states
        return story.ledger.tables, story.works, story.slow, story.source.lengths, there, story.astray

    def enter(self, node: Node) -> None:
        """Stand there again."""
        story = self.story
        story.ledger.tables, story.works, story.slow = node.tables, node.works, node.slow
        story.source.lengths = dict(node.lengths)
        story.ledger.warehouses.states, story.astray = node.there, node.astray


def told(violation: Violation, trace: Trace) -> Violation:
    """The violation with the story that led to it."""
    story = []
    while trace is not None:
        (name, arguments), trace = trace
        story.append(f"{name}({', '.join(map(str, arguments))})")
    return Violation(f"{violation}\n" + "\n".join(f"  {n}. {line}" for n, line in enumerate(reversed(story), 1)))
