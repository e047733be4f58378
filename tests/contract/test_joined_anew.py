"""A state that goes, and another one by its name that joins: what was closed of the one is not the other's (R23, R26)."""

from __future__ import annotations

from typing import Any

import pytest
from contract.test_closings import Finals
from contract.test_upstream import JOB
from contract.test_watermarks import Visits, at, records
from support import manifest_of

from txbatch import Count, OpaqueState, StateSpout, Topology, window
from txbatch.core.batch.transaction import Assignment
from txbatch.direct.emitter import described, partials_of

pytestmark = [pytest.mark.rule("R23"), pytest.mark.rule("R26")]


class Anew(Visits):
    """Visits by shop, and by windows of a length that changes; each batch has visits of these minutes."""

    def defines(self, length: str | None, key: str = "window_start", since: str | None = None) -> None:
        self.topology = Topology("visits", max_pending=3)
        stream = self.topology.new_stream("visits", self.spout).with_watermark("at", "10 minutes")
        stream.group_by("shop").persistent_aggregate(OpaqueState("shops"), n=Count())
        if length:
            windows = stream.group_by(window("at", length, name=key), "shop")
            windows.persistent_aggregate(OpaqueState("windows", since=since), n=Count())

    def told(self, assignment: Assignment, minutes: Any) -> Any:
        read = {name: [self.record(each) for each in of] for name, of in minutes.items()}
        partials = {
            each.state.name: partials_of(each, records(each.stream, {"visits": read}), assignment.position)
            for each in self.topology.aggregates
        }
        parts = {name: described(of, "at", assignment.planned_at) for name, of in read.items()}
        return manifest_of(self.topology, assignment, partials, streams={"visits": parts}), partials

    def times(self, txid: int) -> Any:
        return None

    def finals(self, name: str, key: str) -> list[tuple[Any, ...]]:
        """What a new topology gets that reads closed windows."""
        found = Finals(self, name)
        found.topology = Topology(name)
        spout = StateSpout("windows", f"{key} timestamp, n bigint, closed_by bigint", emit="final")
        found.topology.new_stream("closed", spout).persistent_aggregate(OpaqueState(name), windows=Count())
        return found.reads(name)


def gone_and_back(backing: Any, key: str) -> Anew:
    """Txids 1 to 4 count by hours, 6 to 8 by days."""
    visits = Anew(backing)
    visits.defines("1 hour")
    for hour in range(4):
        visits.counts(f"{hour}", a=[hour * 60 + 10, hour * 60 + 50])
    visits.defines(None)
    backing.ledger.change(visits.topology, JOB, "nobody reads it")
    visits.counts("5", a=[300])
    visits.defines("1 day", key, since="now")
    backing.ledger.change(visits.topology, JOB, "by days, from now on")
    for number, minutes in (("6", [360]), ("7", [420, 49 * 60]), ("8", [50 * 60])):
        visits.counts(number, a=minutes)
    return visits


@pytest.mark.parametrize("key", ["window_start", "day"])
def test_a_window_is_handed_on_once_whatever_had_the_name_of_its_state_before(backing: Any, key: str) -> None:
    visits = gone_and_back(backing, key)
    assert visits.finals("early", key) == [(at(0), 2, 7)]
    assert [each.horizon for each in backing.retention.fold("visits", 7)] == [7]
    assert visits.finals("late", key) == [(at(0), 2, 7)]
