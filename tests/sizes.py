"""How much of what there is a run tries: some of it (`make test`), or all (`make test-all`). Nothing else reads the setting."""

from __future__ import annotations

import os

import pytest
from slowness import slowness

SETTING = "TXBATCH_TESTS"
SIZES = ("some", "all")
SIZE = os.environ.get(SETTING) or "some"
if SIZE not in SIZES:
    raise pytest.UsageError(f"{SETTING}={SIZE!r} is no size of the tests: take one of {', '.join(SIZES)}")
EVERYTHING = SIZE == "all"


def some_of(usual: int, whole: int, name: str = "") -> int:
    """Return how many to try: `usual`, or `whole` where all is asked for; what the variable `name` says wins, for `make soak`.

    A slow machine tries fewer, a fourth at least. Seeds count from 0, so a smaller number is a part of a larger one.
    """
    told = os.environ.get(name, "") if name else ""
    return int(told) if told else max(1, int((whole if EVERYTHING else usual) / min(slowness(), 4)))


def exactly(usual: int, whole: int, name: str = "") -> int:
    """Return the same as `some_of`, on a slow machine too: for steps and strides, and where fewer would prove less."""
    told = os.environ.get(name, "") if name else ""
    return int(told) if told else (whole if EVERYTHING else usual)
