"""A changed definition that needs no record counted again is applied to what is counted (R23), in both ledgers alike."""

from __future__ import annotations

from typing import Any

import pytest
import refusals
from every_aggregate import Span
from redefined import JOB, WHY, change, defined, keyed, whole
from support import code, manifest_of

from txbatch import Avg, Count, Max, Min, OpaqueState, Sum, Topology, TransactionalState
from txbatch.core.batch.transaction import Batch, Restate, Run
from txbatch.core.definition.redefinition import NeedsRebuild, how
from txbatch.core.errors import ChangeTooEarly, SchemaMismatch
from txbatch.core.protocol import coordinator


@pytest.mark.rule("R23")
def test_a_value_that_is_gone_is_dropped_with_all_its_columns(backing: Any) -> None:
    before = defined(count=Count(), mean=Avg("n"), low=Min("n"))
    whole(backing, before, "1", dog=(2, 7, 2, 3), cat=(1, 5, 1, 5))
    now = defined(count=Count(), low=Min("n"))
    assert change(backing, now) == [("in place", "value 'mean' of state 's' is gone")]
    whole(backing, now, "2", dog=(1, 1))
    assert backing.values("s", "count", "low") == {("dog",): (3, 1, 2), ("cat",): (1, 5, 1)}
    assert backing.contributed("s", "count", "low") == {
        (("dog",), 1, 1): (2, 3),
        (("cat",), 1, 1): (1, 5),
        (("dog",), 2, 2): (1, 1),
    }
    with refusals.refused("TX601", "'mean_sum'", "'s'"):
        backing.initialize(before, "3")  # a process of the job as it was


@pytest.mark.rule("R23")
def test_a_value_that_is_gone_takes_no_column_of_one_whose_name_begins_alike(backing: Any) -> None:
    """`apart_high` is of `apart`, whose partial has other fields now: all history is counted again."""
    before = defined(fields="word string, n decimal(12,2)", a=Count(), apart=Span("n"))
    whole(backing, before, "1", dog=(2, 1, 3, 2))
    narrower = type("Span", (Span,), {"partial": "low decimal(12,2)"})
    now = defined(fields="word string, n decimal(12,2)", apart=narrower("n"))
    found = [(how(each), each.what) for each in backing.ledger.redefinitions(now)]
    assert found == [
        ("in place", "value 'a' of state 's' is gone"),
        ("rebuild", "value 'apart_high' of state 's' is gone"),
    ]
    with pytest.raises(SchemaMismatch, match="txbatch rebuild t"):
        backing.ledger.change(now, JOB, WHY)


@pytest.mark.rule("R23")
@pytest.mark.parametrize("kind", [OpaqueState, TransactionalState])
def test_a_value_that_is_renamed_keeps_what_it_counted(backing: Any, kind: Any) -> None:
    before = defined(state=kind("s"), count=Count(), mean=Avg("n"))
    whole(backing, before, "1", dog=(2, 7, 2))
    now = defined(state=kind("s"), count=Count(), average=Avg("n", was="mean"))
    assert change(backing, now) == [("in place", "value 'average' of state 's' was 'mean'")]
    whole(backing, now, "2", dog=(1, 3, 1))
    assert backing.values("s", "count", "average_sum", "average_count") == {("dog",): (3, 10, 3, 2)}


@pytest.mark.rule("R23")
def test_columns_that_take_each_others_names(backing: Any) -> None:
    before = defined(n=Avg("n"), q=Sum("n"))
    whole(backing, before, "1", dog=(7, 2, 9))
    now = defined(n_sum=Sum("n", was="q"), mean=Avg("n", was="n"))
    assert [kind for kind, _ in change(backing, now)] == ["in place", "in place"]
    assert backing.values("s", "n_sum", "mean_sum", "mean_count") == {("dog",): (9, 7, 2, 1)}


@pytest.mark.rule("R23")
def test_a_type_that_holds_more(backing: Any) -> None:
    before = defined(fields="word string, n int, x float", low=Min("n"), high=Max("x"))
    whole(backing, before, "1", dog=(2, 0.5), cat=(-1, 1.5))
    now = defined(fields="word string, n bigint, x double", low=Min("n"), high=Max("x"))
    assert change(backing, now) == [
        ("in place", "field 'n' of stream 'in' changes from int to bigint"),
        ("in place", "field 'x' of stream 'in' changes from float to double"),
        ("in place", "value 'low' of state 's' changes from int to bigint"),
        ("in place", "value 'high' of state 's' changes from float to double"),
    ]
    whole(backing, now, "2", dog=(-(2**40), 1e300))
    assert backing.values("s", "low", "high") == {("dog",): (-(2**40), 1e300, 2), ("cat",): (-1, 1.5, 1)}


