"""How far a call of many batches has come: counted once each, told by a line that changes, or by the log now and then."""

from __future__ import annotations

import io
import logging
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Semaphore
from types import SimpleNamespace
from typing import Any

import pytest

from txbatch.cli.progress import show_progress
from txbatch.core.batch.transaction import Batch, BatchStatus, Interval
from txbatch.run import progress
from txbatch.run.progress import LOGGED_SECONDS, Progress, log_progress, watch

START, DAY = datetime(2026, 1, 1, tzinfo=UTC), timedelta(days=1)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def batches(*txids: int) -> list[Batch]:
    return [Batch("days", txid, BatchStatus.COMMITTED, {}, str(txid), records=10 * txid) for txid in txids]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The last is the time now."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[-1])
    return now


def test_where_nobody_knows_of_how_many_it_says_how_many_are_planned() -> None:
    said, left = list[Progress](), [1, 60]
    list(watch(batches(1, 2), None, said.append, left.pop))
    assert [str(each).split(", ")[:2] for each in said] == [
        ["1 batch is committed", "60 more are planned"],
        ["2 batches are committed", "1 more is planned"],
    ]


def test_a_batch_of_another_interval_is_finished_and_does_not_count() -> None:
    """A call that was killed left it: it is none of those asked for."""
    said, days = list[Progress](), [Interval(START + n * DAY, START + (n + 1) * DAY) for n in range(3)]
    found = [replace(batch, key=f"interval:{day}") for batch, day in zip(batches(1, 2, 3), days, strict=True)]
    assert len(list(watch(found, 2, said.append, asked=days[1:]))) == 3
    assert [each.committed for each in said] == ["1 of 2 batches are committed", "2 of 2 batches are committed"]


def test_a_batch_that_comes_again_is_counted_once(clock: list[float]) -> None:
    """An earlier call left it, and this one finds it again."""
    said = list[Progress]()

    def slowly() -> Iterator[Batch]:
        for batch in batches(2, 3, 1, 2, 3, 4):
            clock.append(clock[-1] + 2)
            yield batch

    assert [batch.txid for batch in watch(slowly(), 4, said.append)] == [2, 3, 1, 2, 3, 4]
    assert said == [
        Progress(1, 20, 2.0, 4, first=2.0),
        Progress(2, 50, 4.0, 4, first=2.0),
        Progress(3, 60, 6.0, 4, first=2.0),
        Progress(4, 100, 12.0, 4, first=2.0),
    ]
    assert [each.seconds_left for each in said] == [None, 4.0, 2.0, 0.0]


def test_what_the_first_batch_took_is_not_taken_for_what_each_takes(clock: list[float]) -> None:
    """One job of Spark emits a year for minutes, before the first of its days is committed."""
    said = list[Progress]()

    def a_year() -> Iterator[Batch]:
        for batch in batches(*range(1, 366)):
            clock.append(clock[-1] + (120.0 if batch.txid == 1 else 0.5))
            yield batch

    list(watch(a_year(), 365, said.append))
    assert str(said[0]) == "1 of 365 batches are committed, 10 records, 0 a second"
    assert said[1].seconds_left == 181.5


def test_what_was_committed_before_says_nothing_of_how_fast_the_call_is(clock: list[float]) -> None:
    """Retried, it finds 40 of them in no time, which had many records; then Spark starts."""
    said, found = list[Progress](), set[int]()

    def retried() -> Iterator[Batch]:
        for batch in batches(*range(100, 161)):
            if batch.txid < 140:
                found.add(batch.txid)
            else:
                clock.append(clock[-1] + (30.0 if batch.txid == 140 else 2.0))
            yield batch

    list(watch(retried(), 61, said.append, found=found))
    assert str(said[39]) == "40 of 61 batches are committed, 47,800 records"
    assert str(said[40]) == "41 of 61 batches are committed, 49,200 records, 47 a second"
    assert str(said[41]) == "42 of 61 batches are committed, 50,610 records, 88 a second, 0:00:38 left"
    assert said[60].seconds_left == 0


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (Progress(0, 0, 0.0, 365), "0 of 365 batches are committed, 0 records"),
        (Progress(1, 1, 0.5, 1), "1 of 1 batch is committed, 1 record, 2 a second"),
        (Progress(9, 90, 3.0, 5), "9 batches are committed, 90 records, 30 a second"),
        (Progress(1_000, 2_500_000, 100.0), "1,000 batches are committed, 2,500,000 records, 25,000 a second"),
        (Progress(3, 20, 3_600.0, 51), "3 of 51 batches are committed, 20 records, 0 a second, 1 day, 0:00:00 left"),
    ],
)
def test_it_says_no_more_than_it_knows(now: Progress, said: str) -> None:
    """Of more batches than were asked for, as of an earlier call, there is no end to be told."""
    assert str(now) == said


