"""A ledger as pages meet it, seeded by the ledger's own code, without Spark: flights by day, clicks by partition, a topology that
has no batch yet, hostile names everywhere; and topologies of many batches by SQL alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import Engine, text
from support import Keyed, ListSpout, LogSpout, code, manifest_of, record_batch

from txbatch import Avg, Count, Max, OpaqueState, SpoutKind, Sum, Topology, TransactionalState
from txbatch.core.batch.transaction import Assignment, Batch, Interval, Restate, Run
from txbatch.core.protocol import coordinator
from txbatch.postgres.ledger import PostgresLedger

RTL, TAG = "\u202e", "<img src=x onerror=alert(1)>"
# Beyond what JavaScript and a double hold.
MUCH, DIGITS = 9007199254740993, 12345678901234567890123456789012345678
HOSTILE_RUN = f"manual__{TAG}+%2F..&x=1#{RTL}gpj"
ZONE = "America/New_York"
# Days of January that are counted, in the order of their txids: the 13th is missing.
DAYS = [*range(1, 13), *range(14, 32)]
RESTATED, RESTATE, ABORTED, FAILING, WAITING = 2, 31, 32, 33, 34
ONE_DAG, OTHER_DAG = "flights", "clicks"
TOPOLOGIES = ("clicks", "flights", "orders")


class Days(ListSpout):
    """Reads by time; plans what a run asks for, one file a day."""

    by_interval = True
    fields = "carrier string, origin string, dep_delay int, amount decimal(38,0)"

    def initialize_transaction(self, txid: int, prev_metadata: Any, curr_metadata: Any) -> Any:
        start = curr_metadata["interval"][0][:10] if "interval" in curr_metadata else "day"
        return {
            **curr_metadata,
            "files": {f"{start}.csv": 86_058, f"{start}{TAG}.csv": 1},
            "start": 0,
            "end": 842 + txid,
        }


def flights() -> Topology:
    """Flights by day, in a state with a plain name and one with a hostile one."""
    topology = Topology("flights", max_pending=8)
    stream = topology.new_stream("flights", Days(kind=SpoutKind.TRANSACTIONAL))
    grouped = stream.group_by("carrier", "origin")
    values: dict[str, Any] = {"flights": Count(), "dep_delay_mean": Avg("dep_delay"), "dep_delay_max": Max("dep_delay")}
    grouped.persistent_aggregate(TransactionalState("flights"), **values)
    stream.group_by("carrier").persistent_aggregate(OpaqueState(TAG), **{f'"{RTL}total': Sum("amount")})
    return topology


def clicks(partitions: Mapping[str, int] | None = None) -> Topology:
    """Clicks of partitions with hostile names."""
    names = partitions or {f"part-{n:05}.txt": 60 for n in range(6)} | {f"a/{TAG}.txt": 60, f"{RTL}txt.cod": 60}
    topology = Topology("clicks", max_pending=2)
    grouped = topology.new_stream("clicks", LogSpout(names, kind=SpoutKind.OPAQUE)).group_by("word")
    grouped.persistent_aggregate(OpaqueState("clicks"), count=Count())
    return topology


def orders() -> Topology:
    """Known, and never run."""
    topology = Topology("orders")
    topology.new_stream("in", Days()).persistent_aggregate(OpaqueState("orders"), orders=Count())
    return topology


def day(number: int, **more: Any) -> Run:
    """The scheduled run of a day of New York, counted from the 31st of December 2012."""
    start = datetime(2012, 12, 31, 5, tzinfo=UTC) + timedelta(days=number)
    end = start + timedelta(days=1)
    run_id = more.pop("run_id", f"scheduled__{end.isoformat()}")
    return Run(f"airflow:flights:{run_id}", "flights", run_id, interval=Interval(start, end), **more)


@dataclass
class Seeding:
    """Batches of a topology, brought as far as a page is to show them."""

    ledger: PostgresLedger
    topology: Topology

    def planned(self, run: Run) -> Batch:
        """Return the batch of a run, planned."""
        batch = coordinator.initialize_transaction(self.ledger, self.topology, run)
        assert isinstance(batch, Batch), batch
        return batch

    def failed(self, run: Run, error: str) -> Assignment:
        """Let an attempt of the run's batch fail."""
        assignment = self.ledger.start_attempt(self.planned(run), run, code())
        self.ledger.fail_attempt(assignment, error)
        return assignment

    def emitted(self, run: Run, partials: Mapping[str, Sequence[Keyed]], **changes: Any) -> Batch:
        """Return the batch of a run, emitted."""
        assignment = self.ledger.start_attempt(self.planned(run), run, code())
        manifest = manifest_of(self.topology, assignment, partials, **changes)
        return self.ledger.record_manifests([(assignment, manifest)])[0]

    def committed(self, run: Run, partials: Mapping[str, Sequence[Keyed]], **changes: Any) -> Batch:
        """Return the batch of a run, committed."""
        batch = self.emitted(run, partials, **changes)
        arrow = {each.state.name: [record_batch(each, partials[each.state.name])] for each in self.topology.aggregates}
        assert self.ledger.commit(self.topology, batch, arrow).applied
        return batch


