"""A run of the tests that was killed leaves nothing to the next one, and a machine that is slow or busy is given time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import databases
import leftovers
import pytest
import slowness
from support import until


@pytest.fixture
def dead() -> int:
    """The pid of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(leftovers, "MEMORY", tmp_path)
    return tmp_path


@pytest.fixture
def sleeper() -> Iterator[list[subprocess.Popen]]:
    """What a test starts is appended here, and ended."""
    started: list[subprocess.Popen] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def sleeping(cwd: Path, **environment: str) -> subprocess.Popen:
    code = "print(flush=True); import time; time.sleep(600)"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=cwd,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    return process


def test_processes_and_folders_of_a_dead_run_go(memory: Path, dead: int, sleeper: list[subprocess.Popen]) -> None:
    theirs, ours = (memory / f"{leftovers.PREFIX}{pid}" for pid in (dead, os.getpid()))
    for folder in (theirs / "postgres", ours):
        folder.mkdir(parents=True)
    by_folder = sleeping(theirs / "postgres", **{leftovers.MARK: ""})
    by_mark = sleeping(memory, **{leftovers.MARK: str(dead)})
    living = [sleeping(ours, **{leftovers.MARK: ""}), sleeping(memory, **{leftovers.MARK: str(os.getpid())})]
    sleeper += [by_folder, by_mark, *living]
    leftovers.sweep()
    until(lambda: by_folder.poll() is not None and by_mark.poll() is not None, "they go on")
    assert [process.poll() for process in living] == [None, None]
    assert [folder.exists() for folder in (theirs, ours)] == [False, True]


def test_without_room_in_memory_a_server_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "IN_MEMORY", tmp_path / "no" / "shm")
    with databases.server_home(tmp_path) as home:
        assert home == tmp_path


def test_a_second_of_a_slow_or_busy_machine_is_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slowness, "slowness", lambda: 2.5)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    assert slowness.pace() == pytest.approx(0.4)
    monkeypatch.setattr(os, "getloadavg", lambda: (2.0 * slowness.CORES, 0.0, 0.0))
    assert slowness.pace() == pytest.approx(0.2)
    monkeypatch.setattr(os, "getloadavg", lambda: (1000.0, 0.0, 0.0))
    assert slowness.pace() == slowness.PACE_LEAST


def test_the_speed_along_a_run_is_the_mean_of_fast_and_slow_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    """The best moment, when the other half of a core waits, says too little of the rest."""
    usual, looks = slowness.json.loads(slowness.FILE.read_text())["yardstick"], iter((1.0, 3.0, 1.0, 3.0))
    monkeypatch.setattr(slowness, "same_work", lambda: usual * next(looks))
    monkeypatch.setattr(slowness, "Event", lambda: Mock(wait=Mock(side_effect=(False, False, False, True))))
    speed = slowness.Speedometer()
    until(lambda: len(speed.looks) == 4, "it looks no more")
    assert speed.mean() == pytest.approx(2)


def test_patience_is_used_up_by_what_could_have_been_done(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(slowness.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(slowness, "pace", lambda: 0.5)
    patience = slowness.Patience(10)
    for clock[0], lasts in ((8.0, True), (19.0, True), (21.0, False)):
        assert patience.lasts() == lasts


@pytest.mark.timeout(1)
def test_a_test_on_a_busy_machine_may_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its mark this test hangs after a second."""
    with pytest.raises(pytest.fail.Exception, match="Timeout"):
        until(lambda: False, seconds=600)
