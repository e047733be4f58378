"""Random histories: whatever dies, comes back or wakes up late, every record counts once in every state.

`SOAK_SEEDS=100-400` runs others; `make soak` runs many. A failure prints its seed and all that happened.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from soak.history import History, Report

STEPS = 14
FIRST, _, LAST = os.environ.get("SOAK_SEEDS", "0-23").partition("-")


@pytest.mark.rule("R1", "R5", "R6", "R10", "R16", "R19", "R21")
@pytest.mark.parametrize("seed", range(int(FIRST), int(LAST) + 1))
def test_every_record_counts_once(seed: int, ledger_url: str, warehouse: Callable[[str], str], tmp_path: Path) -> None:
    history = History.seeded(seed, ledger_url, warehouse, tmp_path)
    try:
        with Report(history) as report:
            for _ in range(STEPS):
                history.step()
            history.drain()
        assert report.torn == []
    except BaseException:
        print(f"seed {seed}: {history}", *history.happened, sep="\n")
        raise
    finally:
        history.close()
    print(f"seed {seed}: {history}; {history.deaths} deaths, {report.reports} reports")
    if os.environ.get("SOAK_TELL"):
        print(*history.happened, sep="\n")
