"""How much slower this machine is now than the one that budgets and limits of time were made for, and what follows from it."""

from __future__ import annotations

import json
import time
from functools import cache
from pathlib import Path

FILE = Path(__file__).parent / "budget.json"


@cache
def slowness() -> float:
    """Return by how much, 1 at least."""
    return max(1.0, yardstick() / json.loads(FILE.read_text(encoding="utf-8"))["yardstick"])


def yardstick() -> float:
    """CPU seconds that this machine takes now for work that is always the same."""

    def once() -> float:
        before = time.process_time()
        sum(number * number % 7 for number in range(400_000))
        return time.process_time() - before

    return min(once() for _ in range(5))
