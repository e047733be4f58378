"""Watermarks: where commits move them, what is late by a plan, and what stays so when a batch is counted again (R25)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from contract.test_restate import restate_of
from support import ListSpout, LogSpout, code, manifest_of, run

from txbatch import Count, OpaqueState, Topology, session_window, window
from txbatch.core.batch.manifest import Manifest
from txbatch.core.batch.transaction import Assignment, Batch, Interval, Run, TransactionAttempt
from txbatch.core.errors import SchemaMismatch
from txbatch.core.protocol import coordinator, planning_ahead
from txbatch.core.records.time_buckets import micros_of
from txbatch.core.sources.spout import SpoutKind
from txbatch.core.windows.session_window import SessionWindow
from txbatch.core.windows.window import Window
from txbatch.direct.emitter import counting, described, partials_of
from txbatch.direct.operations import records

pytestmark = pytest.mark.rule("R25")
# Minutes of a day long ago, of each partition; None could not be read.
Minutes = Mapping[str, Sequence[int] | None]
DAY = datetime(2026, 1, 5, tzinfo=UTC)
FUTURE = 75 * 365 * 24 * 60
HOURS = window("at", "1 hour")


def at(minutes: int) -> datetime:
    return DAY + timedelta(minutes=minutes)


class Visits:
    """A topology that counts visits by hours, ten minutes behind at most, on one of both ledgers."""

    def __init__(
        self,
        backing: Any,
        delay: str | None = "10 minutes",
        name: str = "visits",
        late: str = "merge",
        by: Window | SessionWindow = HOURS,
        of: str = "at",
        **more: Any,
    ) -> None:
        self.backing, self.ledger = backing, backing.ledger
        self.spout: Any = LogSpout({"a": 10}, kind=SpoutKind.OPAQUE)
        self.spout.fields = "at timestamp, shop string" + ", seen timestamp" * (of == "seen")
        self.topology = Topology("visits", max_pending=3)
        self.name, self.by = name, by
        stream = self.topology.new_stream(name, self.spout, **more)
        stream = stream if delay is None else stream.with_watermark(of, delay, late=late)
        grouped = stream.group_by(by if of == "at" else window(of, "1 hour"), "shop")
        self.aggregate = grouped.persistent_aggregate(OpaqueState("visits"), visits=Count())

    def planned(self, of: Run, *partitions: str) -> Batch:
        """The next batch, of these partitions."""
        lengths = self.spout.lengths
        self.spout.lengths = dict.fromkeys(partitions or ("a",), 1000000)
        self.ledger.register(self.topology, "jobs/job.py")
        batch = coordinator.initialize_transaction(self.ledger, self.topology, of)
        self.spout.lengths = lengths
        assert isinstance(batch, Batch), batch
        return batch

    def emit(self, batch: Batch, minutes: Minutes, name: str = "run") -> Any:
        """An attempt, as it is made in memory; returns what is to be committed."""
        assignment = self.backing.attempt(batch, name)
        manifest, partials = self.told(assignment, minutes)
        self.ledger.record_manifests([(assignment, manifest)])
        return partials

    def record(self, minute: int) -> dict[str, Any]:
        """A visit at a minute of the day."""
        return {"at": at(minute), "shop": "x"}

    def told(self, assignment: Assignment, minutes: Minutes) -> tuple[Manifest, Any]:
        """What an attempt says that it has read, and its partials."""
        read = {at_: [self.record(each) for each in of] for at_, of in minutes.items() if of is not None}
        reached = list(records(self.aggregate.stream, {self.name: read}))
        counted = {
            each.state.name: counting(each, reached, assignment.plan.watermark) for each in self.topology.aggregates
        }
        partials = {
            each.state.name: partials_of(
                each, counted[each.state.name][0], assignment.position, each.late_before(assignment.plan.watermark)
            )
            for each in self.topology.aggregates
        }
        watermarks = self.topology.watermarks
        time = watermarks[self.name].time if watermarks else None
        manifest = manifest_of(self.topology, assignment, partials)
        states = {name: replace(manifest.states[name], kept=len(of), late=late) for name, (of, late) in counted.items()}
        streams = {self.name: {at_: described(part, time, assignment.planned_at) for at_, part in read.items()}}
        holes = {self.name: {at_: "it is away" for at_, of in minutes.items() if of is None}}
        unreadable = holes if holes[self.name] else {}
        return replace(manifest, streams=streams, states=states, unreadable=unreadable), partials

    def commit(self, batch: Batch, partials: Any) -> tuple[int | None, int | None]:
        """Where the watermark is then, in minutes of the day, and how many records were late."""
        assert self.backing.commit(self.topology, batch, partials).applied
        return self.times(batch.txid)

    def times(self, txid: int) -> tuple[int | None, int | None]:
        watermark, late = self.backing.times("visits", txid)
        mark = None if watermark is None else (watermark[self.name] - micros_of(DAY)) // 60_000_000
        return mark, None if late is None else late["visits"]

    def counts(self, name: str | Run, **minutes: Sequence[int] | None) -> tuple[int | None, int | None]:
        of = name if isinstance(name, Run) else run(name)
        batch = self.planned(of, *minutes)
        return self.commit(batch, self.emit(batch, minutes, of.name))


def test_a_record_of_a_window_that_had_ended_by_the_plan_counts_and_is_counted_as_late(backing: Any) -> None:
    visits = Visits(backing)
    assert visits.counts("1", a=[5, 69]) == (59, 0)
    assert visits.counts("2", a=[3, 70, 71]) == (61, 0)
    assert visits.counts("3", a=[3, 59, 60, 40]) == (61, 3)
    assert visits.counts("4", a=[600]) == (590, 0)
    hours = {row["window_start"]: row["visits"] for row in backing.report(visits.topology, "visits")}
    assert hours == {at(0): 5, at(60): 4, at(600): 1}


def test_all_attempts_of_a_batch_and_its_restates_find_the_same_records_late(backing: Any) -> None:
    visits = Visits(backing)
    visits.counts("1", a=[69])
    second, third = visits.planned(run("2")), visits.planned(run("3"))
    assert [each.plan.watermark for each in (second, third)] == 2 * [{"visits": micros_of(at(59))}]
    visits.emit(third, {"a": [5]}, "3")
    assert visits.commit(second, visits.emit(second, {"a": [5, 500]}, "2")) == (490, 0)
    assert visits.commit(third, visits.emit(third, {"a": [5, 65]}, "3")) == (490, 0)
    assert visits.counts("4", a=[5]) == (490, 1)
    again = visits.planned(restate_of(3), "a")
    assert again.plan.watermark == third.plan.watermark
    assert visits.commit(again, visits.emit(again, {"a": [5, 900]}, "again")) == (None, 0)
    assert visits.counts("5", a=[470, 490]) == (490, 1)


def test_batches_that_are_planned_together_and_their_restates_say_what_each_would_alone(backing: Any) -> None:
    visits = Visits(backing)
    assert visits.counts("1", a=[69]) == (59, 0)
    visits.spout.lengths = {"a": 1_000_025}
    ahead = planning_ahead.initialize_many(visits.ledger, visits.topology, [run("2"), run("3")])
    assert [each.plan.watermark for each in ahead] == 2 * [{"visits": micros_of(at(59))}]
    for batch, name, minutes in zip(ahead, "23", ([500], [5, 65]), strict=True):
        assert visits.commit(batch, visits.emit(batch, {"a": minutes}, name)) == (490, 0)
    again = planning_ahead.initialize_many(visits.ledger, visits.topology, [restate_of(1), restate_of(3)])
    assert [each.plan.watermark for each in again] == [{}, {"visits": micros_of(at(59))}]


def test_a_partition_that_is_known_to_be_behind_holds_it(backing: Any) -> None:
    visits = Visits(backing)
    assert visits.counts("1", a=[30], b=[40]) == (20, 0)
    assert visits.counts("2", a=[300], b=None) == (30, 0)
    assert visits.counts("3", a=[400]) == (30, 0)
    assert visits.counts("4", b=[200]) == (190, 0)
    assert visits.counts("5", a=[410]) == (400, 0)


def test_a_partition_of_an_aborted_batch_holds_it_until_it_is_read(backing: Any) -> None:
    visits = Visits(backing)
    assert visits.counts("1", a=[30], b=[40]) == (20, 0)
    aborted, after = visits.planned(run("2"), "b"), visits.planned(run("3"), "a")
    visits.ledger.abort("visits", aborted.txid, "a test")
    assert visits.commit(after, visits.emit(after, {"a": [500]}, "3")) == (30, 0)
    assert visits.counts("4", b=[600]) == (590, 0)


def test_a_partition_that_was_never_read_keeps_it_where_it_is_until_it_is_given_up(backing: Any) -> None:
    visits = Visits(backing)
    assert visits.counts("1", a=[30]) == (20, 0)
    aborted, after = visits.planned(run("2"), "new"), visits.planned(run("3"), "a")
    visits.ledger.abort("visits", aborted.txid, "a test")
    assert visits.commit(after, visits.emit(after, {"a": [500]}, "3")) == (20, 0)
    visits.ledger.skip("visits", aborted.txid, "it is lost")
    assert visits.counts("4", a=[510]) == (500, 0)


def test_it_is_behind_also_where_an_older_batch_reads_it_after_the_abort(backing: Any) -> None:
    visits = Visits(backing)
    assert visits.counts("1", a=[30], b=[40]) == (20, 0)
    older, aborted = visits.planned(run("2"), "b"), visits.planned(run("3"), "b")
    visits.ledger.abort("visits", aborted.txid, "a test")
    assert visits.commit(older, visits.emit(older, {"b": [100]}, "2")) == (90, 0)
    assert visits.counts("4", a=[500]) == (90, 0)
    assert visits.counts("5", a=[510], b=None) == (90, 0)
    assert visits.counts("6", b=[600]) == (590, 0)


def test_a_partition_of_a_batch_that_was_to_count_again_is_not_behind(backing: Any) -> None:
    visits = Visits(backing)
    assert visits.counts("1", a=[30]) == (20, 0)
    again = visits.planned(restate_of(1), "a")
    visits.ledger.abort("visits", again.txid, "a test")
    assert visits.counts("2", a=[500]) == (490, 0)


def test_a_record_a_century_ahead_counts_as_of_when_its_batch_was_planned(backing: Any) -> None:
    visits = Visits(backing)
    assert visits.counts("1", a=[30]) == (20, 0)
    mark, late = visits.counts("2", a=[FUTURE])
    assert mark is not None
    assert abs(timedelta(minutes=mark + 10) + DAY - datetime.now(UTC)) < timedelta(days=1)
    assert late == 0
    assert visits.counts("3", a=[40, FUTURE - 60])[1] == 1


def test_records_ahead_of_their_batch_are_counted_with_the_greatest_time(backing: Any) -> None:
    """Also of a partition whose other records are in time, and of a restate; those of the year 9999 or later as of that."""
    visits = Visits(backing)
    visits.counts("1", a=[30])
    visits.counts("2", a=[40, FUTURE, FUTURE - 60], b=[50], c=[FUTURE - 120])
    visits.counts("3", a=[60], b=None)
    again = visits.planned(restate_of(1), "a")
    visits.commit(again, visits.emit(again, {"a": [30, FUTURE]}, "again"))
    visits.counts("5", a=[70, (datetime(9999, 12, 31, 12, tzinfo=UTC) - DAY) // timedelta(minutes=1)])
    found = [visits.backing.ahead("visits", txid) for txid in range(1, 6)]
    assert found[:4] == [None, (3, at(FUTURE)), None, (1, at(FUTURE))]
    assert found[4] == (1, datetime(9999, 12, 31, tzinfo=UTC))


def test_a_batch_without_times_moves_nothing(backing: Any) -> None:
    visits = Visits(backing)
    assert visits.counts("1", a=[30]) == (20, 0)
    assert visits.counts("2", a=[]) == (20, 0)


def test_another_delay_holds_from_now_on_and_is_applied_by_a_change(backing: Any) -> None:
    Visits(backing, None).counts("1", a=[30])
    told = r"stream 'visits' changes from no watermark to a watermark 10 minutes behind at, late='merge'.*from now on"
    with pytest.raises(SchemaMismatch, match=told):
        Visits(backing).planned(run("2"))
    first, second = Visits(backing), Visits(backing, "1 hour")
    backing.ledger.change(first.topology, "jobs/job.py", "a test")
    assert first.counts("2", a=[100]) == (90, 0)
    told = "from a watermark 10 minutes behind at, late='merge' to a watermark 1 hour behind at, late='merge'"
    with pytest.raises(SchemaMismatch, match=told):
        second.planned(run("3"))
    backing.ledger.change(second.topology, "jobs/job.py", "a test")
    assert second.counts("3", a=[110, 20]) == (90, 1)
    assert second.counts("4", a=[200]) == (140, 0)


@pytest.mark.rule("R23")
def test_a_watermark_of_another_time_is_refused_by_change_and_by_rebuild(backing: Any) -> None:
    """The other lies 9 days earlier: by the marks that batches have, each of its records would be late."""
    visits, other = (Days(backing, "seen", late="drop", of=of) for of in ("at", "seen"))
    visits.counts_day(visits.plans(5), 5, 5)
    told = "from a watermark 10 minutes behind at, late='drop' to a watermark 10 minutes behind seen, late='drop'"
    with pytest.raises(SchemaMismatch, match=told):
        backing.ledger.change(other.topology, "jobs/job.py", "a test")
    with pytest.raises(SchemaMismatch, match=rf"{told}.* a watermark never goes back: .* define another topology"):
        backing.rebuilds.begin(other.topology, "jobs/job.py", code("new"), "a test")


@pytest.mark.rule("R23")
@pytest.mark.parametrize("late", ["merge", "drop"])
def test_a_watermark_that_was_dropped_comes_back_by_its_own_time_alone(backing: Any, late: str) -> None:
    """By another one the marks of its batches would make records late in silence."""
    visits, without = Visits(backing, late=late), Visits(backing, None)
    visits.counts("1", a=[75])
    if late == "merge":
        backing.ledger.change(without.topology, "jobs/job.py", "a test")
    else:
        rebuilt(without, [75])
    assert without.counts("2", a=[500])[1] is None
    back, other = (Visits(backing, name="calls", was="visits", late=late, of=of) for of in ("at", "seen"))
    told = (
        rf"'calls' changes from no watermark since one 10 minutes behind at, .* 10 minutes behind seen, late='{late}'"
    )
    with pytest.raises(SchemaMismatch, match=told):
        backing.ledger.change(other.topology, "jobs/job.py", "a test")
    renamed = Visits(backing, None, name="calls", was="visits")
    backing.ledger.change(renamed.topology, "jobs/job.py", "a test")
    with pytest.raises(SchemaMismatch, match=rf"{told}.* define another topology"):
        backing.rebuilds.begin(other.topology, "jobs/job.py", code("new"), "a test")
    backing.ledger.change(back.topology, "jobs/job.py", "a test")
    assert back.counts("3", a=[40, 80]) == (70, 1)


def rebuilt(now: Visits, *read: Sequence[int]) -> None:
    """Count all positions again by this definition, and let that count."""
    backing = now.backing
    rebuild = backing.rebuilds.begin(now.topology, "jobs/job.py", code("new"), "a test")
    for minutes in read:
        version = backing.rebuilds.next(rebuild)
        attempt = TransactionAttempt(version.txid, 1)
        assignment = Assignment("visits", attempt, f"token {version.txid}", version.metadata, code("new"))
        manifest, partials = now.told(assignment, {"a": minutes})
        counted = backing.as_partials(now.topology, partials)
        assert backing.rebuilds.count(rebuild, now.topology, assignment, manifest, counted)
    backing.rebuilds.swap(rebuild, now.topology)


@pytest.mark.rule("R23")
def test_a_stream_that_was_renamed_goes_on_where_its_watermark_is(backing: Any) -> None:
    Visits(backing).counts("1", a=[100])
    renamed = Visits(backing, name="calls", was="visits")
    backing.ledger.change(renamed.topology, "jobs/job.py", "a test")
    assert renamed.times(1) == (90, 0)
    batch = renamed.planned(run("2"))
    assert batch.plan.watermark == {"calls": micros_of(at(90))}
    assert renamed.commit(batch, renamed.emit(batch, {"a": [50, 95]}, "2")) == (90, 1)


@pytest.mark.rule("R23")
def test_a_rebuild_finds_late_what_the_plans_say(backing: Any) -> None:
    visits, read = Visits(backing), [[69], [500], [5, 500]]
    for number, minutes in enumerate(read):
        visits.counts(str(number), a=minutes)
    assert visits.times(3) == (490, 1)
    rebuilt(visits, *read[:2], [5, 6, 500])
    assert [visits.times(txid) for txid in (1, 2, 3)] == [(59, 0), (490, 0), (490, 2)]
    assert visits.counts("4", a=[5]) == (490, 1)


def counted(visits: Visits) -> dict[datetime, int]:
    return {row[visits.by.name]: row["visits"] for row in visits.backing.report(visits.topology, "visits")}


def aside(visits: Visits) -> list[tuple[int, datetime, datetime]]:
    rows = visits.backing.report(visits.topology, "visits_late")
    return sorted((row["batch"], row["at"], row["window_start"]) for row in rows)


@pytest.mark.parametrize("late", ["drop", "side"])
def test_late_records_do_not_count_where_they_are_left_out_or_kept_aside(backing: Any, late: str) -> None:
    visits = Visits(backing, late=late)
    assert visits.counts("1", a=[5, 69]) == (59, 0)
    assert visits.counts("2", a=[3, 70, 71]) == (61, 0)
    assert visits.counts("3", a=[3, 59, 60, 40]) == (61, 3)
    assert counted(visits) == {at(0): 2, at(60): 4}
    assert visits.counts("4", a=[4]) == (61, 1)
    assert counted(visits) == {at(0): 2, at(60): 4}
    if late == "side":
        assert aside(visits) == [*((3, at(each), at(0)) for each in (3, 40, 59)), (4, at(4), at(0))]


@pytest.mark.rule("R17")
def test_a_restate_keeps_aside_what_is_late_by_the_plan_in_the_place_of_what_was(backing: Any) -> None:
    visits = Visits(backing, late="side")
    visits.counts("1", a=[69])
    visits.counts("2", a=[5, 500])
    assert visits.counts("3", a=[5, 10, 500])[1] == 2
    again = visits.planned(restate_of(3), "a")
    visits.emit(again, {"a": [5, 5, 11, 490]}, "again")
    assert visits.commit(again, visits.emit(again, {"a": [10, 12, 12, 490, 600]}, "again")) == (None, 3)
    assert aside(visits) == [(3, at(each), at(0)) for each in (10, 12, 12)]
    assert counted(visits) == {at(0): 1, at(60): 1, at(480): 2, at(600): 1}


@pytest.mark.rule("R23")
@pytest.mark.parametrize("late", ["merge", "side"])
def test_what_becomes_of_late_records_is_changed_by_a_rebuild(backing: Any, late: str) -> None:
    """Those count, or are kept, that were left out. A watermark that is new holds from now on, whatever it says."""
    Visits(backing, None).counts("1", a=[69])
    dropping = Visits(backing, late="drop")
    backing.ledger.change(dropping.topology, "jobs/job.py", "a test")
    read = [[69], [200], [5, 300]]
    for number, minutes in enumerate(read[1:], 2):
        dropping.counts(str(number), a=minutes)
    assert counted(dropping) == {at(60): 1, at(180): 1, at(300): 1}
    merging = Visits(backing, late=late)
    told = f"from a watermark 10 minutes behind at, late='drop' to a watermark 10 minutes behind at, late='{late}'.*rebuild"
    with pytest.raises(SchemaMismatch, match=told):
        merging.planned(run("4"))
    rebuilt(merging, *read)
    assert merging.counts("4", a=[6]) == (290, 1)
    of_late = {at(0): 2} if late == "merge" else {}
    assert counted(merging) == {**of_late, at(60): 1, at(180): 1, at(300): 1}
    if late == "side":
        assert aside(merging) == [(3, at(5), at(0)), (4, at(6), at(0))]


@pytest.mark.rule("R23")
def test_a_state_of_late_records_begins_with_the_watermark(backing: Any) -> None:
    Visits(backing, None).counts("1", a=[69])
    visits = Visits(backing, late="side")
    backing.ledger.change(visits.topology, "jobs/job.py", "a test")
    visits.counts("2", a=[200])
    assert visits.counts("3", a=[7]) == (190, 1)
    assert aside(visits) == [(3, at(7), at(0))]
    assert counted(visits) == {at(60): 1, at(180): 1}


class Daily(ListSpout):
    """A day's visits, by the time of an interval."""

    by_interval = True
    fields = "at timestamp, shop string"
    time = "at"

    def initialize_transaction(self, txid: int, prev_metadata: Any, curr_metadata: Any) -> Any:
        return {"interval": curr_metadata["interval"]}


