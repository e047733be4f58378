"""A topology looks values up in a live state, as of the txid that the plan of each batch fixes, in both ledgers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
import refusals
from contract.test_rebuild import JOB, Rebuilding
from contract.test_restate import NAME, Case
from support import LogSpout, run, word_count

from txbatch import Avg, Count, LiveState, OpaqueState, Sum, Topology, TransactionalState
from txbatch.core.batch.transaction import Assignment, Batch, Restate, Run, TransactionAttempt
from txbatch.core.corrections.rebuild import Swapped
from txbatch.core.errors import ChangeTooEarly, RecordsGone, TerminalError
from txbatch.core.protocol import coordinator
from txbatch.core.protocol.planning_again import plan_again
from txbatch.core.records.fields import Field
from txbatch.core.state.keep import Keep
from txbatch.core.upstream import look_ups

LOOKS = "looks"
FIELDS = "word string, count bigint"


def looks(*states: LiveState, name: str = LOOKS) -> Topology:
    """Words that come in, with what is known of each."""
    topology = Topology(name)
    stream = topology.new_stream("seen", LogSpout({"a": 1000}))
    for state in states or (LiveState(NAME, FIELDS),):
        stream = stream.state_query(state, "word")
    stream.group_by("word").persistent_aggregate(OpaqueState(name), count=Count())
    return topology


class Exported:
    """The folder of an attempt, as far as it is exported to."""

    def __init__(self) -> None:
        self.records: dict[int, list[tuple[Any, ...]]] = {}

    def write_export(self, number: int, fields: Sequence[Field], records: Iterable[tuple[Any, ...]]) -> None:
        self.records[number] = sorted(map(tuple, records))


class LookUps(Case):
    """A topology, and one that looks up in its state."""

    def __init__(self, backing: Any, looks_up: Topology | None = None, **options: Any) -> None:
        super().__init__(backing, LogSpout({"a": 1000}), **options)
        self.looks = looks_up or looks()

    def plans(self, name: str, of: Restate | None = None) -> Any:
        self.ledger.register(self.looks, JOB)
        return coordinator.initialize_transaction(self.ledger, self.looks, replace(run(name), restate=of))

    def exports(self, batch: Batch, name: str = "run") -> dict[int, list[tuple[Any, ...]]]:
        """An attempt of a batch: what it is given."""
        return self.exported(self.backing.attempt(batch, name))

    def exported(self, assignment: Assignment) -> dict[int, list[tuple[Any, ...]]]:
        folder = Exported()
        look_ups.export(self.looks, self.ledger.upstream, assignment, folder)  # type: ignore[arg-type]
        return folder.records

    def looked(self, name: str, of: Restate | None = None) -> Batch:
        """A batch through all steps."""
        batch = self.plans(name, of)
        assert isinstance(batch, Batch), batch
        partials = {self.looks.name: [(("dog",), (1,))]}
        self.backing.emit(self.looks, batch, partials, name)
        assert self.backing.commit(self.looks, batch, partials).applied
        assert self.ledger.success(self.looks.name, batch.txid)
        return batch

    def drop(self) -> None:
        self.backing.lose_ledger()
        self.ledger = self.backing.ledger


@pytest.fixture
def case(backing: Any) -> LookUps:
    return LookUps(backing)


def test_every_attempt_sees_the_state_as_of_the_txid_that_the_plan_fixes(case: LookUps) -> None:
    case.counts("1", dog=1, cat=2)
    batch = case.plans("a")
    assert batch.metadata["format"] == 4
    assert batch.metadata["as_of"][NAME]["txid"] == 1
    case.counts("2", dog=5, emu=1)
    case.restates(1, dog=7)
    assert case.exports(batch, "a") == case.exports(batch, "a") == {0: [("cat", 2), ("dog", 1)]}
    case.looked("a")
    assert case.exports(case.plans("b"), "b") == {0: [("dog", 12), ("emu", 1)]}


@pytest.mark.rule("R17")
def test_a_restate_looks_up_as_of_then(case: LookUps) -> None:
    case.counts("1", dog=1)
    case.looked("a")
    case.counts("2", dog=5)
    case.looked("b")
    again = case.plans("again", Restate(1, "it was wrong"))
    assert again.metadata["as_of"] == case.ledger.batch(LOOKS, 1).metadata["as_of"]
    assert case.exports(again, "again") == {0: [("dog", 1)]}


@pytest.mark.rule("R17", "R23")
def test_a_state_that_is_renamed_is_looked_up_as_of_then(case: LookUps) -> None:
    """By its new name, also in what was planned before; an open batch keeps the name."""
    case.counts("1", dog=1)
    case.looked("a")
    case.counts("2", dog=5)
    pending = case.plans("b")
    case.topology = word_count(LogSpout({"a": 100}), state=OpaqueState("words", was=NAME))
    for refused in (case.ledger.check_change, lambda *given: case.ledger.change(*given, "a better name")):
        with refusals.refused("TX602", "'word_count'", "'looks'"):
            refused(case.topology, JOB)
    case.ledger.abort(LOOKS, pending.txid, "its state gets another name")
    case.ledger.change(case.topology, JOB, "a better name")
    case.looks = looks(LiveState("words", FIELDS))
    batch = case.plans("again", Restate(1, "it was wrong"))
    assert batch.metadata["as_of"]["words"]["txid"] == 1
    assert case.exports(batch, "again") == {0: [("dog", 1)]}
    case.ledger.abort(LOOKS, batch.txid, "enough")
    assert case.exports(case.plans("c"), "c") == {0: [("dog", 6)]}


def test_a_state_in_which_nothing_is_counted_yet_has_no_rows(case: LookUps) -> None:
    case.ledger.register(case.topology, JOB)
    batch = case.plans("a")
    case.counts("1", dog=1)
    assert case.exports(batch, "a") == {0: []}


def test_values_are_finished_and_means_rounded(case: LookUps) -> None:
    topology, spout = Topology(NAME), LogSpout({"a": 100})
    spout.fields = "word string, price bigint"
    grouped = topology.new_stream("words", spout).group_by("word")
    grouped.persistent_aggregate(OpaqueState(NAME), mean=Avg("price"), total=Sum("price"))
    case.topology = topology
    of = run("1")
    case.goes(case.initialize(of), of, {NAME: [(("cat",), (None, 0, None)), (("dog",), (2, 3, 2))]})
    fields = "word string, total bigint, mean decimal(10,2), txid bigint"
    case.looks = looks(LiveState(NAME, fields))
    assert case.exports(case.plans("a"), "a") == {
        0: [("cat", None, None, 1), ("dog", 2, Decimal("0.67"), 1)],
    }


def test_a_state_of_its_own_is_looked_up_as_it_was_when_the_batch_was_planned(case: LookUps) -> None:
    case.looks = looks(LiveState(LOOKS, FIELDS))
    case.looked("a")
    batch = case.plans("b")
    assert batch.metadata["as_of"][LOOKS]["txid"] == 1
    assert case.exports(batch, "b") == {0: [("dog", 1)]}
    case.looked("b")
    assert case.exports(case.plans("again", Restate(1, "it was wrong")), "again") == {0: []}


def test_two_look_ups_in_one_state_are_as_of_one_txid(case: LookUps) -> None:
    other = LiveState(NAME, "word string, txid bigint")
    case.looks = looks(LiveState(NAME, FIELDS), other)
    assert look_ups.live_states(case.looks) == {LiveState(NAME, f"{FIELDS} "): 0, other: 1}
    case.counts("1", dog=2)
    assert case.exports(case.plans("a"), "a") == {0: [("dog", 2)], 1: [("dog", 1)]}


@pytest.mark.rule("R22")
def test_gc_keeps_what_open_batches_look_up(case: LookUps) -> None:
    case.counts("1", dog=1)
    batch = case.plans("a")
    case.counts("2", dog=5)
    case.counts("3", dog=1)
    folds = case.backing.retention
    assert list(folds.fold(NAME, 2))
    assert folds.horizon(NAME) == 1
    assert "topology 'looks'" in (folds.past(NAME, Keep(txids=1)).waits_for or "")
    assert case.exports(batch, "a") == {0: [("dog", 1)]}
    case.looked("a")
    list(folds.fold(NAME, 2))
    assert folds.horizon(NAME) == 2
    with refusals.refused("TX205", "'word_count'", "txid 1", "folded", "txid 2", "`txbatch abort`"):
        case.plans("again", Restate(1, "it was wrong"))


@pytest.mark.rule("R23")
def test_what_a_rebuild_replaced_is_looked_up_as_of_then(case: LookUps) -> None:
    case.counts("1", dog=1)
    batch = case.plans("a")
    rebuilding = Rebuilding(case)
    assert rebuilding.count(1, dog=9)
    assert isinstance(rebuilding.swap(), Swapped)
    says = "an open batch of topology 'looks' looks up in state 'word_count' as it was before a rebuild: let that batch end"
    with pytest.raises(ChangeTooEarly, match=says):
        rebuilding.rebuilds.drop_past(NAME)
    assert case.exports(batch, "a") == {0: [("dog", 1)]}
    case.looks = looks(LiveState(NAME, "word string, most string"))
    with refusals.refused("TX601", "'most'", "txid 1"):
        case.plans("a2") if case.ledger.abort(LOOKS, 1, "other fields") else None


def test_what_was_not_fixed_is_fixed_when_it_is_counted_again(case: LookUps) -> None:
    """A batch of a job that looked nothing up, by one that does."""
    with_look_up, case.looks = case.looks, looks()
    plain = Topology(LOOKS)
    stream = plain.new_stream("seen", LogSpout({"a": 1000}))
    stream.group_by("word").persistent_aggregate(OpaqueState(LOOKS), count=Count())
    case.looks = plain
    case.looked("a")
    pending = case.plans("b")
    case.looks = with_look_up
    case.counts("1", dog=1)
    says = "looks 2:1: its plan does not say as of which txid state 'word_count' is looked up in"
    with pytest.raises(RecordsGone, match=says):
        case.exports(pending, "b")
    version = case.ledger.version(LOOKS, 1)
    head = case.ledger.head(LOOKS, Run("rebuild"))
    again = plan_again(with_look_up, head, version, Restate(1, "by the job as it is"), case.ledger.upstream)
    assert again["as_of"][NAME]["txid"] == 1
    attempt = Assignment(LOOKS, TransactionAttempt(1, 0), "token", again, "code")
    assert case.exported(attempt) == {0: [("dog", 1)]}


def test_another_state_of_the_same_name_is_told(case: LookUps) -> None:
    case.counts("1", dog=1)
    batch = case.plans("a")
    assignment = case.backing.attempt(batch, "a")
    case.drop()
    with refusals.refused("TX401", "'word_count'"):
        case.exported(assignment)
    case.counts("1", dog=2)
    with refusals.refused("TX205", "'word_count'", "txid 1"):
        case.exported(assignment)


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (TransactionalState(NAME, contributions=False), ("TX703", "'word_count'")),
        (OpaqueState(NAME, database="warehouse"), ("TX703", "'word_count'", "'warehouse'")),
    ],
)
def test_a_state_without_a_past_is_refused(backing: Any, state: Any, says: tuple[str, ...]) -> None:
    case = LookUps(backing, state=state)
    case.ledger.register(case.topology, JOB)
    with refusals.refused(*says):
        case.plans("a")


def test_what_is_not_there_is_refused_before_there_is_a_txid(case: LookUps) -> None:
    with refusals.refused("TX401", "'word_count'"):
        case.plans("a")
    case.counts("1", dog=1)
    case.looks = looks(LiveState(NAME, "word string, number bigint"))
    with refusals.refused("TX601", "'word_count'", "'number'", "txid 1"):
        case.plans("a")


@pytest.mark.rule("R23")
def test_a_topology_that_looks_up_in_its_own_state_is_not_rebuilt(case: LookUps) -> None:
    case.looks = looks(LiveState(LOOKS, FIELDS))
    case.looked("a")
    with refusals.refused("TX604", "'looks'", "rebuild"):
        case.backing.rebuilds.begin(case.looks, JOB, "code", "one more", "ann")


def own(fields: str = "word string, count bigint", **options: Any) -> Topology:
    """Words that come in, with how often the topology itself has counted each."""
    topology = Topology("own")
    stream = topology.new_stream("seen", LogSpout({"a": 1000})).state_query(LiveState("own", fields), "word")
    stream.group_by("word").persistent_aggregate(OpaqueState("own", **options), count=Count())
    return topology


def test_a_state_of_the_topology_itself_is_empty_before_it_is_made(backing: Any) -> None:
    """`txbatch plan` of a new job asks it before the topology is registered; `txbatch run` registers it first."""
    case = LookUps(backing, own())
    assert look_ups.cuts(own(), {}, {}) == {"own": {"txid": 0, "of": []}}
    batch = case.plans("first")
    assert batch.plan.as_of["own"]["txid"] == 0, batch
    for refused, says in (
        (own("word string, most bigint"), "has no 'most'"),
        (own(contributions=False), "contributions"),
    ):
        backing.lose_ledger()
        with pytest.raises(TerminalError, match=says):
            look_ups.cuts(refused, backing.ledger.upstream.facts(look_ups.states_asked(refused)), {})
    with refusals.refused("TX401", "'other'"):
        look_ups.cuts(looks(LiveState("other", FIELDS)), backing.ledger.upstream.facts(["other"]), {})
