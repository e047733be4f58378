"""What a month of batches keeps: told by intervals or the pace of the last batches, and not at all where neither is known."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from txbatch import Keep
from txbatch.cli.printing import show_plan
from txbatch.core.corrections.growth import ROWS_MIN, BatchGrowth, Growth, StoredSize, describe_growth, growth, left

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)
STORED = [StoredSize("words", 150 * ROWS_MIN, ROWS_MIN)]


def counted(number: int, every: timedelta, interval: timedelta | None = None) -> list[BatchGrowth]:
    return [BatchGrowth(NOON + every * each, interval, {"words": 10}) for each in range(number)]


@pytest.mark.parametrize(
    ("last", "batches"),
    [
        (counted(3, MINUTE, DAY), 30),  # a backlog of days
        (counted(25, timedelta(hours=2)), 360),
        (counted(61, MINUTE), 43_200),
    ],
)
def test_intervals_say_how_many_batches_a_month_has_else_their_pace(last: Sequence[BatchGrowth], batches: int) -> None:
    assert growth(last, STORED) == Growth(batches, batches * 10, batches * 10 * 150)


@pytest.mark.parametrize(
    ("last", "stored"),
    [
        ([], STORED),
        (counted(1, DAY), STORED),
        (counted(60, MINUTE), STORED),  # a backlog that was counted at once has no pace
        (counted(3, DAY), []),
        (counted(3, DAY), [StoredSize("words", 24_576, ROWS_MIN - 1)]),
        (counted(3, DAY), [StoredSize("words", None, None)]),
    ],
)
def test_nothing_is_said_of_what_is_not_known(last: Sequence[BatchGrowth], stored: Sequence[StoredSize]) -> None:
    assert growth(last, stored) is None


def test_a_state_that_a_batch_did_not_change_has_nothing_of_it() -> None:
    last = [*counted(1, DAY, DAY), BatchGrowth(NOON, DAY, {}), BatchGrowth(NOON, DAY, None)]
    assert growth(last, [*STORED, StoredSize("other", 9_000, 9_000)]) == Growth(30, 100, 15_000)


def test_what_a_policy_leaves() -> None:
    month = Growth(30, 3_000, 450_000)
    assert (left(month, Keep(days=90)), left(month, Keep(txids=1)), left(Growth(0, 0, 0), Keep(txids=1))) == (
        1_350_000,
        15_000,
        0,
    )
    assert describe_growth(month, Keep(days=1)).endswith("about 450 kB; of them gc leaves about 15 kB: the last day")


@pytest.mark.parametrize("grows", [{"does": "a month of 30 batches keeps much"}, None])
def test_plan_says_it_where_it_is_known(grows: dict[str, str] | None, capsys: pytest.CaptureFixture[str]) -> None:
    row = {
        "topology": "t",
        "guarantees": [{"state": "words"}],
        "in_flight": [],
        "one_by_one": None,
        "next": {"does": "nothing new"},
    }
    show_plan([row | {"keep": "for ever", "kept_until_now": None, "growth": grows, "changed": [], "warnings": []}])
    assert ("contributions: a month of 30 batches keeps much" in capsys.readouterr().out) == (grows is not None)
