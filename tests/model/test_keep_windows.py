"""Windows leave a state over histories at random, by the coordinator and the ledger in memory (R30).

Those of `test_event_time`, in which now and then all leaves that may; aborted batches are given up, and counted again after all.
Whatever happens, no window comes back that has left, each record counts, is late or has left, the state is what base and
contributions amount to, and a topology below gets each closed window once. Wrong rules of six kinds are each found. (That of a
batch which was given up late, and counted again after all, is too rare: `tests/contract/test_keep_windows.py` has it.)
`KEEP_WINDOWS=4000` tells so many histories; 20 are too few to say that a sample is not empty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Any

import pytest
from contract.test_restate import restate_of
from model.event_times import KINDS, PLANNED, STEPS, History
from sizes import some_of
from twin import window_retention
from twin.window_retention import MemoryWindows

from txbatch.core.batch.transaction import BatchKind, BatchStatus
from txbatch.core.corrections import window_retention as decided
from txbatch.core.errors import TxbatchError
from txbatch.core.protocol import coordinator
from txbatch.memory import event_time

pytestmark = pytest.mark.rule("R30")
EACH = some_of(40, 80, "KEEP_WINDOWS")
NEWEST = decided.leaves_by


@dataclass
class Keeping(History):
    """A history in which windows leave."""

    steps: tuple[str, ...] = (*STEPS, "fold", "leave", "leave", "give_up")
    keep_windows: str | None = "20 minutes"
    gone: set[datetime] = field(default_factory=set)
    left: int = 0

    def leave(self) -> None:
        """All that may; what is there is what it was without them."""
        before = self.counted()
        windows = sum(left.windows for _, left in MemoryWindows(self.ledger).leave("t"))
        after = self.counted()
        gone = before.keys() - after.keys()
        assert {start: before[start] for start in after} == after, "what stays is another"
        assert len(gone) == windows, "others leave than are told"
        if gone:
            now = event_time.closed_to(self.ledger.tables, "t")["hours"]
            assert all(before[start][0] <= now - 20 * 60_000_000 for start in gone), "a window leaves too early"
        self.left += sum(before[start][1] for start in gone)
        self.gone |= gone
        self.consistent()

    def still(self, counts: dict[datetime, tuple[int, int]]) -> dict[datetime, tuple[int, int]]:
        return {start: each for start, each in counts.items() if start not in self.gone}

    def consistent(self) -> None:
        """Base and contributions amount to the state."""
        newest = max((each.txid for each in self.batches if each.status is BatchStatus.COMMITTED), default=0)
        if newest:
            amount = dict(self.ledger.upstream.rows("hours", newest, ("window_start", "n")))
            assert amount == {start: number for start, (_, number) in self.counted().items()}, (
                "it is not what it amounts to"
            )

    def commit(self) -> None:
        super().commit()
        assert not self.gone & self.counted().keys(), "a window is begun anew that has left"
        self.consistent()

    def give_up(self) -> None:
        """An aborted batch whose records nobody has read since, also while batches below its new txid are open."""
        aborted = [each.txid for each in self.batches if each.status is BatchStatus.ABORTED]
        if aborted and self.random.random() < 0.5:
            try:
                self.ledger.skip("t", self.random.choice(aborted), "a test")
            except TxbatchError:
                return

    def restate(self) -> None:
        super().restate()
        skipped = [each for each in self.batches if each.kind is BatchKind.SKIP]
        if skipped and len(self.open) < self.pending:
            self.runs += 1
            again = restate_of(self.random.choice(skipped).txid, f"again {self.runs}", skipped=True)
            try:
                coordinator.initialize_transaction(self.ledger, self.topology, again)
            except TxbatchError:
                return


def told(late: str, number: int, pending: int, first: int = 0) -> int:
    """Run so many histories; return how many records have left."""
    left = 0
    for seed in range(first, first + number):
        history = Keeping(Random(seed), pending, late, late != PLANNED, KINDS[seed % 3])
        history.run(90)
        history.check()
        left += history.left
    return left


@pytest.mark.parametrize("late", ["drop", PLANNED])
@pytest.mark.parametrize("pending", [1, 3])
def test_whatever_happens_what_has_left_is_not_begun_anew(late: str, pending: int) -> None:
    assert told(late, EACH, pending) > EACH // 2


def found(late: str, first: int = 0) -> None:
    """Tell histories until one says that something is wrong."""
    for seed in range(first, first + 600):
        history = Keeping(Random(seed), 3, late, late != PLANNED, KINDS[seed % 3])
        history.run(90)
        history.check()


WRONG: dict[str, tuple[Any, str, Callable[..., Any], str]] = {
    "by what is closed by now": (
        decided,
        "leaves_by",
        lambda keep, then, now, marks: NEWEST(keep, now, now, [now]),
        "a window is begun anew|it is not what it amounts to|two attempts",
    ),
    "by no plan above the horizon": (
        decided,
        "leaves_by",
        lambda keep, then, now, marks: NEWEST(keep, now, now, list(marks)[:1]),
        "a window is begun anew|it is not what it amounts to",
    ),
    "sooner than the policy says": (
        decided,
        "leaves_by",
        lambda keep, then, now, marks: NEWEST(0, then, now, marks),
        "a window leaves too early",
    ),
    "pieces of sessions": (
        window_retention,
        "_by_other_keys",
        lambda keys: {key: [key] for key in keys},
        "what stays is another|others leave than are told|records are lost",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_who_lets_others_leave_is_found(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, rule, says = WRONG[wrong]
    monkeypatch.setattr(module, name, rule)
    with pytest.raises(AssertionError, match=says):
        found("drop")


def test_who_lets_windows_leave_before_they_are_read_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decided, "leaves_by", lambda keep, _, now, marks: NEWEST(keep, now, now, list(marks)[:1]))
    monkeypatch.setattr(Keeping, "consistent", lambda _: None)
    with pytest.raises(AssertionError, match="what is closed is not what is handed on"):
        found("drop")


def test_who_does_not_wait_for_open_batches_that_read_all_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_retention, "_open_readers", lambda *_: [])
    monkeypatch.setattr("txbatch.memory.upstream.check_gone", lambda *_: None)
    with pytest.raises(AssertionError, match="two attempts read other windows"):
        found("drop")
