"""Histories of a topology whose states others read, and look up in: whatever is restated, rebuilt, pruned or renamed between.

What readers are told adds up: a key never comes twice, nor as new, and each attempt is given the same. `met` counts which
capabilities befell one word, pair by pair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from random import Random
from typing import Any
from uuid import uuid4

from contract.test_restate import restate_of
from support import LogSpout, code, run
from twin.definition_changes import ChangingLedger
from twin.rebuild import MemoryRebuilds
from twin.retention import MemoryRetention

from txbatch import AppendState, Count, LiveState, OpaqueState, StateSpout, Topology
from txbatch.core.batch.transaction import Assignment, Batch, BatchStatus, TransactionAttempt
from txbatch.core.errors import ChangeTooEarly, RecordsGone, TerminalError
from txbatch.core.protocol import coordinator
from txbatch.core.state.pruned import has_gone
from txbatch.core.upstream import look_ups
from txbatch.direct.emitter import emit_batch

SIZE, WORDS, JOB = 3, "abcde", "job.py"
STEPS = ("batch", "batch", "batch", "read", "read", "read", "read", "ask", "ask")
STEPS += ("again", "restate", "rebuild", "fold", "fold", "rename", "drop_past")
Rows = list[tuple[Any, ...]]


class Source(LogSpout):
    """Words, three of them a batch; some become others."""

    def __init__(self) -> None:
        super().__init__({"a": 0}, size=SIZE)
        self.log: list[str] = []

    def more(self, words: Iterable[str]) -> None:
        self.log += words
        self.lengths["a"] = len(self.log)

    def batch(self, plan: Mapping[str, Any]) -> list[tuple[str]]:
        ((_, of),) = plan["partitions"].items()
        return [(word,) for word in self.log[of["start"] : of["end"]]]


class Folder:
    """The folder of an attempt, as far as it is exported to."""

    def __init__(self) -> None:
        self.rows: Rows = []

    def write_export(self, _: int, fields: Any, rows: Iterable[Sequence[Any]]) -> None:
        self.rows += sorted(map(tuple, rows), key=str)


@dataclass
class Readers:
    """One history, by steps at random; each step checks what it may."""

    random: Random
    steps: tuple[str, ...] = STEPS
    value: str = "n"
    runs: int = 0
    swaps: int = 0
    told: dict[tuple[str, int], Rows] = field(default_factory=dict)
    sums: dict[str, int | None] = field(default_factory=dict)
    rows: dict[tuple[Any, ...], str] = field(default_factory=dict)
    ever_pruned: set[int] = field(default_factory=set)
    stuck: set[str] = field(default_factory=set)
    befell: dict[str, set[str]] = field(default_factory=dict)
    came_to: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.source, self.own, self.ledger = Source(), Source(), ChangingLedger()
        self.up = self.counting("n")
        self.asks = Topology("asks")
        asked = self.asks.new_stream("in", self.own).state_query(LiveState("kept", "word string, batch bigint"), "word")
        asked.persistent_aggregate(OpaqueState("asked"), n=Count())
        for each in (self.up, self.asks, *self.readers):
            self.ledger.register(each, JOB)

    def counting(self, value: str, was: str | None = None) -> Topology:
        """What is read: words with how often they came, by a value that is called otherwise now and then, and all of them."""
        topology = Topology("up")
        stream = topology.new_stream("in", self.source)
        stream.group_by("word").persistent_aggregate(OpaqueState("w"), **{value: Count(was=was)})
        stream.persist(AppendState("kept", prune=True))
        return topology

    @property
    def readers(self) -> tuple[Topology, Topology]:
        """Who reads the one state, and who reads the other one."""
        sums, rows = Topology("sums"), Topology("rows")
        value = f"{self.value}_before bigint, {self.value}_after bigint"
        changed = sums.new_stream("in", StateSpout("w", f"word string, {value}, txid bigint"))
        changed.group_by("word").persistent_aggregate(OpaqueState("told"), n=Count())
        fields = "batch bigint, record string, copy bigint, word_before string, word_after string, txid bigint"
        kept = rows.new_stream("in", StateSpout("kept", fields))
        kept.group_by("batch").persistent_aggregate(OpaqueState("seen"), n=Count())
        return sums, rows

    def run(self, steps: int) -> None:
        for _ in range(steps):
            getattr(self, self.random.choice(self.steps))()

    def befalls(self, what: str, words: Iterable[str]) -> None:
        for word in words:
            self.befell.setdefault(word, set()).add(what)

    @property
    def met(self) -> Counter[tuple[str, str]]:
        """How many words were befallen by both of two capabilities."""
        return Counter(pair for found in self.befell.values() for pair in combinations(sorted(found), 2))

    def words_of(self, position: int) -> list[str]:
        ranges = self.ledger.batch("up", position).plan.streams["in"].ranges
        return [word for (word,) in self.source.batch({"partitions": ranges})]

    # ---- what is read

    def committed(self, name: str) -> list[Batch]:
        return [each for each in self.ledger.tables.batches_of(name) if each.status is BatchStatus.COMMITTED]

    def batch(self, of: Any = None) -> None:
        if of is None:
            self.source.more(self.random.choices(WORDS, k=SIZE))
        self.runs += 1
        batch = coordinator.initialize_transaction(self.ledger, self.up, of or run(f"{self.runs}"))
        assert isinstance(batch, Batch), batch
        assignment = self.ledger.start_attempt(batch, run(batch.lease_run or ""), code())
        manifest, partials = emit_batch(self.up, assignment)
        self.ledger.commit(self.up, self.ledger.record_manifests([(assignment, manifest)])[0], partials)

    def restate(self) -> None:
        if known := [each.position for each in self.committed("up")]:
            position = self.random.choice(known)
            self.befalls("restate", self.words_of(position))
            kept = self.mends(position)
            try:
                self.batch(restate_of(position, f"again {self.runs}"))
            except TerminalError:  # it is folded
                self.source.log = kept
            self.befalls("restate", self.words_of(position))

    def mends(self, position: int) -> list[str]:
        """The source may have other words by now of what was read; return those of before."""
        (of,), before = self.ledger.batch("up", position).plan.streams["in"].ranges.values(), list(self.source.log)
        if self.random.random() < 0.6:
            self.source.log[self.random.randrange(of["start"], of["end"])] = self.random.choice(WORDS)
        return before

    def rebuild(self) -> None:
        if not self.committed("up"):
            return
        for each in self.committed("up"):
            if self.random.random() < 0.2:
                self.mends(each.position)
        rebuilds = MemoryRebuilds(self.ledger)
        rebuild = rebuilds.begin(self.up, JOB, code("new"), "a test")
        while (version := rebuilds.next(rebuild)) is not None:
            of = TransactionAttempt(version.txid, 0)
            assignment = Assignment("up", of, uuid4().hex, version.metadata, code("new"), version.position)
            assert rebuilds.count(rebuild, self.up, assignment, *emit_batch(self.up, assignment))
        rebuilds.swap(rebuild, self.up)
        self.befalls("rebuild", WORDS)
        self.swaps += 1

    def fold(self) -> None:
        newest = max((each.txid for each in self.committed("up")), default=0)
        list(MemoryRetention(self.ledger).fold("up", newest - self.random.randint(1, 4)))
        spans = self.ledger.tables.states["kept"].pruned
        for each in self.committed("up"):
            if has_gone(spans, each.position) and each.position not in self.ever_pruned:
                self.ever_pruned.add(each.position)
                self.befalls("prune", self.words_of(each.position))

    def rename(self) -> None:
        now = {"n": "m", "m": "n"}[self.value]
        renamed = self.counting(now, self.value)
        try:
            self.ledger.change(renamed, JOB, "a test")
        except ChangeTooEarly:
            self.came_to["named too early"] += 1
            return
        self.up, self.value = renamed, now
        self.befalls("change", WORDS)
        self.came_to["renamed"] += 1
        self.ledger.change(self.readers[0], JOB, "a test")

    def drop_past(self) -> None:
        try:
            self.came_to["dropped"] += len(MemoryRebuilds(self.ledger).drop_past("up"))
        except ChangeTooEarly:
            return

    # ---- who reads

    def given(self, topology: Topology, batch: Batch) -> tuple[Assignment, Rows]:
        """An attempt: all of a batch are given the same, and so is each that counts it again."""
        assignment, folder = self.ledger.start_attempt(batch, run(batch.lease_run or ""), code()), Folder()
        look_ups.export(topology, self.ledger.upstream, assignment, folder)  # type: ignore[arg-type]
        rows = self.told.setdefault((topology.name, batch.position), folder.rows)
        assert rows == folder.rows, "two attempts are given other rows"
        return assignment, folder.rows

    def next_of(self, topology: Topology) -> Batch | None:
        """The open batch, or the next one; None where there is none, or rows have gone that nobody knows."""
        left = [each for each in self.ledger.tables.batches_of(topology.name) if not each.status.final]
        if left or topology.name in self.stuck:
            return left[0] if left else None
        self.runs += 1
        try:
            found = coordinator.initialize_transaction(self.ledger, topology, run(f"{self.runs}"))
        except RecordsGone as error:
            if "nothing was committed since" not in str(error):
                self.stuck.add(topology.name)
            self.came_to["refused"] += 1
            return None
        return found if isinstance(found, Batch) else None

    def read(self, *, dies: bool | None = None) -> bool:
        """Some batch of a reader, of which attempts die; False: there is nothing new."""
        some = False
        for topology in self.readers if dies is False else [self.random.choice(self.readers)]:
            batch = self.next_of(topology)
            if batch is None:
                continue
            assignment, rows = self.given(topology, batch)
            if self.random.random() < 0.6 if dies is None else dies:
                continue
            manifest, partials = emit_batch(topology, assignment, {"in": rows})
            self.ledger.commit(topology, self.ledger.record_manifests([(assignment, manifest)])[0], partials)
            some = True
            if batch.restate is None:
                (self.adds if topology.name == "sums" else self.keeps)(rows)
        return some

    def adds(self, rows: Rows) -> None:
        for word, before, after, _ in rows:
            assert before == self.sums.get(word), f"{word} was {self.sums.get(word)}, and is told to have been {before}"
            self.sums[word] = after
            self.befalls("read", word)

    def keeps(self, rows: Rows) -> None:
        for row in rows:
            key, before, after = row[:3], *row[3:5]
            if before is None:
                assert key not in self.rows, f"row {key} comes twice"
                self.rows[key] = after
            else:
                self.rows.pop(key, None)
                if after is not None:
                    self.rows[key] = after

    def again(self) -> None:
        """A batch of a reader is counted again: it is given the same, or refused."""
        topology = self.random.choice([*self.readers, self.asks])
        known = [each.position for each in self.committed(topology.name)]
        if not known or any(not each.status.final for each in self.ledger.tables.batches_of(topology.name)):
            return
        self.runs += 1
        try:
            of = restate_of(self.random.choice(known), f"again {self.runs}")
            batch = coordinator.initialize_transaction(self.ledger, topology, of)
        except RecordsGone:
            self.came_to["not again"] += 1
            return
        assert isinstance(batch, Batch)
        self.given(topology, batch)
        self.came_to["again"] += 1

    def ask(self) -> None:
        """A batch that looks up in the rows, of which attempts die."""
        self.own.more(self.random.choices(WORDS, k=SIZE))
        batch = self.next_of(self.asks)
        if batch is None:
            return
        assignment, _ = self.given(self.asks, batch)
        self.befalls("look up", WORDS)
        if self.random.random() < 0.5:
            self.ledger.abort("asks", assignment.attempt.txid, "a test")

    # ---- at the end

    def check(self) -> None:
        """Once all is read, readers have what reports show, but for rows that were pruned."""
        self.batch()
        while self.read(dies=False):
            pass
        if "sums" not in self.stuck:
            there = {key[0]: row.value[0] for key, row in self.ledger.rows("w").items() if row.value}
            assert {word: number for word, number in self.sums.items() if number is not None} == there, "sums"
        if "rows" not in self.stuck:
            kept = {key: row.value[0] for key, row in self.ledger.rows("kept").items() if row.value}
            assert self.never_pruned(self.rows) == self.never_pruned(kept), "rows"

    def never_pruned(self, rows: Mapping[tuple[Any, ...], str]) -> dict[tuple[Any, ...], str]:
        return {key: word for key, word in rows.items() if key[0] not in self.ever_pruned}
