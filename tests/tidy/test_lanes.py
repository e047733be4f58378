"""Every tier has its part and its budget; what all parts say at their end is one line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import budget
import lanes
import pytest

ROOT = Path(__file__).parents[2]


def test_every_tier_is_in_one_part_and_has_a_budget() -> None:
    tiers = [tier for part in lanes.parts().values() for tier in part]
    assert sorted(tiers) == sorted(budget.budgets())


def test_the_longest_part_is_first() -> None:
    seconds = budget.budgets()
    sums = [sum(seconds[tier] for tier in part) for part in lanes.parts().values()]
    assert sums == sorted(sums, reverse=True)


class Pretended:
    """A part that works until it is told to end."""

    at_work = True

    def __init__(self, name: str) -> None:
        self.name = name


def test_a_lane_that_is_free_takes_the_next_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes.Part, "begin", lambda name, tiers: Pretended(name))
    suite: Any = lanes.Suite(lanes.deque((name, [name]) for name in "abcd"))
    assert suite.fill()
    assert [part.name for part in suite.begun] == ["a", "b", "c"]
    suite.begun[1].at_work = False
    assert not suite.fill()
    assert [part.name for part in suite.begun] == ["a", "b", "c", "d"]


def test_once_interrupted_no_part_is_begun() -> None:
    suite = lanes.Suite(lanes.deque([("a", ["a"])]))
    suite.interrupt()
    assert not suite.fill()
    assert suite.begun == []


def test_counts_of_all_parts_are_one_line_that_ci_prints_at_its_end() -> None:
    ends = ["== 1 failed, 30 passed, 2 errors in 61.20s (0:01:01) ==", "5 passed, 1 skipped, 1 error in 0.10s"]
    counts = sum((lanes.counts_of(["tests/a.py ...", end, ""]) for end in ends), lanes.Counter())
    line = lanes.closing_line(counts, 3671.5)
    assert line.strip("= ") == "1 failed, 35 passed, 1 skipped, 3 errors in 3671.50s (1:01:11)"
    (pattern,) = re.findall(r"sed -n '/(.*)/p'", (ROOT / ".ci" / "run").read_text())
    assert re.search(pattern, line)


def test_a_part_that_came_to_no_end_counts_nothing() -> None:
    assert lanes.counts_of(["Killed", ""]) == {}
    assert "no tests ran" in lanes.closing_line({}, 1.0)


@pytest.mark.parametrize(("codes", "worse"), [([0, 0], 0), ([0, 1], 1), ([2, 0], 2), ([0, -9], 1)])
def test_the_worse_exit_code_is_that_of_all(codes: list[int], worse: int) -> None:
    assert lanes.worse(codes) == worse


def test_a_tier_may_take_a_quarter_more_and_a_small_one_some_seconds() -> None:
    assert budget.allowed(100, scale=1) == 125
    assert budget.allowed(2, scale=1) == 7
    assert budget.allowed(100, scale=2) == 250
