"""What readers of windows are told once a rebuild has come: nothing is lost, nothing null that counts (R23, R26, R30)."""

from __future__ import annotations

from typing import Any

import pytest
from contract.test_closings import Finals
from contract.test_keep_windows import KeepingDays, changes_of, four_again, four_hours
from contract.test_keep_windows import rebuilds as rebuild_of
from contract.test_restate import restate_of
from contract.test_upstream import JOB

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
