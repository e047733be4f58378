"""What is waited for is looked at once at least, and no more once time is over."""

from __future__ import annotations

import time

import pytest

from txbatch.local.looking import looks


def test_it_looks_until_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    now, paused = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        paused.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", sleep)
    assert len(list(looks(1, every=0.25))) == 5
    assert paused == [0.25] * 4


@pytest.mark.parametrize("seconds", [0, -1])
def test_it_looks_once_though_there_is_no_time(seconds: float) -> None:
    assert len(list(looks(seconds, every=60))) == 1
