"""Every tier has its part and its budget; what all parts say at their end is one line."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import budget
import lanes
import psutil
import pytest
import tools
from slowness import FILE
from support import until

ROOT = Path(__file__).parents[2]


def test_every_tier_is_in_one_part_and_has_a_budget() -> None:
    tiers = [tier for part in lanes.parts().values() for tier in part]
    assert sorted(tiers) == sorted(budget.budgets())


def test_budgets_sum_to_the_gate_of_each_size_at_most() -> None:
    """Of `make test` 1,750 CPU seconds, and since: tables and topics 90, pages and forms 130, files and schedules 60, buttons 50,
    pages of the documentation 60, hostile addresses and ledgers of other versions 25. Of `make test-all` 3,300, and since: mixed
    histories, days of tables and topics, killed readers, ten minutes of writers, late files, stories of the pages and all
    buttons, as a whole run took; 300 for twenty runs whose ledger is away for ten minutes.
    """
    told = json.loads(FILE.read_text(encoding="utf-8"))
    for size, gate in enumerate(told["gates"]):
        assert sum(seconds[size] for seconds in told["tiers"].values()) <= gate


def test_the_longest_part_is_first() -> None:
    seconds = budget.budgets()
    sums = [sum(seconds[tier] for tier in part) for part in lanes.parts().values()]
    assert sums == sorted(sums, reverse=True)


def test_a_few_tiers_are_two_parts_where_one_is_most_of_them() -> None:
    assert lanes.parts(["tidy", "unit", "docs"]) == {"unit": ["unit"], "others": ["docs", "tidy"]}


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


@pytest.mark.parametrize(("ci", "fails"), [(None, False), ("true", True), ("false", False)])
def test_what_did_not_run_for_want_of_a_program_is_told_and_fails_on_ci(
    ci: str | None, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        shutil, "which", lambda program, path: f"/usr/bin/{program}" if program == "pgbouncer" else None
    )
    assert tools.missing() == ["chromium"]
    tests = "tests/ui and tests/airflow in a browser"
    assert tools.told(["chromium"]) == f"Not run: {tests}, for want of chromium: bin/test-tools installs it."
    assert tools.fails(["chromium"], ci) is fails
    assert tools.fails([], ci) is False


def test_the_tools_of_tests_are_those_that_are_installed() -> None:
    script = (ROOT / "bin" / "test-tools").read_text()
    assert all(f"[{tool}]=" in script for tool in tools.TOOLS)
    assert "bin/test-tools\nmake lint\n" in (ROOT / ".ci" / "run").read_text()


def test_a_part_that_came_to_no_end_counts_nothing() -> None:
    assert lanes.counts_of(["Killed", ""]) == {}
    assert "no tests ran" in lanes.closing_line({}, 1.0)


@pytest.mark.parametrize(("codes", "worse"), [([0, 0], 0), ([0, 1], 1), ([2, 0], 2), ([0, -9], 1)])
def test_the_worse_exit_code_is_that_of_all(codes: list[int], worse: int) -> None:
    assert lanes.worse(codes) == worse


def test_a_tier_may_take_somewhat_more_than_its_budget() -> None:
    assert budget.allowed(100, scale=1) == pytest.approx(115)
    assert budget.allowed(2, scale=1) == 7
    assert budget.allowed(100, scale=2) == pytest.approx(230)


def test_what_each_tier_took_is_one_line_of_all_parts() -> None:
    ends = [
        [budget.told([budget.Cost("unit", 41.4, 45, 140), budget.Cost("docs", 4, 6, 9)]), "== 3 passed in 9s =="],
        [budget.told([budget.Cost("spark", 300, 330, 400)])],
        ["Killed"],
    ]
    assert budget.told([cost for lines in ends for cost in budget.costs_of(lines)]).removeprefix(budget.TOLD) == (
        "unit 41/45 in 140s, docs 4/6 in 9s, spark 300/330 in 400s, all 345/381 in 549s"
    )


def test_two_runs_of_one_checkout_have_logs_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "LOGS", tmp_path)
    monkeypatch.setattr(lanes, "_run", "")
    with lanes.own_logs():
        first = lanes.log_of("spark")
        with lanes.own_logs():
            assert lanes.log_of("spark") != first


def test_there_is_a_lane_more_than_there_are_cores() -> None:
    assert len(os.sched_getaffinity(0)) + 1 == lanes.LANES


def test_a_part_ends_with_the_run_that_began_it(tmp_path: Path) -> None:
    """Killed, a run cannot end its parts: each asks the kernel to be killed with it."""
    (tmp_path / "test_waits.py").write_text("import time\ndef test_it():\n    time.sleep(600)\n")
    begin = (
        "import lanes, pathlib, time\n"
        f"lanes.LOGS = pathlib.Path({str(tmp_path)!r})\n"
        f"part = lanes.Part.begin('waits', [{str(tmp_path)!r}])\n"
        "print(part.process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", begin],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": "tests:plugins"},
    ) as run:
        assert run.stdout is not None
        part = psutil.Process(int(run.stdout.readline()))
        until(lambda: "collected" in (tmp_path / "test-waits.log").read_text(), "the part does not begin")
        run.kill()
    until(lambda: not part.is_running() or part.status() == psutil.STATUS_ZOMBIE, "the part goes on")