def day(number: int) -> Run:
    return Run(f"scheduled {number}", interval=Interval(at(number * 1440), at((number + 1) * 1440)))


class Days(Visits):
    """The same, a day at a time, of which any may come first. `time` is the field by which the source is cut.

    Windows may be by when a visit `began`, so many minutes before.
    """

    def __init__(
        self,
        backing: Any,
        time: str = "at",
        late: str = "merge",
        by: Window | SessionWindow = HOURS,
        began: int | None = None,
        of: str = "at",
    ) -> None:
        super().__init__(backing, by=by)
        self.spout = spout = Daily()
        spout.time, spout.fields = time, f"{of} timestamp, shop string"
        self.topology = Topology("visits", max_pending=3)
        stream = self.topology.new_stream("visits", spout).with_watermark(of, "10 minutes", late=late)
        if began is not None:
            stream = stream.each(lambda record: record["at"] - timedelta(minutes=began), "began timestamp")
            by = window("began", "1 hour")
        if of != "at":
            by = window(of, "1 hour")
        grouped = stream.group_by(by, "shop")
        self.aggregate = grouped.persistent_aggregate(OpaqueState("visits"), guarantee="at_least_once", visits=Count())

    def plans(self, of: int | Run) -> Batch:
        self.ledger.register(self.topology, "jobs/job.py")
        asked = of if isinstance(of, Run) else day(of)
        batch = coordinator.initialize_transaction(self.ledger, self.topology, asked)
        assert isinstance(batch, Batch), batch
        return batch

    def counts_day(self, batch: Batch, number: int, *minutes: int) -> tuple[int | None, int | None]:
        read = {"": [number * 1440 + each for each in minutes]}
        return self.commit(batch, self.emit(batch, read, f"scheduled {number}"))