def at(stage: str) -> Any:
    """What is at work."""
    return SimpleNamespace(stage=stage)


def lines(caplog: pytest.LogCaptureFixture) -> Sequence[str]:
    return [record.message.partition(",")[0] for record in caplog.records]


def test_the_log_says_it_now_and_then_and_at_the_end(clock: list[float], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with log_progress("days", 30, lambda: "") as tell:
        for _ in watch(batches(*range(1, 31)), 30, tell):
            clock.append(clock[-1] + LOGGED_SECONDS / 8)
    assert lines(caplog) == [f"days: {number} of 30 batches are committed" for number in (10, 19, 28, 30)]


@pytest.mark.parametrize(
    ("of", "done"), [(61, "0 of 61 batches are committed"), (None, "0 batches are committed by this call")]
)
def test_the_log_says_that_spark_is_at_work_where_nothing_is_committed(
    of: int | None,
    done: str,
    clock: list[float],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No more often than it says how many are committed. Others may be committed that are not of this call."""
    caplog.set_level(logging.INFO)
    looked = Semaphore(0)
    monkeypatch.setattr(progress, "_LOOK_SECONDS", 0.001)

    def stage() -> str:
        looked.release()
        return "stage 7, 1 of 4 tasks"

    with log_progress("days", of, stage) as tell:
        for seconds in (9, 2, 9, 2):
            clock.append(clock[-1] + seconds)
            for _ in range(3):
                assert looked.acquire(timeout=20)
        clock.append(clock[-1] + 9)
        tell(Progress(1, 10, 31.0, of))
    said = f"days: {done}; at work, Spark: stage 7, 1 of 4 tasks"
    assert [record.message for record in caplog.records] == [said, said]


def test_on_a_terminal_one_line_changes_below_those_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    handler, root = logging.StreamHandler(terminal), logging.getLogger()
    root.addHandler(handler)
    try:
        with show_progress("days", 2, at("stage 7, 1 of 4 tasks")) as tell:
            for batch in watch(batches(1, 2), 2, tell):
                logging.getLogger("txbatch").warning("committed txid %s", batch.txid)
    finally:
        root.removeHandler(handler)
    assert handler.stream is sys.stderr is terminal
    said = terminal.getvalue()
    assert "days: 2 of 2 batches are committed, 30 records" in said
    assert "Spark: stage 7, 1 of 4 tasks" in said
    assert "committed txid 1\n" in said
    assert said.count("committed txid") == 2
    assert "\x1b[?25l" not in said, "a killed call would leave the terminal without a cursor"


class Screen:
    """The lines that a terminal shows after what rich writes: line ends, and the cursor up and to the begin of a cleared line."""

    def __init__(self, written: str) -> None:
        self.lines, self.at = [""], 0
        for part in re.split(r"(\r|\n|\x1b\[\d*[A-Za-z])", written):
            self._show(part)

    def _show(self, part: str) -> None:
        if part == "\n":
            self.at += 1
            self.lines += [""] * (self.at == len(self.lines))
        elif part == "\x1b[1A":
            self.at -= 1
        elif part == "\x1b[2K":
            self.lines[self.at] = ""
        elif part != "\r" and not part.startswith("\x1b["):
            self.lines[self.at] += part


def test_what_spark_prints_stands_above_the_line_and_what_the_shell_prints_below(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark prints while the line stands; the shell, when the process was killed."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with show_progress("days", 2, at("stage 7")) as tell:
        tell(Progress(1, 10, 1.0, 2))
        sys.stderr.write("read 4 records\n")
        tell(Progress(2, 30, 2.0, 2))
        shown = Screen(f"{terminal.getvalue()}Killed").lines
    assert [line.rstrip() for line in shown] == [
        "read 4 records",
        "days: 2 of 2 batches are committed, 30 records, 15 a second",
        "Spark: stage 7",
        "Killed",
    ]
    assert "".join(Screen(terminal.getvalue()).lines).strip() == "read 4 records"


def test_elsewhere_the_log_says_it(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with show_progress("days", 2, at("")) as tell:
        list(watch(batches(1, 2), 2, tell))
    assert lines(caplog) == ["days: 2 of 2 batches are committed"]
