"""The topology of a mixed history that others read: what befalls its batches, its states and its past, by steps at random.

After each step what its states show is what `model.mixed_oracle` reckons.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime
from random import Random
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

from contract.test_restate import restate_of
from model.mixed_oracle import Plain, Version, Windows, cells
from model.mixed_source import FIELDS, ByOffset, BySeen, Record, begin_of, parsed
from pairs import Cell, Met
from support import code, run, staged
from twin.definition_changes import ChangingLedger

from txbatch import AppendState, Count, OpaqueState, PartitionUnreadable, Topology, session_window, window
from txbatch.core.batch.manifest import Manifest
from txbatch.core.batch.transaction import Assignment, Batch, BatchKind, Restate, Run, TransactionAttempt
from txbatch.core.corrections.rebuild import Rebuild, Rebuilds, Swapped
from txbatch.core.corrections.retention import Retention
from txbatch.core.corrections.window_retention import Windows as Leaving
from txbatch.core.errors import BrokenChain, ChangeTooEarly, TerminalError, TransientError, TxbatchError
from txbatch.core.protocol import coordinator, planning_ahead
from txbatch.core.protocol.planning_again import plan_again
from txbatch.core.protocol.spout_coordinators import Coordinators
from txbatch.direct.emitter import emit_batch
from txbatch.postgres.ledger import PostgresLedger

JOB, KEEP = "job.py", 20 * 60_000_000


class Place(Protocol):
    """A ledger, and what is seen beside it: `contract.conftest` has both."""

    ledger: ChangingLedger | PostgresLedger
    rebuilds: Rebuilds
    retention: Retention
    windows: Leaving

    def as_partials(self, topology: Topology, partials: Any) -> Any: ...

    def report(self, topology: Topology, name: str) -> list[dict[str, Any]]: ...


class Shape(NamedTuple):
    """What is counted, and how."""

    by_interval: bool
    sessions: bool
    late: str
    numbered: bool
    keep_windows: bool

    @classmethod
    def drawn(cls, random: Random) -> Shape:
        late = random.choice(["merge", "drop", "drop", "side"])
        return cls(random.random() < 0.3, random.random() < 0.4, late, random.random() < 0.35, late != "merge")


def emitted(topology: Topology, assignment: Assignment, *given: Any) -> tuple[Manifest, Any]:
    """What an attempt stages, as either ledger takes it."""
    manifest, partials = emit_batch(topology, assignment, *given)
    of = {each.state.name: each for each in topology.aggregates}
    states = {
        name: replace(each, totals=staged(of[name], partials[name]).totals) for name, each in manifest.states.items()
    }
    return replace(manifest, states=states), partials


class Counting:
    """Windows of words, the records themselves, those that failed, and those that were late."""

    def __init__(self, random: Random, place: Place, tag: str = "", shape: Shape | None = None) -> None:
        self.random, self.place, self.ledger, self.tag = random, place, place.ledger, tag
        self.shape = shape or Shape.drawn(random)
        self.source: Any = (BySeen if self.shape.by_interval else ByOffset)(random)
        self.plain, self.met, self.came_to = Plain(self.shape.sessions, self.shape.late), Met(), Counter[str]()
        self.value, self.extra, self.runs = "n", False, 0
        self.status = dict[int, str]()
        self.trained, self.skipped, self.restates = set[int](), dict[int, int](), dict[int, int]()
        self.horizon, self.gone_rows, self.ever_pruned = 0, set[int](), set[int]()
        self.gone, self.left_to = set[tuple[datetime, str]](), 0
        self.rows_went, self.brought_back = set[int](), dict[int, set[int]]()
        self.shown, self.swapped, self.past = dict[int, Windows](), 0, set[int]()
        self.rebuild_of: Rebuild | None = None
        self.counted = dict[int, tuple[Record, ...]]()
        self.closed: dict[tuple[datetime, str], tuple[int, int]] = {}
        self.ever: set[tuple[str, int, int]] = set()
        self.next_number = 0
        self.up = self.counting()
        self.ledger.register(self.up, JOB)

    def name(self, of: str) -> str:
        return f"{of}{self.tag}"

    @property
    def start(self) -> str:
        return "session_start" if self.shape.sessions else "window_start"

    def counting(self, was: str | None = None) -> Topology:
        """The job as it is now."""
        pending = 1 if self.shape.numbered or self.shape.late == "side" else 3
        topology = Topology(self.name("up"), max_pending=pending, quarantine=1000)
        stream = topology.new_stream("in", self.source)
        stream = stream.with_watermark("at", "30 minutes", late=self.shape.late)
        stream = stream.numbered() if self.shape.numbered else stream
        stream = stream.each(parsed, "parsed boolean")
        by = session_window("at", "15 minutes") if self.shape.sessions else window("at", "40 minutes")
        keep = "20 minutes" if self.shape.keep_windows else None
        values: dict[str, Any] = {self.value: Count(was=was)}
        values |= {"extra": Count(since="now")} if self.extra else {}
        stream.group_by(by, "word").persistent_aggregate(OpaqueState(self.name("hours"), keep_windows=keep), **values)
        fields = ("at", "word", "number") if self.shape.numbered else ("at", "word")
        stream.project(*fields).persist(AppendState(self.name("kept"), prune=True))
        return topology

    def run(self, steps: int) -> None:
        for _ in range(steps):
            getattr(self, self.random.choice(self.steps))()

    steps: tuple[str, ...] = ()

    # ---- what there is

    def batch(self, txid: int) -> Batch:
        return self.ledger.batch(self.up.name, txid)

    def of_status(self, status: str) -> list[int]:
        return sorted(txid for txid, each in self.status.items() if each == status)

    @property
    def final(self) -> int:
        """The highest committed txid below all that are open."""
        below = min(self.of_status("open"), default=len(self.status) + 1)
        return max((txid for txid in self.of_status("committed") if txid < below), default=0)

    def windows(self) -> Windows:
        """What is there of windows."""
        return {key: each for key, each in self.plain.windows().items() if key not in self.gone}

    def look(self) -> None:
        """At a report: at that moment it shows what it will be said to have shown; the next reader reads up to there."""
        final, known = self.final, self.ledger.upstream.known(self.name("hours")).txid
        assert known == final, f"it is told up to txid {known}, and txid {final} is the last that stays"
        if final and final not in self.shown and final > self.swapped:
            self.shown[final] = self.windows()

    def compare(self) -> None:
        """What reports show is what all that counts amounts to."""
        rows = self.place.report(self.up, self.name("hours"))
        found = {(row[self.start], row["word"]): row[self.value] for row in rows}
        assert found == {key: each.n for key, each in self.windows().items()}, "other windows are there"
        kept = Counter(
            (row["batch"], row["at"], row["word"], row.get("number"))
            for row in self.place.report(self.up, self.name("kept"))
        )
        assert kept == self.plain.rows(self.gone_rows), "other records are kept"
        failed = Counter(row["batch"] for row in self.place.report(self.up, f"{self.up.name}_quarantine"))
        assert failed == self.plain.failed(self.gone_rows), "other records are in quarantine"
        if self.shape.late == "side":
            aside = Counter(
                (row["at"], row["word"]) for row in self.place.report(self.up, f"{self.name('hours')}_late")
            )
            assert aside == self.plain.aside(), "other records are late"

    # ---- batches

    def plan(self, together: int = 1) -> None:
        """Some records come, and a batch is planned, or several at once."""
        self.source.arrive()
        room = self.up.max_pending - len(self.of_status("open")) if together == 1 else together
        if room <= 0:
            return
        runs = [self.new_run(interval) for interval in self.intervals(together)]
        before = len(self.status)
        planned = planning_ahead.initialize_many(self.ledger, self.up, runs, behind=self.of_status("open"))
        new = [each for each in planned if each.txid > before]
        self.status |= {each.txid: "open" for each in new}
        if len(new) > 1:
            self.trained |= {each.txid for each in new}

    def new_run(self, interval: Any = None) -> Run:
        self.runs += 1
        return replace(run(f"{self.runs}"), interval=interval)

    def intervals(self, number: int) -> list[Any]:
        if not self.shape.by_interval:
            return [None] * number
        alive = (txid for txid, each in self.status.items() if each != "aborted" and txid not in self.restates)
        free = self.source.free({begin_of(self.batch(self.skipped.get(txid, txid))) for txid in alive})
        return free[:number] if self.random.random() < 0.8 else self.random.sample(free, min(number, len(free)))

    def train(self) -> None:
        """Several batches at once, behind each other, whatever is in flight."""
        for _ in range(3):
            self.source.arrive()
        if len(self.of_status("open")) < 3:
            self.plan(together=self.random.randint(2, 3))

    def emit(self, txid: int | None = None) -> Any:
        """An attempt; None where a partition could not be read."""
        if txid is None:
            if not self.of_status("open"):
                return None
            txid = self.random.choice(self.of_status("open"))
        batch = self.batch(txid)
        again = batch.kind is BatchKind.RESTATE
        self.source.away = {self.random.choice("ab")} if self.random.random() < 0.1 and not again else set()
        self.source.given = []
        assignment = self.ledger.start_attempt(batch, run(batch.lease_run or ""), code())
        try:
            manifest, partials = emitted(self.up, assignment)
            recorded = self.ledger.record_manifests([(assignment, manifest)])[0]
        except PartitionUnreadable:
            return None
        return recorded, partials, tuple(self.source.given)

    def commit(self) -> None:
        """The lowest open batch, or some of them one after the other."""
        for txid in self.of_status("open")[: self.random.choice([1, 1, 2, 3])]:
            made = self.emit(txid)
            if made is None:
                return
            self.commits(*made)

    def commits(self, batch: Batch, partials: Any, records: tuple[Record, ...]) -> None:
        shut, was = self.closed_to(), self.windows()
        try:
            done = self.ledger.commit(self.up, batch, self.place.as_partials(self.up, partials))
        except (BrokenChain, TerminalError) as error:
            self.given_back(batch, error)
            return
        assert done.applied
        self.status[batch.txid] = "committed"
        position, mark = batch.position, self.source.late_before(batch)
        base = batch.plan.base.get("in")
        if self.shape.numbered and batch.kind is BatchKind.ORDINARY:
            assert base == self.next_number, "numbers are left out, or given twice"
            self.next_number += len(records)
        touched = self.plain.commit(position, Version(batch.txid, records, mark), base)
        self.befell(batch, touched)
        self.closes(batch, was, shut)
        self.look()
        self.compare()

    def given_back(self, batch: Batch, error: TxbatchError) -> None:
        """What does not go on from what is committed is aborted; so are records that were given up, and have no numbers."""
        unnumbered = self.shape.numbered and batch.position in self.skipped
        assert isinstance(error, BrokenChain) or unnumbered, error
        self.ledger.abort(self.up.name, batch.txid, "it was not committed")
        self.status[batch.txid] = "aborted"
        self.came_to["given back"] += 1
        self.look()

    def befell(self, batch: Batch, touched: set[Cell]) -> None:
        """Keep what befell the cells of a batch."""
        version, befalls = self.plain.versions[batch.position], self.met.befalls
        if batch.kind is BatchKind.RESTATE:
            befalls("restate", touched)
            self.came_to["restated"] += 1
        if batch.txid in self.trained:
            befalls("trains", touched)
        if self.shape.numbered and batch.plan.base:
            befalls("numbered", cells(each for each in version.records if each.good))
        befalls("quarantine", cells(each for each in version.records if not each.good))
        befalls("late", cells(self.plain.late_of(version)))
        if self.shape.sessions:
            befalls("sessions", self.plain.together(batch.position))

    def closed_to(self) -> int | None:
        return self.ledger.closed_to(self.up.name).get(self.name("hours"))

    def closes(self, batch: Batch, was: Windows, shut: int | None) -> None:
        """Keep what a commit closes, which is nothing in which something had been closed before."""
        there, now = self.windows(), self.closed_to()
        assert shut is None or (now is not None and now >= shut), "it goes back"
        closed = {key: each for key, each in there.items() if now is not None and each.end <= now}
        for (start, word), each in closed.items():
            before = any(
                word == other and first <= each.last and each.first <= last for other, first, last in self.ever
            )
            if batch.kind is not BatchKind.RESTATE and not before and (shut is None or each.end > shut):
                self.closed[start, word] = (each.n, batch.txid)
                self.met.befalls("closings", each.cells(word))
        self.ever |= {(word, each.first, each.last) for (_, word), each in closed.items()}

    def abort(self) -> None:
        if self.of_status("open") and self.random.random() < 0.4:
            txid = self.random.choice(self.of_status("open"))
            self.ledger.abort(self.up.name, txid, "a test")
            self.status[txid] = "aborted"
            self.look()

    def skip(self) -> None:
        """An open batch, or an aborted one whose records nobody has read since, also while others are open below the new txid."""
        found = [*self.of_status("aborted")[-2:], *self.of_status("open")[:1]]
        found = [txid for txid in found if self.batch(txid).kind is BatchKind.ORDINARY]
        if not found:
            return
        txid = self.random.choice(found)
        read, shut = self.source.planned(self.batch(txid)), self.closed_to()
        try:
            skip = self.ledger.skip(self.up.name, txid, "a test")
        except TxbatchError:
            return
        self.status |= {txid: "aborted", skip.txid: "committed"}
        self.skipped[skip.txid] = txid
        self.came_to["skipped"] += 1
        self.met.befalls("skip", cells(read))
        assert self.closed_to() == shut, "a skip closes windows"
        self.look()

    def restate(self) -> None:
        """A committed batch, or one that was given up, is to be counted again."""
        known = [txid for txid in self.of_status("committed") if self.batch(txid).kind is not BatchKind.RESTATE]
        if not known or len(self.of_status("open")) >= self.up.max_pending:
            return
        position = self.random.choice(known[-4:])
        given_up = position in self.skipped and position not in self.plain.versions
        self.runs += 1
        again = restate_of(position, f"again {self.runs}", skipped=True)
        try:
            batch = coordinator.initialize_transaction(self.ledger, self.up, again)
        except TxbatchError as error:
            self.refused(position, error)
            return
        assert isinstance(batch, Batch), batch
        self.status[batch.txid], self.restates[batch.txid] = "open", position
        if self.random.random() < 0.7 and not given_up:
            self.source.mend(self.batch(position))
        if self.random.random() < 0.5:  # it is committed, and another batch after it
            for step in (self.commit, self.plan, self.commit):
                step()

    def refused(self, position: int, error: TxbatchError) -> None:
        """Only what is folded, or reaches what has left, is restated no more."""
        version = self.plain.versions.get(position)
        folded = (version.txid if version else position) <= self.horizon
        left = "left" in str(error) and self.left_to
        assert folded or left, f"position {position} was not counted again: {error}"
        self.came_to["not restated"] += 1

    # ---- all of it again

    def rebuild(self) -> None:
        """Some is counted anew, beside batches that go on; or all of it, and swapped."""
        if self.rebuild_of is None:
            try:
                self.rebuild_of = self.place.rebuilds.begin(self.up, JOB, code("new"), f"a test {self.runs}")
            except TxbatchError:
                assert not self.plain.versions.keys() - self.skipped.keys(), "a rebuild was refused"
                return
            for position in self.plain.versions:
                if self.random.random() < 0.2:
                    self.source.mend(self.batch(self.skipped.get(position, position)))
        whole = self.random.random() < 0.8
        for _ in range(10_000 if whole else self.random.randint(0, 3)):
            if not self.counts():
                break
        if whole:
            self.swap(self.rebuild_of)

    def counts(self) -> bool:
        """The next version is counted anew; False: there is none."""
        assert self.rebuild_of
        version = self.place.rebuilds.next(self.rebuild_of)
        if version is None:
            return False
        self.source.away, self.source.given = set(), []
        assignment = self.assigned(version)
        manifest, partials = emitted(self.up, assignment)
        given = self.place.as_partials(self.up, partials)
        assert self.place.rebuilds.count(self.rebuild_of, self.up, assignment, manifest, given)
        self.counted[version.txid] = tuple(self.source.given)
        return True

    def assigned(self, version: Batch) -> Assignment:
        name, asked = self.up.name, Restate(version.position, "a test")
        found, head = self.ledger.version(name, version.txid), self.ledger.head(name, run("rebuild"))
        with Coordinators() as coordinators:
            plan = plan_again(self.up, head, found, asked, self.ledger.upstream, coordinators)
        attempt = TransactionAttempt(version.txid, 0)
        return Assignment(name, attempt, uuid4().hex, plan, code("new"), version.position)

    def swap(self, rebuild: Rebuild) -> None:
        final, askable = self.final, [txid for txid in self.shown if self.askable(txid)]
        assert self.place.rebuilds.swap(rebuild, self.up) == Swapped(final)
        every = self.plain.rebuilt(self.counted)
        self.met.befalls("rebuild", every)
        for undone in ("leave", "prune", "gc"):
            self.met.ends(undone, every)
        self.rebuild_of, self.counted = None, {}
        self.past, self.swapped, self.horizon = set(askable), final, 0
        self.brought_back.setdefault(final, self.rows_went)
        self.rows_went, self.gone_rows, self.gone = set(), set(), set()
        self.came_to["swapped"] += 1
        self.look()
        self.compare()

    def askable(self, txid: int) -> bool:
        """Whether what was shown then can be asked for."""
        return txid in self.past if txid <= self.swapped else txid >= self.horizon

    def drop_past(self) -> None:
        try:
            if self.place.rebuilds.drop_past(self.up.name):
                self.past = set()
                self.came_to["dropped"] += 1
        except ChangeTooEarly:  # who reads it has still to read what the rebuild changed
            return

    # ---- what goes

    def fold(self) -> None:
        """Retention folds what readers need no more, and rows go."""
        wanted = self.final - self.random.randint(1, 3)
        try:
            list(self.place.retention.fold(self.up.name, wanted))
        except TransientError:
            assert self.rebuild_of is not None, "it was not folded"
            return
        before, self.horizon = self.horizon, self.place.retention.horizon(self.up.name)
        folded = {each for each in self.plain.versions if each <= self.horizon}
        new = {each: self.plain.versions[each].records for each in folded - self.gone_rows}
        self.came_to["folded"] += self.horizon > before
        self.rows_went |= {each for each, records in new.items() if any(record.good for record in records)}
        self.gone_rows |= folded
        self.ever_pruned |= folded
        self.met.befalls("gc", cells(each for records in new.values() for each in records))
        self.met.befalls("prune", cells(each for records in new.values() for each in records if each.good))
        self.compare()

    def leave(self) -> None:
        """All windows that may."""
        before, shut = self.windows(), self.closed_to()
        for _, left in self.place.windows.leave(self.up.name):
            self.left_to = max(
                self.left_to, left.before - 1
            )  # also where no window begins, until a rebuild has one there
        there = {(row[self.start], row["word"]) for row in self.place.report(self.up, self.name("hours"))}
        for key in before.keys() - there:
            each = before[key]
            assert each.end + KEEP <= (shut or 0), "a window leaves too early"
            self.gone.add(key)
            assert each.last <= self.left_to, "a window leaves that may not"
            self.met.befalls("leave", each.cells(key[1]))
            self.came_to["left"] += 1
        self.compare()

    # ---- other definitions

    def change(self) -> None:
        """A value is renamed, joins, or goes."""
        before = self.value, self.extra
        renames = self.random.random() < 0.6
        self.value = {"n": "m", "m": "n"}[self.value] if renames else self.value
        self.extra = self.extra if renames else not self.extra
        changed = self.counting(before[0] if renames else None)
        try:
            self.ledger.change(changed, JOB, "a test")
        except ChangeTooEarly:
            self.value, self.extra = before
            self.came_to["changed too early"] += 1
            return
        self.up = changed
        self.met.befalls("change", self.cells_of(self.windows()))
        self.came_to["changed"] += 1
        self.compare()

    def cells_of(self, windows: Windows) -> set[Cell]:
        return {cell for (_, word), each in windows.items() for cell in each.cells(word)}

    def other_time(self) -> None:
        """The watermark is to follow another field: what is late is by that of before, so that is refused."""
        if not self.plain.versions:
            return
        other = Topology(self.up.name, max_pending=self.up.max_pending, quarantine=1000)
        self.source.fields = f"{FIELDS}, other timestamp"
        stream = other.new_stream("in", self.source).with_watermark("other", "30 minutes", late=self.shape.late)
        stream.group_by(window("other", "40 minutes"), "word").persistent_aggregate(
            OpaqueState(self.name("hours")), **{self.value: Count()}
        )
        for refused in (
            lambda: self.ledger.change(other, JOB, "a test"),
            lambda: self.place.rebuilds.begin(other, JOB, code("other"), "a test"),
        ):
            try:
                refused()
            except ChangeTooEarly:
                continue
            except TerminalError as error:
                if any(each in str(error) for each in ("watermark", "rebuild", "counted nothing")):
                    continue
            raise AssertionError("records are late by another time than plans say")
        self.source.fields = FIELDS
