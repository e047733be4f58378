"""States by windows of event time: the same in any batches, after restates, and by another window another definition, in both
ledgers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from contract.test_restate import restate_of
from support import LogSpout, run

from txbatch import Count, OpaqueState, Topology, window
from txbatch.core.batch.transaction import Batch, Run
from txbatch.core.errors import SchemaMismatch
from txbatch.core.protocol import coordinator
from txbatch.core.windows.window import Window
from txbatch.direct.emitter import partials_of
from txbatch.direct.operations import records

Visit = tuple[datetime, str]
ZONE = ZoneInfo("America/New_York")
DAYS, WEEK = window("at", "1 day", timezone=ZONE.key), window("at", "3 days", slide="1 day", timezone=ZONE.key)
# The clocks of the zone go back on the first of November.
BEGIN = datetime(2026, 10, 30, tzinfo=UTC)


class Visits:
    """A topology that counts visits by windows and shops, on one of both ledgers."""

    def __init__(self, backing: Any, by: Window) -> None:
        self.backing, self.ledger, self.topology = backing, backing.ledger, Topology("visits")
        spout = LogSpout({"a": 1000})
        spout.fields = "at timestamp, shop string"
        grouped = self.topology.new_stream("visits", spout).group_by(by, "shop")
        self.aggregate = grouped.persistent_aggregate(OpaqueState("visits"), visits=Count())

    def planned(self, of: Run) -> Batch:
        self.ledger.register(self.topology, "jobs/job.py")
        batch = coordinator.initialize_transaction(self.ledger, self.topology, of)
        assert isinstance(batch, Batch)
        return batch

    def counts(self, of: Run, visits: Sequence[Visit]) -> None:
        batch = self.planned(of)
        read = {"visits": {"a": [{"at": at, "shop": shop} for at, shop in visits]}}
        partials = {"visits": partials_of(self.aggregate, records(self.aggregate.stream, read), batch.position)}
        self.backing.emit(self.topology, batch, partials, of.name)
        assert self.backing.commit(self.topology, batch, partials).applied
        assert self.ledger.success("visits", batch.txid)

    def report(self) -> dict[tuple[Any, ...], int]:
        """Visits by start, end and shop."""
        rows = self.backing.report(self.topology, "visits")
        return {(row["window_start"], row["window_end"], row["shop"]): row["visits"] for row in rows}


def midnight(at: datetime, days: int) -> datetime:
    """Local midnight, so many days later."""
    local = at.astimezone(ZONE).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    return (local + timedelta(days=days)).replace(tzinfo=ZONE).astimezone(UTC)


def at_once(visits: Sequence[Visit], days: int) -> Counter[tuple[Any, ...]]:
    """What a pass over all visits counts: each in as many windows as these have days."""
    return Counter(
        (midnight(at, -back), midnight(at, days - back), shop) for at, shop in visits for back in range(days)
    )


@pytest.mark.rule("R17")
@pytest.mark.parametrize(("by", "days"), [(DAYS, 1), (WEEK, 3)], ids=["days", "sliding"])
def test_any_batches_and_restates_come_to_what_one_pass_counts(backing: Any, by: Window, days: int) -> None:
    visits, random = Visits(backing, by), Random(14)
    batches = [
        [
            (BEGIN + timedelta(minutes=random.randrange(5 * 24 * 60)), random.choice("xyz"))
            for _ in range(random.randint(1, 30))
        ]
        for _ in range(4)
    ]
    for number, batch in enumerate(batches):
        visits.counts(run(str(number)), batch)
    assert visits.report() == at_once([each for batch in batches for each in batch], days)
    batches[1] = [*batches[1][::2], (BEGIN - timedelta(days=9), "w")]
    visits.counts(restate_of(2), batches[1])
    assert visits.report() == at_once([each for batch in batches for each in batch], days)


@pytest.mark.rule("R23")
def test_another_window_is_another_definition(backing: Any) -> None:
    visits = Visits(backing, window("at", "1 hour"))
    visits.counts(run("1"), [(BEGIN, "x")])
    Visits(backing, window("at", "60 minutes")).counts(run("2"), [(BEGIN, "x")])
    told = "state 'visits' changes from counting by windows of 1 hour by at to counting by windows of 2 hours by at"
    with pytest.raises(SchemaMismatch, match=told):
        Visits(backing, window("at", "2 hours")).planned(run("3"))
    assert visits.report() == {(BEGIN, BEGIN + timedelta(hours=1), "x"): 2}


@pytest.mark.parametrize(
    "by", [window("at", "1 hour"), window("at", "1 week", timezone=ZONE.key)], ids=["hour", "week"]
)
def test_a_window_whose_end_is_after_the_year_9999_has_none(backing: Any, by: Window) -> None:
    """Such a time is a usual word for never."""
    visits = Visits(backing, by)
    first, last = datetime(1, 1, 9, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    visits.counts(run("1"), [(first, "x"), (last, "x"), (last - timedelta(days=14), "x")])
    starts = [start for each in (first, last, last - timedelta(days=14)) for start in by.starts(each)]
    assert visits.report() == {(start, start and by.end(start), "x"): 1 for start in starts}
    assert [end is None for _, end, _ in sorted(visits.report())] == [False, False, True]


def test_a_window_of_all_years_has_no_end(backing: Any) -> None:
    visits = Visits(backing, window("at", "9000 years"))
    visits.counts(run("1"), [(datetime(9001, 5, 1, tzinfo=UTC), "x")])
    assert [end for _, end, _ in visits.report()] == [None]