def of_day(number: int, flights: int = 8) -> dict[str, list[Keyed]]:
    """What a day contributes: a few keys, among them a hostile one; and digits that no double holds."""
    keyed: list[Keyed] = [
        (("B6", "JFK"), (flights, flights * number, flights, number)),
        (("UA", "EWR"), (number, MUCH, 1, MUCH % 2**31)),
    ]
    hostile: list[Keyed] = [((TAG, f"{RTL}KFJ"), (1, 7, 1, 7))] if number == 31 else []
    return {"flights": keyed + hostile, TAG: [((TAG,), (Decimal(DIGITS if number == 1 else 1),))]}


def seed(engine: Engine) -> None:
    """Fill a fresh ledger: a month of flights with a hole, a restate, a failed attempt and a wait; clicks, a partition away."""
    ledger = PostgresLedger(engine)
    days = Seeding(ledger, flights())
    ledger.register(days.topology, "jobs/flights.py", ZONE)
    for number in DAYS:
        if number == 31:
            days.failed(day(31), f"TX501 (try again): the driver was killed {TAG}")
        days.committed(day(number), of_day(number))
    _correct(days)
    bad = day(32)
    days.ledger.abort("flights", days.planned(bad).txid, f"{TAG} {RTL}its file is damaged")
    days.failed(bad, "TX301 (no retry helps): flights: 2013-02-01.csv, line 17: " + "x" * 3000)
    days.failed(bad, f"TX301 (no retry helps): flights: 2013-02-01.csv, line 17: {TAG} {RTL}is no int")
    days.emitted(day(33, run_id=HOSTILE_RUN), of_day(33))
    ledger.note_wait(ledger.batch("flights", FAILING), day(34))
    _click(ledger)
    ledger.register(orders(), "jobs/orders.py", "UTC")


def _correct(days: Seeding) -> None:
    again = Restate(RESTATED, f"the file of the 2nd was cut off {TAG}", "ana")
    run_id = "manual__2026-11-27T10:31:00+00:00"
    days.committed(Run(f"airflow:flights:{run_id}", "flights", run_id, restate=again), of_day(2, flights=125))


def _click(ledger: PostgresLedger) -> None:
    of = Seeding(ledger, clicks())
    ledger.register(of.topology, "jobs/clicks.py")
    for number in range(1, 5):
        run = Run(f"cli:{number}")
        counted: dict[str, list[Keyed]] = {"clicks": [(("the",), (MUCH if number == 1 else number,))]}
        if number < 4:
            of.committed(run, counted)
            continue
        assignment = ledger.start_attempt(of.planned(run), run, code())
        manifest = manifest_of(of.topology, assignment, counted)
        read = {name: part for name, part in manifest.streams["clicks"].items() if name != "part-00002.txt"}
        away = {"clicks": {"part-00002.txt": f"Permission denied {TAG}"}}
        partly = replace(manifest, streams={"clicks": read}, unreadable=away)
        batch = ledger.record_manifests([(assignment, partly)])[0]
        (aggregate,) = of.topology.aggregates
        assert ledger.commit(of.topology, batch, {"clicks": [record_batch(aggregate, counted["clicks"])]}).applied


# ---- many batches, by SQL

