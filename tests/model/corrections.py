"""Random histories of corrections, on either ledger, held against a model that keeps everything (R2, R6, R16..R19).

A history is a list of steps, drawn from a seed; each names a verb and two numbers, which say what of, and is left out where
there is nothing to do it to. So any part of a history is one, too: what fails is told by the shortest that still does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from random import Random
from typing import Any, NamedTuple
from zlib import crc32

from model.kept import Kept, Record
from model.places import Place
from support import ListSpout, code, manifest_of

from txbatch import (
    Avg,
    Count,
    Max,
    Min,
    NonTransactionalState,
    OpaqueState,
    PartitionedSpout,
    SpoutKind,
    Sum,
    Topology,
    TransactionalState,
)
from txbatch.core.batch.manifest import ReadPartition
from txbatch.core.batch.plan import Ranges
from txbatch.core.batch.transaction import Assignment, Batch, BatchKind, Interval, Metadata, Restate, Run
from txbatch.core.errors import BrokenChain, Incomplete, NotItsTurn, PartitionUnreadable, TerminalError
from txbatch.core.protocol import coordinator
from txbatch.core.state.state import State
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.direct.emitter import partials_of

STREAM, FIELDS = "in", "word string, n bigint, gone boolean"
DAY, START = timedelta(days=1), datetime(2024, 1, 1, tzinfo=UTC)
DAYS = 3
EXACTLY_ONCE = {SpoutKind.OPAQUE: (OpaqueState,), SpoutKind.TRANSACTIONAL: (OpaqueState, TransactionalState)}
WORDS = "abc"
START_WITH = (1, 5, 3, 12, 7)
VERBS = {"whole": 8, "plan": 2, "emit": 2, "commit": 3, "restate": 9, "abort": 1, "skip": 1, "change": 5, "late": 2}
VERBS |= {"expire": 1, "again": 1}


class Step(NamedTuple):
    verb: str
    which: int
    how: int


class Log(PartitionedSpout):
    """Partitions whose records may turn out wrong, and be other ones."""

    fields = FIELDS

    def __init__(self, kind: SpoutKind) -> None:
        self.kind, self.records = kind, dict[str, list[Record]]()

    @property
    def identity(self) -> Metadata:
        return {"spout": "Log"}

    def partitions(self) -> Sequence[str]:
        return sorted(self.records)

    def emit_partition_batch_new(self, attempt: Any, partition: str, last_metadata: Metadata | None) -> Metadata | None:
        start = last_metadata["end"] if last_metadata else 0
        end = min(start + 2, len(self.records[partition]))
        return {"start": start, "end": end} if start < end else None

    def emit_partition_batch(self, *_: Any) -> Any:
        raise AssertionError("planned only")


class Days(ListSpout):
    """A source that is read by time: a day's records are what has come of it until then."""

    fields, by_interval = FIELDS, True

    def __init__(self, kind: SpoutKind) -> None:
        super().__init__(kind=kind)
        self.records = dict[str, list[Record]]()

    def initialize_transaction(self, txid: int, prev_metadata: Any, curr_metadata: Any) -> Metadata:
        return {**curr_metadata}


class Shape(NamedTuple):
    """What is counted, and how."""

    by_interval: bool
    spout: SpoutKind
    state: type[State]
    removable: bool
    max_pending: int

    @property
    def guarantee(self) -> str:
        """What this spout and this state give together."""
        return "exactly_once" if self.state in EXACTLY_ONCE[self.spout] else "at_least_once"

    @lru_cache(maxsize=256)  # noqa: B019 - of few shapes, by value
    def topology(self, name: str) -> Topology:
        """Every aggregate that can be restated, over one stream."""
        topology = Topology(name, self.max_pending)
        spout = Days(self.spout) if self.by_interval else Log(self.spout)
        remove: Any = {"remove": lambda record: record["gone"]} if self.removable else {}
        topology.new_stream(STREAM, spout).group_by("word").persistent_aggregate(
            self.state(name),
            guarantee=self.guarantee,
            count=Count(),
            sum=Sum("n"),
            min=Min("n"),
            max=Max("n"),
            mean=Avg("n"),
            **remove,
        )
        return topology


