"""Watermarks, late records and closed windows over histories at random, on the coordinator and the ledger in memory (R25, R26).

`model.event_times` has them: records out of order, holes, attempts that come again, aborts, restates with other times,
folds. They are of partitions, of merged streams of which one is idle, and of intervals in any order; by windows that slide,
sessions, and days of a zone that left one out. What counts and what is late is what one pass over all says, attempts agree,
no batch that comes later changes a window that is closed, and a topology below gets each once, as of its closing. Each
wrong rule is found, also of processing time, whose clock goes back at random (R28). `EVENT_TIMES=40000` tells so many
histories in all; `make soak` does. Fewer than a thousand are too few to say that a sample is not empty.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime
from random import Random
from typing import Any

import pytest
from model import event_times
from model.event_times import KINDS, PLANNED, SESSIONS, TUMBLING, ZONED, ByInterval, History
from sizes import some_of

from txbatch.core.batch.plan import BatchPlan
from txbatch.core.protocol import event_time as decided
from txbatch.core.protocol.window_closing import decide_closing
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.topology.watermarked import watermarks
from txbatch.core.upstream import closed_windows
from txbatch.core.windows.session_window import SessionWindow
from txbatch.core.windows.window import Window
from txbatch.direct import emitter
from txbatch.memory import closed_sessions, event_time

# Of each policy and number of batches in flight with stragglers; a quarter without, and of each other test.
EACH = some_of(1050, 4200, "EVENT_TIMES") // 10
FEW = EACH // 4
STEPS, LONG = 40, 60


def histories(
    number: int,
    pending: int,
    late: str,
    *,
    straggle: bool,
    first: int = 0,
    told: Any = History,
    steps: int = STEPS,
    **of: Any,
) -> tuple[int, int, int]:
    """Run so many; return how many windows counted, how many were late, and how often something was closed."""
    found = Counter[str]()
    for seed in range(first, first + number):
        history = told(Random(seed), pending, late, straggle, **{"kind": KINDS[seed % len(KINDS)], **of})
        history.run(steps)
        counted, late_ones = history.check()
        found.update(counted=counted, late=late_ones, closings=history.closings)
    return found["counted"], found["late"], found["closings"]


@pytest.mark.parametrize("late", ["merge", "drop", "side"])
@pytest.mark.parametrize("pending", [1, 3])
def test_whatever_happens_what_is_closed_stays_and_each_record_counts_or_is_late(pending: int, late: str) -> None:
    _, some, closed = histories(EACH, pending, late, straggle=True, first=100_000)
    assert (some > EACH // 3, closed > EACH) == (True, True)


@pytest.mark.parametrize("late", ["merge", "drop", "side"])
@pytest.mark.parametrize("pending", [1, 3])
def test_no_record_that_is_within_the_delay_is_late(pending: int, late: str) -> None:
    """Of a source that is not corrected."""
    _, none, closed = histories(FEW, pending, late, straggle=False, told=Uncorrected)
    assert (none, closed > FEW) == (0, True)


@pytest.mark.parametrize("late", ["drop", "side"])
@pytest.mark.parametrize("pending", [1, 3])
def test_whatever_happens_to_merged_streams_of_which_one_is_idle(pending: int, late: str) -> None:
    _, none, _ = histories(FEW // 2, pending, late, straggle=False, told=Uncorrected, merged=True)
    _, some, closed = histories(FEW // 2, pending, late, straggle=True, first=100_000, merged=True)
    assert (none, some > FEW // 20, closed > FEW // 4) == (0, True, True)


@pytest.mark.rule("R18")
@pytest.mark.parametrize("late", ["merge", "drop", "side"])
@pytest.mark.parametrize("pending", [1, 3])
def test_in_whatever_order_intervals_come_all_of_their_records_count(pending: int, late: str) -> None:
    counted, none, closed = histories(FEW // 2, pending, late, straggle=True, told=ByInterval)
    assert (counted > FEW, none, closed > FEW // 4) == (True, 0, True)


@pytest.mark.rule("R28")
@pytest.mark.parametrize("pending", [1, 3])
def test_whatever_happens_each_record_is_in_the_windows_of_its_plan(pending: int) -> None:
    counted, late, closed = histories(FEW, pending, PLANNED, straggle=False, first=200_000)
    assert (counted > FEW, late, closed > FEW) == (True, 0, True)


class Uncorrected(History):
    """A history whose source stays as it was."""

    def correct(self, first: Any) -> None:
        """Leave all as it is."""


def _by_this_batch(aggregates: Any, before: Any, after: Any, open_plans: Any) -> Any:
    return decide_closing(aggregates, before, after, [])


def _by_the_attempt(history: History) -> Any:
    """Late is what is late by the watermarks of when it is read."""
    by_plan = emitter.counting
    return lambda aggregate, keys, _: by_plan(aggregate, keys, event_time.marks(history.ledger.tables, "t"))


def test_who_closes_by_its_own_watermark_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_time, "decide_closing", _by_this_batch)
    with pytest.raises(AssertionError, match="a closed window changes"):
        histories(600, 3, "drop", straggle=True, steps=LONG)


def test_who_waits_for_no_partition_that_is_behind_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_time, "_behind", lambda *_: [])
    _, late, _ = histories(100, 3, "drop", straggle=False, told=Uncorrected)
    assert late


def test_who_finds_late_what_is_so_by_now_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def tell() -> None:
        for seed in range(600):
            history = History(Random(seed), 3, "drop", straggle=True, kind=TUMBLING)
            with monkeypatch.context() as wrong:
                wrong.setattr(emitter, "counting", _by_the_attempt(history))
                history.run(LONG)

    with pytest.raises(AssertionError, match="two attempts find other records late"):
        tell()


def test_who_hands_on_what_a_window_has_later_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closed_windows, "cut_of", lambda _, range_, __: range_["end"])
    with pytest.raises(AssertionError, match="what is closed is not what is handed on"):
        histories(300, 3, "merge", straggle=True, first=1_000, steps=LONG)


@pytest.mark.rule("R28")
def test_who_plans_by_a_clock_that_goes_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_the_clock(metadata: Any, watermarks: Any, _: Any, now: datetime, behind: Any) -> Any:
        return decided.pin_watermarks(metadata, watermarks, {}, now, behind)

    monkeypatch.setattr("txbatch.memory.event_time.pin_watermarks", by_the_clock)
    with pytest.raises(AssertionError, match="a closed window changes"):
        histories(300, 1, PLANNED, straggle=False, steps=LONG)


@pytest.mark.rule("R28")
def test_who_has_the_time_of_the_attempt_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def tell() -> None:
        for seed in range(300):
            history = History(Random(seed), 3, PLANNED, straggle=False, kind=TUMBLING)
            with monkeypatch.context() as wrong:
                wrong.setattr("txbatch.direct.operations.time_of", lambda _, history=history: history.at(history.now))
                history.run(LONG)

    with pytest.raises(AssertionError, match=r"two attempts find other records late|a closed window changes"):
        tell()


def test_who_hands_a_session_on_again_that_late_records_made_longer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closed_sessions, "first_closed", lambda *_: None)
    with pytest.raises(AssertionError, match="a window is handed on twice"):
        histories(300, 3, "merge", straggle=True, first=2_000, steps=LONG)


def test_who_folds_what_says_that_a_session_was_closed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txbatch.memory.upstream._reopened", lambda *_: None)
    monkeypatch.setattr(closed_windows, "asked_since", lambda range_: 0)
    with pytest.raises(AssertionError, match=r"a window is handed on twice|what is closed is not what is handed on"):
        histories(600, 3, "merge", straggle=True, first=2_000, steps=LONG, kind=SESSIONS)


def test_who_closes_a_session_that_a_record_in_time_may_still_be_of_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def tell() -> None:
        for seed in range(600):
            History(Random(seed), 1, "drop", straggle=True, kind=SESSIONS).run(LONG)

    monkeypatch.setattr(SessionWindow, "first_open", lambda self, time: time - self.gap + 1)
    monkeypatch.setattr(event_times, "AFTER", 0)
    with pytest.raises(AssertionError, match="a closed window changes"):
        tell()


def test_who_counts_again_by_the_watermark_of_now_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def as_planned(self: History, batch: Any) -> Any:
        return event_time.marks(self.ledger.tables, "t") if batch.restate else batch.plan.watermark

    def tell() -> None:
        for seed in range(600):
            history = History(Random(seed), 1, "drop", straggle=True, kind=TUMBLING)
            start = history.ledger.start_attempt

            def started(batch: Any, *of: Any, history: History = history, start: Any = start) -> Any:
                by = emitter_counting
                wrong.setattr(emitter, "counting", lambda each, kept, _: by(each, kept, as_planned(history, batch)))
                return start(batch, *of)

            with monkeypatch.context() as wrong:
                wrong.setattr(history.ledger, "start_attempt", started)
                history.run(LONG)
                history.check()

    emitter_counting = emitter.counting
    with pytest.raises(AssertionError, match=r"two attempts find other records late|one pass counts otherwise"):
        tell()


def test_who_keeps_aside_other_records_than_are_late_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    by = emitter.counting

    def counting(aggregate: Any, reached: Any, marks: Any) -> Any:
        kept, late = by(aggregate, reached, marks)
        return (kept[:1] * len(kept) if aggregate.state.name == "hours_late" else kept), late

    monkeypatch.setattr(emitter, "counting", counting)
    with pytest.raises(AssertionError, match="other records were kept aside"):
        histories(300, 1, "side", straggle=True)


def test_who_waits_for_no_stream_that_has_read_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def mark(self: PersistentAggregate, watermark: Any) -> int | None:
        return min((each for stream, each in watermark.items() if stream in watermarks(self.stream)), default=None)

    monkeypatch.setattr(PersistentAggregate, "watermark_of", mark)
    with pytest.raises(AssertionError, match="a window closes while a stream has read nothing"):
        histories(100, 1, "drop", straggle=True, merged=True)


@pytest.mark.rule("R18")
def test_who_finds_an_interval_late_as_a_later_one_came_before_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_what_is_committed(metadata: Any, watermarks: Any, marks: Any, now: datetime, behind: Any) -> Any:
        plan = BatchPlan.from_json(decided.pin_watermarks(metadata, watermarks, marks, now, behind))
        return replace(plan, watermark=marks).to_json()

    monkeypatch.setattr(event_time, "pin_watermarks", by_what_is_committed)
    with pytest.raises(AssertionError, match="a record of an interval is late"):
        histories(100, 1, "drop", straggle=True, told=ByInterval)


def test_who_ends_a_window_by_the_day_after_the_one_that_was_left_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def late_before(self: Window, time: int) -> int:
        return self.cut.start(self.cut.number(time) - self.size + 1)

    monkeypatch.setattr(Window, "late_before", late_before)
    with pytest.raises(AssertionError, match=r"one pass counts otherwise|a closed window changes"):
        histories(300, 1, "drop", straggle=True, kind=ZONED)
