"""What is late by interval is a matter of the interval alone, over histories at random, in memory (R18, R25, R26, R30).

The source is cut by `seen`, windows and the watermark go by `at`. Intervals come in any order, one to three are planned together,
some never. Batches are aborted, given up, emitted twice, counted again with other records, folded; windows leave; a topology
below reads what is closed. All is compared with one pass over the intervals that count, which knows of each record its interval
alone. Each wrong rule is found. `LATE_BY_INTERVAL=400` tells so many histories of each policy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from random import Random
from typing import Any

import pytest
from model.event_times import DELAY, SESSIONS, SLIDING, TUMBLING, ByInterval, Cut
from model.test_keep_windows import Keeping
from sizes import some_of

from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Batch, BatchKind, Interval, Run
from txbatch.core.errors import TxbatchError
from txbatch.core.protocol import event_time as decided
from txbatch.core.protocol import planning_ahead
from txbatch.core.protocol.window_closing import decide_closing
from txbatch.core.records.time_buckets import micros_of
from txbatch.core.windows.watermark import MERGE, Watermark
from txbatch.ledger import transactions
from txbatch.memory import event_time

pytestmark = pytest.mark.rule("R18", "R25")
EACH = some_of(16, 400, "LATE_BY_INTERVAL")
STEPS = 90
KINDS = TUMBLING, SLIDING, SESSIONS


class Seen(Cut):
    """Records by intervals of the time at which they were seen."""

    time = "seen"


@dataclass
class BySeen(ByInterval, Keeping):
    """A history of such intervals: their records are up to three delays older than their start."""

    steps: tuple[str, ...] = Keeping.steps
    keep_windows: str | None = None
    shut_then: dict[int, int | None] = field(default_factory=dict)

    def source(self) -> Any:
        self.length, self.number = self.random.choice([(50, 20), (10, 40)])
        stream = super().source()
        self.spouts["in"].__class__ = Seen
        return stream

    def draw(self, begin: datetime) -> None:
        numbers = (
            5 * self.random.randrange(-3 * DELAY // 5, self.length // 5) for _ in range(self.random.randint(0, 6))
        )
        self.spouts["in"].log[begin] = [begin + number * self.unit for number in numbers]

    def plan(self) -> None:
        """One interval, or some by one call, more often the next; those that may count in what has left are refused."""
        taken = {of.start for (_, txid), of in self.ledger.tables.intervals.items() if self.alive(txid)}
        free = sorted(self.spouts["in"].log.keys() - taken)
        number = min(self.random.randint(1, 3), len(free), self.pending - len(self.open))
        if number <= 0:
            return
        self.runs += number
        after = [begin for begin in free if begin > max(taken, default=begin)] if self.random.random() < 0.7 else []
        asked = [
            Run(f"{self.runs} {begin}", interval=Interval(begin, begin + self.length * self.unit))
            for begin in (after[:number] or self.random.sample(free, number))
        ]
        shut, before = event_time.closed_to(self.ledger.tables, "t").get("hours"), len(self.batches)
        try:
            planning_ahead.initialize_many(self.ledger, self.topology, asked)
        except TxbatchError:
            return
        self.shut_then |= {each.txid: shut for each in self.batches[before:]}

    def mark(self, batch: Batch) -> int:
        """By what the records of a batch's position are late: its interval says it, and nothing else."""
        return micros_of(self.ledger.tables.intervals["t", batch.position].start - DELAY * self.unit)

    def stays(self, batch: Batch) -> bool:
        """No batch changes a window that was closed, unless its watermark was before what was closed when it was planned."""
        shut = self.shut_then.get(batch.txid)
        return self.late != MERGE and (shut is None or self.mark(batch) >= shut)

    def one_pass(self) -> tuple[dict[datetime, tuple[int, int]], Counter[tuple[int, int]]]:
        counts, late = Counter[int](), Counter[tuple[int, int]]()
        for batch, time in self.read():
            for start in self.starts(micros_of(time)):
                end = start + 1 if self.kind == SESSIONS else self.end(start)
                behind = end <= self.mark(batch)
                late[micros_of(time), start] += behind
                counts[start] += not behind or self.late == MERGE
        return self.together(+counts), +late

    def check(self) -> tuple[int, int]:
        """As any history: here some are late, and all others count."""
        return Keeping.check(self)


def told(late: str, number: int, first: int = 0) -> Counter[str]:
    """Tell so many histories, and return how many records were late and have left, and how often something was closed."""
    found = Counter[str]()
    for seed in range(first, first + number):
        keep = "20 minutes" if late != MERGE else None
        history = BySeen(Random(seed), 1 + seed // 3 % 3, late, True, KINDS[seed % 3], keep_windows=keep)
        history.run(STEPS)
        _, some = history.check()
        skipped = sum(each.kind is BatchKind.SKIP for each in history.batches)
        found.update(late=some, closings=history.closings, left=history.left, skipped=skipped)
    return found


@pytest.mark.parametrize("late", ["merge", "drop", "side"])
def test_whatever_happens_what_is_late_is_told_by_the_interval_alone(late: str) -> None:
    found = told(late, EACH)
    assert (found["late"] > EACH, found["closings"] > EACH, found["skipped"] > 0) == (True, True, True)
    assert (found["left"] > 0) == (late != MERGE)


def by_what_is_committed(metadata: Any, watermarks: Any, marks: Any, now: datetime, behind: Any) -> Any:
    """A plan has the watermark of when it was made, unless its interval's start is before; without one, none."""
    plan = BatchPlan.from_json(decided.pin_watermarks(metadata, watermarks, marks, now, behind))
    late = {stream: min(mark, marks[stream]) for stream, mark in plan.watermark.items() if stream in marks}
    return replace(plan, watermark=late).to_json()


OTHERS_LATE = r"other records were late|one pass counts otherwise|other records were kept aside"
WRONG: dict[str, tuple[Any, str, Callable[..., Any], str]] = {
    "late by what is committed": (event_time, "pin_watermarks", by_what_is_committed, OTHERS_LATE),
    "without a delay": (Watermark, "behind", lambda *_: 0, OTHERS_LATE),
    "closes while others are planned": (
        event_time,
        "decide_closing",
        lambda aggregates, before, after, _: decide_closing(aggregates, before, after, []),
        "a closed window changes",
    ),
    "refuses no interval": (
        transactions,
        "check_interval_not_left",
        lambda *_: None,
        "a window is begun anew that has left",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_who_has_another_rule_is_found(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, rule, says = WRONG[wrong]
    monkeypatch.setattr(module, name, rule)
    with pytest.raises(AssertionError, match=says):
        told("drop", 150, first=75)
