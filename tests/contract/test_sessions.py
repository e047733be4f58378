"""States by sessions: what one pass over all records makes, in any batches, after retries and restates, in both ledgers (R27)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count as count_up
from pathlib import Path
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from contract.test_restate import restate_of
from contract.test_upstream import Exported
from contract.test_watermarks import DAY as WATERMARKED_DAY
from contract.test_watermarks import Visits as Watermarked
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from support import LogSpout, code, manifest_of, run

from txbatch import Avg, Count, Max, OpaqueState, StateSpout, Sum, Topology, TransactionalState, session_window
from txbatch.core.batch.transaction import Assignment, Batch, Run, TransactionAttempt
from txbatch.core.corrections.rebuild import Swapped
from txbatch.core.errors import OutOfRange, SchemaMismatch
from txbatch.core.protocol import coordinator
from txbatch.core.state.state import State
from txbatch.core.upstream.upstream import export
from txbatch.direct.emitter import partials_of
from txbatch.direct.operations import records
from txbatch.failpoints import FailpointReached
from txbatch.memory.ask import ask as in_memory
from txbatch.memory.ledger import MemoryLedger
from txbatch.reports import Reports
from txbatch.settings import Settings

pytestmark = pytest.mark.rule("R27")
# User, minute of a day, and what was spent.
Visit = tuple[str, Any, int]
VISIT = st.tuples(st.sampled_from("xy"), st.integers(0, 300), st.integers(0, 9))
DAY = datetime(2026, 10, 25, tzinfo=UTC)
GAP = 30
NUMBERS = count_up()
GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "sessions").glob("*.json"))


def at(minute: Any) -> datetime:
    if isinstance(minute, datetime):
        return minute
    return DAY + timedelta(minutes=minute)


class Visits:
    """A topology that counts visits by sessions of users, on one of both ledgers."""

    def __init__(
        self,
        backing: Any,
        state: State | None = None,
        gap: str = "30 minutes",
        keys: Sequence[str] = ("user",),
        name: str = "visits",
        **more: Any,
    ) -> None:
        self.backing, self.ledger, self.topology = backing, backing.ledger, Topology(name)
        self.keys, spout = keys, LogSpout({"a": 1000})
        spout.fields = "at timestamp, user string, spent bigint"
        grouped = self.topology.new_stream("visits", spout).group_by(session_window("at", gap), *keys)
        values = {"visits": Count(), "spent": Sum("spent"), "most": Max("spent"), "mean": Avg("spent"), **more}
        self.aggregate = grouped.persistent_aggregate(state or OpaqueState("sessions"), **values)

    def planned(self, of: Run) -> Batch:
        self.ledger.register(self.topology, "jobs/job.py")
        batch = coordinator.initialize_transaction(self.ledger, self.topology, of)
        assert isinstance(batch, Batch)
        return batch

    def partials(self, batch: Batch, visits: Iterable[Visit]) -> Any:
        read = [{"at": at(minute), "user": user, "spent": spent} for user, minute, spent in visits]
        reached = records(self.aggregate.stream, {"visits": {"a": read}})
        return {self.aggregate.state.name: partials_of(self.aggregate, reached, batch.position)}

    def emitted(self, of: Run, visits: Iterable[Visit]) -> tuple[Batch, Any]:
        batch = self.planned(of)
        partials = self.partials(batch, visits)
        self.backing.emit(self.topology, batch, partials, of.name)
        return batch, partials

    def counts(self, of: Run, visits: Iterable[Visit]) -> None:
        batch, partials = self.emitted(of, visits)
        assert self.backing.commit(self.topology, batch, partials).applied
        assert self.ledger.success(self.topology.name, batch.txid)

    def report(self) -> list[tuple[Any, ...]]:
        return shown(self.backing.report(self.topology, self.aggregate.state.name), self.keys)


class Reader:
    """A topology that reads what changed in the sessions."""

    def __init__(self, backing: Any) -> None:
        self.backing, self.topology = backing, Topology("reader")
        fields = (
            "user string, session_start timestamp, change string, session_end_after timestamp, visits_before bigint, "
            "visits_after bigint, txid bigint"
        )
        grouped = self.topology.new_stream("changes", StateSpout("sessions", fields)).group_by("user")
        grouped.persistent_aggregate(OpaqueState("readers"), count=Count())

    def reads(self, name: str) -> list[tuple[Any, ...]]:
        """A batch through all steps: what it was given."""
        ledger = self.backing.ledger
        ledger.register(self.topology, "jobs/job.py")
        batch, folder = coordinator.initialize_transaction(ledger, self.topology, run(name)), Exported()
        assert isinstance(batch, Batch)
        export(self.topology, ledger.upstream, self.backing.attempt(batch, name), folder)  # type: ignore[arg-type]
        partials = {"readers": [(("x",), (1,))]}
        self.backing.emit(self.topology, batch, partials, name)
        assert self.backing.commit(self.topology, batch, partials).applied
        assert ledger.success("reader", batch.txid)
        return folder.records


def shown(rows: Iterable[Mapping[str, Any]], keys: Sequence[str]) -> list[tuple[Any, ...]]:
    """Of each session its keys, start, end and values, in order."""
    values = ("session_start", "session_end", "visits", "spent", "most")
    return sorted((*(row[name] for name in (*keys, *values)), float(row["mean"])) for row in rows)


def at_once(visits: Iterable[Visit], gap: int = GAP, *, by_user: bool = True) -> list[tuple[Any, ...]]:
    """What a pass over all visits makes of them."""
    found: list[tuple[Any, ...]] = []
    by_key: dict[tuple[str, ...], list[Visit]] = {}
    for visit in visits:
        by_key.setdefault((visit[0],) if by_user else (), []).append(visit)
    for key, own in by_key.items():
        session: list[Visit] = []
        for visit in [*sorted(own, key=lambda each: each[1]), None]:
            if session and (visit is None or visit[1] - session[-1][1] > gap):
                spent = [each[2] for each in session]
                ends = at(session[0][1]), at(session[-1][1])
                found.append((*key, *ends, len(session), sum(spent), max(spent), sum(spent) / len(spent)))
                session = []
            session += [visit] if visit else []
    return sorted(found)


def random_batches(random: Random, number: int = 5) -> list[list[Visit]]:
    return [
        [(random.choice("xyz"), random.randrange(1200), random.randrange(9)) for _ in range(random.randint(0, 25))]
        for _ in range(number)
    ]


def flat(batches: Iterable[Iterable[Visit]]) -> list[Visit]:
    return [visit for batch in batches for visit in batch]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden(backing: Any, path: Path) -> None:
    """A step is a batch, or a restate of a position: records as user and time; what is expected: user, start, end, visits."""
    case = json.loads(path.read_text(encoding="utf-8"))
    visits = Visits(backing, gap=case["gap"])
    for number, step in enumerate(case["steps"]):
        name = str(number)
        of = restate_of(step["restate"], name) if "restate" in step else run(name)
        visits.counts(of, [(user, datetime.fromisoformat(time), 1) for user, time in step["batch"]])
        expected = [(user, *map(datetime.fromisoformat, ends), number) for user, *ends, number in step["expect"]]
        assert [row[:4] for row in visits.report()] == expected, step


@pytest.mark.parametrize("keys", [("user",), ()], ids=["by user", "alone"])
@pytest.mark.parametrize("state", [OpaqueState, TransactionalState])
def test_any_batches_and_restates_come_to_what_one_pass_makes(backing: Any, state: Any, keys: Any) -> None:
    visits, random = Visits(backing, state("sessions"), keys=keys), Random(14)
    batches = random_batches(random)
    for number, batch in enumerate(batches):
        visits.counts(run(str(number)), batch)
        assert visits.report() == at_once(flat(batches[: number + 1]), by_user=bool(keys))
    for number, (position, again) in enumerate(((2, batches[1][::2]), (4, []), (2, [*batches[1], ("w", 5, 5)]))):
        batches[position - 1] = again
        visits.counts(restate_of(position, f"again{number}"), again)
        assert visits.report() == at_once(flat(batches), by_user=bool(keys))


def test_a_late_record_bridges_sessions_and_a_restate_parts_them_again(backing: Any) -> None:
    visits, whole = Visits(backing), ("x", at(0), at(90), 4, 15, 8, 3.75)
    parts = [("x", at(0), at(30), 2, 3, 2, 1.5), ("x", at(90), at(90), 1, 4, 4, 4.0)]
    visits.counts(run("1"), [("x", 0, 1), ("x", 30, 2), ("x", 90, 4)])
    assert visits.report() == parts
    visits.counts(run("2"), [("x", 60, 8)])
    assert visits.report() == [whole]
    visits.counts(restate_of(2), [])
    assert visits.report() == parts
    visits.counts(restate_of(2, "once more"), [("x", 60, 8)])
    assert visits.report() == [whole]


def test_sessions_are_apart_by_more_than_the_gap(backing: Any) -> None:
    visits = Visits(backing)
    visits.counts(run("1"), [("x", 0, 1), ("x", 30, 1)])
    visits.counts(run("2"), [("x", 60, 1), ("x", 91, 1)])
    assert [row[1:4] for row in visits.report()] == [(at(0), at(60), 3), (at(91), at(91), 1)]


@given(st.lists(st.lists(VISIT, max_size=8), min_size=1, max_size=4), st.randoms(use_true_random=False))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_order_in_which_records_come_makes_no_difference(
    backing: Any, batches: list[list[Visit]], random: Random
) -> None:
    visits_of_all = flat(batches)
    shuffled, cut = random.sample(visits_of_all, len(visits_of_all)), random.randint(0, len(visits_of_all))
    for parts in (batches, [shuffled[:cut], shuffled[cut:]]):
        name = f"v{next(NUMBERS)}"
        visits = Visits(backing, OpaqueState(name), name=name)
        for number, part in enumerate(parts):
            visits.counts(run(str(number)), part)
        assert visits.report() == at_once(visits_of_all)


@pytest.mark.rule("R21")
@pytest.mark.parametrize("state", [OpaqueState, TransactionalState])
def test_apart_an_attempt_that_was_half_committed_is_repeated(
    backing: Any, monkeypatch: pytest.MonkeyPatch, state: Any
) -> None:
    """Of an opaque state by other records, too: what the first had brought together comes apart again."""
    visits = Visits(backing, state("sessions", database="warehouse"))
    visits.counts(run("1"), [("x", 0, 1), ("x", 60, 2)])
    batch, partials = visits.emitted(run("2"), [("x", 30, 4), ("y", 0, 1)])
    with monkeypatch.context() as patch:
        patch.setenv("TXBATCH_FAILPOINTS", "commit.apart_committed=raise")
        with pytest.raises(FailpointReached):
            backing.commit(visits.topology, batch, partials)
    again = [("x", 90, 8)] if state is OpaqueState else [("x", 30, 4), ("y", 0, 1)]
    partials = visits.partials(batch, again)
    backing.emit(visits.topology, batch, partials, "2")
    assert backing.commit(visits.topology, batch, partials).applied
    assert visits.report() == at_once([("x", 0, 1), ("x", 60, 2), *again])


@pytest.mark.rule("R22")
def test_what_is_folded_still_comes_together_with_what_comes_later(backing: Any) -> None:
    visits, random = Visits(backing), Random(7)
    batches = random_batches(random, 4)
    for number, batch in enumerate(batches):
        visits.counts(run(str(number)), batch)
    assert [each.horizon for each in backing.retention.fold("visits", 2)] == [2]
    assert visits.report() == at_once(flat(batches))
    batches[2] = [("x", minute, 1) for minute in range(0, 1200, 25)]
    visits.counts(restate_of(3), batches[2])
    assert visits.report() == at_once(flat(batches))
    batches[2] = []
    visits.counts(restate_of(3, "once more"), [])
    assert visits.report() == at_once(flat(batches))


@pytest.mark.rule("R23")
def test_another_gap_is_another_definition_and_a_rebuild_cuts_all_history_by_it(backing: Any) -> None:
    visits = Visits(backing)
    batches = [[("x", 0, 1), ("x", 20, 2)], [("x", 45, 4), ("y", 0, 8)]]
    for number, batch in enumerate(batches):
        visits.counts(run(str(number)), batch)
    assert visits.report() == at_once(flat(batches))
    reader = Reader(backing)
    assert [row[:4] for row in reader.reads("a")] == [
        ("x", at(0), "added", at(45)),
        ("y", at(0), "added", at(0)),
    ]
    shorter = Visits(backing, gap="20 minutes")
    told = "changes from counting by sessions by at, 30 minutes apart to counting by sessions by at, 20 minutes apart.*rebuild"
    with pytest.raises(SchemaMismatch, match=told):
        shorter.planned(run("3"))
    rebuild = backing.rebuilds.begin(shorter.topology, "jobs/job.py", code("new"), "shorter", "ann")
    for txid, batch in enumerate(batches, 1):
        assignment = Assignment(
            "visits", TransactionAttempt(txid, 0), "t", visits.ledger.batch("visits", txid).metadata, code("new")
        )
        partials = shorter.partials(visits.ledger.batch("visits", txid), batch)
        manifest, given_ = (
            manifest_of(shorter.topology, assignment, partials),
            backing.as_partials(shorter.topology, partials),
        )
        assert backing.rebuilds.count(rebuild, shorter.topology, assignment, manifest, given_)
    assert backing.rebuilds.swap(rebuild, shorter.topology) == Swapped(2)
    assert shorter.report() == at_once(flat(batches), 20)
    batches.append([("y", 100, 1)])
    shorter.counts(run("3"), batches[-1])
    assert [row[:6] for row in reader.reads("b")] == [
        ("x", at(0), "changed", at(20), 3, 2),
        ("x", at(45), "added", at(45), None, 1),
        ("y", at(100), "added", at(100), None, 1),
    ]
    batches.append([("x", 32, 1)])
    shorter.counts(run("4"), batches[-1])
    assert shorter.report() == at_once(flat(batches), 20)


@pytest.mark.rule("R19")
def test_another_topology_reads_what_became_of_sessions(backing: Any) -> None:
    """What was two is one since, which a restate parts again."""
    visits = Visits(backing)
    reads = Reader(backing).reads
    visits.counts(run("1"), [("x", 0, 1), ("x", 60, 2), ("y", 5, 1)])
    assert reads("a") == [
        ("x", at(0), "added", at(0), None, 1, 1),
        ("x", at(60), "added", at(60), None, 1, 1),
        ("y", at(5), "added", at(5), None, 1, 1),
    ]
    visits.counts(run("2"), [("x", 30, 4)])
    assert reads("b") == [
        ("x", at(0), "changed", at(60), 1, 3, 2),
        ("x", at(60), "removed", None, 1, None, 2),
    ]
    visits.counts(restate_of(2), [])
    found = reads("c")
    assert [each[:-1] for each in found] == [
        ("x", at(0), "changed", at(0), 3, 1),
        ("x", at(60), "added", at(60), None, 1),
    ]


@pytest.mark.rule("R20")
def test_a_query_finds_a_session_by_its_start(backing: Any) -> None:
    visits = Visits(backing)
    asked = visits.topology.new_query_stream("asked", "user string, session_start timestamp")
    asked.state_query(visits.aggregate, "user", "session_start", fields=["session_end", "visits"])
    visits.counts(run("1"), [("x", 0, 1)])
    visits.counts(run("2"), [("x", 30, 1)])

    def ask(*questions: Any) -> Any:
        if isinstance(backing.ledger, MemoryLedger):
            return in_memory(backing.ledger, visits.topology, "asked", questions)
        url = backing.engine.url.render_as_string(hide_password=False)
        reports = Reports(Settings(Path("/nowhere"), url, "file:///nowhere", connections=backing.databases))
        return reports.ask(visits.topology, "asked", questions)

    found = [each[0] for each in ask(("x", at(0)), ("x", at(30)))]
    assert [(row["session_end"], row["visits"]) for row in found] == [(at(30), 2), (None, None)]


@pytest.mark.rule("R25")
@pytest.mark.parametrize("late", ["merge", "drop", "side"])
def test_a_record_is_late_by_its_own_time(backing: Any, late: str) -> None:
    """Also where it would be of a session that goes on: what is left out of one is as if it had never come."""
    visits = Watermarked(backing, late=late, by=session_window("at", "30 minutes"))
    assert visits.counts("1", a=[100, 120]) == (110, 0)
    assert visits.counts("2", a=[109, 110, 60, 150]) == (140, 2)
    assert visits.counts("3", a=[139]) == (140, 1)
    rows = sorted(
        (row["session_start"], row["session_end"], row["visits"]) for row in backing.report(visits.topology, "visits")
    )
    times = [100, 120, 110, 150, *([109, 60, 139] if late == "merge" else [])]
    expected = at_once([("x", minute, 0) for minute in times])
    day = timedelta(days=(DAY - WATERMARKED_DAY).days)
    assert rows == [(start - day, end - day, number) for _, start, end, number, *_ in expected]
    if late == "side":
        aside = backing.report(visits.topology, "visits_late")
        assert sorted(row["at"] for row in aside) == [at(minute) - day for minute in (60, 109, 139)]


def test_the_years_1_and_9999_and_a_change_of_clocks(backing: Any) -> None:
    """Sessions are by moments: an hour that a clock shows twice is two."""
    visits, berlin = Visits(backing), ZoneInfo("Europe/Berlin")
    first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    twice = [datetime(2026, 10, 25, 2, 45, tzinfo=berlin, fold=fold).astimezone(UTC) for fold in (0, 1)]
    for name in "12":
        visits.counts(run(name), [("x", each, 1) for each in (first, last, *twice)])
    found = [(row[1], row[2], row[3]) for row in visits.report()]
    assert found == [(each, each, 2) for each in (first, *twice, last)]


# ---- sums of sessions

LARGE = 5 * 10**18
TOO_LARGE = r"state 'sessions', session .*x.*2026.*out of range"


@pytest.mark.rule("R24")
def test_a_session_that_fits_no_bigint_is_named_and_keeps_nothing_else_from_being_read(backing: Any) -> None:
    """Each piece fits, and so both batches count; a restate, and decimals, are the ways out."""
    visits = Visits(backing)
    visits.counts(run("1"), [("x", 0, LARGE), ("y", 0, LARGE)])
    visits.counts(run("2"), [("x", 20, LARGE), ("y", 20, -LARGE), ("x", 100, 1)])
    with pytest.raises(OutOfRange, match=TOO_LARGE) as refused:
        visits.report()
    assert refused.value.text.count("out of range") == 1
    with pytest.raises(OutOfRange, match=TOO_LARGE):
        Reader(backing).reads("a")
    if hasattr(backing, "engine"):
        with backing.engine.connect() as connection:
            for asked in (
                "visits FROM report.sessions WHERE session_start = '2026-10-25'",
                "spent FROM report.sessions WHERE \"user\" = 'y'",
            ):
                assert connection.execute(text(f"SELECT {asked}")).scalars().all() in ([2, 2], [0])
    visits.counts(restate_of(2), [("x", 20, -LARGE), ("y", 20, -LARGE)])
    assert [(user, spent) for user, *_, spent, _, _ in visits.report()] == [("x", 0), ("y", 0)]
