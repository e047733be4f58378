"""Mixed histories: all that may befall a topology, and those that read it, on one ledger, held against a plain reckoning.

A topology (`model.mixed_counting`) has windows or sessions of words, records that are kept until they are folded, those that
failed and those that were late. Others read its closed windows; its changes, into a state of another database; its rows, which
are counted again at times; and look up in both. `met` has which capabilities met on one word's window (`model.pairs`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from random import Random
from typing import Any

from contract.conftest import Memory
from contract.test_restate import restate_of
from model.mixed_counting import JOB, Counting, emitted
from model.mixed_oracle import CELL
from model.mixed_source import WORDS
from pairs import Cell
from sizes import some_of
from support import LogSpout, code, run

from txbatch import Count, LiveState, OpaqueState, StateSpout, Sum, Topology, failpoints
from txbatch.core.batch.transaction import Assignment, Batch
from txbatch.core.errors import RecordsGone
from txbatch.core.protocol import coordinator
from txbatch.core.records.time_buckets import micros_of
from txbatch.core.upstream import look_ups
from txbatch.core.upstream.look_ups import live_states
from txbatch.core.upstream.upstream import stream_numbers

# How often each step is taken.
STEPS = {"plan": 3, "train": 1, "commit": 4, "emit": 1, "abort": 1, "skip": 1, "restate": 2, "rebuild": 1, "fold": 2}
STEPS |= {"leave": 1, "change": 1, "drop_past": 1, "other_time": 1, "as_of": 2, "read": 4, "ask": 2, "again": 3}
Rows = list[tuple[Any, ...]]
EACH, EACH_REAL = some_of(300, 1000, "MIXED"), some_of(12, 40, "MIXED_ON_POSTGRES")


class Died(Exception):
    """A process that was killed between both databases."""


def dies(point: str) -> None:
    """Be killed once the warehouse has committed, and the ledger not."""
    if point == "commit.apart_committed":
        raise Died


class Asked(LogSpout):
    """Words that somebody asks for, two of them a batch."""

    def __init__(self) -> None:
        super().__init__({"a": 0}, size=2)
        self.log: list[str] = []

    def more(self, words: Iterable[str]) -> None:
        self.log += words
        self.lengths["a"] = len(self.log)

    def batch(self, plan: Any) -> list[tuple[str]]:
        ((_, of),) = plan["partitions"].items()
        return [(word,) for word in self.log[of["start"] : of["end"]]]


class Folder:
    """The folder of an attempt, as far as it is exported to."""

    def __init__(self) -> None:
        self.files: dict[int, Rows] = {}

    def write_export(self, number: int, _: Any, rows: Iterable[Sequence[Any]]) -> None:
        self.files[number] = sorted(map(tuple, rows), key=str)


class Mixed(Counting):
    """One history."""

    steps = tuple(step for step, often in STEPS.items() for _ in range(often))

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.asked = Asked()
        self.told: dict[tuple[str, int], dict[int, Rows]] = {}
        self.open: dict[str, int] = {}
        self.done: dict[str, list[int]] = {}
        self.stuck: set[str] = set()
        self.handed_on: dict[Any, tuple[int, int]] = {}
        self.mirror: dict[Any, int | None] = {}
        self.rows: dict[tuple[Any, ...], Any] = {}
        for topology in (self.finals(), self.changes(), self.kept_rows(), self.asks()):
            self.ledger.register(topology, JOB)

    # ---- who reads

    def finals(self) -> Topology:
        """The closed windows."""
        finals = Topology(self.name("finals"))
        fields = f"{self.start} timestamp, word string, {self.value} bigint, closed_by bigint"
        stream = finals.new_stream("in", StateSpout(self.name("hours"), fields, emit="final"))
        stream.persistent_aggregate(OpaqueState(self.name("closed")), windows=Count())
        return finals

    def changes(self) -> Topology:
        """What changed of the windows, into another database."""
        changes, value = Topology(self.name("changes")), self.value
        fields = f"{self.start} timestamp, word string, {value}_before bigint, {value}_after bigint, txid bigint"
        stream = changes.new_stream("in", StateSpout(self.name("hours"), fields))
        more = stream.each(lambda row: (row[f"{value}_after"] or 0) - (row[f"{value}_before"] or 0), "more bigint")
        state = OpaqueState(self.name("mirror"), database="warehouse")
        more.group_by(self.start, "word").persistent_aggregate(state, n=Sum("more"))
        return changes

    def kept_rows(self) -> Topology:
        """What changed of the records."""
        rows = Topology(self.name("rows"))
        fields = "batch bigint, record string, copy bigint, word_before string, word_after string"
        stream = rows.new_stream("in", StateSpout(self.name("kept"), f"{fields}, txid bigint"))
        stream.group_by("batch").persistent_aggregate(OpaqueState(self.name("seen")), n=Count())
        return rows

    def asks(self) -> Topology:
        """Words that are looked up in the records and in the windows."""
        asks = Topology(self.name("asks"))
        stream = asks.new_stream("in", self.asked)
        kept = LiveState(self.name("kept"), "word string, at timestamp, batch bigint")
        found = stream.state_query(kept, "word", how="inner", many=True)
        found.group_by("word").persistent_aggregate(OpaqueState(self.name("found")), n=Count())
        hours = LiveState(self.name("hours"), f"word string, {self.start} timestamp, {self.value} bigint")
        value = self.value
        windows = stream.state_query(hours, "word", how="inner", many=True).each(
            lambda row: row[value], "number bigint"
        )
        windows.group_by("word").persistent_aggregate(OpaqueState(self.name("summed")), n=Sum("number"))
        return asks

    def change(self) -> None:
        before = self.up
        if self.random.random() < 0.6:
            self.settle()
            self.answer()
        super().change()
        if self.up is not before:
            for reader in (self.finals(), self.changes(), self.asks()):
                self.ledger.change(reader, JOB, "a test")

    def rebuild(self) -> None:
        """As often as not, what a reader has read before is read again after it."""
        super().rebuild()
        if self.random.random() < 0.5:
            self.again()

    # ---- their batches

    def next_of(self, topology: Topology) -> Batch | None:
        """The open batch, or the next one; None where there is none, or rows have gone that nobody knows."""
        name = topology.name
        if (txid := self.open.get(name)) is not None:
            return self.ledger.batch(name, txid)
        if name in self.stuck:
            return None
        self.runs += 1
        try:
            found = coordinator.initialize_transaction(self.ledger, topology, run(f"{self.runs}"))
        except RecordsGone as error:
            if "nothing was committed since" in str(error):
                return None
            if "the changes for earlier readers are unknown" not in str(error):
                raise
            self.stuck.add(name)
            self.came_to["stuck"] += 1
            return None
        if not isinstance(found, Batch):
            return None
        self.open[name] = found.txid
        return found

    def given(self, topology: Topology, batch: Batch) -> tuple[Assignment, dict[int, Rows]]:
        """An attempt: all of a batch are given the same, and so is each that counts it again."""
        folder = Folder()
        assignment = self.ledger.start_attempt(batch, run(batch.lease_run or ""), code())
        look_ups.export(topology, self.ledger.upstream, assignment, folder)  # type: ignore[arg-type]
        files = self.told.setdefault((topology.name, batch.position), folder.files)
        assert files == folder.files, f"two attempts are given other rows of {topology.name}"
        return assignment, folder.files

    def through(self, topology: Topology, batch: Batch, *, may_die: bool = True) -> Rows | None:
        """An attempt of a batch, which may die before its commit or in the midst of that; None: it did, or was aborted."""
        assignment, files = self.given(topology, batch)
        chance = self.random.random() if may_die else 1.0
        if chance < 0.4:
            return None
        streams, states = stream_numbers(topology), live_states(topology)
        exports = {name: files[number] for name, number in streams.items() if number in files}
        tables = {state: files[number] for state, number in states.items()}
        manifest, partials = emitted(topology, assignment, exports, tables)
        recorded = self.ledger.record_manifests([(assignment, manifest)])[0]
        given = self.place.as_partials(topology, partials)
        if chance < 0.6 and self.dies(topology, recorded, given):
            return None
        assert self.ledger.commit(topology, recorded, given).applied
        self.open.pop(topology.name, None)
        if batch.restate is None:
            self.done.setdefault(topology.name, []).append(batch.txid)
        return files.get(0, [])

    def dies(self, topology: Topology, recorded: Batch, given: Any) -> bool:
        """Between the commits of both databases, where there are two; what was half committed may be aborted."""
        if topology.name != self.name("changes"):
            return False
        try:
            with failpoints.watch(dies):
                self.ledger.commit(topology, recorded, given)
        except Died:
            self.came_to["half committed"] += 1
        if self.random.random() < 0.3:
            self.ledger.abort(topology.name, recorded.txid, "a test")
            self.told.pop((topology.name, self.open.pop(topology.name)))
        return True

    def read(self, *, may_die: bool = True) -> bool:
        """Some batch of a reader; False: nothing is new."""
        some = False
        readers: dict[Callable[[], Topology], Callable[[Rows, Batch], None]]
        readers = {self.finals: self.hands_on, self.changes: self.adds, self.kept_rows: self.keeps}
        for reader in [self.random.choice([*readers])] if may_die else readers:
            topology = reader()
            batch = self.next_of(topology)
            rows = self.through(topology, batch, may_die=may_die) if batch else None
            if rows is not None and batch is not None:
                some = True
                if batch.restate is None:
                    readers[reader](rows, batch)
        return some

    def hands_on(self, rows: Rows, _: Batch) -> None:
        for start, word, number, by in rows:
            assert (start, word) not in self.handed_on, "a window is handed on twice"
            self.handed_on[start, word] = (number, by)

    def adds(self, rows: Rows, _: Batch) -> None:
        for start, word, before, after, _ in rows:
            if not self.knows(start):
                self.mirror.pop((start, word), None)
                continue
            was = self.mirror.get((start, word))
            assert before == was, f"{word} was {was}, and is told to have been {before}"
            self.mirror[start, word] = after
            self.met.befalls("apart", self.of_window(start, word))

    def knows(self, start: datetime) -> bool:
        """False for what has left, which readers may know as it was before a rebuild brought it back."""
        return micros_of(start) > self.left_to

    def of_window(self, start: datetime, word: str) -> set[Cell]:
        """The cells of what begins there: of a session as far as it reaches now."""
        there = self.plain.windows().get((start, word))
        return there.cells(word) if there else {(word, micros_of(start) // CELL)}

    def keeps(self, rows: Rows, batch: Batch) -> None:
        back = self.back_by(batch)
        for row in rows:
            key, before, after = row[:3], row[3], row[4]
            assert key[0] not in back, f"row {key} is told, which a rebuild brought back"
            if key[0] in self.ever_pruned:  # a rebuild may have brought back others, which is no change
                self.rows.pop(key, None)
            elif before is None:
                assert key not in self.rows, f"row {key} comes twice"
            else:
                assert self.rows.pop(key, before) == before, f"row {key} was another"
            if after is not None:
                self.rows[key] = after

    def back_by(self, batch: Batch) -> set[int]:
        """The positions whose rows had gone in the generation from which a batch reads on, until a rebuild."""
        (range_,) = batch.plan.streams["in"].ranges.values()
        swaps = [each for each in self.brought_back if 0 < range_["start"] <= each < range_["end"]]
        return self.brought_back[min(swaps)] if swaps else set()

    def again(self) -> None:
        """A batch of a reader is counted again: it is given the same, or refused."""
        topology = self.random.choice([self.finals, self.kept_rows, self.kept_rows, self.asks])()
        known = self.done.get(topology.name, [])
        if not known or topology.name in self.open:
            return
        self.runs += 1
        try:
            of = restate_of(self.random.choice(known[-3:]), f"again {self.runs}")
            batch = coordinator.initialize_transaction(self.ledger, topology, of)
        except RecordsGone:
            self.came_to["not read again"] += 1
            return
        assert isinstance(batch, Batch), batch
        self.open[topology.name] = batch.txid
        self.through(topology, batch)
        self.came_to["read again"] += 1

    def ask(self) -> None:
        """Somebody looks words up; the attempt may die."""
        topology = self.asks()
        if topology.name not in self.open:
            self.asked.more(self.random.choices(WORDS, k=2))
        batch = self.next_of(topology)
        if batch is None:
            return
        if self.random.random() < 0.2:
            self.ledger.abort(topology.name, self.open.pop(topology.name), "a test")
            self.told.pop((topology.name, batch.position), None)
            return
        self.through(topology, batch)
        asked, found = {word for (word,) in self.asked.log[-2:]}, self.told[topology.name, batch.position]
        rows = found[live_states(topology)[LiveState(self.name("kept"), "word string, at timestamp, batch bigint")]]
        self.met.befalls("look-ups", {(word, micros_of(at) // CELL) for word, at, _ in rows if word in asked})

    def as_of(self) -> None:
        """What reports showed at an earlier txid, but for what has left since."""
        known = [txid for txid in self.shown if self.askable(txid) and txid <= self.final]
        if not known:
            return
        txid = self.random.choice(known)
        rows = self.ledger.upstream.rows(self.name("hours"), txid, (self.start, "word", self.value))
        found = {(start, word): number for start, word, number in rows if self.knows(start)}
        expected = {key: each.n for key, each in self.shown[txid].items() if self.knows(key[0])}
        assert found == expected, f"as of txid {txid} other windows were there"
        if txid < self.final:
            self.met.befalls("as-of", self.cells_of({key: self.shown[txid][key] for key in found}))
            self.came_to["as of"] += 1

    # ---- what waits for readers

    def settle(self) -> None:
        """All that is open is committed, and all that is new is read."""
        while self.of_status("open"):
            self.commit()
        self.read(may_die=False)

    def answer(self) -> None:
        """What is asked for is answered."""
        asks = self.asks()
        if asks.name in self.open:
            self.through(asks, self.ledger.batch(asks.name, self.open[asks.name]), may_die=False)

    def fold(self) -> None:
        """Once readers have begun; they have read all, as often as not."""
        if self.random.random() < 0.5:
            self.settle()
        if all(self.done.get(self.name(each)) for each in ("finals", "changes")):
            super().fold()
        if self.random.random() < 0.5:
            self.leave()

    def drop_past(self) -> None:
        if self.random.random() < 0.5:
            self.settle()
            self.answer()
        if self.handed_on:
            super().drop_past()

    # ---- at the end

    def check(self) -> None:
        """Once all is read, readers have what reports show, and what has closed."""
        while self.of_status("open") or self.final <= self.swapped:  # what a swap changed comes with the next batch
            self.plan()
            self.commit()
        while self.read(may_die=False):
            pass
        assert self.handed_on == self.closed, "what is closed is not what is handed on"
        if self.name("changes") not in self.stuck:
            self.check_changes()
        if self.name("rows") not in self.stuck:
            kept = Counter((row[0], row[2]) for row in self.plain.rows(set()).elements())
            mine = Counter((key[0], word) for key, word in self.rows.items())
            assert self.never_pruned(mine) == self.never_pruned(kept), "rows"

    def check_changes(self) -> None:
        """Who adds up what changed of the windows has what they are, also in the other database."""
        there = {key: each.n for key, each in self.windows().items() if self.knows(key[0])}
        assert {key: n for key, n in self.mirror.items() if n is not None and self.knows(key[0])} == there, "changes"
        apart = {
            (row[self.start], row["word"]): row["n"]
            for row in self.place.report(self.changes(), self.name("mirror"))
            if row["n"] and self.knows(row[self.start])
        }
        assert apart == there, "what is apart"

    def never_pruned(self, rows: Counter[tuple[int, str]]) -> dict[tuple[int, str], int]:
        return {key: number for key, number in rows.items() if key[0] not in self.ever_pruned}


STEPS_EACH = 50


def told(seed: int, place: Any, tag: str = "") -> Mixed:
    """Tell the history of a seed. AssertionError with the seed, where something is wrong."""
    history = Mixed(Random(seed), place, tag)
    try:
        history.run(STEPS_EACH)
        history.check()
    except Exception as error:  # whatever a ledger raises that the history did not expect
        raise AssertionError(f"seed {seed}, {history.shape}: {error}") from error
    return history


def some_told(seeds: Iterable[int]) -> list[Mixed]:
    """Tell those of these seeds, on the twin in memory."""
    return [told(seed, Memory()) for seed in seeds]
