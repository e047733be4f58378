"""Random histories: whatever dies, comes back or wakes up late, every record counts once in every state.

`SOAK_SEEDS=100-400` runs others; `make soak` runs many. A failure prints its seed and all that happened.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sizes import some_of
from soak.history import History, Report

STEPS = 14
SEEDS = os.environ.get("SOAK_SEEDS") or f"0-{some_of(6, 24) - 1}"
FIRST, LAST = map(int, SEEDS.split("-"))


@pytest.fixture(scope="module")
def deaths() -> Iterator[list[int]]:
    """How many there were in each history; no sample of six or more is as empty as it could be."""
    found: list[int] = []
    yield found
    assert len(found) < 6 or sum(found) >= len(found)


@pytest.mark.rule("R1", "R5", "R6", "R10", "R16", "R19", "R21")
@pytest.mark.parametrize("seed", range(FIRST, LAST + 1))
def test_every_record_counts_once(
    seed: int, ledger_url: str, warehouse: Callable[[str], str], tmp_path: Path, deaths: list[int]
) -> None:
    history = History.seeded(seed, ledger_url, warehouse, tmp_path)
    try:
        with Report(history) as report:
            for _ in range(STEPS):
                history.step()
            history.drain()
        assert report.torn == []
        assert report.reports
    except BaseException:
        print(f"seed {seed}: {history}", *history.happened, sep="\n")
        raise
    finally:
        history.close()
    deaths.append(history.deaths)
    print(f"seed {seed}: {history}; {history.deaths} deaths, {report.reports} reports")
    if os.environ.get("SOAK_TELL"):
        print(*history.happened, sep="\n")
