"""Windows of time on the page Completeness: the newest of many intervals, and intervals longer than the usual window."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from ui.conftest import Site
from ui.seeded import Days, Seeding

from txbatch import Count, OpaqueState, SpoutKind, Topology
from txbatch.core.batch.transaction import Interval, Run
from txbatch.postgres.database.engine import connect
from txbatch.postgres.ledger import PostgresLedger

PATH = "/api/topologies/{0}/intervals"


def test_of_many_intervals_the_newest_are_told_and_from_when_on(
    site_of: Callable[[str], Site], ledgers: Callable[[str], str]
) -> None:
    site, path = site_of(ledgers("many")), PATH.format("hours")
    last = site.told(path)["span"]["last"]
    start = (datetime.fromisoformat(last) - timedelta(days=100)).isoformat().replace("+00:00", "Z")
    told = site.told(f"{path}?from={start}&to={last}")
    begin, starts = told["span"]["start"], [each["start"] for each in told["intervals"]]
    assert (len(starts), told["more"], told["intervals"][-1]["end"]) == (1_000, True, last)
    assert starts == sorted(starts)
    assert (begin, told["span"]["end"]) == (starts[0], last)
    assert told["gaps"]
    assert all(gap["end"] > begin for gap in told["gaps"])
    earlier = site.told(f"{path}?from={start}&to={begin}")
    assert earlier["intervals"][-1]["start"] < begin
    assert {each["txid"] for each in earlier["intervals"]}.isdisjoint(each["txid"] for each in told["intervals"])


def test_quarters_are_told_without_a_window(site_of: Callable[[str], Site], new_database: Callable[[str], str]) -> None:
    url = new_database("migrated")
    engine = connect(url)
    topology = Topology("quarters")
    stream = topology.new_stream("in", Days(kind=SpoutKind.TRANSACTIONAL))
    stream.group_by("carrier").persistent_aggregate(OpaqueState("quarters"), flights=Count())
    quarters = Seeding(PostgresLedger(engine), topology)
    quarters.ledger.register(topology, "jobs/quarters.py", "UTC")
    begins = [datetime(2013, month, 1, tzinfo=UTC) for month in (1, 4, 7, 10)]
    for start, end in zip(begins, [*begins[1:], datetime(2014, 1, 1, tzinfo=UTC)], strict=True):
        run_id = f"scheduled__{end.isoformat()}"
        run = Run(f"airflow:quarters:{run_id}", "quarters", run_id, interval=Interval(start, end))
        quarters.committed(run, {"quarters": [(("B6",), (1,))]})
    engine.dispose()
    told = site_of(url).told(PATH.format("quarters"))
    assert [each["start"][:7] for each in told["intervals"]] == ["2013-01", "2013-04", "2013-07", "2013-10"]
    assert (told["span"]["start"] < told["span"]["first"], told["span"]["end"]) == (True, "2014-01-01T00:00:00Z")
    assert told["more"] is False
