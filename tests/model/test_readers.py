"""Readers of states over histories at random: `model.readers` tells them, on the coordinator and the ledger in memory (R22, R23).

Wrong rules of each kind are found. `READERS=4000` tells so many histories.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from model.readers import Readers
from sizes import some_of
from twin import definition_changes, retention

from txbatch.memory import upstream

pytestmark = [pytest.mark.rule("R22"), pytest.mark.rule("R23")]
EACH = some_of(20, 1000, "READERS")
STEPS = 60


def histories(number: int, first: int = 0) -> tuple[Counter[str], Counter[tuple[str, str]]]:
    """Run so many; return what they came to, and which capabilities befell one word."""
    came_to, met = Counter[str](), Counter[tuple[str, str]]()
    for seed in range(first, first + number):
        history = Readers(Random(seed))
        try:
            history.run(STEPS)
            history.check()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        came_to.update(history.came_to, swaps=history.swaps, pruned=len(history.ever_pruned))
        met.update(history.met)
    return came_to, met


def test_whatever_happens_what_readers_are_told_adds_up() -> None:
    came_to, met = histories(EACH)
    often = ("swaps", "pruned", "renamed", "named too early", "dropped", "again", "not again")
    assert min(came_to[each] for each in often) > 0, came_to
    kinds = ("change", "look up", "prune", "read", "rebuild", "restate")
    assert min(met[one, other] for one in kinds for other in kinds if one < other) > 0, met


WRONG: dict[str, tuple[list[tuple[Any, str, Any]], str]] = {
    "rows go while a batch reads or looks up all of them": (
        [(retention, "held", lambda readers, topology, swapped, _: HELD(readers, topology, swapped))],
        r"two attempts are given other rows|comes twice|retention has pruned rows",
    ),
    "rows that a rebuild brings back are told": ([(upstream, "pruned_between", lambda *_: ())], "comes twice"),
    "a value is renamed before readers have read what a rebuild changed": (
        [(definition_changes, "check_names_kept", lambda *_: None)],
        "is told to have been None",
    ),
}
HELD = retention.held


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_rule_is_found(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changes, says = WRONG[wrong]
    for change in changes:
        monkeypatch.setattr(*change)
    with pytest.raises(Exception, match=says):
        histories(300)


def test_who_counts_again_what_was_read_of_rows_that_have_gone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txbatch.core.upstream.upstream.check_gone", lambda *_, **__: None)
    monkeypatch.setattr(upstream, "check_gone", lambda *_: None)
    monkeypatch.setattr("txbatch.core.upstream.look_ups.check_gone", lambda *_, **__: None)
    with pytest.raises(AssertionError, match="two attempts are given other rows"):
        histories(1000)
