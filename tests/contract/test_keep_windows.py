"""Keeping: windows older than a policy leave their state, once nothing counts in them ever again, in both ledgers (R30)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from contract.test_closings import Finals
from contract.test_restate import restate_of
from contract.test_upstream import JOB, Exported
from contract.test_watermarks import Days, Visits, at, day
from refusals import refused
from support import LogSpout, run

from txbatch import Count, LiveState, OpaqueState, StateSpout, Topology, failpoints, session_window, window
from txbatch.core.batch.transaction import Assignment, Batch, TransactionAttempt
from txbatch.core.corrections.rebuild import Swapped
from txbatch.core.errors import TerminalError
from txbatch.core.protocol import coordinator, planning_ahead
from txbatch.core.protocol.coordinator import NothingNew
from txbatch.core.records.time_buckets import micros_of
from txbatch.core.state.keep import Keep
from txbatch.core.topology.kept_windows import KeptWindows
from txbatch.core.upstream.look_ups import export
from txbatch.run.window_retention import describe_windows, leave

pytestmark = pytest.mark.rule("R30")
GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "keep_windows").glob("*.json"))
HOUR = 3_600_000_000
BY = {"hours": window("at", "1 hour"), "sessions": session_window("at", "30 minutes")}
BY |= {"sliding": window("at", "1 hour", slide="20 minutes"), "days": window("at", "1 day", timezone="Europe/Berlin")}


class Keeping(Visits):
    """Visits ten minutes behind at most, of which late ones are dropped, and whose windows stay for an hour."""

    def __init__(
        self,
        backing: Any,
        keep: str = "1 hour",
        late: str = "drop",
        by: Any = None,
        state: str = "visits",
        name: str = "visits",
        **more: Any,
    ) -> None:
        super().__init__(backing, late=late, by=by or BY["hours"], name=name)
        self.topology = Topology("visits", max_pending=3, keep=Keep(txids=1))
        stream = self.topology.new_stream(name, self.spout, **more).with_watermark("at", "10 minutes", late=late)
        self.aggregate = stream.group_by(by or BY["hours"], "shop").persistent_aggregate(
            OpaqueState(state, keep_windows=keep), visits=Count()
        )

    def folds(self, txid: int) -> None:
        list(self.backing.retention.fold("visits", txid))

    def leaves(self) -> list[tuple[int, int, int | None]]:
        """Let go: before which minute of the day, how many windows, and how many records."""
        return [(of_day(each.before), each.windows, each.records) for _, each in self.backing.windows.leave("visits")]

    def waits(self) -> str | None:
        (found,) = self.backing.windows.leaving("visits")
        waits_for: str | None = found.waits_for
        return waits_for

    def starts(self) -> dict[int, int]:
        """By minute of the day, how many visits count."""
        shown = self.backing.report(self.topology, "visits")
        start = self.aggregate.window.name
        return {of_day(micros_of(row[start])): row["visits"] for row in shown}


def of_day(micros: int) -> int:
    return (micros - micros_of(at(0))) // 60_000_000


def four_hours(backing: Any, **options: Any) -> Keeping:
    """Txids 1 to 5 read an hour each; the watermark is at 4:40, closed to 4:40 since txid 5."""
    visits = Keeping(backing, **options)
    for hour in range(5):
        visits.counts(f"{hour}", a=[hour * 60 + 10, hour * 60 + 50])
    return visits


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden(backing: Any, path: Path) -> None:
    """A step is a batch by minutes of a day, a restate of a position, or a call of gc, which folds up to a txid.

    What leaves then is before which minute, how many windows, made of how many records; and what is there, records by start.
    """
    case = json.loads(path.read_text(encoding="utf-8"))
    visits = Keeping(backing, case["keep"], case["late"], BY[case["by"]])
    for number, step in enumerate(case["steps"], 1):
        if "gc" in step:
            visits.folds(step["gc"])
            assert [list(each) for each in visits.leaves()] == step["leaves"]
            assert visits.starts() == {int(start): count for start, count in step["there"].items()}
        elif "restate" in step:
            visits.counts(restate_of(step["restate"], f"{number}"), a=step["minutes"])
        else:
            visits.counts(f"{number}", a=step["minutes"])


def test_windows_leave_once_all_batches_are_folded_that_may_count_in_them(backing: Any) -> None:
    visits = four_hours(backing)
    assert visits.leaves() == []
    assert visits.waits() == "the batches behind txid 0 to be folded, from which on they may still be counted again"
    visits.folds(2)
    assert visits.leaves() == [(60, 1, 2)]  # as of txid 2 windows were closed up to 1:40
    assert visits.starts() == {60: 2, 120: 2, 180: 2, 240: 2}
    visits.folds(4)
    assert visits.leaves() == [(180, 2, 4)]
    assert visits.starts() == {180: 2, 240: 2}
    assert visits.leaves() == []
    assert visits.waits() is None


def test_windows_stay_for_as_long_as_the_policy_says(backing: Any) -> None:
    visits = four_hours(backing, keep="2 hours")
    visits.folds(4)
    assert visits.leaves() == [(120, 2, 4)]
    assert visits.waits() is None


def test_what_leaves_leaves_the_base_too_and_no_contribution_has_it(backing: Any) -> None:
    visits = four_hours(backing)
    visits.folds(4)
    before = backing.left_rows("visits")
    assert (len(before["rows"]), len(before["base"])) == (5, 4)
    visits.leaves()
    after = backing.left_rows("visits")
    assert (len(after["rows"]), len(after["base"])) == (2, 1)
    assert after["contributions"] == before["contributions"]


def test_what_left_is_not_begun_anew_by_late_records_nor_by_a_restate(backing: Any) -> None:
    visits = four_hours(backing)
    visits.folds(4)
    visits.leaves()
    visits.counts("6", a=[5, 65, 125, 290])
    assert visits.starts() == {180: 2, 240: 3}
    visits.counts(restate_of(5, "again"), a=[5, 65, 245])
    assert visits.starts() == {180: 2, 240: 2}


def test_a_batch_whose_plan_is_open_holds_what_it_may_count_in(backing: Any) -> None:
    visits = Keeping(backing)
    visits.counts("1", a=[10, 70])
    second, third = visits.planned(run("2")), visits.planned(run("3"))
    visits.commit(second, visits.emit(second, {"a": [400]}, "2"))
    assert visits.leaves() == []
    visits.commit(third, visits.emit(third, {"a": [80, 410]}, "3"))
    visits.counts("4", a=[420])
    visits.folds(2)
    assert visits.leaves() == [(60, 1, 1)]  # txid 3 counts what is later than 1:00
    visits.folds(3)
    assert visits.leaves() == [(300, 1, 2)]


def test_what_was_given_up_late_is_restated_no_more_where_its_windows_have_left(backing: Any) -> None:
    """Its plan is older than what closed them: they waited for no plan that was aborted."""
    visits = Keeping(backing)
    visits.counts("1", a=[10, 50], b=[600])
    visits.counts("2", a=[110])
    third = visits.planned(run("3"), "b")
    visits.ledger.abort("visits", third.txid, "a test")
    for number, minutes in (("4", 500), ("5", 650), ("6", 700)):
        visits.counts(number, a=[minutes])
    visits.folds(5)
    assert visits.leaves() == [(480, 2, 3)]
    skipped = visits.ledger.skip("visits", third.txid, "it is lost")
    again = restate_of(skipped.txid, skipped=True)
    with pytest.raises(
        TerminalError, match=rf"txid {skipped.txid} may count in windows that are gone: the windows of state"
    ):
        visits.planned(again)


def test_a_session_leaves_as_a_whole(backing: Any) -> None:
    visits = Keeping(backing, by=BY["sessions"])
    for number, minutes in enumerate(([10, 20], [30, 45], [200], [230, 400], [500])):
        visits.counts(f"{number}", a=minutes)
    visits.folds(3)
    assert visits.starts() == {10: 4, 200: 2, 400: 1, 500: 1}
    assert visits.leaves() == [(160, 1, 4)]  # closed to 3:10 as of txid 3, and the gap is half an hour
    assert visits.starts() == {200: 2, 400: 1, 500: 1}
    visits.folds(4)
    assert visits.leaves() == [(360, 1, 2)]
    assert visits.starts() == {400: 1, 500: 1}


def test_a_call_that_is_ended_goes_on(backing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    visits = four_hours(backing)
    visits.folds(4)
    with monkeypatch.context() as patch:
        patch.setenv("TXBATCH_FAILPOINTS", "gc.windows_left=raise")
        with pytest.raises(failpoints.FailpointReached):
            visits.leaves()
    assert len(visits.starts()) == 5
    assert visits.leaves() == [(180, 3, 6)]


def test_what_would_leave_is_told_and_nothing_changes(backing: Any) -> None:
    visits = four_hours(backing)
    (row,) = leave(backing.windows, "visits", dry_run=True, horizon=4)
    assert describe_windows(row) == (
        "state 'visits': its windows that begin before 2026-01-05 03:00 UTC would leave, that is 3 (6 records)"
    )
    assert len(visits.starts()) == 5
    (row,) = leave(backing.windows, "visits")
    assert describe_windows(row) == (
        "state 'visits': its windows stay for 1 hour once they have ended, and none has left; what is older than that waits for "
        "the batches behind txid 0 to be folded, from which on they may still be counted again"
    )
    visits.folds(4)
    (row,) = leave(backing.windows, "visits")
    assert (row["windows"], row["records"], row["left_before"]) == (3, 6, "2026-01-05 03:00 UTC")


def test_the_policy_is_that_of_the_job_as_it_was_run_last(backing: Any) -> None:
    visits = four_hours(backing, keep="3 hours")
    visits.folds(4)
    again = Keeping(backing, keep="1 hour")
    again.ledger.register(again.topology, "jobs/job.py")
    assert visits.leaves() == [(180, 3, 6)]
    longer = Keeping(backing, keep="90 days")
    longer.ledger.register(longer.topology, "jobs/job.py")
    (found,) = backing.windows.leaving("visits")
    assert (str(found.kept), found.some, found.left and of_day(found.left.before)) == ("90 days", False, 180)


def test_a_topology_with_history_that_begins_to_keep_windows_is_no_other_one(backing: Any) -> None:
    before = Visits(backing, late="drop")
    for hour in range(5):
        before.counts(f"{hour}", a=[hour * 60 + 10])
    visits = Keeping(backing)
    visits.counts("6", a=[310])
    visits.folds(5)
    assert visits.leaves() == [(240, 4, 4)]


def test_a_state_that_is_renamed_says_what_has_left_it(backing: Any) -> None:
    visits = four_hours(backing)
    visits.folds(4)
    visits.leaves()
    renamed = Keeping(backing, state="calls")
    renamed.aggregate.state.was = "visits"
    backing.ledger.change(renamed.topology, "jobs/job.py", "a better name")
    (found,) = backing.windows.leaving("visits")
    assert (found.state, found.left and (of_day(found.left.before), found.left.windows)) == ("calls", (180, 3))


@pytest.mark.rule("R23")
def test_a_restate_goes_on_where_a_stream_was_renamed_since_windows_left(backing: Any) -> None:
    visits = four_hours(backing)
    visits.folds(4)
    visits.leaves()
    renamed = Keeping(backing, name="calls", was="visits")
    backing.ledger.change(renamed.topology, "jobs/job.py", "a better name")
    renamed.counts(restate_of(5, "again"), a=[245])
    assert renamed.starts() == {180: 2, 240: 1}


class KeepingDays(Days):
    """The same by intervals of a day, which may come in any order, in windows of three."""

    def __init__(self, backing: Any) -> None:
        super().__init__(backing)
        self.topology = Topology("visits", max_pending=3, keep=Keep(txids=1))
        stream = self.topology.new_stream("visits", self.spout).with_watermark("at", "10 minutes", late="drop")
        grouped = stream.group_by(window("at", "3 days"), "shop")
        state = OpaqueState("visits", keep_windows="1 day")
        self.aggregate = grouped.persistent_aggregate(state, guarantee="at_least_once", visits=Count())

    folds, leaves, starts = Keeping.folds, Keeping.leaves, Keeping.starts


@pytest.mark.rule("R24")
def test_an_interval_that_is_earlier_than_what_left_is_refused_until_all_is_counted_again(backing: Any) -> None:
    visits = KeepingDays(backing)
    for number in range(3, 13):
        visits.counts_day(visits.plans(number), number, 5)
    visits.folds(8)
    assert visits.leaves() == [(11 * 1440, 3, 8)]
    told = (
        r"visits: interval .* may count in windows that are gone: the windows of state 'visits' that begin before "
        "2026-01-16 00:00 UTC have left it by retention; bring the windows back by `txbatch rebuild visits"
    )
    with pytest.raises(TerminalError, match=told):
        visits.plans(2)
    assert planning_ahead.initialize_many(visits.ledger, visits.topology, [day(2), day(13)]) == []
    (only,) = planning_ahead.initialize_many(visits.ledger, visits.topology, [day(13), day(2)])
    assert (only.txid, visits.starts()) == (11, {11 * 1440: 2})


def test_the_first_intervals_that_are_refused_are_told_before_they_are_planned(backing: Any) -> None:
    """R24: so a run that catches up passes by what it cannot count, and counts what comes later."""
    visits = KeepingDays(backing)
    asked = [interval for number in (1, 2, 11, 13) if (interval := day(number).interval)]
    assert visits.ledger.refused(visits.topology, asked) == []
    for number in range(3, 13):
        visits.counts_day(visits.plans(number), number, 5)
    visits.folds(8)
    assert visits.ledger.refused(visits.topology, asked) == []
    visits.leaves()
    first, second = visits.ledger.refused(visits.topology, asked)
    for number, error in ((1, first), (2, second)):
        with pytest.raises(TerminalError) as caught:
            visits.plans(number)
        assert (type(error), error.text) == (type(caught.value), caught.value.text)
    assert visits.ledger.refused(visits.topology, asked[2:]) == []
    assert visits.ledger.refused(visits.topology, []) == []


# ---- readers


def test_a_reader_of_closed_windows_gets_each_before_it_leaves(backing: Any) -> None:
    visits = Keeping(backing)
    finals = Finals(visits)
    visits.counts("1", a=[10, 50])
    visits.counts("2", a=[70, 115])
    assert [each[0] for each in finals.reads("a")] == [at(0)]
    for hour in range(3, 6):
        visits.counts(f"{hour}", a=[hour * 60 + 10])
    past = backing.retention.past("visits", Keep(txids=1))
    visits.folds(past.reached)
    assert past.reached == 2
    assert visits.leaves() == [(60, 1, 2)]
    assert [each[0] for each in finals.reads("b")] == [at(60), at(180), at(240)]
    visits.folds(backing.retention.past("visits", Keep(txids=1)).reached)
    assert visits.leaves() == [(240, 2, 3)]
    assert isinstance(finals.plans("c"), NothingNew)


def test_a_reader_that_is_new_gets_what_is_there(backing: Any) -> None:
    visits = four_hours(backing)
    visits.folds(2)
    visits.leaves()
    assert [each[0] for each in Finals(visits).reads("a")] == [at(60), at(120), at(180)]


def test_a_batch_that_reads_all_of_the_state_has_the_same_in_each_attempt(backing: Any) -> None:
    visits = four_hours(backing)
    visits.folds(4)
    finals = Finals(visits)
    batch = finals.plans("a")
    first = finals.exports(batch, "a")
    assert visits.leaves() == []
    assert visits.waits() == "topology 'finals', whose open txid 1 reads all of the state"
    assert finals.exports(batch, "a") == first
    backing.ledger.abort("finals", batch.txid, "a test")
    assert len(visits.leaves()) == 1
    assert [each[0] for each in finals.reads("b")] == [at(180)]


def test_what_read_all_before_windows_left_is_counted_again_no_more(backing: Any) -> None:
    visits = four_hours(backing)
    visits.folds(4)
    finals = Finals(visits)
    finals.reads("a")
    visits.leaves()
    with refused("TX205", "'visits'", "windows", "txid 5"):
        finals.plans("again", restate_of(1).restate)


def changes_of(backing: Any) -> Finals:
    """A topology that reads what changes in the visits."""
    reader = Finals(Keeping(backing), "changes")
    reader.topology = Topology("changes")
    fields = "window_start timestamp, change string, visits_before bigint, visits_after bigint"
    reader.topology.new_stream("in", StateSpout("visits", fields)).persistent_aggregate(
        OpaqueState("changes"), n=Count()
    )
    return reader


def test_what_leaves_is_no_change(backing: Any) -> None:
    visits, reader = four_hours(backing), changes_of(backing)
    assert len(reader.reads("a")) == 5
    visits.folds(4)
    assert len(visits.leaves()) == 1
    visits.counts("6", a=[280])
    assert reader.reads("b") == [(at(240), "changed", 2, 3)]


def test_what_is_looked_up_in_stays_until_the_batch_is_committed(backing: Any) -> None:
    visits = four_hours(backing)
    visits.folds(4)
    asks = Looking(backing)
    batch = asks.plans("a")
    first = asks.exports(batch, "a")
    assert len(first) == 5
    assert visits.leaves() == []
    assert visits.waits() == "topology 'asks', whose open txid 1 reads all of the state"
    assert asks.commits(batch, "a")
    visits.leaves()
    with refused("TX205", "windows", "txid 5"):
        asks.plans("again", restate_of(1).restate)
    batch = asks.plans("b")
    assert len(asks.exports(batch, "b")) == 2


# ---- rebuilds


def rebuilds(visits: Keeping, minutes: dict[int, list[int]]) -> Any:
    """A rebuild of the visits, which counts these of each batch; it is not swapped yet."""
    rebuilds = visits.backing.rebuilds
    rebuild = rebuilds.begin(visits.topology, JOB, JOB, "one more", "ann")
    for txid, of in minutes.items():
        plan = visits.ledger.batch("visits", txid).metadata
        assignment = Assignment("visits", TransactionAttempt(txid, 0), uuid4().hex, plan, JOB)
        manifest, partials = visits.told(assignment, {"a": of})
        given = visits.backing.as_partials(visits.topology, partials)
        assert rebuilds.count(rebuild, visits.topology, assignment, manifest, given)
    return rebuild


def four_again(**changes: list[int]) -> dict[int, list[int]]:
    """What the batches of `four_hours` had, but for some of them."""
    return {hour + 1: changes.get(f"_{hour + 1}", [hour * 60 + 10, hour * 60 + 50]) for hour in range(5)}


def test_a_rebuild_brings_windows_back_until_the_next_call(backing: Any) -> None:
    visits = four_hours(backing)
    visits.folds(4)
    visits.leaves()
    rebuild = rebuilds(visits, four_again())
    assert (visits.leaves(), visits.waits()) == ([], None)
    assert isinstance(backing.rebuilds.swap(rebuild, visits.topology), Swapped)
    assert visits.starts() == dict.fromkeys(range(0, 300, 60), 2)
    assert visits.leaves() == []
    visits.counts("6", a=[310])
    visits.folds(5)
    assert visits.leaves() == [(240, 4, 8)]
    assert backing.windows.leaving("visits")[0].left.windows == 4


def test_who_reads_changes_over_a_rebuild_gets_nothing_of_what_had_left(backing: Any) -> None:
    visits, reader = four_hours(backing), changes_of(backing)
    assert len(reader.reads("a")) == 5
    visits.folds(4)
    visits.leaves()
    rebuild = rebuilds(visits, four_again(_1=[10], _4=[190]))
    assert isinstance(backing.rebuilds.swap(rebuild, visits.topology), Swapped)
    visits.counts("6", a=[310])
    visits.folds(5)
    assert visits.leaves() == []
    assert visits.waits() == "topology 'changes', which has not read the state since a rebuild, to run"
    assert reader.reads("b") == [(at(180), "changed", 2, 1), (at(300), "added", None, 1)]
    assert visits.leaves() == [(240, 4, 6)]
    visits.counts("7", a=[320])
    assert reader.reads("c") == [(at(300), "changed", 1, 2)]


def test_a_batch_that_reads_over_a_rebuild_has_the_same_in_each_attempt(backing: Any) -> None:
    visits, reader = four_hours(backing), changes_of(backing)
    reader.reads("a")
    rebuild = rebuilds(visits, four_again())
    assert isinstance(backing.rebuilds.swap(rebuild, visits.topology), Swapped)
    visits.counts("6", a=[310])
    visits.folds(5)
    batch = reader.plans("b")
    first = reader.exports(batch, "b")
    assert visits.leaves() == []
    assert visits.waits() == "topology 'changes', whose open txid 2 reads all of the state"
    assert reader.exports(batch, "b") == first == [(at(300), "added", None, 1)]


class Looking:
    """A topology that looks up in the visits."""

    def __init__(self, backing: Any) -> None:
        self.backing, self.ledger, self.topology = backing, backing.ledger, Topology("asks")
        spout = LogSpout({"a": 10}, size=5)
        spout.fields = "window_start timestamp, shop string"
        live = LiveState("visits", "window_start timestamp, shop string, visits bigint")
        asked = self.topology.new_stream("in", spout).state_query(live, "window_start", "shop")
        asked.persistent_aggregate(OpaqueState("asks"), n=Count())

    def plans(self, name: str, of: Any = None) -> Any:
        self.ledger.register(self.topology, JOB)
        return coordinator.initialize_transaction(self.ledger, self.topology, replace(run(name), restate=of))

    def exports(self, batch: Batch, name: str) -> list[tuple[Any, ...]]:
        folder = Exported()
        export(self.topology, self.ledger.upstream, self.backing.attempt(batch, name), folder)  # type: ignore[arg-type]
        return folder.records

    def commits(self, batch: Batch, name: str) -> bool:
        partials = {"asks": [((), (1,))]}
        self.backing.emit(self.topology, batch, partials, name)
        return bool(self.backing.commit(self.topology, batch, partials).applied)


def test_what_is_stored_of_a_policy_is_read_again(backing: Any) -> None:
    for by in (*BY.values(), window("at", "1 month", timezone="America/New_York"), window("at", "2 weeks")):
        kept = KeptWindows(5 * HOUR, by, {"visits": False}, "visits")
        again = KeptWindows.from_json(json.loads(json.dumps(kept.to_json())))
        assert again.to_json() == kept.to_json()
        for minutes in (0, 61, 100_000):
            time = micros_of(at(minutes))
            assert again.window.first_open(time) == by.first_open(time)
