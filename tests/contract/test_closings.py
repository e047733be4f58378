"""Closing: which windows a commit closes, and a topology that gets each of them once, as of its closing (R26)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from contract.test_restate import restate_of
from contract.test_upstream import Exported
from contract.test_watermarks import Days, Visits, at
from refusals import refused
from support import code, run

from txbatch import Count, OpaqueState, StateSpout, Topology, window
from txbatch.core.batch.transaction import Assignment, Batch, Restate, TransactionAttempt
from txbatch.core.errors import SchemaMismatch, TerminalError
from txbatch.core.protocol import coordinator
from txbatch.core.protocol.coordinator import NothingNew
from txbatch.core.records.time_buckets import micros_of
from txbatch.core.upstream.upstream import export
from txbatch.core.windows.watermark import BEGIN

pytestmark = pytest.mark.rule("R26")
FIELDS = "window_start timestamp, visits bigint, closed_by bigint"


class Finals:
    """A topology that reads the closed windows of the visits."""

    def __init__(self, visits: Visits, name: str = "finals", fields: str = FIELDS, emit: str = "final") -> None:
        self.backing, self.ledger, self.topology = visits.backing, visits.ledger, Topology(name)
        closed = self.topology.new_stream("closed", StateSpout("visits", fields, emit=emit))
        closed.persistent_aggregate(OpaqueState(name), windows=Count())

    def plans(self, name: str, of: Restate | None = None) -> Any:
        self.ledger.register(self.topology, "jobs/finals.py")
        return coordinator.initialize_transaction(self.ledger, self.topology, replace(run(name), restate=of))

    def exports(self, batch: Batch, name: str) -> list[tuple[Any, ...]]:
        """An attempt of a batch: what it is given."""
        folder = Exported()
        export(self.topology, self.ledger.upstream, self.backing.attempt(batch, name), folder)  # type: ignore[arg-type]
        return folder.records

    def reads(self, name: str, of: Restate | None = None) -> list[tuple[Any, ...]]:
        """A batch through all steps: what it was given."""
        batch = self.plans(name, of)
        assert isinstance(batch, Batch), batch
        found = self.exports(batch, name)
        partials = {self.topology.name: [((), (len(found),))]}
        self.backing.emit(self.topology, batch, partials, name)
        assert self.backing.commit(self.topology, batch, partials).applied
        assert self.ledger.success(self.topology.name, batch.txid)
        return found


def closes(visits: Visits, txid: int) -> tuple[Any, Any]:
    """Up to when windows are closed since a batch, and of which starts it closed them, in minutes of the day; None: from ever."""
    closed_to, closed = visits.backing.closings("visits", txid)

    def minutes(micros: int) -> int | None:
        return None if micros == BEGIN else (micros - micros_of(at(0))) // 60_000_000

    if closed is None:
        return (minutes(closed_to["visits"]) if closed_to else None), None
    key, first, end = closed["visits"]
    assert key == "window_start"
    return minutes(closed_to["visits"]), (minutes(first), minutes(end))


def two_hours(backing: Any) -> Visits:
    """The first hour is closed by txid 2, and has a late record in txid 3; the second one is closed by txid 4."""
    visits = Visits(backing)
    assert visits.counts("1", a=[5, 69]) == (59, 0)
    assert visits.counts("2", a=[10, 75]) == (65, 0)
    assert visits.counts("3", a=[3, 80]) == (70, 1)
    assert visits.counts("4", a=[140]) == (130, 0)
    return visits


FIRST, SECOND = (at(0), 2, 2), (at(60), 3, 4)


def test_a_commit_closes_the_windows_that_have_ended_and_says_which(backing: Any) -> None:
    visits = two_hours(backing)
    assert [closes(visits, txid) for txid in range(1, 5)] == [
        (59, (None, 0)),
        (65, (0, 60)),
        (70, None),
        (130, (60, 120)),
    ]


def test_what_an_open_plan_may_still_count_in_time_stays_open(backing: Any) -> None:
    visits = Visits(backing)
    visits.counts("1", a=[69])
    second, third = visits.planned(run("2")), visits.planned(run("3"))
    visits.commit(second, visits.emit(second, {"a": [500]}, "2"))
    assert closes(visits, 2) == (59, None)
    assert visits.commit(third, visits.emit(third, {"a": [5, 65]}, "3")) == (490, 0)
    assert closes(visits, 3) == (490, (0, 480))


def test_nothing_closes_while_a_plan_without_a_watermark_is_open(backing: Any) -> None:
    visits = Visits(backing)
    first, second = visits.planned(run("1")), visits.planned(run("2"))
    visits.commit(first, visits.emit(first, {"a": [500]}, "1"))
    assert closes(visits, 1) == (None, None)
    visits.commit(second, visits.emit(second, {"a": [5]}, "2"))
    assert closes(visits, 2) == (490, (None, 480))


@pytest.mark.rule("R18")
@pytest.mark.parametrize("late", ["merge", "drop"])
def test_an_earlier_interval_counts_in_windows_that_are_closed_which_is_a_change_alone(backing: Any, late: str) -> None:
    """Of three days each, and the last one comes first; what an open plan of it may count in stays open meanwhile."""
    visits, days = Days(backing, late=late, by=window("at", "3 days")), 1440
    changed = "window_start timestamp, visits_before bigint, visits_after bigint"
    finals, changes = Finals(visits), Finals(visits, "changes", changed, emit="changes")
    visits.counts_day(visits.plans(4), 4, 5)
    assert closes(visits, 1) == (5 * days, (None, 5 * days))
    assert (finals.reads("1"), changes.reads("1")) == ([(at(2 * days), 1, 1)], [(at(2 * days), None, 1)])
    earlier, after = visits.plans(2), visits.plans(5)
    visits.counts_day(earlier, 2, 5, 6)
    visits.counts_day(after, 5, 5)
    assert isinstance(finals.plans("2"), NothingNew)
    visits.counts_day(visits.plans(0), 0, 5)
    assert changes.reads("2") == [(at(-days), None, 1), (at(2 * days), 1, 3), (at(5 * days), None, 1)]
    held, last = visits.plans(1), visits.plans(6)
    visits.counts_day(held, 1, 5)
    visits.counts_day(last, 6, 5)
    for number in (3, 7):
        visits.counts_day(visits.plans(number), number)
    assert [closes(visits, txid)[1] for txid in range(2, 8)] == 6 * [None]
    assert closes(visits, 8) == (8 * days, (5 * days, 8 * days))
    assert finals.reads("3") == [(at(5 * days), 2, 8)]


def test_windows_that_begin_elsewhere_are_closed_by_where_they_end(backing: Any) -> None:
    """R26: hours that begin at a quarter past: the first one is closed once the quarter past one has gone by."""
    visits = Visits(backing, by=window("at", "1 hour", start="15 minutes"))
    visits.counts("1", a=[5, 20, 84])
    assert closes(visits, 1) == (74, (None, 15))
    visits.counts("2", a=[16, 85])
    assert closes(visits, 2) == (75, (15, 75))
    assert visits.counts("3", a=[17, 86]) == (76, 1)
    assert Finals(visits).reads("1") == [(at(-45), 1, 1), (at(15), 2, 2)]


@pytest.mark.rule("R17")
def test_a_restate_opens_and_closes_nothing(backing: Any) -> None:
    visits = two_hours(backing)
    again = visits.planned(restate_of(4), "a")
    visits.commit(again, visits.emit(again, {"a": [20, 900]}, "again"))
    assert closes(visits, 5) == (None, None)
    visits.counts("6", a=[141])
    assert closes(visits, 6) == (131, None)


def test_a_state_that_is_renamed_keeps_what_is_closed(backing: Any) -> None:
    visits = two_hours(backing)
    renamed = Topology("visits", max_pending=3)
    stream = renamed.new_stream("visits", visits.spout).with_watermark("at", "10 minutes")
    calls = OpaqueState("calls", was="visits")
    stream.group_by(window("at", "1 hour"), "shop").persistent_aggregate(calls, visits=Count())
    before = backing.closings("visits", 4)
    backing.ledger.change(renamed, "jobs/job.py", "a better name")
    assert backing.closings("visits", 4) == tuple({"calls": each["visits"]} for each in before)


def test_each_closed_window_is_handed_on_once_as_of_its_closing(backing: Any) -> None:
    visits = Visits(backing)
    finals = Finals(visits)
    visits.counts("1", a=[5, 69])
    visits.counts("2", a=[10, 75])
    assert finals.reads("a") == [FIRST]
    visits.counts("3", a=[3, 80])
    assert isinstance(finals.plans("b"), NothingNew)
    visits.counts("4", a=[140])
    assert finals.reads("b") == [SECOND]
    assert isinstance(finals.plans("c"), NothingNew)


def test_who_comes_late_gets_what_who_was_there_got(backing: Any) -> None:
    visits = two_hours(backing)
    assert Finals(visits).reads("a") == [FIRST, SECOND]
    one_by_one = Finals(
        visits, "more", "window_start timestamp, window_end timestamp, shop string, visits bigint, txid bigint"
    )
    assert one_by_one.reads("a") == [(at(0), at(60), "x", 2, 2), (at(60), at(120), "x", 3, 3)]


def test_every_attempt_has_the_same_windows_whatever_comes_meanwhile(backing: Any) -> None:
    visits = Visits(backing)
    visits.counts("1", a=[5, 69])
    visits.counts("2", a=[10, 75])
    finals = Finals(visits)
    batch = finals.plans("a")
    assert finals.exports(batch, "a") == [FIRST]
    visits.counts("3", a=[3, 80])
    visits.counts("4", a=[140])
    again = visits.planned(restate_of(2), "a")
    visits.commit(again, visits.emit(again, {"a": [75]}, "again"))
    assert finals.exports(batch, "a") == [FIRST]


@pytest.mark.rule("R17")
def test_a_restate_of_a_closed_window_hands_nothing_on(backing: Any) -> None:
    """Read or not: who follows corrections reads what changes. A batch of the reader is counted again as it was."""
    visits = two_hours(backing)
    finals = Finals(visits)
    assert finals.reads("a") == [FIRST, SECOND]
    again = visits.planned(restate_of(2), "a")
    visits.commit(again, visits.emit(again, {"a": [10, 11, 12, 75]}, "again"))
    assert isinstance(finals.plans("b"), NothingNew)
    assert Finals(visits, "more").reads("a") == [FIRST, SECOND]
    assert finals.reads("again", Restate(1, "the job was wrong")) == [FIRST, SECOND]


@pytest.mark.rule("R23")
def test_a_rebuild_hands_nothing_on_again(backing: Any) -> None:
    """What was closed before its swap comes as it was then, whoever reads it; what is closed since as it is counted now."""
    visits, read = Visits(backing), [[5, 69], [10, 75]]
    for number, minutes in enumerate(read, 1):
        visits.counts(f"{number}", a=minutes)
    finals = Finals(visits)
    assert finals.reads("a") == [FIRST]
    rebuild = backing.rebuilds.begin(visits.topology, "jobs/job.py", code("new"), "a test")
    for minutes in ([5, 6, 7, 69], [10, 75, 76]):
        version = backing.rebuilds.next(rebuild)
        attempt = TransactionAttempt(version.txid, 1)
        assignment = Assignment("visits", attempt, f"token {version.txid}", version.metadata, code("new"))
        manifest, partials = visits.told(assignment, {"a": minutes})
        given = backing.as_partials(visits.topology, partials)
        assert backing.rebuilds.count(rebuild, visits.topology, assignment, manifest, given)
    backing.rebuilds.swap(rebuild, visits.topology)
    assert isinstance(finals.plans("b"), NothingNew)
    visits.counts("3", a=[140])
    assert finals.reads("b") == [(at(60), 3, 3)]
    assert Finals(visits, "more").reads("a") == [FIRST, (at(60), 3, 3)]


@pytest.mark.rule("R22")
def test_what_was_closed_before_the_horizon_comes_as_of_that(backing: Any) -> None:
    """To a reader that is new. What one has still to read is not folded."""
    visits = two_hours(backing)
    assert {each.horizon for each in backing.retention.fold("visits", 3)} == {3}
    finals = Finals(visits)
    assert finals.reads("a") == [(at(0), 3, 2), SECOND]
    visits.counts("5", a=[200])
    visits.counts("6", a=[210])
    assert {each.horizon for each in backing.retention.fold("visits", 5)} == {4}
    with refused("TX205", "txid 3", "txid 4"):
        finals.plans("again", Restate(1, "the job was wrong"))
    assert finals.reads("b") == [(at(120), 1, 5)]


def test_what_has_no_closed_windows_is_refused_by_name(backing: Any) -> None:
    visits = Visits(backing, None)
    visits.counts("1", a=[5])
    told = "state 'visits' has no windows that close: they are those of a stream with a watermark"
    with pytest.raises(TerminalError, match=told):
        Finals(visits).plans("a")


def test_a_field_that_closed_windows_do_not_have_is_named(backing: Any) -> None:
    visits = two_hours(backing)
    have = "window_start, window_end, shop, visits, txid, closed_by|window_start, shop, window_end, visits, txid, closed_by"
    with pytest.raises(
        SchemaMismatch, match=rf"the closed windows of state 'visits' have no 'total'; they have ({have})"
    ):
        Finals(visits, fields="total bigint").plans("a")


def test_what_a_state_emits_is_what_is_known() -> None:
    with refused("TX208", "emit='last'", "'changes'", "'final'"):
        StateSpout("visits", FIELDS, emit="last")
