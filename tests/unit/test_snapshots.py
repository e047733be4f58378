"""Snapshots of PostgreSQL in Python, by their laws; tests/postgres holds them against the server's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txbatch.core.errors import InvalidPlan
from txbatch.core.sources.snapshots import FIRST, FIRST_XID, Snapshot, both, horizon, left_open, until

XIDS = st.integers(FIRST_XID, 40)
EVERY = range(FIRST_XID, 50)
SNAPSHOTS = st.builds(Snapshot.of, XIDS, st.sets(XIDS, max_size=8))


def seen(snapshot: Snapshot) -> set[int]:
    return {xid for xid in EVERY if snapshot.sees(xid)}


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Snapshot, Snapshot]:
    """A snapshot and a later one: what had ended stays ended, and what is new was not there."""
    a, more = draw(SNAPSHOTS), draw(XIDS)
    xmax = max(a.xmax, more)
    still = {*a.in_progress, *range(a.xmax, xmax)} & draw(st.sets(XIDS, max_size=12))
    return a, Snapshot.of(xmax, still)


@given(SNAPSHOTS)
def test_a_text_is_read_as_it_was_written(snapshot: Snapshot) -> None:
    assert Snapshot.parse(str(snapshot)) == snapshot


@given(SNAPSHOTS, SNAPSHOTS)
def test_both_see_what_either_sees(a: Snapshot, b: Snapshot) -> None:
    assert seen(both(a, b)) == seen(a) | seen(b)


@given(SNAPSHOTS, XIDS)
def test_a_horizon_sees_what_is_below(snapshot: Snapshot, xmin: int) -> None:
    assert seen(horizon(xmin)) == set(range(FIRST_XID, xmin))
    assert not seen(FIRST)


@given(pairs(), XIDS)
def test_a_window_is_cut_after_a_transaction(pair: tuple[Snapshot, Snapshot], xid: int) -> None:
    a, b = pair
    window = seen(b) - seen(a)
    cut = until(a, b, min(xid, b.xmax - 1))
    assert seen(cut) - seen(a) == {each for each in window if each <= xid}
    assert seen(cut) >= seen(a)
    assert seen(b) - seen(cut) == {each for each in window if each > xid}


@given(pairs())
def test_what_was_open_and_has_ended_is_in_the_window(pair: tuple[Snapshot, Snapshot]) -> None:
    a, b = pair
    window = seen(b) - seen(a)
    assert list(left_open(a, b)) == sorted(xid for xid in window if xid < a.xmax)


@pytest.mark.parametrize(
    "text", ["", "3:3", "3:3:x", "4:3:", "3:5:6", "3:9:5,4", "4:9:5", "3:9:3,3", "-3:3:", "3:9:3, 4"]
)
def test_other_texts_are_no_snapshots(text: str) -> None:
    with pytest.raises(InvalidPlan):
        Snapshot.parse(text)