MANY = """
INSERT INTO txbatch.topology (topology, job, by_interval, source, streams, zone)
VALUES (:topology, 'jobs/many.py', :by_interval, '{{}}', '{{"in": {{"word": "string"}}}}', 'UTC');
INSERT INTO txbatch.batch (topology, txid, position, key, metadata, lease_until, status, committed_at, committed_fence, fence,
                           token, records, keys, created_at, lease_run, data_interval, reason, aborted_at)
SELECT :topology, n, n, 'run:' || n, '{{"streams": {{"in": {{"partitions": {{"a": {{"start": 0, "end": 10}}}}}}}}}}', now(),
       CASE WHEN n % 997 = 0 THEN 'aborted' ELSE 'committed' END, CASE WHEN n % 997 <> 0 THEN now() END,
       CASE WHEN n % 997 <> 0 THEN 1 END, 1, 't' || n, CASE WHEN n % 997 <> 0 THEN 10 END, '{{"many": 1}}',
       now() - interval '1 min', 'run ' || n,
       CASE WHEN :by_interval THEN tstzrange(timestamptz '2013-01-01Z' + (n + n / 100) * interval '1 h',
                                             timestamptz '2013-01-01Z' + (n + 1 + n / 100) * interval '1 h') END,
       CASE WHEN n % 997 = 0 THEN 'a mistake' END, CASE WHEN n % 997 = 0 THEN now() END
  FROM generate_series(1, :batches) n;
INSERT INTO txbatch.batch_key (topology, key, ordinal, txid, dag_id, run_id)
SELECT :topology, 'run:' || n, 1, n, :topology, 'run ' || n FROM generate_series(1, :batches) n;
INSERT INTO txbatch.attempt (topology, txid, attempt_id, token, status, run, code, manifest, finished_at)
SELECT :topology, n, 1, :topology || n, 'committed', 'run ' || n, 'code', '{{}}', now()
  FROM generate_series(1, :batches) n WHERE n % 997 <> 0;
INSERT INTO txbatch.partition (topology, stream, partition, txid, status, metadata, records, fingerprint)
SELECT :topology, 'in', p, n, 'read', '{{"start": 0, "end": 10}}', 5, 1
  FROM generate_series(1, :batches) n, unnest(ARRAY['a', 'b']) p WHERE n % 997 <> 0 AND NOT :by_interval;
INSERT INTO txbatch.consumed (topology, stream, partition, txid, metadata)
SELECT :topology, 'in', p, :batches, '{{"start": 0, "end": 10}}' FROM unnest(ARRAY['a', 'b']) p WHERE NOT :by_interval;
INSERT INTO txbatch.state (state, topology, kind, contributions, columns)
VALUES (:topology, :topology, 'opaque', true, '{{"keys": [["word", "text"]], "values": [["count", "bigint", "add"]]}}');
"""
COUNTED = """
INSERT INTO txbatch.counted (topology, starts, ends)
SELECT topology, lower(r), upper(r) FROM (
       SELECT topology, unnest(range_agg(data_interval)) AS r FROM txbatch.batch
        WHERE data_interval IS NOT NULL AND status = 'committed' AND kind <> 'restate' GROUP BY topology) i;
UPDATE txbatch.batch b SET records_to = s.records
  FROM (SELECT topology, max(txid) AS txid, sum(records)::bigint AS records
          FROM txbatch.batch WHERE status = 'committed' AND kind <> 'skip' GROUP BY topology) s
 WHERE (b.topology, b.txid) = (s.topology, s.txid) AND b.records_to IS NULL;
ANALYZE txbatch.topology, txbatch.batch, txbatch.batch_key, txbatch.attempt, txbatch.partition, txbatch.consumed, txbatch.counted;
"""


def seed_many(engine: Engine, batches: int) -> None:
    """Add two topologies of so many batches each: `hours` by time, with gaps; `log` of two partitions. Few are aborted."""
    with engine.begin() as connection:
        for topology, by_interval in (("hours", True), ("log", False)):
            for statement in MANY.format().split(";\n"):
                if statement.strip():
                    given = {"topology": topology, "by_interval": by_interval, "batches": batches}
                    connection.execute(text(statement), given)
        for statement in filter(str.strip, COUNTED.split(";\n")):
            connection.execute(text(statement))
