"""The same actions and the same oracle on PostgreSQL, in random order (hypothesis).

60 stories, 200 in `make test-all`; `MODEL_EXAMPLES=5000` runs more of them, `MODEL_STEPS` makes them longer.
"""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from model.drain import drain
from model.ledgers import PostgresView
from model.oracle import check, check_still_final
from model.source import Size
from model.story import Action, Story, do
from sizes import some_of
from sqlalchemy import Engine

from txbatch import SpoutKind

EXAMPLES = some_of(60, 200, "MODEL_EXAMPLES")
STEPS = some_of(40, 40, "MODEL_STEPS")
RUNS = st.sampled_from(["r0", "r1", "r2"])
SIZES = st.builds(
    Size,
    txids=st.just(6),
    attempts=st.just(3),
    partitions=st.sampled_from([2, 3]),  # 18 records at most: their sum is a bigint
    kind=st.sampled_from([SpoutKind.TRANSACTIONAL, SpoutKind.OPAQUE]),
    max_pending=st.sampled_from([1, 2, 3]),
    runs=st.just(3),
    late=st.sampled_from([0, 1]),
)
MOST_ATTEMPTS = 6
_names = count(1)


class Machine(RuleBasedStateMachine):
    """One topology of its own; `engine` is set by the test."""

    engine: Engine
    answers: Counter[str]

    @initialize(size=SIZES)
    def begin(self, size: Size) -> None:
        self.story = Story(size, PostgresView(self.engine), f"model_{next(_names)}")
        self.away: set[str] = set()
        self.txids, self.final = 0, {}

    # ---- outages

    @rule(number=st.integers(0, 2))
    def partition_goes_or_returns(self, number: int) -> None:
        partitions = list(self.story.source.lengths)
        self.away ^= {partitions[number % len(partitions)]}

    @precondition(lambda self: set(self.story.source.late) - self.story.source.lengths.keys())
    @rule()
    def partition_appears(self) -> None:
        self.act("appear", self.story.source.late[0])

    # ---- runs

    @rule(run=RUNS)
    def run_initializes(self, run: str) -> None:
        self.act("initialize", run, tuple(self.away))

    @precondition(lambda self: self.story.slow is None)
    @rule(run=RUNS)
    def run_looks(self, run: str) -> None:
        self.act("look", run, tuple(self.away))

    @precondition(lambda self: self.story.slow is not None)
    @rule(crash=st.booleans())
    def run_wakes(self, crash: bool) -> None:
        self.act("crash" if crash else "wake")

    @precondition(lambda self: self.txids)
    @rule(run=RUNS, back=st.integers(0, 2))
    def run_starts_an_attempt(self, run: str, back: int) -> None:
        self.act("attempt", run, max(1, self.txids - back))

    @precondition(lambda self: self.txids > 1 and self.story.size.max_pending > 1)
    @rule(run=RUNS)
    def run_takes_its_turn(self, run: str) -> None:
        self.act("turn", run)

    # ---- attempts, new and old

    @precondition(lambda self: self.txids)
    @rule(run=RUNS, point=st.sampled_from(["emit", "renew", "commit"]))
    def zombie_wakes(self, run: str, point: str) -> None:
        """A run is cut off before this point, a new attempt begins, and what it was goes on beside it."""
        open_ones = [each for each in self.story.view.seen(self.story.name).batches if not each.status.final]
        if not open_ones or len(self.story.works.get(open_ones[0].txid, ())) > MOST_ATTEMPTS:
            return
        txid = open_ones[0].txid
        self.story.expire(txid)
        self.story.attempt(run, txid)
        zombie = len(self.story.works[txid]) - 1
        if point in ("renew", "commit"):
            self.story.emit(txid, zombie)
        self.story.attempt(run, txid)
        self.act(point, txid, zombie)

    @precondition(lambda self: self.story.works)
    @rule(back=st.integers(0, 3))
    def attempt_emits(self, back: int) -> None:
        txid, number = self.attempt(back, read=False)
        if number is not None:
            self.act("emit", txid, number, tuple(self.away))

    @precondition(lambda self: self.story.works)
    @rule(back=st.integers(0, 3))
    def attempt_is_committed(self, back: int) -> None:
        txid, number = self.attempt(back, read=True)
        if number is not None:
            self.act("commit", txid, number)

    @precondition(lambda self: self.story.works)
    @rule(back=st.integers(0, 3))
    def attempt_renews_its_lease(self, back: int) -> None:
        txid, number = self.attempt(back)
        if number is not None:
            self.act("renew", txid, number)

    # ---- batches

    @precondition(lambda self: self.txids)
    @rule(action=st.sampled_from(["success", "expire", "expire", "abort", "skip"]), back=st.integers(0, 3))
    def to_a_batch(self, action: str, back: int) -> None:
        self.act(action, max(1, self.txids - back))

    def attempt(self, back: int, read: bool | None = None) -> tuple[int, int | None]:
        """The newest attempt but so many, that has read or not."""
        found = [
            (txid, number)
            for txid, works in sorted(self.story.works.items())
            for number, work in enumerate(works)
            if read in (None, work.read is not None)
        ]
        return found[-1 - back % len(found)] if found else (0, None)

    def act(self, name: str, *arguments: Any) -> None:
        """An action, and every invariant afterwards."""
        action: Action = (name, arguments)
        error = do(self.story, action)
        self.answers[f"{name} {type(error).__name__ if error else 'done'}"] += 1
        seen = self.story.view.seen(self.story.name)
        check(seen, self.story.read, self.story.source, self.story.size.max_pending)
        check_still_final(self.final, seen.final())
        self.txids, self.final = len(seen.batches), seen.final()

    def teardown(self) -> None:
        if hasattr(self, "story"):
            drain(self.story)


@pytest.mark.timeout(0 if EXAMPLES > 200 else 900)
def test_any_story_on_postgres(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever happens in whatever order, every record counts once."""
    Machine.engine, Machine.answers = engine, Counter()
    chosen = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        deadline=None,
        derandomize=EXAMPLES <= 200,
        database=None,
        phases=[Phase.generate] if EXAMPLES <= 200 else [Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Machine, settings=chosen)
    with capsys.disabled():
        print(f"\n{EXAMPLES} stories:", ", ".join(f"{name} {n:,}" for name, n in sorted(Machine.answers.items())))
    told = {"commit done", "commit StaleAttempt", "emit StaleAttempt", "abort done", "skip done", "wake done"}
    assert told <= Machine.answers.keys()
    zombies = sum(number for answer, number in Machine.answers.items() if answer.endswith("StaleAttempt"))
    assert zombies > EXAMPLES