def drawn(seed: int) -> tuple[Shape, list[Step]]:
    """The history of a seed."""
    random = Random(seed)
    shape = Shape(
        by_interval=random.random() < 0.3,
        spout=random.choice([SpoutKind.OPAQUE, SpoutKind.TRANSACTIONAL]),
        state=random.choice([OpaqueState, OpaqueState, TransactionalState, NonTransactionalState]),
        removable=random.random() < 0.4,
        max_pending=random.randint(1, 3),
    )
    verbs = random.choices(list(VERBS), list(VERBS.values()), k=random.randint(3, 11))
    return shape, [Step(verb, random.randrange(1000), random.randrange(1000)) for verb in verbs]


@dataclass
class Work:
    """A txid on its way: whose it is, what it is to read, and what its newest attempt read of each partition."""

    run: Run
    batch: Batch
    live: bool = True
    emitted: Batch | None = None
    read: Mapping[str, Sequence[Record] | None] = field(default_factory=dict)
    seen: list[Mapping[str, Sequence[Record] | None]] = field(default_factory=list)

    @property
    def records(self) -> list[Record]:
        return [record for part in self.read.values() for record in part or ()]

    @property
    def ranges(self) -> dict[str, tuple[int, int]]:
        planned = self.batch.plan.streams[STREAM]
        assert isinstance(planned, Ranges)
        return {name: (each["start"], each["end"]) for name, each in planned.ranges.items()}


