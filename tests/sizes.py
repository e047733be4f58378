"""How much of what there is a run tries: some of it (`make test`), or all (`make test-all`). Nothing else reads the setting."""

from __future__ import annotations

import os

import pytest

SETTING = "TXBATCH_TESTS"
SIZES = ("some", "all")
SIZE = os.environ.get(SETTING) or "some"
if SIZE not in SIZES:
    raise pytest.UsageError(f"{SETTING}={SIZE!r} is no size of the tests: take one of {', '.join(SIZES)}")
EVERYTHING = SIZE == "all"


def some_of(usual: int, whole: int, name: str = "") -> int:
    """Return how many to try: `usual`, or `whole` where all is asked for; a variable of this name wins, as `make soak` gives it.

    Seeds count from 0, so what is usual is a part of the whole.
    """
    told = os.environ.get(name, "") if name else ""
    return int(told) if told else (whole if EVERYTHING else usual)