@pytest.mark.parametrize(("time", "delay"), [("at", 0), ("seen", 10)])
def test_by_interval_it_is_the_end_of_those_without_a_gap(backing: Any, time: str, delay: int) -> None:
    visits = Days(backing, time)
    found = [visits.counts_day(visits.plans(number), number, 5) for number in (1, 3, 2, 0, 4)]
    days = [2, 2, 4, 4, 5]
    assert [mark for mark, _ in found] == [each * 1440 - delay for each in days]
    assert [late for _, late in found] == [0, 0, 0, 0, 0]


@pytest.mark.parametrize(("time", "delay"), [("at", 0), ("seen", 10)])
def test_an_earlier_interval_has_a_plan_by_which_none_of_its_own_is_late(backing: Any, time: str, delay: int) -> None:
    """Nor of another time, where it is no further behind than the delay."""
    visits = Days(backing, time, late="drop")
    assert visits.counts_day(visits.plans(5), 5, 5) == (6 * 1440 - delay, 0)
    earlier = visits.plans(2)
    assert earlier.plan.watermark == {"visits": micros_of(at(2 * 1440 - delay))}
    assert visits.counts_day(earlier, 2, -70, -delay, 0, 1439) == (6 * 1440 - delay, 1)
    assert visits.plans(6).plan.watermark == {"visits": micros_of(at(6 * 1440 - delay))}
    assert len(counted(visits)) == 3 + bool(delay)


