"""Users' own combiners, which Python combines (R9, R17, R18, R21): in both ledgers, all batches at once."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any

import pytest
from contract.test_restate import restate_of
from every_aggregate import Span, Words
from refusals import refused
from support import Keyed, LogSpout, code, manifest_of, run

from txbatch import (
    CombinerAggregator,
    Count,
    NonTransactionalState,
    OpaqueState,
    SpoutKind,
    StateSpout,
    Topology,
    TransactionalState,
)
from txbatch.core.batch.transaction import Assignment, Batch, Run, TransactionAttempt
from txbatch.core.corrections.rebuild import Swapped
from txbatch.core.errors import NotFoldable, TerminalError
from txbatch.core.protocol import coordinator
from txbatch.core.upstream.upstream import export
from txbatch.direct.emitter import partials_of

NAME = "own"
STATES = {
    "opaque": (OpaqueState, SpoutKind.OPAQUE),
    "transactional": (TransactionalState, SpoutKind.TRANSACTIONAL),
    "non_transactional": (NonTransactionalState, SpoutKind.TRANSACTIONAL),
}
# Word and number.
Record = tuple[str, int]


class Clock(CombinerAggregator):
    """A number that begins anew at a thousand, and at 900 fails."""

    partial = "number bigint"

    def init(self, value: int) -> tuple[int]:
        return (value,)

    def zero(self) -> tuple[int]:
        return (0,)

    def combine(self, left: tuple[int], right: tuple[int]) -> tuple[Any]:
        total = (left[0] + right[0]) % 1000
        if total == 900:
            raise ValueError("out of order")
        return ("noon",) if total == 12 else (total,)


class Case:
    """A topology with a value by Python on one of both ledgers; its spout has words alone, so records are given here."""

    def __init__(self, backing: Any, kind: str = "opaque", value: Any = None, **options: Any) -> None:
        self.backing, self.ledger = backing, backing.ledger
        state, spout = STATES[kind]
        guarantee = "at_least_once" if kind == "non_transactional" else "exactly_once"
        self.topology, log = Topology(NAME), LogSpout({"a": 1000}, kind=spout)
        log.fields = "word string, number bigint, price decimal(10,2)"
        self.topology.new_stream("words", log).group_by("word").persistent_aggregate(
            state(NAME, **options), guarantee=guarantee, **(value or {"count": Clock("number")})
        )

    def partials(self, records: Iterable[Record]) -> dict[str, list[Keyed]]:
        (aggregate,) = self.topology.aggregates
        return {NAME: partials_of(aggregate, [{"word": w, "number": n, "price": n} for w, n in records])}

    def counts(self, of: Run | str, *records: Record) -> Batch:
        of = run(of) if isinstance(of, str) else of
        self.ledger.register(self.topology, "jobs/job.py")
        batch, partials = coordinator.initialize_transaction(self.ledger, self.topology, of), self.partials(records)
        self.backing.emit(self.topology, batch, partials, of.name)
        committed = self.backing.commit(self.topology, batch, partials)
        assert committed.applied
        assert self.ledger.success(NAME, batch.txid)
        return committed.batch


@pytest.mark.rule("R9", "R18")
@pytest.mark.parametrize("kind", STATES)
def test_batches_add_up_to_all_at_once(backing: Any, kind: str) -> None:
    case = Case(backing, kind)
    case.counts("1", ("dog", 800), ("dog", 150), ("cat", 1))
    case.counts("2", ("dog", 60), ("emu", 0))
    assert backing.state(NAME) == {("dog",): (10, 2), ("cat",): (1, 1), ("emu",): (0, 2)}
    assert backing.contributions(NAME)[("dog",), 1, 1] == (950,)
    again = case.backing.ledger.batch(NAME, 2)
    assert not backing.commit(case.topology, again, case.partials([("dog", 1)])).applied


@pytest.mark.rule("R17")
@pytest.mark.parametrize("kind", ["opaque", "transactional"])
def test_a_restate_combines_what_counts_then(backing: Any, kind: str) -> None:
    """What was restated leaves no trace, though nothing can be taken away from such a value."""
    values = {"far": Span("price"), "words": Words("word"), "number": Count()}
    case = Case(backing, kind, values)
    case.counts("1", ("dog", 1), ("dog", 9), ("cat", 5))
    case.counts("2", ("dog", 3), ("emu", 4))
    case.counts(restate_of(1), ("dog", 2), ("fox", 7))
    case.counts(restate_of(2, "second"), ("dog", 5), ("dog", 4))
    columns = ("far_low", "far_high", "far", "words", "number")
    assert backing.values(NAME, *columns) == {
        ("dog",): (2, 5, 3, ["dog"], 3, 4),
        ("fox",): (7, 7, 0, ["fox"], 1, 3),
    }
    assert backing.contributed(NAME, *columns)[("dog",), 2, 4] == (4, 5, 1, ["dog"], 2)


@pytest.mark.rule("R21")
@pytest.mark.parametrize("kind", STATES)
def test_apart(backing: Any, kind: str) -> None:
    case = Case(backing, kind, database="warehouse")
    case.counts("1", ("dog", 800))
    case.counts("2", ("dog", 300), ("cat", 1))
    found = backing.apart(NAME)
    assert {key: row for key, row in found.items() if key != "last"} == {("dog",): (100, 2), ("cat",): (1, 2)}


class Folder:
    """The folder of an attempt, as far as it is exported to."""

    records: list[tuple[Any, ...]]

    def write_export(self, number: int, fields: Any, records: Iterable[tuple[Any, ...]]) -> None:
        self.records = sorted(map(tuple, records))


class Reader:
    """A topology that reads what changes in the state of a case."""

    def __init__(self, case: Case, fields: str) -> None:
        self.case, self.topology = case, Topology("reader")
        changes = self.topology.new_stream("changes", StateSpout(NAME, fields))
        changes.persistent_aggregate(OpaqueState("read"), count=Count())

    def plans(self, name: str) -> Batch:
        self.case.ledger.register(self.topology, "jobs/reader.py")
        batch = coordinator.initialize_transaction(self.case.ledger, self.topology, run(name))
        assert isinstance(batch, Batch)
        return batch

    def reads(self, name: str) -> list[tuple[Any, ...]]:
        backing, folder, batch = self.case.backing, Folder(), self.plans(name)
        export(self.topology, self.case.ledger.upstream, backing.attempt(batch, name), folder)  # type: ignore[arg-type]
        partials = {"read": [((), (len(folder.records),))]}
        backing.emit(self.topology, batch, partials, name)
        assert backing.commit(self.topology, batch, partials).applied
        assert self.case.ledger.success("reader", batch.txid)
        return folder.records


FAR = "word string, change string, far_before decimal(10,2), far_after decimal(10,2), txid bigint"


@pytest.mark.rule("R17", "R19")
def test_a_topology_reads_what_changed_in_it(backing: Any) -> None:
    """Finished by the aggregator of the job that makes it, beside values that PostgreSQL finishes."""
    case = Case(backing, value={"far": Span("price"), "number": Count()})
    backing.jobs[NAME] = case.topology
    reader = Reader(case, FAR)
    case.counts("1", ("dog", 1), ("dog", 9), ("cat", 5))
    assert reader.reads("a") == [("cat", "added", None, 0, 1), ("dog", "added", None, 8, 1)]
    case.counts("2", ("dog", 12), ("emu", 3))
    case.counts("3", ("emu", 3))
    assert reader.reads("b") == [("dog", "changed", 8, 11, 2), ("emu", "added", None, 0, 3)]
    case.counts(restate_of(1), ("dog", 2))
    assert reader.reads("c") == [("cat", "removed", 0, None, 4), ("dog", "changed", 11, 10, 4)]


@pytest.mark.rule("R23")
def test_a_topology_reads_what_changed_by_a_rebuild_of_it(backing: Any) -> None:
    case = Case(backing, value={"far": Span("price"), "number": Count()})
    backing.jobs[NAME] = case.topology
    reader = Reader(case, FAR)
    case.counts("1", ("dog", 1), ("dog", 9), ("cat", 5))
    reader.reads("a")
    plan, partials = backing.ledger.batch(NAME, 1).metadata, case.partials([("dog", 2), ("dog", 3)])
    assignment = Assignment(NAME, TransactionAttempt(1, 0), "token", plan, code("new"))
    rebuilds, manifest = backing.rebuilds, manifest_of(case.topology, assignment, partials)
    rebuild = rebuilds.begin(case.topology, "jobs/job.py", code("new"), "the source was wrong", "ann")
    given = backing.as_partials(case.topology, partials)
    assert rebuilds.count(rebuild, case.topology, assignment, manifest, given)
    assert isinstance(rebuilds.swap(rebuild, case.topology), Swapped)
    case.counts("2", ("dog", 7))
    assert reader.reads("b") == [("cat", "removed", 0, None, 2), ("dog", "changed", 8, 5, 2)]


@pytest.mark.rule("R22")
@pytest.mark.parametrize("kind", STATES)
def test_its_past_is_folded_with_its_job(backing: Any, kind: str) -> None:
    case = Case(backing, kind)
    case.counts("1", ("dog", 800), ("cat", 1))
    case.counts("2", ("dog", 300))
    case.counts(restate_of(1), ("dog", 850), ("fox", 2))
    case.counts("3", ("dog", 1))
    case.counts("4", ("emu", 1))
    before = backing.state(NAME)
    with refused("TX704", "'count'"):
        list(backing.retention.fold(NAME, 4))
    backing.jobs[NAME] = case.topology
    assert [(each.horizon, each.versions) for each in backing.retention.fold(NAME, 4)] == [(4, 4)]
    assert backing.base(NAME) == {("dog",): (151, 4), ("fox",): (2, 3)}
    assert backing.state(NAME) == before
    case.counts(restate_of(5, "fifth"), ("dog", 700), ("emu", 2))
    assert backing.state(NAME) == {("dog",): (851, 6), ("fox",): (2, 3), ("emu",): (2, 6)}


def test_another_job_is_not_taken_for_its_own(backing: Any) -> None:
    """What was counted by one aggregator is not folded by another one, nor read."""
    case = Case(backing)
    case.counts("1", ("dog", 1))
    case.counts("2", ("dog", 1))
    backing.jobs[NAME] = Case(backing, value={"count": Span("number")}).topology
    told = "the job of own defines state 'own' otherwise than it was counted"
    with pytest.raises(NotFoldable, match=told):
        list(backing.retention.fold(NAME, 1))
    with pytest.raises(TerminalError, match=told):
        Reader(case, "word string, count_after bigint").plans("reads")


def test_no_topology_reads_what_changed_in_it_without_its_job(backing: Any) -> None:
    """Refused before a txid is used."""
    case = Case(backing)
    case.counts("1", ("dog", 1))
    told = (
        r"state 'own' merges 'count' by Clock\.combine, which is Python of its job, .*: the job of own is not at hand"
    )
    with pytest.raises(TerminalError, match=told):
        Reader(case, "word string, count_after bigint").plans("reads")
    assert backing.ledger.head("reader", run("reads")).own is None


@pytest.mark.rule("R10", "R24")
@pytest.mark.parametrize(
    ("before", "then", "says"),
    [
        (850, 50, ("TX307", "'count'", "850", "ValueError")),
        (8, 4, ("TX307", "'noon'", "'number'", "bigint")),
    ],
)
def test_a_combine_that_fails_commits_nothing(backing: Any, before: int, then: int, says: tuple[str, ...]) -> None:
    """The batch stays as it is: the job is mended, and the run tried again."""
    case = Case(backing)
    case.counts("1", ("dog", before), ("cat", 1))
    with refused(*says):
        case.counts("2", ("dog", then), ("cat", 2))
    assert backing.state(NAME) == {("dog",): (before, 1), ("cat",): (1, 1)}
    assert gc.isenabled()