@pytest.mark.rule("R23")
def test_a_value_that_counts_from_now_on_is_null_before(backing: Any) -> None:
    before = defined(count=Count())
    whole(backing, before, "1", dog=2, cat=1)
    now = defined(count=Count(), most=Max("n", since="now"))
    assert change(backing, now) == [("from now on", "value 'most' of state 's' is new, int")]
    whole(backing, now, "2", dog=(1, 9))
    assert backing.values("s", "count", "most") == {("dog",): (3, 9, 2), ("cat",): (1, None, 1)}
    all_of_it = defined(count=Count(), most=Max("n"))
    with refusals.refused("TX601", "'most'", "'s'", "txid 2"):
        backing.initialize(all_of_it, "3")


@pytest.mark.rule("R23")
def test_a_batch_of_before_that_is_counted_again_leaves_null_what_joined_later(backing: Any) -> None:
    before = defined(count=Count())
    whole(backing, before, "1", dog=2, cat=1)
    now = defined(state=[OpaqueState("s"), OpaqueState("late", since="now")], count=Count(), most=Max("n", since="now"))
    whole_state = "state 'late' is new"
    assert change(backing, now)[-1] == ("from now on", whole_state)
    whole(backing, now, "2", dog=(1, 9))
    again = Run("again", restate=Restate(1, "a wrong file"))
    batch = coordinator.initialize_transaction(backing.ledger, now, again)
    assert isinstance(batch, Batch)
    partials = {name: keyed({"dog": (5, 99)}) for name in ("s", "late")}
    assignment = backing.ledger.start_attempt(batch, again, code())
    backing.ledger.record_manifests([(assignment, manifest_of(now, assignment, partials))])
    assert backing.commit(now, batch, partials).applied
    assert backing.values("s", "count", "most") == {("dog",): (6, 9, 3)}
    assert backing.contributed("s", "count", "most")[("dog",), 1, 3] == (5, None)
    assert backing.values("late", "count", "most") == {("dog",): (1, 9, 2)}
    assert backing.contributed("late", "count", "most") == {(("dog",), 2, 2): (1, 9)}


@pytest.mark.rule("R23")
def test_contributions_that_are_turned_on(backing: Any) -> None:
    before = defined(state=OpaqueState("s", contributions=False))
    whole(backing, before, "1", dog=2, cat=1)
    now = defined()
    what = "state 's' changes from without contributions to with contributions"
    assert change(backing, now) == [("in place", what)]
    whole(backing, now, "2", dog=1)
    assert backing.values("s", "count") == {("dog",): (3, 2), ("cat",): (1, 1)}
    assert backing.contributed("s", "count") == {(("dog",), 2, 2): (1,)}
    assert backing.ledger.version("t", 2).horizon == 1


@pytest.mark.rule("R23")
def test_states_that_go_and_join(backing: Any) -> None:
    before = defined(state=[OpaqueState("s"), OpaqueState("old")])
    whole(backing, before, "1", dog=2)
    now = defined(state=[OpaqueState("s"), OpaqueState("late", since="now")])
    assert change(backing, now) == [("in place", "state 'old' is gone"), ("from now on", "state 'late' is new")]
    whole(backing, now, "2", dog=1)
    assert backing.values("late", "count") == {("dog",): (1, 2)}
    assert backing.values("s", "count") == {("dog",): (3, 2)}
    again = defined(state=[OpaqueState("s"), OpaqueState("late", since="now"), OpaqueState("old", since="now")])
    assert change(backing, again) == [("from now on", "state 'old' is new")]


