"""What readers of windows are told once a rebuild has come: nothing is lost, nothing null that counts (R23, R26, R30)."""

from __future__ import annotations

from typing import Any

import pytest
import refusals
from contract.test_closings import Finals
from contract.test_keep_windows import KeepingDays, changes_of, four_again, four_hours
from contract.test_keep_windows import rebuilds as rebuild_of
from contract.test_restate import restate_of
from contract.test_upstream import JOB
from contract.test_watermarks import HOURS, Visits, at

from txbatch import Count, CountIf, Max, OpaqueState, Topology, session_window, window
from txbatch.core.batch.transaction import Assignment, TransactionAttempt
from txbatch.core.corrections.rebuild import Swapped
from txbatch.core.errors import RecordsGone

pytestmark = pytest.mark.rule("R23")
CHANGES = "window_start timestamp, visits_before bigint, visits_after bigint"


def refused(reader: Finals, txid: int) -> None:
    """A change that reports show is not passed by."""
    with pytest.raises(RecordsGone, match=f"txid {txid} may have counted in windows of state 'visits' after a rebuild"):
        reader.plans("b")


@pytest.mark.rule("R17", "R30")
def test_a_restate_in_windows_that_a_rebuild_brought_back_is_not_passed_by(backing: Any) -> None:
    visits, reader = four_hours(backing), changes_of(backing)
    reader.reads("a")
    visits.folds(4)
    assert visits.leaves() == [(180, 3, 6)]
    assert isinstance(backing.rebuilds.swap(rebuild_of(visits, four_again()), visits.topology), Swapped)
    visits.counts(restate_of(1, "again"), a=[10, 20, 50])
    assert visits.starts()[0] == 3
    refused(reader, 6)


@pytest.mark.rule("R18", "R30")
def test_an_earlier_interval_in_windows_that_a_rebuild_brought_back_is_not_passed_by(backing: Any) -> None:
    """The way out that the refusal of such an interval names: count all again, and then it."""
    visits = KeepingDays(backing)
    for number in range(3, 13):
        visits.counts_day(visits.plans(number), number, 5)
    reader = Finals(visits, "changes", CHANGES, emit="changes")
    reader.reads("a")
    visits.folds(8)
    assert visits.leaves() == [(11 * 1440, 3, 8)]
    rebuild = backing.rebuilds.begin(visits.topology, JOB, JOB, "an interval is missing", "ann")
    for number in range(3, 13):
        plan = visits.ledger.batch("visits", number - 2).metadata
        assignment = Assignment("visits", TransactionAttempt(number - 2, 0), f"token {number}", plan, JOB)
        manifest, partials = visits.told(assignment, {"": [number * 1440 + 5]})
        given = backing.as_partials(visits.topology, partials)
        assert backing.rebuilds.count(rebuild, visits.topology, assignment, manifest, given)
    assert isinstance(backing.rebuilds.swap(rebuild, visits.topology), Swapped)
    visits.counts_day(visits.plans(2), 2, 5)
    assert visits.starts()[2 * 1440] == 3
    refused(reader, 11)


FOUR = {hour + 1: [hour * 60 + 10, hour * 60 + 50] for hour in range(4)}


def counted(backing: Any, by: Any = HOURS, up_to: int = 4) -> Visits:
    """Four hours of visits by shop, or the first of them."""
    visits = Visits(backing, by=by)
    for txid in range(1, up_to + 1):
        visits.counts(f"{txid}", a=FOUR[txid])
    return visits


def rebuilds(of: Visits, *keys: str, by: Any = HOURS, **values: Any) -> None:
    """Count all of it by these keys and values, and maybe other windows; two batches come since."""
    of.topology = Topology("visits", max_pending=3)
    stream = of.topology.new_stream("visits", of.spout).with_watermark("at", "10 minutes")
    of.aggregate = stream.group_by(by, *keys).persistent_aggregate(OpaqueState("visits"), **values)
    assert isinstance(of.backing.rebuilds.swap(rebuild_of(of, FOUR), of.topology), Swapped)
    of.counts("5", a=[300])
    of.counts("6", a=[400])


def rebuilt(backing: Any, *keys: str, **given: Any) -> Visits:
    """Four hours of visits by shop, and such a rebuild."""
    visits = counted(backing)
    rebuilds(visits, *keys, **given)
    return visits


MORE = "window_start timestamp, more bigint, closed_by bigint"
ALL_HOURS = [(at(0), 2, 2), (at(60), 2, 3), (at(120), 2, 4), (at(180), 2, 5), (at(300), 1, 6)]


@pytest.mark.rule("R17", "R26")
def test_a_new_reader_gets_a_value_that_a_rebuild_brought_of_all_windows(backing: Any) -> None:
    """Also once what the rebuild replaced is dropped: as of the first txid after it."""
    visits = rebuilt(backing, "shop", visits=Count(), more=Count())
    reader = Finals(visits, fields=MORE)
    assert reader.reads("a") == ALL_HOURS
    assert len(backing.rebuilds.drop_past("visits")) == 1
    assert reader.reads("again", restate_of(1).restate) == ALL_HOURS
    assert Finals(visits, "late", MORE).reads("all") == ALL_HOURS


