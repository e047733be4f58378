"""Event time and rebuilds at random: `model.event_rebuilds` tells the histories of `test_event_time` with swaps (R23, R25, R26).

Whatever is rebuilt, restated, late and folded between: each window and each session is handed on once, as of its closing, and
one pass over the records of now counts what the state has. `EVENT_REBUILDS=4000` tells so many histories.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from model.event_rebuilds import Rebuilding
from model.event_times import KINDS, SESSIONS
from sizes import some_of

from txbatch.memory import upstream

pytestmark = [pytest.mark.rule("R23"), pytest.mark.rule("R26"), pytest.mark.rule("R27")]
EACH = some_of(10, 400, "EVENT_REBUILDS")
STEPS = 60


def histories(number: int, late: str, first: int = 0, kind: str | None = None) -> Counter[str]:
    """Run so many; return what they came to."""
    found = Counter[str]()
    for seed in range(first, first + number):
        history = Rebuilding(Random(seed), 3, late, True, kind or KINDS[seed % len(KINDS)])
        try:
            history.run(STEPS)
            history.check()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        found.update(
            swaps=history.swaps, handed_on=len(history.handed_on), folded=history.folded, dropped=history.dropped
        )
    return found


@pytest.mark.parametrize("late", ["merge", "drop", "side"])
def test_whatever_is_rebuilt_each_window_is_handed_on_once(late: str) -> None:
    found = histories(EACH, late) + histories(EACH, late, kind=SESSIONS)
    assert min(found[each] for each in ("swaps", "handed_on", "folded")) > EACH, found
    assert found["dropped"], found


def test_who_asks_the_generation_that_counts_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "asked_before", lambda *_: [])
    with pytest.raises(AssertionError, match=r"a window is handed on twice|what is closed is not what is handed on"):
        histories(400, "merge", kind=SESSIONS)
