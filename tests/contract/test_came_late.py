"""What batches have met of late records, in both ledgers: what an attempt looks for, and what is not counted yet (R17)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from contract.test_restate import Case, words
from support import ListSpout

from txbatch import Interval
from txbatch.core.batch.came_late import Late
from txbatch.core.batch.transaction import Batch, BatchStatus, Restate, Run
from txbatch.core.protocol.lookback import LookFacts, is_by_look_back, outstanding
from txbatch.core.records.time_buckets import micros_of

pytestmark = pytest.mark.rule("R17")
DAY = timedelta(days=1)
FIRST = datetime(2024, 1, 1, tzinfo=UTC)


def day(number: int) -> Interval:
    return Interval(FIRST + (number - 1) * DAY, FIRST + number * DAY)


def counted(txid: int, number: int) -> tuple[int, int, int]:
    return txid, micros_of(day(number).start), micros_of(day(number).end)


class Files(ListSpout):
    """Files that a test changes as it goes, by name and size; read by time."""

    by_interval = True

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, list[int]] = {}

    def initialize_transaction(self, txid: int, prev_metadata: Any, curr_metadata: Any) -> Any:
        return {**curr_metadata, "files": dict(self.files)}


class Days(Case):
    """Days of such files."""

    def __init__(self, backing: Any) -> None:
        self.spout = Files()
        super().__init__(backing, self.spout, max_pending=3)
        self.ledger.register(self.topology, "jobs/job.py")

    @property
    def name(self) -> str:
        return self.topology.name

    @property
    def stream(self) -> str:
        return next(iter(self.topology.streams))

    def planned(self, number: int, **files: int) -> Batch:
        """A day's batch, planned with these files in addition."""
        self.spout.files |= {name: [size, 1] for name, size in files.items()}
        batch = self.initialize(run_of(number))
        assert isinstance(batch, Batch)
        return batch

    def day(self, number: int, came: Any = None, **files: int) -> Batch:
        """A day's batch through its steps. `came` has late records by position: file, records and since when."""
        batch = self.planned(number, **files)
        late = None if came is None else {self.stream: came} if came else {}
        return self.goes(batch, run_of(number), words(dog=1), came_late=late)

    def facts(self, batch: Batch, since: datetime | None = None) -> LookFacts:
        found: LookFacts = self.ledger.look_facts(batch, since)
        return found

    def files_of(self, facts: LookFacts) -> list[str]:
        assert facts.before is not None
        (plan,) = (planned.plan for planned in facts.before.streams.values())
        return sorted(plan["files"])

    @property
    def late(self) -> list[tuple[Any, ...]]:
        found = self.ledger.found_late(self.name)
        return [(each.found_by, each.position, each.version, str(each.status), dict(each.files)) for each in found]


def run_of(number: int) -> Run:
    return Run(f"day {number}", interval=day(number))


@pytest.fixture
def days(backing: Any) -> Days:
    return Days(backing)


def test_the_first_batch_has_nothing_to_look_for(days: Days) -> None:
    assert days.facts(days.planned(1, a=1)) == LookFacts()
    assert days.facts(days.planned(2, b=1)) == LookFacts(None, (counted(1, 1),)), "nothing is committed to compare with"


def test_before_the_first_look_the_newest_plan_or_the_oldest_within_the_lookback_is_the_base(days: Days) -> None:
    for number in (1, 2, 3):
        days.day(number, **{"abc"[number - 1]: 1})
    last = days.planned(4, d=1)
    assert days.files_of(days.facts(last)) == ["a", "b", "c"]
    assert days.files_of(days.facts(last, day(2).start)) == ["a", "b"]
    assert days.files_of(days.facts(last, day(1).start)) == ["a"]
    assert days.files_of(days.facts(last, day(9).start)) == ["a", "b", "c"]
    assert days.facts(last).intervals == (counted(1, 1), counted(2, 2), counted(3, 3))


def test_the_newest_committed_batch_that_looked_is_the_base(days: Days) -> None:
    days.day(1, {}, a=1)
    days.day(2, None, b=1)
    open_ = days.planned(3, c=1)
    last = days.planned(4, d=1)
    assert days.files_of(days.facts(last)) == ["a"]
    assert [position for position, *_ in days.facts(last).intervals] == [1, 2, 3], "with those in flight"
    days.ledger.abort(days.name, open_.txid, "wrong")
    assert [position for position, *_ in days.facts(last).intervals] == [1, 2]


def test_intervals_are_in_order_of_time_and_of_lower_txids(days: Days) -> None:
    for number in (5, 2):
        days.day(number, {}, a=1)
    third = days.planned(3)
    days.planned(4)
    assert days.facts(third).intervals == (counted(2, 2), counted(1, 5))