@pytest.mark.rule("R23")
def test_a_state_that_is_renamed_keeps_what_it_counted(backing: Any) -> None:
    before = defined(state=[OpaqueState("s"), OpaqueState("s@1")], count=Count())
    whole(backing, before, "1", dog=2, cat=1)
    now = defined(state=[OpaqueState("words", was="s"), OpaqueState("s@1")], n=Count(was="count"))
    assert change(backing, now) == [
        ("in place", "state 'words' was 's'"),
        ("in place", "value 'n' of state 'words' was 'count'"),
        ("in place", "value 'n' of state 's@1' was 'count'"),
    ]
    whole(backing, now, "2", dog=1)
    for state in ("words", "s@1"):
        assert backing.values(state, "n") == {("dog",): (3, 2), ("cat",): (1, 1)}
        assert backing.contributed(state, "n")[("cat",), 1, 1] == (1,)
    with refusals.refused("TX601", "'words'"):
        backing.initialize(before, "3")
    back = defined(state=[OpaqueState("s", was="words"), OpaqueState("s@1")], n=Count())
    assert change(backing, back) == [("in place", "state 's' was 'words'")]
    fresh = defined(state=[OpaqueState("s"), OpaqueState("s@1"), OpaqueState("words", since="now", was="s")], n=Count())
    assert change(backing, fresh) == [("from now on", "state 'words' is new")]


@pytest.mark.rule("R23")
def test_a_topology_that_is_renamed_goes_on_where_it_was(backing: Any) -> None:
    before = defined(state=[OpaqueState("s"), OpaqueState("other")])
    whole(backing, before, "1", dog=2)
    backing.initialize(before, "2")
    now = Topology("sales", was="t")
    stream = now.new_stream("in", before.streams["in"].spout)
    for state in (OpaqueState("sold", was="s"), OpaqueState("other")):
        stream.group_by("word").persistent_aggregate(state, count=Count())
    with refusals.refused("TX602", "txid 2"):
        backing.ledger.change(now, JOB, WHY)
    backing.ledger.abort("t", 2, "in the way")
    assert change(backing, now) == [("in place", "topology 'sales' was 't'"), ("in place", "state 'sold' was 's'")]
    batch = whole(backing, now, "3", dog=1)
    assert (batch.txid, batch.prev_txid, batch.plan.streams["in"].ranges) == (
        3,
        1,
        {"a": {"start": 10, "end": 20}},
    )
    assert backing.values("sold", "count") == backing.values("other", "count") == {("dog",): (3, 3)}
    assert [attempt for attempt, _ in backing.attempts("sales")] == ["1:1", "3:1"]
    assert backing.attempts("t") == []
    with refusals.refused("TX102", "'other'", "'sales'"):
        backing.initialize(before, "4")


@pytest.mark.rule("R23", "R21")
def test_a_topology_with_a_state_in_another_database_keeps_its_name(backing: Any) -> None:
    before = defined(state=OpaqueState("s", database="warehouse"))
    whole(backing, before, "1", dog=2)
    now = Topology("sales", was="t")
    stream = now.new_stream("in", before.streams["in"].spout)
    stream.group_by("word").persistent_aggregate(OpaqueState("s", database="warehouse"), count=Count())
    with refusals.refused("TX601", "'sales'", "'t'", "'s'", "'warehouse'"):
        backing.ledger.change(now, JOB, WHY)
    whole(backing, before, "2", dog=1)
    assert backing.apart("s")[("dog",)] == (3, 2)


@pytest.mark.rule("R23", "R2")
def test_a_stream_that_is_renamed_is_read_on_where_it_was(backing: Any) -> None:
    before = defined(state=[OpaqueState("s")])
    whole(backing, before, "1", dog=2)
    backing.initialize(before, "2")
    now = Topology("t")
    stream = now.new_stream("lines", before.streams["in"].spout, was="in")
    stream.group_by("word").persistent_aggregate(OpaqueState("s"), count=Count())
    with refusals.refused("TX602", "txid 2"):
        backing.ledger.change(now, JOB, WHY)
    backing.ledger.abort("t", 2, "in the way")
    assert change(backing, now) == [("in place", "stream 'lines' was 'in'")]
    batch = whole(backing, now, "3", dog=1)
    assert (batch.prev_txid, batch.plan.streams["lines"].ranges) == (1, {"a": {"start": 10, "end": 20}})
    assert backing.values("s", "count") == {("dog",): (3, 3)}
    first = backing.ledger.version("t", 1)
    assert {name: list(parts) for name, parts in first.read.items()} == {"lines": ["a"]}
    assert list(first.current.plan.streams) == ["lines"]
    again = coordinator.initialize_transaction(backing.ledger, now, Run("again", restate=Restate(1, WHY)))
    assert isinstance(again, Batch)
    assert again.plan.streams["lines"].ranges == {"a": {"start": 0, "end": 10}}
    backing.ledger.abort("t", again.txid, "seen")
    with refusals.refused("TX601", "'lines'", "'in'"):
        backing.initialize(before, "4")