@pytest.mark.rule("R18")
@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2), (2, 3, 1)], ids=str)
@pytest.mark.parametrize("together", [True, False], ids=["together", "one by one"])
def test_what_is_late_is_the_same_of_days_that_are_planned_together_and_one_by_one(
    backing: Any, order: Sequence[int], together: bool
) -> None:
    """By another time than the one that cuts the days: of 10:00 of the first day two come in time, and one two days later."""
    ten, read = 600, {1: (600, 630), 2: (5,), 3: (600 - 2 * 1440,)}
    visits, found = Days(backing, "seen", late="drop"), Counter[int | None]()
    visits.ledger.register(visits.topology, "jobs/job.py")
    planned = (
        planning_ahead.initialize_many(visits.ledger, visits.topology, [day(each) for each in order])
        if together
        else []
    )
    for place, number in enumerate(order):
        batch = planned[place] if together else visits.plans(number)
        assert batch.plan.watermark == {"visits": micros_of(at(number * 1440 - 10))}
        found[number] = visits.counts_day(batch, number, *read[number])[1] or 0
    assert found == {1: 0, 2: 0, 3: 1}
    assert counted(visits) == {at(1440 + ten): 2, at(2 * 1440): 1}


@pytest.mark.rule("R18")
@pytest.mark.parametrize(("began", "late"), [(5, 0), (70, 1)])
def test_by_a_time_that_a_step_makes_an_interval_is_behind_by_the_delay(backing: Any, began: int, late: int) -> None:
    """The source is cut by `at`, of which the watermark is; windows are by when a visit began, so many minutes before."""
    visits, ends = Days(backing, late="drop", began=began), [3 * 1440 - 10, 3 * 1440 - 10, 4 * 1440 - 10]
    found = [visits.counts_day(visits.plans(number), number, 0, 80) for number in (2, 1, 3)]
    assert found == [(end, late) for end in ends]
    hours = (0,) if late else (-60, 60)
    assert counted(visits) == {at(number * 1440 + each): 1 for number in (1, 2, 3) for each in hours}


