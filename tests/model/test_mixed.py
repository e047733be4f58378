"""All that may befall a topology and its readers, mixed: whatever meets, what is told is what a plain reckoning says.

`model.mixed` tells the histories, on the twin in memory and on PostgreSQL; `pairs` counts which capabilities met on one window
of one word, which is the table beside the rules. Wrong rules are each found, from the seed that is named on.
`MIXED=5000 MIXED_ON_POSTGRES=200` tells so many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from contract.conftest import Postgres
from model.mixed import EACH, EACH_REAL, Mixed, some_told, told
from model.test_late_by_interval import by_what_is_committed
from pairs import LEAST, PAIRS, counted
from pairs import told as told_pairs
from proofs import DOCUMENT
from sizes import EVERYTHING
from sqlalchemy import Engine
from twin import definition_changes, retention

from txbatch.core.batch.transaction import BatchStatus
from txbatch.core.corrections import rebuild
from txbatch.core.definition import changes as definition
from txbatch.core.upstream import look_ups
from txbatch.core.upstream import upstream as upstreams
from txbatch.core.upstream.ranges import replaced_with
from txbatch.memory import event_time, upstream
from txbatch.memory.tables import Tables

pytestmark = pytest.mark.rule("R16", "R17", "R19", "R21", "R22", "R23", "R25", "R26", "R27", "R29", "R30")


def check_told(histories: list[Mixed]) -> None:
    """No history is as empty as it could be."""
    came_to = sum((each.came_to for each in histories), histories[0].came_to.__class__())
    often = ("restated", "swapped", "folded", "left", "changed", "skipped", "as of", "read again", "half committed")
    assert min(came_to[each] for each in often) > len(histories) / 10, came_to


@pytest.mark.timeout(0 if EVERYTHING else 600)
def test_whatever_meets_is_told_right_and_every_pair_does() -> None:
    """`.venv/bin/python tests/pairs.py` writes the table anew."""
    histories = some_told(range(EACH))
    check_told(histories)
    counts = counted(each.met for each in histories)
    assert {pair: counts[pair] for pair in PAIRS if counts[pair] < LEAST} == {}
    if len(histories) == 300:
        page = told_pairs(DOCUMENT.read_text(encoding="utf-8"))
        assert {pair: counts[pair] for pair in PAIRS if not 0.5 < (counts[pair] + 3) / (page[pair] + 3) < 2} == {}


@pytest.mark.timeout(0 if EVERYTHING else 600)
def test_so_it_is_on_postgresql(engine: Engine, databases: Callable[[str], str]) -> None:
    place = Postgres(engine, databases)
    histories = [told(seed, place, f"_{seed}") for seed in range(EACH_REAL)]
    assert sum(each.came_to["swapped"] for each in histories) > len(histories) / 3


# ---- what it must find


def newest_of_all(tables: Tables, topology: str) -> int:
    """The highest committed txid, whatever is open below."""
    committed = (each.txid for each in tables.batches_of(topology) if each.status is BatchStatus.COMMITTED)
    return max(committed, default=0)


HELD = retention.held
# Each with the seed of the history that found it.
WRONG: dict[str, tuple[int, list[tuple[Any, str, Any]], str]] = {
    "rows go while a batch reads or looks up all of them": (
        4,
        [(retention, "held", lambda readers, topology, swapped, _: HELD(readers, topology, swapped, {}))],
        "given other rows|retention has pruned rows|comes twice",
    ),
    "what read rows that have gone is counted again": (
        12,
        [
            (upstreams, "check_gone", lambda *_, **__: None),
            (upstream, "check_gone", lambda *_, **__: None),
            (look_ups, "check_gone", lambda *_, **__: None),
        ],
        "given other rows",
    ),
    "rows that a rebuild brings back are told": (
        12,
        [(upstream, "pruned_between", lambda *_: ())],
        "which a rebuild brought back",
    ),
    "a value is renamed before readers have read what a rebuild changed": (
        57,
        [(definition_changes, "check_names_kept", lambda *_: None)],
        "told to have been None",
    ),
    "the generation that counts alone says what was closed": (
        124,
        [(upstream, "asked_before", lambda *_: [])],
        "a window is handed on twice|what is closed is not what is handed on",
    ),
    "a rebuild goes by another time": (
        0,
        [(rebuild, "watermark_times", lambda *_: ()), (definition, "_of_other_times", lambda *_: False)],
        "late by another time",
    ),
    "a key that went is told otherwise once its generation is replaced": (
        4,
        [(upstream, "within_generation", lambda of, start, _: start > 0 and replaced_with(of, start) is None)],
        "given other rows",
    ),
    "a skip is the newest while others are open below": (
        5,
        [(Tables, "newest_cut", newest_of_all)],
        "is the last that stays",
    ),
    "late by what is committed": (
        13,
        [(event_time, "pin_watermarks", by_what_is_committed)],
        "other windows are there|other records",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_rule_is_found(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seed, changes, says = WRONG[wrong]
    for change in changes:
        monkeypatch.setattr(*change)
    with pytest.raises(AssertionError, match=says):
        some_told(range(seed, seed + 50))
