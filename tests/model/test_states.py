"""Every state that can be reached, up to a size; larger ones by seeded walks.

Printed: what was covered, and what was capped: none of SIZES and APART is. `MODEL_STATES=2000000` raises the cap on the states
of those BEYOND; `MODEL_WALKS=1000` walks more. `make soak` does both. `make test` leaves out the largest ones.
"""

from __future__ import annotations

from typing import Any

import pytest
from model.explore import Explorer
from model.source import Size
from sizes import some_of

from txbatch import SpoutKind

STATES = some_of(5000, 5000, "MODEL_STATES")
WALKS = some_of(30, 30, "MODEL_WALKS")
LIMIT = 0 if STATES > 5_000 or WALKS > 30 else 300
OPAQUE = SpoutKind.OPAQUE


def whole(size: Size) -> Any:
    """A size for `make test-all` alone."""
    return pytest.param(size, marks=pytest.mark.whole)


SIZES = [
    Size(2, 3, 1, runs=2),
    Size(2, 3, 1, OPAQUE, runs=2),
    whole(Size(2, 3, 1, max_pending=2, runs=2)),
    whole(Size(2, 3, 1, OPAQUE, max_pending=2, runs=2)),
    Size(3, 2, 1, runs=2),
    Size(3, 2, 1, OPAQUE, runs=2),
    whole(Size(3, 2, 1, max_pending=2, runs=2)),
    whole(Size(3, 2, 1, OPAQUE, max_pending=2, runs=2)),
    Size(2, 2, 2, runs=2, late=1),
    Size(2, 2, 2, OPAQUE, runs=2),
    Size(2, 2, 2, max_pending=2, runs=2),
    whole(Size(2, 1, 2, OPAQUE, max_pending=2, runs=2, late=1)),
    Size(2, 2, 2, OPAQUE, max_pending=2, runs=1, late=1),
]
APART = [
    Size(2, 2, 1, runs=1, apart=True),
    Size(2, 2, 1, OPAQUE, runs=1, apart=True),
    Size(1, 3, 2, OPAQUE, runs=1, apart=True),
    Size(2, 1, 1, max_pending=2, runs=2, apart=True),
    Size(2, 1, 1, OPAQUE, max_pending=2, runs=2, apart=True),
    Size(3, 1, 1, max_pending=2, runs=1, apart=True),
]
# The last two have some twenty thousand states each, all of which `make soak` sees.
BEYOND = [
    Size(3, 2, 1, OPAQUE, max_pending=2, runs=3),
    Size(2, 2, 2, OPAQUE, max_pending=2, runs=2, late=1),
    Size(3, 1, 1, max_pending=2, runs=2, apart=True),
]
LARGER = [
    Size(5, 3, 3, OPAQUE, max_pending=3, runs=4, late=1),
    Size(6, 3, 2, max_pending=2, runs=4, late=1),
]


@pytest.mark.timeout(LIMIT)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_all_states(size: Size, capsys: pytest.CaptureFixture[str]) -> None:
    report = Explorer(size).all_states()
    assert report.drained
    assert not report.capped
    with capsys.disabled():
        print(f"\n{report}")


@pytest.mark.whole
@pytest.mark.timeout(LIMIT)
@pytest.mark.parametrize("size", BEYOND, ids=str)
def test_states_beyond_as_many_as_are_allowed(size: Size, capsys: pytest.CaptureFixture[str]) -> None:
    report = Explorer(size, states=STATES).all_states()
    assert report.drained
    with capsys.disabled():
        print(f"\n{report}")


@pytest.mark.parametrize("size", [Size(2, 2, 1), Size(2, 1, 1, OPAQUE, max_pending=2)], ids=str)
def test_states_that_count_as_the_same_lead_to_the_same(size: Size) -> None:
    """Whoever tells all states apart comes to the same kinds of states, and to no others."""
    merged, exact = Explorer(size), Explorer(size, exact=True, drain_every=2**32)
    assert merged.all_states().states < exact.all_states().states
    assert merged.kinds == exact.kinds


@pytest.mark.timeout(LIMIT)
@pytest.mark.parametrize("size", APART, ids=str)
def test_all_states_apart(size: Size, capsys: pytest.CaptureFixture[str]) -> None:
    """With crashes between both databases, and commits that are cut off from the ledger (R21)."""
    report = Explorer(size).all_states()
    assert report.drained
    assert not report.capped
    with capsys.disabled():
        print(f"\n{report}")


@pytest.mark.timeout(LIMIT)
@pytest.mark.parametrize("size", LARGER, ids=str)
def test_random_walks(size: Size, capsys: pytest.CaptureFixture[str]) -> None:
    report = Explorer(size).walks(seed=size.txids, count=WALKS, steps=150)
    assert report.answers["StaleAttempt"]
    with capsys.disabled():
        print(f"\n{report}")
