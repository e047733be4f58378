"""Random histories with rebuilds in the midst of them: what reports show, and showed before each swap (R17, R19, R23)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from model.corrections import Step, drawn, found_wrong, shortest
from model.places import Place, Real, Twin
from model.rebuilt import Rebuilt
from model.test_corrections import HISTORIES
from sqlalchemy import Engine
from twin import rebuild as rebuilds

from txbatch.core.corrections.rebuild import Rebuild
from txbatch.memory.tables import Tables


def tell(seed: int, place: Callable[[], Place], name: str = "r") -> Rebuilt:
    """Fail with the shortest part of the history of a seed that fails as well."""
    history, steps, error = told(seed, place, name)
    if error is not None:
        names = (f"{name}_{number}" for number in range(10_000))
        shape = history.shape
        least = shortest(steps, lambda part: found_wrong(Rebuilt(place(), next(names), shape), part) is not None)
        pytest.fail(f"seed {seed}: {shape}\n{error}\nThe shortest that fails: {least}")
    return history


def told(seed: int, place: Callable[[], Place], name: str = "r") -> tuple[Rebuilt, list[Step], Exception | None]:
    """The history of a seed with four more steps, all of it, and what was wrong with it."""
    shape, steps = drawn(seed)
    chance = random.Random(seed)
    for _ in range(4):
        steps.insert(
            chance.randrange(2, len(steps) + 1), Step("rebuild", chance.randrange(1000), chance.randrange(1000))
        )
    history = Rebuilt(place(), name, shape)
    return history, steps, found_wrong(history, steps)


@pytest.mark.rule("R17", "R19", "R23")
@pytest.mark.timeout(0 if HISTORIES > 20_000 else 300)
def test_rebuilt_histories_on_the_twin() -> None:
    swaps = sum(tell(seed, Twin).swaps for seed in range(HISTORIES // 4))
    assert swaps > HISTORIES / 8


@pytest.mark.rule("R17", "R19", "R23")
@pytest.mark.timeout(0 if HISTORIES > 20_000 else 300)
def test_rebuilt_histories_on_postgresql(engine: Engine) -> None:
    place = Real(engine)
    swaps = sum(tell(seed, lambda: place, f"r{seed}").swaps for seed in range(HISTORIES // 250))
    assert swaps > HISTORIES / 1000


# ---- rebuilds that are wrong on purpose


def _also_what_was_replaced(tables: Tables, rebuild: Rebuild) -> Any:
    batches, last = tables.batches_of(rebuild.topology), tables.rebuilds[rebuild.number].last
    return [each for each in batches if each.status == "committed" and each.kind != "skip" and each.txid > last]


def _never_folded_again(version: Any, topology: Any) -> bool:
    """A restate is added to what is there."""
    return False


WRONG: dict[str, tuple[Any, str, Any]] = {
    "replaced versions are counted": (rebuilds, "_left", _also_what_was_replaced),
    "nothing is left to count": (rebuilds, "_left", lambda tables, rebuild: []),
    "a restate is added": (rebuilds.decided, "refolded", _never_folded_again),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_rebuild_is_found_out(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*WRONG[wrong])
    assert any(told(seed, Twin)[2] is not None for seed in range(1000)), "a thousand histories did not see it"
