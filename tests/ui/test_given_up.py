"""What the pages tell of a batch that was given up: the txid that counts its records as read, who asked for it, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, delete, insert
from ui.conftest import Site
from ui.seeded import Seeding, clicks, day, flights, of_day

from txbatch.core.batch.transaction import Interval, Restate, Run
from txbatch.postgres.database.engine import connect
from txbatch.postgres.ledger import PostgresLedger

WHY = "its file is damaged (ana, run manual__x)"
BATCH = "/api/topologies/{0}/batches/{1}"


@dataclass(frozen=True)
class Given:
    """A fresh ledger, and its pages."""

    engine: Engine
    site: Site

    def seeding(self, topology: Any, zone: str | None = None) -> Seeding:
        """Return the way to seed batches of a topology."""
        made = Seeding(PostgresLedger(self.engine), topology)
        made.ledger.register(topology, "jobs/x.py", zone)
        return made

    def links(self, topology: str, *txids: int) -> list[tuple[int | None, int | None]]:
        """Return `given_up_by` and `gives_up` of batches."""
        told = [self.site.told(BATCH.format(topology, txid)) for txid in txids]
        return [(each["given_up_by"], each["gives_up"]) for each in told]


@pytest.fixture
def given(site_of: Callable[[str], Site], new_database: Callable[[str], str]) -> Iterator[Given]:
    """A fresh ledger."""
    url = new_database("migrated")
    engine = connect(url)
    yield Given(engine, site_of(url))
    engine.dispose()


def test_what_was_given_up_and_what_counts_its_records_name_each_other(given: Given) -> None:
    """A txid of its own counts the records as read."""
    days = given.seeding(flights(), "America/New_York")
    days.committed(day(1), of_day(1))
    days.planned(day(2))
    days.ledger.abort("flights", 2, WHY)
    days.planned(day(2))
    assert days.ledger.skip("flights", 3, WHY).txid == 4
    assert given.links("flights", 1, 2, 3, 4) == [(None, None), (None, None), (4, None), (None, 3)]
    intervals = given.site.told("/api/topologies/flights/intervals")["intervals"]
    assert [(each["txid"], each["kind"], each["reason"]) for each in intervals] == [
        *[(1, "ordinary", None), (4, "skip", WHY)],
    ]


def test_a_batch_that_was_given_up_names_the_batch_that_has_its_interval_by_now(given: Given) -> None:
    """An open batch until one counts the interval; of several that counted it, the one that counts."""
    days = given.seeding(flights(), "America/New_York")
    days.planned(day(1))
    days.ledger.abort("flights", 1, WHY)
    assert given.site.told(BATCH.format("flights", 1))["interval_by"] is None
    days.planned(day(1, run_id="again"))
    assert given.site.told(BATCH.format("flights", 1))["interval_by"] == {
        "txid": 2,
        "kind": "ordinary",
        "status": "planned",
    }
    days.committed(day(1, run_id="again"), of_day(1))
    days.committed(Run("airflow:flights:r", "flights", "r", restate=Restate(2, "cut off", "ana")), of_day(1))
    by = given.site.told(BATCH.format("flights", 1))["interval_by"]
    assert by == {"txid": 3, "kind": "restate", "status": "committed"}
    assert given.site.told(BATCH.format("flights", 2))["interval_by"] is None


def test_a_batch_that_was_given_up_names_a_batch_of_a_longer_interval_and_none_of_a_part(given: Given) -> None:
    """A schedule may have changed since: the days of a week by one batch, or the hours of a day."""
    days = given.seeding(flights(), "America/New_York")
    noon = [datetime(2013, 1, number, 17, tzinfo=UTC) for number in range(1, 8)]
    for number in (2, 5):
        days.planned(replace(day(1), interval=Interval(noon[number], noon[number + 1])))
        days.ledger.abort("flights", days.ledger.last_txid("flights"), WHY)
    days.committed(replace(day(1), interval=Interval(noon[1], noon[3])), of_day(1))
    days.committed(replace(day(1), interval=Interval(noon[5], noon[5] + timedelta(hours=1))), of_day(1))
    told = [given.site.told(BATCH.format("flights", txid))["interval_by"] for txid in (1, 2)]
    assert told == [{"txid": 3, "kind": "ordinary", "status": "committed"}, None]


def test_a_hole_names_what_was_given_up_there(given: Given) -> None:
    """Of several batches the newest, of several intervals the last one; once it is counted there is no hole."""
    days = given.seeding(flights(), "America/New_York")
    days.committed(day(1), of_day(1))
    for reason in ("first", WHY):
        days.ledger.abort("flights", days.planned(day(3)).txid, reason)
    days.committed(day(4), of_day(4))
    days.committed(day(6), of_day(6))

    def gaps() -> list[Any]:
        told = given.site.told("/api/topologies/flights/intervals")["gaps"]
        return [(gap["start"][:10], gap["end"][:10], gap["given_up"]) for gap in told]

    when = given.site.told(BATCH.format("flights", 3))["batch"]["aborted_at"]
    assert when
    covers = {"start": "2013-01-03T05:00:00Z", "end": "2013-01-04T05:00:00Z"}
    third = {"txid": 3, **covers, "at": when, "reason": WHY}
    assert gaps() == [("2013-01-02", "2013-01-04", third), ("2013-01-05", "2013-01-06", None)]
    days.committed(day(2), of_day(2))
    assert gaps()[0] == ("2013-01-03", "2013-01-04", third)
    days.planned(day(3))
    assert gaps()[0] == ("2013-01-03", "2013-01-04", None)
    days.committed(day(3), of_day(3))
    assert [start for start, *_ in gaps()] == ["2013-01-05"]


def test_a_restate_that_was_given_up_names_no_batch_with_its_interval(given: Given) -> None:
    """A restate holds no interval: its position is counted as before."""
    days = given.seeding(flights(), "America/New_York")
    days.committed(day(1), of_day(1))
    restate = days.planned(Run("airflow:flights:r", "flights", "r", restate=Restate(1, "cut off", "ana")))
    days.ledger.abort("flights", restate.txid, "a mistake")
    told = given.site.told(BATCH.format("flights", 2))
    assert (told["batch"]["start"], told["interval_by"]) == ("2013-01-01T05:00:00Z", None)
    assert given.links("flights", 1, 2) == [(None, None), (None, None)]


def test_records_of_partitions_that_were_given_up_are_told_alike(given: Given) -> None:
    of = given.seeding(clicks())
    of.planned(Run("cli:1"))
    of.ledger.abort("clicks", 1, "a mistake")
    of.planned(Run("cli:1"))
    assert of.ledger.skip("clicks", 2, "a mistake").txid == 3
    assert given.links("clicks", 1, 2, 3) == [(None, None), (3, None), (None, 2)]


def test_a_batch_names_the_user_who_triggered_its_run(given: Given) -> None:
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session

    days = given.seeding(flights(), "America/New_York")
    days.committed(day(1, run_id="by_hand"), of_day(1))
    days.committed(day(2), of_day(2))
    with create_session() as session:
        of = {"dag_id": "flights", "run_id": "by_hand", "run_type": "manual", "state": "success", "log_template_id": 1}
        run = {**of, "run_after": datetime.now(UTC), "triggering_user_name": "bo <b>"}
        session.execute(insert(DagRun.__table__).values(run))
    try:
        told = [given.site.told(BATCH.format("flights", txid), "viewer")["triggered_by"] for txid in (1, 2)]
        assert told == ["bo <b>", None]
        intervals = given.site.told("/api/topologies/flights/intervals", "viewer")["intervals"]
        assert [each["triggered_by"] for each in intervals] == ["bo <b>", None]
        assert given.site.get(BATCH.format("flights", 1), "one").status_code == 200
    finally:
        with create_session() as session:
            session.execute(delete(DagRun.__table__))


def test_a_value_as_of_a_txid_comes_with_the_moment_of_the_txid(given: Given) -> None:
    days = given.seeding(flights(), "America/New_York")
    days.committed(day(1), of_day(1))
    days.planned(day(2))
    days.ledger.abort("flights", 2, WHY)
    days.committed(day(2), of_day(2))
    path = "/api/topologies/flights/states/flights/as-of?key=B6&key=JFK&txid="
    (then, aborted, none) = (given.site.told(f"{path}{txid}") for txid in (1, 2, 0))
    assert then["committed_at"] == given.site.told(BATCH.format("flights", 1))["batch"]["committed_at"]
    assert (then["start"], then["end"]) == ("2013-01-01T05:00:00Z", "2013-01-02T05:00:00Z")
    assert (aborted["committed_at"], aborted["start"]) == (None, "2013-01-02T05:00:00Z")
    assert (none["committed_at"], none["start"], none["row"]) == (None, None, None)
