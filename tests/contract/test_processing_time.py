"""Windows of processing time: a batch counts where it was planned, whatever becomes of its attempts, in both ledgers (R28)."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from contract.test_closings import Finals
from contract.test_restate import restate_of
from refusals import refused
from support import LogSpout, code, manifest_of, run

from txbatch import Count, OpaqueState, Topology, window
from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Assignment, Batch, Metadata, Run, TransactionAttempt
from txbatch.core.errors import SchemaMismatch
from txbatch.core.protocol import coordinator, planning_ahead
from txbatch.core.protocol.coordinator import NothingNew
from txbatch.core.protocol.event_time import pin_watermarks
from txbatch.core.records.time_buckets import micros_of, time_of
from txbatch.core.windows.window import Window
from txbatch.direct.emitter import partials_of
from txbatch.direct.operations import records

pytestmark = pytest.mark.rule("R28")
GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "processing_time").glob("*.json"))
DAY = datetime(2026, 1, 5, tzinfo=UTC)
TENS = window("planned_at", "10 minutes")


def at(time: str) -> datetime:
    """A time of the day, such as 10:02."""
    hour, minute = map(int, time.split(":"))
    return DAY + timedelta(hours=hour, minutes=minute)


class Clock:
    """What the ledgers' clocks show when they plan; until it is set, what they do."""

    shows: datetime | None = None

    def fixed(self, metadata: Metadata, watermarks: Any, marks: Any, now: datetime, behind: Any) -> Metadata:
        return pin_watermarks(metadata, watermarks, marks, self.shows or now, behind)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    for place in ("txbatch.memory.event_time.pin_watermarks", "txbatch.postgres.tables.event_time.pin_watermarks"):
        monkeypatch.setattr(place, found.fixed)
    return found


class Visits:
    """A topology that counts visits by ten minutes in which their batches were planned, on one of both ledgers."""

    def __init__(self, backing: Any, clock: Clock, by: Window | None = TENS) -> None:
        self.backing, self.clock, self.read = backing, clock, 0
        self.topology, spout = Topology("visits", max_pending=3), LogSpout({"a": 1_000_000})
        spout.fields = "shop string"
        stream = self.topology.new_stream("visits", spout).with_processing_time()
        grouped = stream.group_by("shop") if by is None else stream.group_by(by, "shop")
        self.aggregate = grouped.persistent_aggregate(OpaqueState("visits"), visits=Count())

    @property
    def ledger(self) -> Any:
        """That of the backing, which a restart replaces."""
        return self.backing.ledger

    def planned(self, of: Run, time: str | None = None) -> Batch:
        self.clock.shows = None if time is None else at(time)
        self.ledger.register(self.topology, "jobs/job.py")
        batch = coordinator.initialize_transaction(self.ledger, self.topology, of)
        assert isinstance(batch, Batch), batch
        return batch

    def partials(self, planned_at: int | None, number: int, position: int) -> Any:
        """What so many records of a batch contribute."""
        plan = BatchPlan({}, planned_at=planned_at)
        reached = records(self.aggregate.stream, {"visits": {"a": [{"shop": "x"}] * number}}, plan=plan)
        return {"visits": partials_of(self.aggregate, reached, position)}

    def attempts(self, batch: Batch, number: int, name: str) -> Any:
        """An attempt of a batch; returns what is to be committed."""
        partials = self.partials(batch.plan.planned_at, number, batch.position)
        self.backing.emit(self.topology, batch, partials, name)
        return partials

    def commits(self, batch: Batch, number: int, name: str) -> None:
        partials = self.attempts(batch, number, name)
        assert self.backing.commit(self.topology, batch, partials).applied

    def report(self) -> list[tuple[datetime, int]]:
        rows = self.backing.report(self.topology, "visits")
        assert all(row["window_end"] == row["window_start"] + timedelta(minutes=10) for row in rows)
        return sorted((row["window_start"], row["visits"]) for row in rows)

    def closed(self) -> list[tuple[Any, ...]]:
        """What another topology gets of closed windows since it asked last."""
        self.read += 1
        finals = Finals(self)  # type: ignore[arg-type]
        name = f"read {self.read}"
        return [] if isinstance(finals.plans(name), NothingNew) else finals.reads(name)


class Story(Visits):
    """A golden case that is told step by step."""

    def __init__(self, backing: Any, clock: Clock, case: Any) -> None:
        super().__init__(backing, clock, window("planned_at", case["window"][0], *case["window"][1:]))
        self.batches = dict[str, Batch]()

    def tell(self, step: Any) -> None:
        match step:
            case {"plan": name, "at": time}:
                of = restate_of(step["restates"], name) if "restates" in step else run(name)
                self.batches[name] = self.planned(of, time)
            case {"attempt": name, "records": number}:
                self.attempts(self.batches[name], number, name)
            case {"commit": name, "records": number}:
                self.commits(self.batches[name], number, name)
            case {"report": expected}:
                assert self.report() == [(at(start), number) for start, number in expected]
            case {"closed": expected}:
                assert self.closed() == [(at(start), *of) for start, *of in expected]
            case {"restart": True}:
                self.backing.reconnect()
            case _:
                raise AssertionError(step)