@pytest.mark.rule("R26")
@pytest.mark.parametrize(
    ("now", "type_", "told"), [(CountIf(lambda _: False), "bigint", 0), (Max("shop"), "string", "x")]
)
def test_a_new_reader_gets_a_value_that_a_rebuild_made_another_as_it_is_now_of_all_windows(
    backing: Any, now: Any, type_: str, told: Any
) -> None:
    """Also where only what is aggregated is another; who had read windows before gets each one that closes since."""
    of = counted(backing)
    before = Finals(of, "before")
    assert before.reads("a") == ALL_HOURS[:3]
    rebuilds(of, "shop", visits=now)
    fields = f"window_start timestamp, visits {type_}, closed_by bigint"
    assert Finals(of, fields=fields).reads("a") == [(start, told, txid) for start, _, txid in ALL_HOURS]
    if type_ == "bigint":
        assert before.reads("b") == [(start, told, txid) for start, _, txid in ALL_HOURS[3:]]


@pytest.mark.rule("R26")
def test_a_new_reader_gets_all_windows_by_the_keys_that_a_rebuild_gave_them(backing: Any) -> None:
    visits = rebuilt(backing, visits=Count())
    found = Finals(visits, fields="window_start timestamp, visits bigint, closed_by bigint").reads("a")
    assert found == ALL_HOURS


@pytest.mark.rule("R22", "R26")
def test_a_new_reader_gets_all_windows_where_retention_has_folded_beyond_a_rebuild(backing: Any) -> None:
    visits = rebuilt(backing, "shop", visits=Count())
    visits.counts("7", a=[460])
    assert [each.horizon for each in backing.retention.fold("visits", 6)] == [6]
    found = Finals(visits, fields="window_start timestamp, visits bigint, closed_by bigint").reads("a")
    assert found == [*ALL_HOURS, (at(360), 1, 7)]


@pytest.mark.rule("R26", "R27")
def test_a_new_reader_gets_a_value_that_a_rebuild_brought_of_all_sessions(backing: Any) -> None:
    by = session_window("at", "15 minutes")
    visits = counted(backing, by)
    rebuilds(visits, "shop", by=by, visits=Count(), more=Count())
    reader = Finals(visits, fields="session_start timestamp, more bigint, closed_by bigint")
    closed = [(10, 1), (50, 2), (70, 2), (110, 3), (130, 3), (170, 4), (190, 4), (230, 5), (300, 6)]
    assert sorted(reader.reads("a")) == [(at(minute), 1, txid) for minute, txid in closed]
    visits.counts("7", a=[500])
    assert reader.reads("b") == [(at(400), 1, 7)]


@pytest.mark.rule("R26")
@pytest.mark.parametrize("keys", [("shop",), ()])
def test_windows_that_are_no_more_and_lack_what_is_read_are_given_up_by_dropping_the_past(
    backing: Any, keys: tuple[str, ...]
) -> None:
    visits = rebuilt(backing, *keys, by=window("at", "30 minutes"), visits=Count(), more=Count())
    reader = Finals(visits, fields=MORE)
    told = (
        r"state 'visits' has other windows since rebuild \d+, and those that txid 1 closed cannot be handed on: all that is read "
        "of the state is there from txid 5 on. `txbatch rebuild visits --drop-past` gives them up"
    )
    with pytest.raises(RecordsGone, match=told):
        reader.plans("a")
    assert len(backing.rebuilds.drop_past("visits")) == 1
    assert reader.reads("b") == [(at(210), 1, 5), (at(300), 1, 6)]


@pytest.mark.rule("R26")
def test_a_reader_that_lags_and_asks_for_more_is_told_to_begin_anew(backing: Any) -> None:
    """Before a txid is used. Who begins anew gets all."""
    visits = counted(backing, up_to=3)
    Finals(visits).reads("a")
    visits.counts("4", a=FOUR[4])
    rebuilds(visits, "shop", visits=Count(), more=Count())
    lags = Finals(visits, fields=MORE)
    backing.ledger.change(lags.topology, JOB, "it reads more")
    with refusals.refused("TX205", "'more'", "rebuild", "txid 4", "`txbatch drop`"):
        lags.plans("b")
    assert Finals(visits, "anew", MORE).reads("a") == ALL_HOURS


@pytest.mark.rule("R26")
def test_an_attempt_after_a_rebuild_to_other_keys_is_given_what_the_one_before_was(backing: Any) -> None:
    visits = counted(backing)
    reader = Finals(visits)
    batch = reader.plans("a")
    first = reader.exports(batch, "a")
    assert first == ALL_HOURS[:3]
    rebuilds(visits, visits=Count())
    assert reader.exports(batch, "a") == first
