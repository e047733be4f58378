"""Sums whose total fits bigint while some of what they are made of would not, in both ledgers."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from contract.test_rebuild import Rebuilding
from contract.test_restate import NAME, Case, words
from sqlalchemy import text
from support import LogSpout, run

from txbatch import OpaqueState, Sum, Topology
from txbatch.core.corrections.rebuild import Swapped
from txbatch.core.errors import OutOfRange

LARGE = 5 * 10**18


@pytest.mark.rule("R17", "R22")
def test_what_is_folded_has_been_a_total_that_fits(backing: Any) -> None:
    """What positions 1 and 2 come to would not fit: the restate that counts for one of them is folded with all before it."""
    case = Case(backing)
    for number, counted in enumerate((LARGE, -LARGE, -LARGE), 1):
        case.counts(f"{number}", dog=counted)
    case.restates(2, dog=LARGE)
    case.counts("5", dog=1)
    assert case.rows() == {"dog": (LARGE + 1, 5)}
    retention = case.backing.retention
    for horizon in range(1, 5):
        list(retention.fold(NAME, horizon))
        assert case.backing.base(NAME) == {("dog",): (LARGE, 4 if horizon == 4 else 1)}
    assert case.rows() == {"dog": (LARGE + 1, 5)}


def restated(backing: Any, topology: Topology | None = None) -> Case:
    """Each total has fitted; what positions 1 and 3 come to without position 2 does not."""
    case = Case(backing)
    case.topology = topology or case.topology
    for number, counted in enumerate((LARGE, -LARGE, LARGE), 1):
        case.counts(f"{number}", dog=counted)
    case.restates(2, dog=-LARGE, cat=1)
    return case


def test_of_a_batch_a_key_with_several_partials_has_the_total(backing: Any) -> None:
    case = Case(backing)
    of = run("1")
    partials = {NAME: [(("dog",), (each,)) for each in (LARGE, LARGE, -LARGE)]}
    case.goes(case.initialize(of), of, partials)
    assert case.rows() == {"dog": (LARGE, 1)}


def test_changes_are_of_totals(backing: Any) -> None:
    case = restated(backing)
    case.counts("5", dog=-LARGE)
    range_ = {"start": 0, "end": 5, "of": list(case.ledger.upstream.known(NAME).made)}
    found = list(case.ledger.upstream.changes(NAME, range_, ["word", "count_after"]))
    assert sorted(found) == [("cat", 1), ("dog", 0)]


@pytest.mark.rule("R19")
@pytest.mark.parametrize("in_one_pass", ["off", "on"])
def test_reports_of_the_past_are_of_totals(backing: Any, in_one_pass: str) -> None:
    restated(backing)
    if not hasattr(backing, "engine"):
        return  # reports of the past are SQL
    with backing.engine.begin() as connection:
        connection.execute(text(f"SET LOCAL txbatch.far_back = {in_one_pass}"))
        for report in ("as_of", "corrected"):
            for txid, dog in enumerate((LARGE, 0, LARGE, LARGE), 1):
                told = text(f"SELECT count FROM report.{report}_word_count({txid}) WHERE word = 'dog'")
                assert connection.execute(told).scalar_one() == dog
        changed = connection.execute(text("SELECT count_before, count_after FROM report.changes_word_count(2, 4)"))
        assert sorted(map(tuple, changed), key=repr) == [(0, LARGE), (None, 1)]


def summed(type_: str) -> Topology:
    topology, spout = Topology(NAME), LogSpout({"a": 100})
    spout.fields = f"word string, n {type_}"
    topology.new_stream("words", spout).group_by("word").persistent_aggregate(OpaqueState(NAME), count=Sum("n"))
    return topology


@pytest.mark.rule("R23")
def test_what_a_rebuild_has_counted_so_far_has_to_fit(backing: Any) -> None:
    """It is stored version by version, as a batch's total is."""
    case = restated(backing, summed("bigint"))
    rebuilding = Rebuilding(case, case.topology)
    assert rebuilding.offer(1, words(dog=LARGE))
    with pytest.raises(OutOfRange, match=r"word_count 3:0, state 'word_count': .* out of range"):
        rebuilding.offer(3, words(dog=LARGE))
    assert (rebuilding.progress, case.rows()["dog"]) == ((1, 2), (LARGE, 4))


@pytest.mark.rule("R22", "R23")
def test_decimals_have_room_for_what_a_later_version_takes_back(backing: Any) -> None:
    case = restated(backing, summed("bigint"))
    rebuilding = Rebuilding(case, summed("decimal(20,0)"))
    for txid, counted in ((1, LARGE), (3, LARGE), (4, -LARGE)):
        assert rebuilding.offer(txid, words(dog=Decimal(counted)))
    assert isinstance(rebuilding.swap(), Swapped)
    assert case.rows() == {"dog": (Decimal(LARGE), 4)}
    for horizon in range(1, 5):
        list(case.backing.retention.fold(NAME, horizon))
    assert case.backing.base(NAME) == {("dog",): (Decimal(LARGE), 4)}