class History:
    """A topology on a ledger, what happens to it, and what the model knows of it."""

    def __init__(self, place: Place, name: str, shape: Shape) -> None:
        self.place, self.ledger, self.shape = place, place.ledger, shape
        self.topology = shape.topology(name)
        self.spout: Any = self.topology.streams[STREAM].spout
        self.kept, self.story = Kept(), list[str]()
        self.horizon = 0  # what was shown before it can be asked for no more
        self.batches: dict[int, Work] = {}
        self.status: dict[int, str] = {}
        self.skips: dict[int, int] = {}  # what was given up: the txid that did, and the one that was to read it
        self.consumed: dict[str, int] = {}
        self.runs: list[Run] = []
        self.spout.records = {}
        if not shape.by_interval:
            self.spout.records = {name: [self.record(n) for n in START_WITH] for name in "pq"}
        self.ledger.register(self.topology, "jobs/model.py")

    @property
    def aggregate(self) -> PersistentAggregate:
        return self.topology.aggregates[0]

    def of_status(self, status: str) -> list[Work]:
        """By txid."""
        return [self.batches[txid] for txid in sorted(self.batches) if self.status[txid] == status]

    def tell(self, step: Step) -> None:
        """One step, and what must hold after it."""
        self.story.append(f"{step.verb} {step.which} {step.how}")
        getattr(self, f"do_{step.verb}")(step.which, step.how)
        self.look()

    def look(self) -> None:
        """At a report: at that moment it shows what it will be said to have shown."""
        for txid in range(1, len(self.status) + 1):
            if self.status[txid] == "open":
                return
            self.kept.final(txid)

    # ---- steps

    def do_whole(self, which: int, how: int) -> None:
        """A new batch, or the lowest one that is under way, where no more may be."""
        found = self.of_status("open")
        self.through(found[0] if len(found) == self.shape.max_pending else self.ask(self.new_run(which)), how)

    def do_plan(self, which: int, _: int) -> None:
        self.ask(self.new_run(which))

    def do_restate(self, which: int, how: int) -> None:
        """Of any txid that there is, and of some that must be refused."""
        if not self.status:
            return
        txid = 1 + which % min(len(self.status), 3)
        again = Restate(txid, "it was wrong", "anna", accept_missing=how % 5 == 0, skipped=how % 2 == 0)
        run = Run(f"run {len(self.runs)}", restate=again)
        self.runs.append(run)
        work = self.ask(run)
        if how % 3:
            self.through(work, how)

    def do_again(self, which: int, how: int) -> None:
        """A run comes back, and finds what it has, or has nothing."""
        if self.runs:
            self.through(self.ask(self.runs[which % len(self.runs)]), how)

    def do_emit(self, which: int, how: int) -> None:
        if found := self.of_status("open"):
            self.emit(found[which % len(found)], how)

    def do_commit(self, which: int, _: int) -> None:
        if found := [each for each in self.of_status("open") if each.emitted]:
            self.commit(found[which % len(found)])

    def do_abort(self, which: int, _: int) -> None:
        if found := self.of_status("open"):
            work = found[which % len(found)]
            self.ledger.abort(self.topology.name, work.batch.txid, "not wanted")
            self.note(work, "aborted")

    def do_skip(self, which: int, _: int) -> None:
        """The lowest open batch, if nothing is planned behind it."""
        found = self.of_status("open")
        if not found or found[0].batch.kind is not BatchKind.ORDINARY or len(found) > 1:
            return
        work, txid = found[0], len(self.status) + 1
        if self.broken(work):
            return
        skip = self.ledger.skip(self.topology.name, work.batch.txid, "given up")
        assert skip.txid == txid
        assert skip.kind is BatchKind.SKIP
        self.note(work, "aborted")
        self.skips[txid] = work.batch.txid
        self.batches[txid] = Work(work.run, skip)
        self.note(self.batches[txid], "committed")
        self.kept.commit(txid, txid, [])
        if not self.shape.by_interval:
            self.consumed |= {name: end for name, (_, end) in work.ranges.items()}

    def do_change(self, which: int, how: int) -> None:
        """A record was wrong: it is another one now, for a log in its place."""
        if parts := [part for _, part in sorted(self.spout.records.items()) if part]:
            part = parts[which % len(parts)]
            part[how % len(part)] = self.record(how // 7)

    def do_late(self, which: int, how: int) -> None:
        """Records come: at a partition's end, in a day whenever that was."""
        names = [self.day(each) for each in range(DAYS)] if self.shape.by_interval else "pqr"
        self.spout.records.setdefault(names[which % 3], []).extend(self.record(how + n) for n in range(1 + how % 2))

    def do_expire(self, *_: int) -> None:
        self.place.expire(self.topology.name)
        for work in self.of_status("open"):
            work.live = False

    # ---- what steps are made of

    def new_run(self, which: int) -> Run:
        start = START + which % DAYS * DAY
        run = Run(f"run {len(self.runs)}", interval=Interval(start, start + DAY) if self.shape.by_interval else None)
        if self.shape.by_interval:  # a day is counted once: whoever asks for it meets the same batch
            run = next((each for each in self.runs if each.interval == run.interval), run)
        self.runs.append(run)
        return run

    def record(self, number: int) -> Record:
        n = None if number % 11 == 0 else number % 13 - 6
        return Record(WORDS[number % len(WORDS)], n, self.shape.removable and number % 5 == 0)

    def ask(self, run: Run) -> Work | None:
        """The run's batch, which is what the model says it must be; None where it has none now."""
        own = self.own(run)
        adopted = None if own else self.adopted(run)
        full = len(self.of_status("open")) >= self.shape.max_pending
        must_refuse = run.restate is not None and not (own or adopted or full) and not self.restatable(run.restate)
        try:
            found = coordinator.initialize_transaction(self.ledger, self.topology, run)
        except TerminalError:
            assert must_refuse, f"{run} was refused"
            return None
        if not isinstance(found, Batch):
            assert not own
            assert not adopted
            assert full or self.plan_of(run) == {}, f"{run} found nothing"
            return None
        assert not must_refuse, f"{run} was not refused"
        if (work := own or adopted) is not None:
            assert found.txid == work.batch.txid
            return None if self.status[found.txid] != "open" else work
        return self.planned(found, run)

    def planned(self, batch: Batch, run: Run) -> Work:
        """A new txid, which reads what it must."""
        assert batch.txid == len(self.status) + 1
        position = run.restate.position if run.restate else batch.txid
        assert batch.position == position
        work = Work(run, batch)
        if not self.shape.by_interval:
            assert work.ranges == self.plan_of(run), f"txid {batch.txid} reads {work.ranges}"
        else:
            of = self.batches[position].run.interval if run.restate else run.interval
            assert of
            assert batch.plan.streams[STREAM].plan["interval"][0] == of.start.isoformat()
        ordinary = [
            n
            for n, each in self.status.items()
            if each != "aborted" and self.batches[n].batch.kind != BatchKind.RESTATE
        ]
        assert run.restate or batch.prev_txid == max(ordinary, default=None)
        self.batches[batch.txid], self.status[batch.txid] = work, "open"
        return work

    def plan_of(self, run: Run) -> Mapping[str, tuple[int, int]]:
        """What the next txid of a log must read for a run."""
        if run.restate:
            work = self.batches[self.skips.get(run.restate.position, run.restate.position)]
            given_up = run.restate.position in self.skips
            return {name: each for name, each in work.ranges.items() if given_up or work.read[name] is not None}
        starts = dict(self.consumed)
        for work in self.of_status("open"):
            if work.batch.kind is BatchKind.ORDINARY:
                starts |= {name: end for name, (_, end) in work.ranges.items()}
        ends = {name: (starts.get(name, 0), len(part)) for name, part in self.spout.records.items()}
        return {name: (start, min(start + 2, end)) for name, (start, end) in ends.items() if start < end}

    def own(self, run: Run) -> Work | None:
        """The run's batch that is not aborted."""
        for txid in sorted(self.batches, reverse=True):
            work = self.batches[txid]
            if work.batch.key == run.key and self.status[txid] != "aborted":
                return work
        return None

    def adopted(self, run: Run) -> Work | None:
        """The batch that the run takes over first; those that it cannot are aborted."""
        for work in [each for each in self.of_status("open") if not each.live]:
            if work.batch.kind is BatchKind.ORDINARY and not self.shape.by_interval:
                work.run, work.live = run, True
                return work
            self.note(work, "aborted")
        return None

    def restatable(self, again: Restate) -> bool:
        """Whether this txid may be counted again."""
        current = self.kept.current(again.position)
        if self.status[again.position] != "committed" or self.batches[again.position].batch.kind is BatchKind.RESTATE:
            return False
        return current is not None and (current.txid not in self.skips or again.skipped)

    def through(self, work: Work | None, how: int) -> None:
        if work is not None and self.emit(work, how):
            self.commit(work)

    def emit(self, work: Work, how: int) -> bool:
        """A new attempt reads what is there now; an opaque spout leaves a partition out at times. Whether it was taken."""
        read = self.read(work)
        may = self.shape.spout is SpoutKind.OPAQUE or work.batch.kind is BatchKind.RESTATE
        if how % 4 == 0 and len(read) > 1 and may:
            read[sorted(read)[how % len(read)]] = None
        assignment = self.ledger.start_attempt(work.batch, work.run, code())
        work.live, work.emitted = True, None
        try:
            emitted = self.ledger.record_manifests([(assignment, self.manifest(work, assignment, read))])[0]
        except (Incomplete, PartitionUnreadable):
            assert self.must_refuse(work, read), f"txid {work.batch.txid}: what was read was refused"
            return False
        assert not self.must_refuse(work, read), f"txid {work.batch.txid}: what was read was taken"
        work.emitted, work.read = emitted, read
        work.seen.append(read)
        return True

    def read(self, work: Work) -> dict[str, Sequence[Record] | None]:
        if self.shape.by_interval:
            (name,) = work.batch.plan.streams[STREAM].ranges
            day = work.batch.plan.streams[STREAM].plan["interval"][0][:10]
            return {name: list(self.spout.records.get(day, ()))}
        return {name: list(self.spout.records[name][start:end]) for name, (start, end) in work.ranges.items()}

    def must_refuse(self, work: Work, read: Mapping[str, Sequence[Record] | None]) -> bool:
        """A transactional source that is another one at the retry, and a restate that is not whole."""
        again = work.run.restate if work.batch.kind is BatchKind.RESTATE else None
        hole = again is not None and not again.accept_missing and None in read.values()
        other = any(part not in (None, read[name]) for seen in work.seen for name, part in seen.items())
        return hole or (self.shape.spout is SpoutKind.TRANSACTIONAL and other)

    def manifest(self, work: Work, assignment: Assignment, read: Mapping[str, Sequence[Record] | None]) -> Any:
        told = {
            name: ReadPartition(len(part), str(crc32(repr(part).encode())))
            for name, part in read.items()
            if part is not None
        }
        away = {STREAM: {name: "it is away" for name, part in read.items() if part is None}}
        partials = self.partials([record for part in read.values() for record in part or ()])
        return manifest_of(self.topology, assignment, partials, streams={STREAM: told}, unreadable=away)

    def partials(self, records: Sequence[Record]) -> dict[str, Any]:
        return {self.topology.name: partials_of(self.aggregate, [each._asdict() for each in records])}

    def commit(self, work: Work) -> None:
        """If it is its turn, and it goes on where others have ended; else nothing happens, or it is aborted."""
        assert work.emitted is not None
        txid, lowest = work.batch.txid, self.of_status("open")[0]
        partials = self.place.as_partials(self.topology, self.partials(work.records))
        try:
            done = self.ledger.commit(self.topology, work.emitted, partials)
        except NotItsTurn:
            assert lowest is not work
            return
        except BrokenChain:
            assert self.broken(work), f"txid {txid} goes on, and was refused"
            self.ledger.abort(self.topology.name, txid, "broken")
            return self.note(work, "aborted")
        assert done.applied
        assert lowest is work
        assert not self.broken(work)
        assert self.ledger.success(self.topology.name, txid)
        self.look()
        self.note(work, "committed")
        self.kept.commit(txid, work.batch.position, work.records)
        if not self.shape.by_interval and work.batch.kind is BatchKind.ORDINARY:
            self.consumed |= {name: end for name, (_, end) in work.ranges.items() if work.read[name] is not None}
        found = self.place.report(self.topology)
        assert found == self.kept.report, f"txid {txid}: reports show {found}, not {self.kept.report}"

    def broken(self, work: Work) -> bool:
        """An earlier one left out what this one would go on from."""
        if self.shape.by_interval or work.batch.kind is BatchKind.RESTATE:
            return False
        return any(self.consumed.get(name, 0) != start for name, (start, _) in work.ranges.items())

    def note(self, work: Work, status: str) -> None:
        self.status[work.batch.txid] = status

    def day(self, number: int) -> str:
        return f"{START + number * DAY:%Y-%m-%d}"

    # ---- at the end

    def check(self) -> None:
        """What the ledger says of each batch, and what reports show and showed."""
        for txid, work in self.batches.items():
            batch, version = self.ledger.batch(self.topology.name, txid), self.kept.versions.get(txid)
            open_ = not batch.status.final
            assert self.status[txid] == ("open" if open_ else str(batch.status)), f"txid {txid} is {batch.status}"
            assert (batch.position, batch.replaced_by) == (work.batch.position, version and version.replaced_by)
        assert self.place.report(self.topology) == self.kept.report
        self.check_past()

    def check_past(self) -> None:
        """What reports showed after every txid that can be asked for."""
        newest = max(self.kept.versions, default=0)
        for txid in [each for each in self.kept.shown if self.askable(each) and each <= newest]:
            found = self.place.as_of(self.topology, txid)
            assert found == self.kept.shown[txid], f"as of {txid}: {found}, not {self.kept.shown[txid]}"

    def askable(self, txid: int) -> bool:
        """Whether what was shown when this txid was the newest can be asked for."""
        return txid >= self.horizon


def found_wrong(history: History, steps: Sequence[Step]) -> Exception | None:
    """Tell a history, and return what was wrong with it; None: nothing."""
    try:
        for step in steps:
            history.tell(step)
        history.check()
    except Exception as error:  # whatever a ledger raises that the model did not expect
        return error
    return None


def shortest(steps: Sequence[Step], fails: Callable[[Sequence[Step]], bool]) -> list[Step]:
    """Leave out all steps without which a history still fails."""
    least, at = list(steps), 0
    while at < len(least):
        without = least[:at] + least[at + 1 :]
        least, at = (without, at) if fails(without) else (least, at + 1)
    return least
