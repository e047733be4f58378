"""What a run says of intervals whose records come late, or to windows that are closed (R25, R26)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support import ListSpout

from txbatch import Count, OpaqueState, Topology, window
from txbatch.cli.plan.explain import preview
from txbatch.core.batch.transaction import Interval, Run
from txbatch.memory.ledger import MemoryLedger
from txbatch.memory.run_locks import MemoryRunLocks
from txbatch.memory.runner import MemoryApplication, MemoryJob
from txbatch.memory.staging import MemoryStaging
from txbatch.run.runner import Runner
from txbatch.run.steps import Steps

DAY = timedelta(days=1)
FIRST = datetime(2026, 1, 1, tzinfo=UTC)


def day(number: int) -> Interval:
    return Interval(FIRST + number * DAY, FIRST + (number + 1) * DAY)


class Daily(ListSpout):
    """Of each day a record of its noon, and one of two days before."""

    by_interval, time, fields = True, "seen", "at timestamp"

    def initialize_transaction(self, txid: int, prev_metadata: Any, curr_metadata: Any) -> Any:
        return {"interval": curr_metadata["interval"]}

    def batch(self, plan: Mapping[str, Any]) -> list[tuple[datetime]]:
        start = datetime.fromisoformat(plan["interval"][0])
        return [(start + DAY / 2,), (start - 2 * DAY,)]


def visits(late: str) -> Topology:
    topology = Topology("visits")
    hourly = (
        topology.new_stream("visits", Daily())
        .with_watermark("at", "1 hour", late=late)
        .group_by(window("at", "1 hour"))
    )
    hourly.persistent_aggregate(OpaqueState("hourly"), guarantee="at_least_once", visits=Count())
    return topology


def said(topology: Topology, ledger: MemoryLedger, caplog: pytest.LogCaptureFixture, *days: int) -> list[str]:
    """What a call of these days warns of."""
    caplog.clear()
    staging = MemoryStaging()
    with Runner(
        Steps(MemoryJob(topology), ledger, staging, MemoryRunLocks()), MemoryApplication(topology, staging)
    ) as runner:
        assert len(list(runner.run_each(map(day, days)))) == len(days)
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("late", ["drop", "side", "merge"])
def test_the_first_run_says_how_many_records_it_left_out_as_late(late: str, caplog: pytest.LogCaptureFixture) -> None:
    ledger = MemoryLedger()
    told = said(visits(late), ledger, caplog, 3, 4)
    assert told == (
        []
        if late == "merge"
        else [
            "visits: txid 1, the first, left 1 record out of state 'hourly': late is what had ended by the start of the "
            "interval, less the delay of 1 hour; if they are to count, say late='merge', and `txbatch rebuild visits`; or give "
            "with_watermark a longer delay, `txbatch drop visits` and run it again"
        ]
    )
    assert said(visits(late), ledger, caplog, 5) == []


def test_the_plan_of_an_interval_that_comes_after_later_ones_says_what_it_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    topology, ledger = visits("merge"), MemoryLedger()
    assert said(topology, ledger, caplog, 3, 4, 6) == []
    told = (
        "visits: interval 2026-01-01T00:00:00+00:00/2026-01-02T00:00:00+00:00 comes after later ones: windows of state 'hourly' "
        "are closed up to 2026-01-05 23:00 UTC, and what it counts in these is a change alone, which emit='final' does not hand "
        "on; count the oldest first, or read changes"
    )
    run = Run("plan", interval=day(0))
    assert preview(ledger, topology, run, "in memory")["warnings"] == [told]
    assert said(topology, ledger, caplog, 0) == [told]
    assert preview(ledger, topology, Run("plan", interval=day(5)), "in memory")["warnings"] == []
    assert said(topology, ledger, caplog, 5, 7) == []
