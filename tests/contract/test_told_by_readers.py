"""What readers of windows are told once a rebuild has come: nothing is lost, nothing null that counts (R23, R26, R30)."""

from __future__ import annotations

from typing import Any

import pytest
from contract.test_closings import Finals
from contract.test_keep_windows import KeepingDays, changes_of, four_again, four_hours
from contract.test_keep_windows import rebuilds as rebuild_of
from contract.test_restate import restate_of
from contract.test_upstream import JOB
from contract.test_watermarks import Visits, at

from txbatch import Count, OpaqueState, Topology, window
from txbatch.core.errors import RecordsGone
from txbatch.core.rebuild import Swapped
from txbatch.core.transaction import Assignment, TransactionAttempt

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


def rebuilt(backing: Any, *keys: str, **values: Any) -> Visits:
    """Four hours of visits by shop, and a rebuild by these keys and values, with two batches since."""
    visits = Visits(backing)
    hours = {hour + 1: [hour * 60 + 10, hour * 60 + 50] for hour in range(4)}
    for txid, minutes in hours.items():
        visits.counts(f"{txid}", a=minutes)
    visits.topology = Topology("visits", max_pending=3)
    stream = visits.topology.new_stream("visits", visits.spout).with_watermark("at", "10 minutes")
    visits.aggregate = stream.group_by(window("at", "1 hour"), *keys).persistent_aggregate(
        OpaqueState("visits"), **values
    )
    rebuild = rebuild_of(visits, hours)
    assert isinstance(backing.rebuilds.swap(rebuild, visits.topology), Swapped)
    visits.counts("5", a=[300])
    visits.counts("6", a=[400])
    return visits


@pytest.mark.rule("R26")
@pytest.mark.xfail(
    strict=True, reason="of a value that a rebuild brought, closed windows of before its swap are handed on with null"
)
def test_a_closed_window_is_not_handed_on_with_null_for_a_value_that_is_counted(backing: Any) -> None:
    visits = rebuilt(backing, "shop", visits=Count(), more=Count())
    shown = {row["window_start"]: row["more"] for row in backing.report(visits.topology, "visits")}
    assert shown[at(0)] == 2
    found = Finals(visits, fields="window_start timestamp, more bigint, closed_by bigint").reads("a")
    assert [row for row in found if row[1] is None] == []


@pytest.mark.rule("R26")
@pytest.mark.xfail(
    strict=True,
    reason="a new reader of closed windows is refused after a rebuild to other keys, with a way out that is none",
)
def test_a_new_reader_of_closed_windows_gets_on_after_a_rebuild_to_other_keys(backing: Any) -> None:
    visits = rebuilt(backing, visits=Count())
    found = Finals(visits, fields="window_start timestamp, visits bigint, closed_by bigint").reads("a")
    assert found[-2:] == [(at(180), 2, 5), (at(300), 1, 6)]
