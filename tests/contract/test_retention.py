"""Retention: the past is folded into one row a key (R22), in both ledgers."""

from __future__ import annotations

from typing import Any

import pytest
from contract.test_rebuild import Rebuilding
from contract.test_restate import NAME, Case, restate_of, words
from refusals import refused
from support import LogSpout, run

from txbatch import failpoints
from txbatch.core.aggregates.aggregator import CombinerAggregator, PartialColumn
from txbatch.core.aggregates.merge import Add
from txbatch.core.corrections.retention import SLICE_TXIDS, Retention, Slice
from txbatch.core.state.keep import Keep

pytestmark = pytest.mark.rule("R22")


@pytest.fixture
def case(backing: Any) -> Case:
    return Case(backing)


def kept(case: Case) -> Retention:
    retention: Retention = case.backing.retention
    return retention


def folds(case: Case, txid: int) -> list[Slice]:
    return list(kept(case).fold(NAME, txid))


def test_what_is_folded_is_one_row_a_key(case: Case) -> None:
    """With the txid that changed it last, be it a restate that took something away; a key that is gone leaves none."""
    case.counts("1", dog=1, cat=2, emu=1)
    case.counts("2", dog=10)
    case.restates(1, cat=4)
    case.counts("3", dog=100)
    before = case.rows()
    assert folds(case, 3) == [Slice(3, 3, 5)]
    assert case.backing.base(NAME) == {("dog",): (10, 3), ("cat",): (4, 3)}
    assert case.backing.contributions(NAME) == {(("dog",), 4, 4): (100,)}
    assert (case.rows(), kept(case).horizon(NAME)) == (before, 3)
    assert folds(case, 3) == []


def test_what_came_before_is_in_the_value_of_a_restate(case: Case) -> None:
    for number in range(1, 4):
        case.counts(f"{number}", dog=number, cat=1)
    folds(case, 2)
    case.restates(3, fox=1)
    assert case.rows() == {"dog": (3, 4), "cat": (2, 4), "fox": (1, 4)}
    assert folds(case, 2) == []
    assert [each.horizon for each in folds(case, 4)] == [4]
    assert case.backing.base(NAME) == {("dog",): (3, 4), ("cat",): (2, 4), ("fox",): (1, 4)}


def test_what_is_folded_is_restated_no_more(case: Case) -> None:
    for number in range(1, 4):
        case.counts(f"{number}", dog=1)
    folds(case, 2)
    with refused("TX603", "txid 2"):
        case.restates(2, dog=2)
    case.restates(3, dog=2)
    assert case.rows() == {"dog": (4, 4)}


def test_a_restate_in_flight_is_waited_for(case: Case) -> None:
    for number in range(1, 6):
        case.counts(f"{number}", dog=1)
    again = restate_of(3)
    batch = case.initialize(again)
    assert [each.horizon for each in folds(case, 4)] == [2, 2]
    held = kept(case).past(NAME, Keep(txids=2))
    assert (held.reached, held.wanted, held.waits_for) == (2, 3, "txid 6, which is going to count position 3 again")
    case.goes(batch, again, words(dog=9))
    held = kept(case).past(NAME, Keep(txids=1))
    assert (held.reached, held.wanted, held.waits_for) == (2, 5, "txid 6, which counts position 3 again, to be older")
    assert kept(case).outlook(held) == Slice(2, 0, 0)
    folds(case, 6)
    assert (kept(case).horizon(NAME), case.backing.base(NAME)) == (6, {("dog",): (13, 6)})


@pytest.mark.parametrize("point", ["gc.folded", "gc.before_commit"])
def test_it_goes_on_where_it_was_ended(backing: Any, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(backing, LogSpout({"a": 200}))
    for number in range(1, SLICE_TXIDS + 4):
        case.counts(f"{number}", dog=1)
    assert next(kept(case).fold(NAME, SLICE_TXIDS + 2)).horizon == SLICE_TXIDS
    with monkeypatch.context() as patch:
        patch.setenv("TXBATCH_FAILPOINTS", f"{point}=raise")
        with pytest.raises(failpoints.FailpointReached):
            folds(case, SLICE_TXIDS + 2)
    assert kept(case).horizon(NAME) == SLICE_TXIDS
    assert folds(case, SLICE_TXIDS + 2) == [Slice(SLICE_TXIDS + 2, 2, 2)]


def test_attempts_that_never_counted_are_forgotten(case: Case) -> None:
    of = run("1")
    batch = case.initialize(of)
    case.ledger.fail_attempt(case.backing.attempt(batch, "1"), "a worker was lost")
    case.goes(batch, of, words(dog=1))
    case.counts("2", dog=1)
    seen = kept(case).outlook(kept(case).past(NAME, Keep(txids=1)))
    assert [seen] == folds(case, 1) == [Slice(1, 1, 1, 1)]
    assert case.backing.attempts(NAME) == [("1:2", "committed"), ("2:1", "committed")]
    assert case.ledger.batch(NAME, 1).fence == 2


def test_what_a_policy_keeps(backing: Any) -> None:
    case = Case(backing)
    case.topology.keep = Keep(txids=3)
    for number in range(1, 6):
        case.counts(f"{number}", dog=1)
    retention = kept(case)
    assert (retention.policies(), retention.policy(NAME)) == ({NAME: Keep(txids=3)}, Keep(txids=3))
    assert [retention.wanted(NAME, Keep(txids=n)) for n in (1, 3, 5, 9)] == [4, 2, 0, 0]
    assert retention.wanted(NAME, Keep(days=1)) == 0
    backing.age(3, days=3)
    assert retention.wanted(NAME, Keep(days=2)) == 3
    backing.age(5, days=3)
    assert retention.wanted(NAME, Keep(days=2)) == 4  # the newest always stays
    for asked in (retention.policy, retention.horizon):
        with refused("TX401", "'nobody'"):
            asked("nobody")


def test_no_past_is_folded_while_a_rebuild_counts_it(case: Case) -> None:
    for number in range(1, 4):
        case.counts(f"{number}", dog=1)
    rebuilding = Rebuilding(case)
    with refused("TX706", "rebuild"):
        folds(case, 2)
    number, held = rebuilding.rebuild.number, kept(case).past(NAME, Keep(txids=1))
    assert (held.reached, held.wanted) == (0, 2)
    assert held.waits_for == f"rebuild {number}, which counts what would be folded, to be swapped or cancelled"


class Bits(Add):
    """A user's own merge, of a name that only the job knows."""

    name = "bits"


class Flags(CombinerAggregator):
    def columns(self, input: Any) -> tuple[PartialColumn, ...]:
        return (PartialColumn("", "bigint", Bits(), "count(*)"),)

    def init(self, value: Any) -> tuple[int]:
        return (1,)


def test_a_users_own_merge_cannot_be_folded(backing: Any) -> None:
    case = Case(backing, count=Flags())
    for number in range(1, 4):
        case.counts(f"{number}", dog=1)
    with refused("TX704", "'word_count'", "'count'"):
        folds(case, 2)
    assert (kept(case).horizon(NAME), len(backing.contributions(NAME))) == (0, 3)
