"""What was spelled otherwise before does the same, and prints the spelling of now."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_support import DAYS, rows
from click.testing import Result

Txbatch = Callable[..., Result]


@pytest.fixture
def days(tmp_path: Path, write_job: Callable[[str, str], str]) -> str:
    """A job that counts by days, and a source that has one in each of two years."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("2020-03-01T05:00:00+00:00,x\n2021-07-01T05:00:00+00:00,x\n")
    return write_job("days.py", DAYS.format(root=str(tmp_path / "in")))


def hint(old: str, new: str) -> str:
    return f"txbatch: `txbatch {old}` works in this version alone; write `txbatch {new}`\n"


def test_run_that_follows_is_follow(txbatch: Txbatch, days: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("txbatch.run.follow._rest", ends)
    clock = ("--cron", "0 0 1 1 *", "--since", "2020-01-01T00Z", "--delay", "60")
    done = txbatch("run", days, "--follow", *clock, "--json")
    assert [each["interval_start"][:4] for each in rows(done)][:2] == ["2020", "2021"]
    assert done.stderr.startswith(hint("run --follow", f"follow {days}"))
    again = txbatch("follow", days, *clock, "--json")
    assert rows(again) == rows(done)
    assert "works in this version" not in again.stderr


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["--min-batch", "5"], "are of `txbatch follow"),
        (["--follow", "--until-idle"], "leave out --run-id"),
        (["--follow", "--max-latency", "5"], "--max-latency is how long --min-batch is waited for"),
    ],
)
def test_a_run_that_follows_refuses_what_it_did(txbatch: Txbatch, days: str, given: list[str], why: str) -> None:
    found = txbatch("run", days, *given)
    assert (found.exit_code, why in found.stderr) == (2, True), found.stderr


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (["--restate", "1"], ["restate", "DAYS", "1", "--plan"]),
        (["--rebuild"], ["rebuild", "DAYS", "--plan"]),
        (["--rebuild", "--all"], ["rebuild", "DAYS", "--plan", "--all"]),
        (["--rebuild", "--sample", "1"], ["rebuild", "DAYS", "--plan", "--sample", "1"]),
    ],
)
def test_a_plan_of_a_correction_is_a_correction_with_plan(
    txbatch: Txbatch, days: str, old: list[str], new: list[str]
) -> None:
    years = ("--interval", "2020-01-01T00Z", "2022-01-01T00Z", "--cron", "0 0 1 1 *")
    assert txbatch("run", days, *years).exit_code == 0
    command = [days if word == "DAYS" else word for word in new]
    before, after = txbatch("plan", days, *old, "--json"), txbatch(*command, "--json")
    assert rows(before) == rows(after)
    assert before.stderr.startswith(hint(f"plan {old[0]}", " ".join(command[: command.index("--plan") + 1])))
    assert "works in this version" not in after.stderr
    before, after = txbatch("plan", days, *old), txbatch(*command)
    assert (before.stdout, before.exit_code) == (after.stdout, 0)


@pytest.mark.parametrize(
    "wrong", [["--all"], ["--sample", "2"], ["--plan", "--cancel"], ["--plan", "--all", "--sample", "1"]]
)
def test_what_says_how_a_rebuild_is_planned_needs_the_plan(txbatch: Txbatch, days: str, wrong: list[str]) -> None:
    assert txbatch("rebuild", days, *wrong).exit_code == 2