@pytest.mark.rule("R26")
@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden(backing: Any, clock: Clock, path: Path) -> None:
    """A run's batch is planned at a time of the day, attempted, committed with so many records; windows as start and number, and
    those that are handed on with the txid that closed them.
    """
    case = json.loads(path.read_text(encoding="utf-8"))
    story = Story(backing, clock, case)
    for step in case["steps"]:
        story.tell(step)


def test_it_is_when_the_ledger_planned_the_batch_whatever_the_process_says(backing: Any, clock: Clock) -> None:
    visits = Visits(backing, clock)
    first, second = visits.planned(run("1")), visits.planned(run("2"))
    for batch in (first, second):
        assert batch.plan.planned_at is not None
        assert abs(time_of(batch.plan.planned_at) - datetime.now(UTC)) < timedelta(hours=1)
        assert batch.plan.watermark == {}
    assert first.plan.planned_at <= second.plan.planned_at  # type: ignore[operator]
    visits.commits(first, 3, "1")
    assert backing.times("visits", 1) == ({"visits": first.plan.planned_at}, None)


def test_batches_that_are_planned_together_have_the_same_time_and_a_restate_that_of_its_position(
    backing: Any, clock: Clock
) -> None:
    visits = Visits(backing, clock)
    visits.commits(visits.planned(run("1"), "10:02"), 1, "1")
    clock.shows = at("10:31")
    ahead = planning_ahead.initialize_many(visits.ledger, visits.topology, [run("2"), run("3")])
    assert [each.plan.planned_at for each in ahead] == 2 * [micros_of(at("10:31"))]
    for batch, name in zip(ahead, "23", strict=True):
        visits.commits(batch, 1, name)
    again = visits.planned(restate_of(1), "12:00")
    assert again.plan.planned_at == micros_of(at("10:02"))


@pytest.mark.rule("R23")
def test_a_rebuild_counts_where_the_plans_say_and_closes_nothing_again(backing: Any, clock: Clock) -> None:
    visits = Visits(backing, clock)
    for name, time in (("1", "10:02"), ("2", "10:12")):
        visits.commits(visits.planned(run(name), time), 2, name)
    assert visits.closed() == [(at("10:00"), 2, 2)]
    rebuild = backing.rebuilds.begin(visits.topology, "jobs/job.py", code("new"), "a test")
    for number in (5, 7):
        version = backing.rebuilds.next(rebuild)
        attempt = TransactionAttempt(version.txid, 1)
        assignment = Assignment("visits", attempt, f"token {version.txid}", version.metadata, code("new"))
        partials = visits.partials(assignment.plan.planned_at, number, version.txid)
        manifest = manifest_of(visits.topology, assignment, partials)
        given = backing.as_partials(visits.topology, partials)
        assert backing.rebuilds.count(rebuild, visits.topology, assignment, manifest, given)
    backing.rebuilds.swap(rebuild, visits.topology)
    assert visits.report() == [(at("10:00"), 5), (at("10:10"), 7)]
    assert visits.closed() == []


@pytest.mark.rule("R23")
def test_a_batch_of_before_has_none_and_counts_in_no_window(backing: Any, clock: Clock) -> None:
    """It holds from the next batch on; a state refuses the null that those of before have, as any null key."""
    before, spout = Topology("visits", max_pending=3), LogSpout({"a": 1_000_000})
    spout.fields = "shop string"
    plain = before.new_stream("visits", spout).group_by("shop")
    plain.persistent_aggregate(OpaqueState("visits"), visits=Count())
    backing.whole(before, {"visits": [(("x",), (2,))]}, "1")
    visits = Visits(backing, clock, by=None)
    told = "stream 'visits' changes from no watermark to a watermark of processing time, planned_at.*from now on"
    with pytest.raises(SchemaMismatch, match=told):
        visits.planned(run("2"), "10:02")
    backing.ledger.change(visits.topology, "jobs/job.py", "a test")
    second = visits.planned(run("2"), "10:02")
    assert second.plan.planned_at == micros_of(at("10:02"))
    visits.commits(second, 1, "2")
    again = visits.planned(restate_of(1), "10:03")
    assert again.plan.planned_at is None
    with refused("TX306", "'visits'", "key", "null"):
        Visits(backing, clock).partials(None, 1, 1)
