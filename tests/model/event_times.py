"""Histories of event time at random, by the coordinator and the ledger in memory, and what one pass over them counts (R25, R26).

Records come out of order, to two partitions or to two streams that are merged, of which one is idle at first, or by intervals in
any order. Batches leave holes, are emitted twice, are aborted, are counted again with other times, or folded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

from contract.test_restate import restate_of
from support import ListSpout, LogSpout, code, run
from twin.retention import MemoryRetention

from txbatch import Count, OpaqueState, SpoutKind, StateSpout, Topology, session_window, window
from txbatch.core.batch.transaction import Batch, BatchStatus, Interval, Run
from txbatch.core.errors import BrokenChain, PartitionUnreadable, TxbatchError
from txbatch.core.protocol import coordinator
from txbatch.core.records.time_buckets import micros_of, time_of
from txbatch.core.state.keep import Keep
from txbatch.core.topology.sessions import join_pieces
from txbatch.direct.emitter import emit_batch
from txbatch.memory import event_time
from txbatch.memory.ledger import MemoryLedger

DELAY, SIZE, SLIDE, GAP = 30, 40, 20, 15
AFTER = 1  # microsecond after the gap: a record that is just the gap later is of the session
TUMBLING, SLIDING, SESSIONS, ZONED = KINDS = ("tumbling", "sliding", "sessions", "zoned")
STEPS = [
    "arrive",
    "arrive",
    "plan",
    "plan",
    "emit",
    "commit",
    "commit",
    "commit",
    "abort",
    "restate",
    "hand_on",
    "fold",
]
READ = ("window_start", "n", "closed_by")
# In the place of a policy for late records: there are none, as windows are of processing time.
PLANNED = "planned"
DAY, MINUTE = datetime(2026, 1, 5, tzinfo=UTC), timedelta(minutes=1)
# A zone that left a day out, on which windows of two days begin: an hour is there what a minute is elsewhere.
APIA, HOUR = ZoneInfo("Pacific/Apia"), timedelta(hours=1)
LEFT_OUT = date(2011, 12, 30)
EPOCH = date(1970, 1, 1)


def _bounds() -> Iterator[int]:
    """Where the windows of two days begin there, in microseconds."""
    for number in range((LEFT_OUT - EPOCH).days % 2 + 15_200, 15_450, 2):
        day = EPOCH + timedelta(days=number)
        midnight = day + timedelta(days=day == LEFT_OUT)
        yield micros_of(datetime(midnight.year, midnight.month, midnight.day, tzinfo=APIA))


BOUNDS = list(_bounds())


class Arriving(LogSpout):
    """Partitions to which records come; each batch takes four of each. Some cannot be read."""

    fields = "at timestamp"

    def __init__(self, names: str) -> None:
        super().__init__(dict.fromkeys(names, 0), size=4, kind=SpoutKind.OPAQUE)
        self.log: dict[str, list[datetime]] = {name: [] for name in names}
        self.away: set[str] = set()
        self.given: list[datetime] = []

    def arrive(self, name: str, time: datetime) -> None:
        self.log[name].append(time)
        self.lengths[name] += 1

    def batch(self, plan: Mapping[str, Any]) -> list[tuple[datetime]]:
        ((name, of),) = plan["partitions"].items()
        if name in self.away:
            raise PartitionUnreadable(f"{name} is away")
        read = self.log[name][of["start"] : of["end"]]
        self.given += read
        return [(time,) for time in read]


@dataclass
class History:
    """One history, by steps at random; each step checks what it may."""

    random: Random
    pending: int
    late: str
    straggle: bool
    kind: str
    merged: bool = False
    now: int = 1_000
    runs: int = 0
    told: dict[Any, Any] = field(default_factory=dict)
    read_by: dict[int, list[datetime]] = field(default_factory=dict)
    closed: dict[datetime, tuple[int, int]] = field(default_factory=dict)
    handed_on: dict[datetime, tuple[int, int]] = field(default_factory=dict)
    ever: set[tuple[int, int]] = field(default_factory=set)
    closings: int = 0
    folded: int = 0
    steps: tuple[str, ...] = tuple(STEPS)
    keep_windows: str | None = None

    def __post_init__(self) -> None:
        zoned = self.kind == ZONED
        self.unit = HOUR if zoned else MINUTE
        # A day is left out in the midst of a history.
        self.begin = datetime(2011, 12, 30, tzinfo=UTC) - 1_090 * HOUR if zoned else DAY
        self.gap = micros_of(DAY + GAP * self.unit) - micros_of(DAY)
        self.topology, self.spouts = Topology("t", max_pending=self.pending), dict[str, Any]()
        stream, planned = self.source(), self.late == PLANNED
        delay = f"{DELAY} {'hours' if zoned else 'minutes'}"
        stream = stream.with_processing_time() if planned else stream.with_watermark("at", delay, late=self.late)
        grouped = stream.group_by(self.by("planned_at" if planned else "at"))
        self.aggregate = grouped.persistent_aggregate(OpaqueState("hours", keep_windows=self.keep_windows), n=Count())
        self.ledger = MemoryLedger(clock=lambda: self.at(self.now))
        self.ledger.register(self.topology, "job.py")
        self.below = Topology("below")
        spout = StateSpout("hours", "window_start timestamp, n bigint, closed_by bigint", emit="final")
        self.below.new_stream("closed", spout).persistent_aggregate(OpaqueState("closed"), windows=Count())
        self.ledger.register(self.below, "below.py")

    def source(self) -> Any:
        """The stream that is counted."""
        parts = {"in": "a", "more": "b"} if self.merged else {"in": "ab"}
        self.spouts = {name: Arriving(names) for name, names in parts.items()}
        # From when on records come to the second stream, or partition; the first has some at once.
        self.idle_until = self.now + self.random.choice([0, 300, 10_000]) if self.merged else 0
        streams = [self.topology.new_stream(*each) for each in self.spouts.items()]
        return self.topology.merge(*streams, name="both") if self.merged else streams[0]

    def by(self, time: str) -> Any:
        if self.kind == SESSIONS:
            return session_window(time, f"{GAP} minutes", name="window_start")
        if self.kind == ZONED:
            return window(time, "2 days", timezone=APIA.key)
        slide = SLIDE if self.kind == SLIDING else SIZE
        return window(time, f"{SIZE} minutes", slide=f"{slide} minutes")

    def at(self, number: int) -> datetime:
        return self.begin + number * self.unit

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

    # ---- what is counted, and what one pass counts

    def counted(self) -> dict[datetime, tuple[int, int]]:
        """By start, when it ends, in microseconds, and how many count; of a session when no record can be of it any more."""
        rows = self.ledger.tables.states["hours"].rows
        there = {key: (row.value, row.txid) for key, row in rows.items() if row.value}
        if self.kind == SESSIONS:
            found = join_pieces(self.aggregate, there).items()
            return {key[0]: (micros_of(value[0]) + self.gap + AFTER, value[1]) for key, (value, _) in found}
        return {key[0]: (self.end(micros_of(key[0])), value[0]) for key, (value, _) in there.items()}

    def end(self, start: int) -> int:
        return BOUNDS[bisect_right(BOUNDS, start)] if self.kind == ZONED else start + SIZE * 60_000_000

    def starts(self, time: int) -> list[int]:
        """Where the windows begin that a time is in; of sessions the time."""
        if self.kind == SESSIONS:
            return [time]
        if self.kind == ZONED:
            return [BOUNDS[bisect_right(BOUNDS, time) - 1]]
        slide = (SLIDE if self.kind == SLIDING else SIZE) * 60_000_000
        last = time - time % slide
        return list(range(last - SIZE * 60_000_000 + slide, last + 1, slide))

    def one_pass(self) -> tuple[dict[datetime, tuple[int, int]], Counter[tuple[int, int]]]:
        """What is counted of all that the versions which count have read; and what was late, by time and start."""
        counts, late = Counter[int](), Counter[tuple[int, int]]()
        for batch, time in self.read():
            plan = self.ledger.batch("t", batch.position).plan
            if self.late == PLANNED:
                time = time_of(plan.planned_at or 0)
            marks = [plan.watermark.get(stream) for stream in self.spouts]
            mark = None if None in marks else min(each for each in marks if each is not None)
            for start in self.starts(micros_of(time)):
                behind = mark is not None and (start < mark if self.kind == SESSIONS else self.end(start) <= mark)
                late[micros_of(time), start] += behind
                counts[start] += not behind or self.late == "merge"
        return self.together(+counts), +late

    def together(self, counts: Mapping[int, int]) -> dict[datetime, tuple[int, int]]:
        """What `counted` tells of so many by start."""
        if self.kind != SESSIONS:
            return {time_of(start): (self.end(start), number) for start, number in counts.items()}
        found = list[list[int]]()
        for time in sorted(counts):
            if found and time <= found[-1][1] + self.gap:
                found[-1][1:] = [time, found[-1][2] + counts[time]]
            else:
                found.append([time, time, counts[time]])
        return {time_of(start): (last + self.gap + AFTER, number) for start, last, number in found}

    def standing(self) -> list[Batch]:
        """The versions that count, but for what is given up, which has no attempt."""
        committed = [each for each in self.batches if each.status is BatchStatus.COMMITTED and each.replaced_by is None]
        return [each for each in committed if each.fence]

    def still(self, counts: dict[datetime, tuple[int, int]]) -> dict[datetime, tuple[int, int]]:
        """What is there still of what was counted."""
        return counts

    def read(self) -> Iterator[tuple[Batch, datetime]]:
        """What the versions that count have read."""
        return ((each, time) for each in self.standing() for time in self.read_by[each.txid])

    # ---- steps

    def arrive(self) -> None:
        most = 5 * DELAY if self.straggle else DELAY
        for name in self.random.choice(["a", "b", "ab"]):
            if name == "b" and self.now < self.idle_until:
                continue
            spout = self.spouts["more" if self.merged and name == "b" else "in"]
            for _ in range(self.random.randint(1, 4)):
                self.now += 1
                time = self.now - self.random.randint(0, most)
                # So that some of a session are just the gap apart, and just as late as may be.
                spout.arrive(name, self.at(time - time % 5 if self.kind == SESSIONS else time))

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
        away = {self.random.choice("ab")} if self.random.random() < 0.15 else set()
        for spout in self.spouts.values():
            spout.away, spout.given = away, []
        try:
            assignment = self.ledger.start_attempt(batch, run(batch.lease_run or ""), code())
            manifest, partials = emit_batch(self.topology, assignment)
            emitted = self.ledger.record_manifests([(assignment, manifest)])[0]
        except PartitionUnreadable:
            return None
        self.read_by[batch.txid] = [time for spout in self.spouts.values() for time in spout.given]
        if not manifest.unreadable:
            says = [(name, of.kept, of.late, sorted(map(repr, partials[name]))) for name, of in manifest.states.items()]
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
        marks = event_time.marks(self.ledger.tables, "t")
        assert now is None or self.spouts.keys() <= marks.keys(), "a window closes while a stream has read nothing"
        self.closings += now != shut
        self.closes(made[0], after, shut, now)
        if made[0].restate is None and self.stays(made[0]) and shut is not None:
            whole = [start for each in (before, after) for start, (end, _) in each.items() if end <= shut]
            assert all(before.get(start) == after.get(start) for start in whole), "a closed window changes"

    def stays(self, _: Batch) -> bool:
        """True if a batch that comes later changes no closed window."""
        return self.late != "merge"

    def closes(self, batch: Batch, there: Mapping[datetime, tuple[int, int]], was: int | None, now: int | None) -> None:
        """Keep what a commit closes, which is nothing in which something had been closed before."""
        shut = {start: each for start, each in there.items() if now is not None and each[0] <= now}
        for start, (end, number) in shut.items():
            first, last = self.reaches(start, end)
            before = any(begin <= last and first <= of for begin, of in self.ever)
            if batch.restate is None and not before and (was is None or end > was):
                self.closed[start] = (number, batch.txid)
        self.ever |= {self.reaches(start, end) for start, (end, _) in shut.items()}

    def reaches(self, start: datetime, end: int) -> tuple[int, int]:
        """Return first and last time of a session; of another window twice its start."""
        return micros_of(start), micros_of(start) if self.kind != SESSIONS else end - self.gap - AFTER

    def hand_on(self, *, dies: bool | None = None) -> bool:
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
        self.ledger.commit(self.below, self.ledger.record_manifests([(assignment, manifest)])[0], partials)
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
        committed = [each for each in self.batches if each.status is BatchStatus.COMMITTED and each.fence]
        known = [each for each in committed if each.position == each.txid]
        if not known or len(self.open) >= self.pending or self.random.random() < 0.5:
            return
        self.runs += 1
        first = self.random.choice(known)
        again = all(each.position != first.txid for each in self.open)
        try:
            coordinator.initialize_transaction(self.ledger, self.topology, restate_of(first.txid, f"again {self.runs}"))
        except TxbatchError:
            return
        if again and self.random.random() < 0.5:
            self.correct(first)

    def correct(self, first: Batch) -> None:
        """The source has other times by now, of what a batch has read."""
        (_, manifest) = self.ledger.newest_attempt(first)
        for stream, parts in manifest.streams.items() if manifest else ():
            for name in parts:
                of, log = first.plan.streams[stream].ranges[name], self.spouts[stream].log[name]
                for number in range(of["start"], of["end"]):
                    log[number] += 5 * self.random.randint(-10, 10) * self.unit

    def check(self) -> tuple[int, int]:
        """All is as one pass over what was read counts. Returns how many counted, and how many were late."""
        while self.hand_on(dies=False):
            pass
        assert self.handed_on == self.closed, "what is closed is not what is handed on"
        there, late = self.one_pass()
        assert self.counted() == self.still(there), "one pass counts otherwise"
        times = self.ledger.tables.times
        told = sum(times["t", each.txid].late.get("hours", 0) for each in self.standing())
        assert told == late.total(), "other records were late"
        if self.late == "side":
            rows = [tuple(map(micros_of, row.value)) for row in self.ledger.rows("hours_late").values() if row.value]
            assert Counter(rows) == late, "other records were kept aside"
        return sum(number for _, number in there.values()), told


class Cut(ListSpout):
    """Records by intervals of their time, all of which are over."""

    by_interval, time, fields = True, "at", "at timestamp"

    def __init__(self) -> None:
        super().__init__()
        self.log: dict[datetime, list[datetime]] = {}
        self.given: list[datetime] = []

    def initialize_transaction(self, txid: int, prev_metadata: Any, curr_metadata: Any) -> Any:
        return {"interval": curr_metadata["interval"]}

    def batch(self, plan: Mapping[str, Any]) -> list[tuple[datetime]]:
        read = self.log[datetime.fromisoformat(plan["interval"][0])]
        self.given += read
        return [(time,) for time in read]


class ByInterval(History):
    """The same by intervals in any order: none of them has a late record, and earlier ones count in closed windows."""

    length, number = 50, 14

    def source(self) -> Any:
        self.spouts, self.now = {"in": Cut()}, 3_000
        for number in range(self.number):
            self.draw(self.at(1_000 + number * self.length))
        return self.topology.new_stream("in", self.spouts["in"])

    def draw(self, begin: datetime) -> None:
        numbers = (5 * self.random.randrange(self.length // 5) for _ in range(self.random.randint(0, 6)))
        self.spouts["in"].log[begin] = [begin + number * self.unit for number in numbers]

    def arrive(self) -> None:
        self.plan()

    def plan(self) -> None:
        self.runs += 1
        taken = {of.start for (_, txid), of in self.ledger.tables.intervals.items() if self.alive(txid)}
        free = sorted(self.spouts["in"].log.keys() - taken)
        if free and len(self.open) < self.pending:
            begin = self.random.choice(free)
            of = Run(f"{self.runs}", interval=Interval(begin, begin + self.length * self.unit))
            coordinator.initialize_transaction(self.ledger, self.topology, of)

    def alive(self, txid: int) -> bool:
        return self.ledger.batch("t", txid).status is not BatchStatus.ABORTED

    def stays(self, _: Batch) -> bool:
        return False

    def correct(self, first: Batch) -> None:
        self.draw(self.ledger.tables.intervals["t", first.txid].start)

    def check(self) -> tuple[int, int]:
        counted, late = super().check()
        assert late == 0, "a record of an interval is late"
        assert counted == len(list(self.read())) * (SIZE // SLIDE if self.kind == SLIDING else 1), "records are lost"
        return counted, late