@pytest.mark.rule("R23")
def test_fields_that_go_and_come(backing: Any) -> None:
    whole(backing, defined(), "1", dog=2)
    now = defined(fields="word string, price double", count=Count(), dearest=Max("price", since="now"))
    assert change(backing, now) == [
        ("in place", "field 'n' of stream 'in' is gone"),
        ("in place", "field 'x' of stream 'in' is gone"),
        ("from now on", "field 'price' of stream 'in' is new (double)"),
        ("from now on", "value 'dearest' of state 's' is new, double"),
    ]
    whole(backing, now, "2", dog=(1, 0.5))
    assert backing.values("s", "count", "dearest") == {("dog",): (3, 0.5, 2)}


REBUILDS = {
    "for all history": (
        defined(count=Count(), most=Max("n")),
        "value 'most' of state 's' is new",
        'Give what is new since="now"',
    ),
    "of another field": (defined(count=Count("n")), "value 'count' of state 's' changes from Count to Count of n", ""),
    "renamed, and of another field": (
        defined(n=Count("n", was="count")),
        "value 'n' of state 's' changes from Count to Count of n",
        "",
    ),
    "a part of it": (
        defined(most=Max("n")),
        "Of this, in place: value 'count' of state 's' is gone; rebuild: value 'most' of state 's' is new",
        'Give what is new since="now", and it counts from now on; if only the name changed, say was="count"',
    ),
    "narrower": (
        defined(fields="word string, n smallint, x double"),
        "field 'n' of stream 'in' changes from int to smallint",
        "",
    ),
    "another key": (
        defined(fields="word binary, n int, x double"),
        "key 'word' of state 's' changes from string to binary",
        "",
    ),
}


@pytest.mark.rule("R23")
@pytest.mark.parametrize("case", REBUILDS)
def test_what_counts_all_history_otherwise_is_not_applied(backing: Any, case: str) -> None:
    now, says, hint = REBUILDS[case]
    whole(backing, defined(), "1", dog=2)
    assert any(isinstance(each, NeedsRebuild) for each in backing.ledger.redefinitions(now))
    for refused in (lambda: backing.ledger.change(now, JOB, WHY), lambda: backing.initialize(now, "2")):
        with pytest.raises(SchemaMismatch) as raised:
            refused()
        assert says in str(raised.value)
        assert hint in str(raised.value)
        assert "Put the old definition back; or `txbatch rebuild t --why" in str(raised.value)
    whole(backing, defined(), "2", dog=1)
    assert backing.values("s", "count") == {("dog",): (3, 2)}


@pytest.mark.rule("R23")
def test_a_batch_that_is_open_is_finished_first(backing: Any) -> None:
    before, now = defined(), defined(count=Count(), most=Max("n", since="now"))
    whole(backing, before, "1", dog=2)
    batch = backing.initialize(before, "2")
    told = r"cannot be changed while txid 2 of 2 is open \(planned\).*txbatch abort t 2"
    with pytest.raises(ChangeTooEarly, match=told):
        backing.ledger.change(now, JOB, WHY)
    backing.emit(before, batch, {"s": keyed({"dog": 1})}, "2")
    with refusals.refused("TX602", "emitted"):
        backing.ledger.change(now, JOB, WHY)
    backing.commit(before, batch, {"s": keyed({"dog": 1})})
    change(backing, now)
    assert backing.values("s", "count", "most") == {("dog",): (3, None, 2)}


@pytest.mark.rule("R23")
def test_a_topology_that_nobody_knows(backing: Any) -> None:
    with refusals.refused("TX401", "'t'"):
        backing.ledger.change(defined(), JOB, WHY)


def test_before_the_first_txid_a_value_joins_for_all_history(backing: Any) -> None:
    """since="now" in a job that has counted nothing yet is no change."""
    now = defined(count=Count(), most=Max("n", since="now"))
    whole(backing, now, "1", dog=(1, 4))
    assert backing.ledger.redefinitions(defined(count=Count(), most=Max("n"))) == []