@pytest.mark.rule("R3")
def test_a_plan_of_the_version_before_has_no_watermark_and_goes_on_without(
    backing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps all windows open, none of its records is late, and it is counted again like this."""
    visits = Days(backing, "seen", late="drop")
    for module in ("memory", "postgres.tables"):
        monkeypatch.setattr(f"txbatch.{module}.event_time.pin_watermarks", lambda metadata, *_: metadata)
    old = visits.plans(5)
    monkeypatch.undo()
    new = visits.plans(6)
    assert (old.plan.watermark, new.plan.watermark) == ({}, {"visits": micros_of(at(6 * 1440 - 10))})
    assert visits.counts_day(old, 5, 0, -2 * 1440) == (6 * 1440 - 10, 0)
    assert visits.counts_day(new, 6, 0, -2 * 1440) == (7 * 1440 - 10, 1)
    again = visits.plans(restate_of(1))
    assert again.plan.watermark == {}
    assert visits.commit(again, visits.emit(again, {"": [5 * 1440, 2 * 1440]}, "again")) == (None, 0)
    assert counted(visits) == {at(2 * 1440): 1, at(5 * 1440): 1, at(6 * 1440): 1}


def test_what_is_before_a_gap_below_what_is_closed_holds_nothing(backing: Any) -> None:
    """Days 3 and 4, then day 0 alone: windows go on closing."""
    visits = Days(backing)
    found = [visits.counts_day(visits.plans(number), number, 5)[0] for number in (3, 4, 0, 5, 6, 1)]
    assert found == [each * 1440 for each in (4, 5, 5, 6, 7, 7)]


def test_intervals_that_are_planned_together_each_have_their_own(backing: Any) -> None:
    visits = Days(backing, late="drop")
    visits.counts_day(visits.plans(5), 5, 5)
    visits.ledger.register(visits.topology, "jobs/job.py")
    ahead = planning_ahead.initialize_many(visits.ledger, visits.topology, [day(number) for number in (1, 7, 2)])
    assert [each.plan.watermark for each in ahead] == [{"visits": micros_of(at(each * 1440))} for each in (1, 7, 2)]
    assert [visits.counts_day(*each, 5)[1] for each in zip(ahead, (1, 7, 2), strict=True)] == [0, 0, 0]
    again = visits.plans(restate_of(2))
    assert again.plan.watermark == ahead[0].plan.watermark


@pytest.mark.rule("R18")
@pytest.mark.parametrize("late", ["merge", "drop", "side"])
@pytest.mark.parametrize(
    "by",
    [HOURS, window("at", "3 days", slide="1 day"), session_window("at", "3 hours")],
    ids=["hours", "3 days", "sessions"],
)
def test_intervals_in_any_order_count_what_one_pass_does(backing: Any, late: str, by: Window | SessionWindow) -> None:
    """Up to three in flight, which are committed in the order in which they were planned."""
    random = Random(late)
    read = {number: sorted(random.sample(range(1440), 20)) for number in range(7)}
    visits, order, found = Days(backing, late=late, by=by), random.sample(range(7), 7), []
    while order:
        some, order = order[: (several := random.randint(1, 3))], order[several:]
        planned = [(visits.plans(number), number) for number in some]
        found += [visits.counts_day(batch, number, *read[number]) for batch, number in planned]
    assert [n for _, n in found] == 7 * [0]
    times = [at(number * 1440 + minute) for number, of in read.items() for minute in of]
    assert counted(visits) == at_once(by, times)


def at_once(by: Window | SessionWindow, times: Sequence[datetime]) -> dict[Any, int]:
    """What one pass over all counts, by start."""
    if isinstance(by, Window):
        return dict(Counter(start for time in times for start in by.starts(time)))
    together = by.together(times, of=lambda time: (time, time))
    return {session[0]: len(session) for session in together}