def test_what_came_late_is_kept_until_a_later_version_counts_it(days: Days) -> None:
    days.day(1, {}, a=10)
    days.day(2, {1: {"x": Late(12, 0)}}, x=90)
    assert days.late == [(2, 1, 1, "committed", {"x": Late(12, 0)})]
    (found,) = days.ledger.found_late(days.name)
    assert (found.interval, found.seen, found.counted) == (day(1), {"x": [90, 1]}, {})
    (late,) = outstanding([found])
    again = Run("again", restate=late.as_restate())
    batch = days.initialize(again)
    assert days.late == [(2, 1, 3, "planned", {"x": Late(12, 0)})]
    assert outstanding(days.ledger.found_late(days.name)) == []
    assert outstanding(days.ledger.found_late(days.name), "again".__eq__) == [late]
    days.goes(batch, again, words(dog=2))
    assert days.late == []


def test_a_restate_is_by_a_look_back_if_a_look_back_asked_whatever_its_reason(days: Days) -> None:
    """It was told by how the reason begins: a person may begin one alike."""
    days.day(1, {}, a=10)
    days.day(2, {1: {"x": Late(12, 0)}}, x=90)
    asked = {
        "person": Restate(1, "lookback: three days, I looked by hand", "anna"),
        "look back": Restate(1, "late", found_by=2),
    }
    for name, restate in asked.items():
        batch = days.initialize(Run(name, restate=restate))
        assert isinstance(batch, Batch)
        stored = days.ledger.batch(days.name, batch.txid)
        assert is_by_look_back(stored) is (name == "look back")
        assert stored.restate == replace(restate, skipped=True)
        days.ledger.abort(days.name, batch.txid, "enough")


def test_an_aborted_restate_counts_nothing(days: Days) -> None:
    days.day(1, {}, a=10)
    days.day(2, {1: {"x": Late(12, 0)}}, x=90)
    batch = days.initialize(Run("again", restate=Restate(1, "late", found_by=2)))
    days.ledger.abort(days.name, batch.txid, "wrong")
    assert [late.position for late in outstanding(days.ledger.found_late(days.name))] == [1]


def test_a_position_is_asked_for_once_by_all_that_met_the_same(days: Days) -> None:
    days.day(1, {}, a=10)
    second, third = days.planned(2, x=90), days.planned(3)
    for batch, number in ((second, 2), (third, 3)):
        days.goes(batch, run_of(number), words(dog=1), came_late={days.stream: {1: {"x": Late(12, 0)}}})
    asked = Restate(1, "late", found_by=3)
    first = days.initialize(Run("one", restate=asked))
    assert isinstance(first, Batch)
    assert not isinstance(days.initialize(Run("other", restate=asked)), Batch), "while it is counted"
    days.goes(first, Run("one", restate=asked), words(dog=2))
    assert not isinstance(days.initialize(Run("other", restate=asked)), Batch), "once it is counted"
    assert isinstance(days.initialize(Run("other", restate=Restate(1, "a person asks"))), Batch)


def test_what_a_version_has_read_is_not_late(days: Days) -> None:
    """The batch of the interval was planned with the file, and is committed after the other one looked."""
    days.day(1, {}, a=10)
    second, third = days.planned(2, x=90), days.planned(3)
    days.goes(second, run_of(2), words(dog=1), came_late={})
    days.goes(third, run_of(3), words(dog=1), came_late={days.stream: {2: {"x": Late(5, 0)}}})
    (found,) = days.ledger.found_late(days.name)
    assert (found.counted, found.is_counted) == ({"x": [90, 1]}, True)
    assert outstanding([found]) == []


def test_what_an_uncommitted_or_aborted_batch_met_is_not_told(days: Days) -> None:
    days.day(1, {}, a=10)
    batch = days.planned(2, x=90)
    days.backing.emit(days.topology, batch, words(dog=1), "day 2", came_late={days.stream: {1: {"x": Late(1, 0)}}})
    assert days.late == []
    days.ledger.abort(days.name, batch.txid, "wrong")
    assert days.late == []


def test_the_newest_come_first_and_each_position_by_itself(days: Days) -> None:
    days.day(1, {}, a=10)
    days.day(2, {1: {"x": Late(1, 0)}}, x=20)
    days.day(3, {1: {"y": Late(2, 0)}, 2: {"x": Late(3, 20), "y": Late(4, 0)}}, x=40, y=10)
    assert days.late == [
        (3, 2, 2, "committed", {"x": Late(3, 20), "y": Late(4, 0)}),
        (3, 1, 1, "committed", {"y": Late(2, 0)}),
        (2, 1, 1, "committed", {"x": Late(1, 0)}),
    ]
    assert [(late.position, late.records) for late in outstanding(days.ledger.found_late(days.name))] == [
        (1, 3),
        (2, 7),
    ]


def test_a_position_in_flight_is_not_outstanding_and_what_was_given_up_is(days: Days) -> None:
    days.day(1, {}, a=10)
    second, third = days.planned(2), days.planned(3, x=90)
    skipped = days.ledger.skip(days.name, second.txid, "not needed")
    days.goes(third, run_of(3), words(dog=1), came_late={days.stream: {2: {"x": Late(1, 0)}}})
    assert days.late == [], "of the batch that was given up"
    days.day(4, {skipped.txid: {"x": Late(1, 0)}})
    assert [(late.position, str(late.interval)) for late in outstanding(days.ledger.found_late(days.name))] == [
        (skipped.txid, str(day(2)))
    ]
    assert days.ledger.batch(days.name, skipped.txid).status is BatchStatus.COMMITTED
