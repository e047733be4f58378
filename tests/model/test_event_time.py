"""Watermarks, late records and closed windows over histories at random, by the coordinator and the ledger in memory (R25, R26).

Two partitions whose records come out of order are read in batches, of which some leave holes, are emitted twice, are aborted or
are counted again, or folded. Whatever happens, each record counts or is late, attempts agree, no batch that comes after changes a
window that is closed, and a topology below gets each once, as of its closing. Wrong rules of seven kinds are each found, and two
of processing time, whose clock goes back at random (R28).
`EVENT_TIMES=4000` tells so many histories in all; `make soak` does.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from contract.test_restate import restate_of
from support import LogSpout, code, run

from txbatch import Count, OpaqueState, SpoutKind, StateSpout, Topology, session_window, window
from txbatch.core import closings, coordinator
from txbatch.core import event_time as decided
from txbatch.core.cuts import micros_of
from txbatch.core.errors import BrokenChain, PartitionUnreadable, TxbatchError
from txbatch.core.keep import Keep
from txbatch.core.session_window import SessionWindow
from txbatch.core.sessions import joined
from txbatch.core.transaction import Batch, BatchStatus
from txbatch.memory import closed_sessions, emitter, event_time
from txbatch.memory.emitter import emit_batch
from txbatch.memory.ledger import MemoryLedger
from txbatch.memory.retention import MemoryRetention

# With stragglers, of each policy and number of batches in flight; a third as many without.
EACH = int(os.environ.get("EVENT_TIMES", "600")) * 3 // 16
DAY = datetime(2026, 1, 5, tzinfo=UTC)
DELAY, SIZE, SLIDE, GAP, MINUTES = 30, 40, 20, 15, 60_000_000
AFTER = 1  # microsecond after the gap: a record that is just the gap later is of the session
TUMBLING, SLIDING, SESSIONS = KINDS = ("tumbling", "sliding", "sessions")
STEPS = ["arrive", "arrive", "plan", "plan", "emit", "commit", "commit", "commit", "abort", "restate", "read", "fold"]
READ = ("window_start", "n", "closed_by")
# In the place of a policy for late records: there are none, as windows are of processing time.
PLANNED = "planned"


def at(minutes: int) -> datetime:
    return DAY + timedelta(minutes=minutes)


class Arriving(LogSpout):
    """Partitions to which records come; each batch takes four of each. Some cannot be read."""

    fields = "at timestamp"

    def __init__(self) -> None:
        super().__init__({"a": 0, "b": 0}, size=4, kind=SpoutKind.OPAQUE)
        self.log: dict[str, list[datetime]] = {"a": [], "b": []}
        self.away: set[str] = set()

    def arrive(self, name: str, time: datetime) -> None:
        self.log[name].append(time)
        self.lengths[name] += 1

    def batch(self, plan: Mapping[str, Any]) -> list[tuple[datetime]]:
        ((name, of),) = plan["partitions"].items()
        if name in self.away:
            raise PartitionUnreadable(f"{name} is away")
        return [(time,) for time in self.log[name][of["start"] : of["end"]]]


@dataclass
class History:
    """One history, by steps at random; each step checks what it may."""

    random: Random
    pending: int
    late: str
    straggle: bool
    kind: str
    now: int = 1_000
    runs: int = 0
    told: dict[Any, Any] = field(default_factory=dict)
    closed: dict[datetime, tuple[int, int]] = field(default_factory=dict)
    handed_on: dict[datetime, tuple[int, int]] = field(default_factory=dict)
    ever: set[datetime] = field(default_factory=set)
    closings: int = 0
    folded: int = 0
    left: int = 0
    steps: tuple[str, ...] = tuple(STEPS)
    keep_windows: str | None = None

    def __post_init__(self) -> None:
        self.spout, self.topology = Arriving(), Topology("t", max_pending=self.pending)
        read, planned = self.topology.new_stream("in", self.spout), self.late == PLANNED
        delay = f"{DELAY} minutes"
        stream = read.with_processing_time() if planned else read.with_watermark("at", delay, late=self.late)
        time, slide = "planned_at" if planned else "at", SLIDE if self.kind == SLIDING else SIZE
        by: Any = window(time, f"{SIZE} minutes", slide=f"{slide} minutes")
        if self.kind == SESSIONS:
            by = session_window(time, f"{GAP} minutes", name="window_start")
        self.aggregate = stream.group_by(by).persistent_aggregate(
            OpaqueState("hours", keep_windows=self.keep_windows), n=Count()
        )
        self.ledger = MemoryLedger(clock=lambda: at(self.now))
        self.ledger.register(self.topology, "job.py")
        self.below = Topology("below")
        spout = StateSpout("hours", "window_start timestamp, n bigint, closed_by bigint", emit="final")
        self.below.new_stream("closed", spout).persistent_aggregate(OpaqueState("closed"), windows=Count())
        self.ledger.register(self.below, "below.py")

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.now += self.random.randint(-15 if self.late == PLANNED else 1, 20)  # a clock may go back
            getattr(self, self.random.choice(self.steps))()

    @property
    def batches(self) -> list[Batch]:
        return self.ledger.tables.batches_of("t")

    @property
    def open(self) -> list[Batch]:
        return [each for each in self.batches if not each.status.final]

    def counted(self) -> dict[datetime, tuple[int, int]]:
        """By start, when it ends, in microseconds, and how many count; of a session when no record can be of it any more."""
        rows = self.ledger.tables.states["hours"].rows
        there = {key: (row.value, row.txid) for key, row in rows.items() if row.value}
        if self.kind == SESSIONS:
            found = joined(self.aggregate, there).items()
            return {key[0]: (micros_of(value[0]) + GAP * MINUTES + AFTER, value[1]) for key, (value, _) in found}
        return {key[0]: (micros_of(key[0]) + SIZE * MINUTES, value[0]) for key, (value, _) in there.items()}

    def arrive(self) -> None:
        most = 5 * DELAY if self.straggle else DELAY
        for name in self.random.choice(["a", "b", "ab"]):
            for _ in range(self.random.randint(1, 4)):
                self.now += 1
                time = self.now - self.random.randint(0, most)
                # So that some of a session are just the gap apart, and just as late as may be.
                self.spout.arrive(name, at(time - time % 5 if self.kind == SESSIONS else time))

    def plan(self) -> None:
        self.runs += 1
        if len(self.open) < self.pending:
            coordinator.initialize_transaction(self.ledger, self.topology, run(f"{self.runs}"))

    def emit(self, batch: Batch | None = None) -> Any:
        """An attempt; of whole ones of a batch all find the same."""
        if batch is None:
            if not self.open:
                return None
            batch = self.random.choice(self.open)
        of = run(batch.lease_run or "")
        self.spout.away = {self.random.choice("ab")} if self.random.random() < 0.15 else set()
        try:
            assignment = self.ledger.start_attempt(batch, of, code())
            manifest, partials = emit_batch(self.topology, assignment)
            emitted = self.ledger.record_manifest(assignment, manifest)
        except PartitionUnreadable:
            return None
        if not manifest.unreadable:
            says = manifest.states["hours"].kept, manifest.states["hours"].late, sorted(map(repr, partials["hours"]))
            assert self.told.setdefault(batch.txid, says) == says, "two attempts find other records late"
        return emitted, partials

    def commit(self) -> None:
        if not self.open or (made := self.emit(self.open[0])) is None:
            return
        before, shut = self.counted(), event_time.closed_to(self.ledger.tables, "t").get("hours")
        try:
            self.ledger.commit(self.topology, *made)
        except BrokenChain:
            self.ledger.abort("t", made[0].txid, "its chain is broken")
            return
        after, now = self.counted(), event_time.closed_to(self.ledger.tables, "t").get("hours")
        assert shut is None or (now is not None and now >= shut), "it goes back"
        self.closings += now != shut
        self.closes(made[0], after, shut, now)
        if made[0].restate is None and self.late in ("drop", PLANNED) and shut is not None:
            whole = [start for each in (before, after) for start, (end, _) in each.items() if end <= shut]
            assert all(before.get(start) == after.get(start) for start in whole), "a closed window changes"

    def closes(self, batch: Batch, there: Mapping[datetime, tuple[int, int]], was: int | None, now: int | None) -> None:
        """Keep what a commit closes, which is nothing in which something had been closed before."""
        shut = {start: each for start, each in there.items() if now is not None and each[0] <= now}
        for start, (end, number) in shut.items():
            last = micros_of(start) if self.kind != SESSIONS else end - GAP * MINUTES - AFTER
            before = any(micros_of(start) <= micros_of(each) <= last for each in self.ever)
            if batch.restate is None and not before and (was is None or end > was):
                self.closed[start] = (number, batch.txid)
        self.ever |= shut.keys()

    def read(self, *, dies: bool | None = None) -> bool:
        """The topology below reads what is closed; attempts of it die. False: there is nothing new."""
        self.runs += 1
        left = [each for each in self.ledger.tables.batches_of("below") if not each.status.final]
        batch = left[0] if left else coordinator.initialize_transaction(self.ledger, self.below, run(f"{self.runs}"))
        if not isinstance(batch, Batch):
            return False
        assignment = self.ledger.start_attempt(batch, run(batch.lease_run or ""), code())
        rows = sorted(self.ledger.upstream.closed("hours", batch.plan.streams["closed"].ranges["hours"], READ))
        assert self.told.setdefault(("below", batch.txid), rows) == rows, "two attempts read other windows"
        if self.random.random() < 0.5 if dies is None else dies:
            return True
        manifest, partials = emit_batch(self.below, assignment, {"closed": rows})
        self.ledger.commit(self.below, self.ledger.record_manifest(assignment, manifest), partials)
        for start, number, by in rows:
            assert start not in self.handed_on, "a window is handed on twice"
            self.handed_on[start] = (number, by)
        return True

    def abort(self) -> None:
        if self.open and self.random.random() < 0.3:
            self.ledger.abort("t", self.random.choice(self.open).txid, "a test")

    def fold(self) -> None:
        """Retention folds what the topology below, which has read before, needs no more."""
        if self.ledger.tables.batches_of("below"):
            retention = MemoryRetention(self.ledger)
            reached = retention.past("t", Keep(txids=self.random.randint(1, 4))).reached
            self.folded += sum(each.versions for each in retention.fold("t", reached))

    def restate(self) -> None:
        known = [each for each in self.batches if each.status is BatchStatus.COMMITTED and each.position == each.txid]
        if known and len(self.open) < self.pending and self.random.random() < 0.5:
            self.runs += 1
            again = restate_of(self.random.choice(known).txid, f"again {self.runs}")
            try:
                coordinator.initialize_transaction(self.ledger, self.topology, again)
            except TxbatchError:
                return

    def check(self) -> tuple[int, int]:
        """Each record that was read counts in each of its windows, or is late there. Returns how many did, and were."""
        while self.read(dies=False):
            pass
        assert self.handed_on == self.closed, "what is closed is not what is handed on"
        tables = self.ledger.tables
        committed = [each for each in self.batches if each.status is BatchStatus.COMMITTED and each.replaced_by is None]
        standing = [each for each in committed if each.fence]  # what is given up has no attempt
        read: Counter[int] = Counter()
        for each in standing:
            (_, manifest) = self.ledger.newest_attempt(each)
            read["windows"] += sum(
                part.records for part in (manifest.streams.get("in", {}) if manifest else {}).values()
            )
            read["late"] += tables.times["t", each.txid].late.get("hours", 0)
        counted = sum(number for _, number in self.counted().values()) + self.left
        per = SIZE // SLIDE if self.kind == SLIDING else 1
        assert counted + (0 if self.late == "merge" else read["late"]) == read["windows"] * per, "records are lost"
        return counted, read["late"]


def histories(number: int, pending: int, late: str, *, straggle: bool, first: int = 0) -> tuple[int, int, int]:
    """Run so many; return how many windows counted, how many were late, and how often something was closed."""
    found = Counter[str]()
    for seed in range(first, first + number):
        history = History(Random(seed), pending, late, straggle, KINDS[seed % 3])
        history.run(60)
        counted, late_ones = history.check()
        found.update(counted=counted, late=late_ones, closings=history.closings)
    return found["counted"], found["late"], found["closings"]


@pytest.mark.parametrize("late", ["merge", "drop"])
@pytest.mark.parametrize("pending", [1, 3])
def test_whatever_happens_what_is_closed_stays_and_each_record_counts_or_is_late(pending: int, late: str) -> None:
    _, none, _ = histories(EACH // 3, pending, late, straggle=False)
    _, some, closed = histories(EACH, pending, late, straggle=True, first=100_000)
    assert (none, some > EACH // 2, closed > EACH) == (0, True, True)


@pytest.mark.rule("R28")
@pytest.mark.parametrize("pending", [1, 3])
def test_whatever_happens_each_record_is_in_the_windows_of_its_plan(pending: int) -> None:
    counted, late, closed = histories(EACH // 3, pending, PLANNED, straggle=False, first=200_000)
    assert (counted > EACH, late, closed > EACH // 3) == (True, 0, True)


def _by_this_batch(aggregates: Any, before: Any, after: Any, open_plans: Any) -> Any:
    return decided.closed(aggregates, before, after, [])


def _by_the_attempt(history: History) -> Any:
    """Late is what is late by the watermarks of when it is read."""
    by_plan = emitter.counting
    return lambda aggregate, keys, _: by_plan(aggregate, keys, event_time.marks(history.ledger.tables, "t"))


def test_who_closes_by_its_own_watermark_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_time, "closed", _by_this_batch)
    with pytest.raises(AssertionError, match="a closed window changes"):
        histories(600, 3, "drop", straggle=True)


def test_who_waits_for_no_partition_that_is_behind_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_time, "_behind", lambda *_: [])
    _, late, _ = histories(100, 3, "drop", straggle=False)
    assert late


def test_who_finds_late_what_is_so_by_now_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def tell() -> None:
        for seed in range(600):
            history = History(Random(seed), 3, "drop", straggle=True, kind=TUMBLING)
            with monkeypatch.context() as wrong:
                wrong.setattr(emitter, "counting", _by_the_attempt(history))
                history.run(60)

    with pytest.raises(AssertionError, match="two attempts find other records late"):
        tell()


def test_who_hands_on_what_a_window_has_later_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closings, "cut_of", lambda _, range_, __: range_["end"])
    with pytest.raises(AssertionError, match="what is closed is not what is handed on"):
        histories(300, 3, "merge", straggle=True, first=1_000)


@pytest.mark.rule("R28")
def test_who_plans_by_a_clock_that_goes_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_the_clock(metadata: Any, watermarks: Any, _: Any, now: datetime, cut_by: Any) -> Any:
        return decided.fixed(metadata, watermarks, {}, now, cut_by)

    monkeypatch.setattr("txbatch.memory.ledger.fixed", by_the_clock)
    with pytest.raises(AssertionError, match="a closed window changes"):
        histories(300, 1, PLANNED, straggle=False)


@pytest.mark.rule("R28")
def test_who_has_the_time_of_the_attempt_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def tell() -> None:
        for seed in range(300):
            history = History(Random(seed), 3, PLANNED, straggle=False, kind=TUMBLING)
            with monkeypatch.context() as wrong:
                wrong.setattr("txbatch.memory.operations.time_of", lambda _, history=history: at(history.now))
                history.run(60)

    with pytest.raises(AssertionError, match=r"two attempts find other records late|a closed window changes"):
        tell()


def test_who_hands_a_session_on_again_that_late_records_made_longer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closed_sessions, "first_closed", lambda *_: None)
    with pytest.raises(AssertionError, match="a window is handed on twice"):
        histories(300, 3, "merge", straggle=True, first=2_000)


def test_who_folds_what_says_that_a_session_was_closed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txbatch.memory.upstream._reopened", lambda *_: None)
    monkeypatch.setattr(closings, "asked_since", lambda range_: 0)
    with pytest.raises(AssertionError, match=r"a window is handed on twice|what is closed is not what is handed on"):
        histories(600, 3, "merge", straggle=True, first=2_000)


def test_who_closes_a_session_that_a_record_in_time_may_still_be_of_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def tell() -> None:
        for seed in range(600):
            History(Random(seed), 1, "drop", straggle=True, kind=SESSIONS).run(60)

    monkeypatch.setattr(SessionWindow, "first_open", lambda self, time: time - self.gap + 1)
    monkeypatch.setitem(globals(), "AFTER", 0)
    with pytest.raises(AssertionError, match="a closed window changes"):
        tell()
