"""Random histories in which gc, rebuilds and swaps come between each other, and foldings that are wrong on purpose."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from model.corrections import found_wrong, shortest
from model.places import Place, Real, Twin
from model.test_corrections import HISTORIES
from model.test_rebuilds import WRONG as WRONG_REBUILDS
from model.test_retention import WRONG as WRONG_FOLDINGS
from model.together import Together, drawn_together
from sqlalchemy import Engine


def tell(seed: int, place: Callable[[], Place], name: str = "g") -> Together:
    """Fail with the shortest part of the history of a seed that fails as well."""
    shape, steps = drawn_together(seed)
    history = Together(place(), name, shape)
    error = found_wrong(history, steps)
    if error is not None:
        names = (f"{name}_{number}" for number in range(10_000))
        least = shortest(steps, lambda part: found_wrong(Together(place(), next(names), shape), part) is not None)
        pytest.fail(f"seed {seed}: {shape}\n{error}\nThe shortest that fails: {least}")
    return history


def check_told(histories: list[Together]) -> None:
    """No history is as empty as it could be: all come, also one after the other."""
    told = len(histories)
    assert sum(each.swaps for each in histories) > told / 4
    assert sum(each.folds for each in histories) > told
    assert sum(each.kept_out for each in histories) > told / 4
    assert sum(each.swaps > 0 and each.horizon > 0 for each in histories) > told / 10


@pytest.mark.rule("R17", "R19", "R22", "R23")
@pytest.mark.timeout(0 if HISTORIES > 20_000 else 300)
def test_all_of_it_on_the_twin() -> None:
    check_told([tell(seed, Twin) for seed in range(HISTORIES // 20)])


@pytest.mark.rule("R17", "R19", "R22", "R23")
@pytest.mark.timeout(0 if HISTORIES > 20_000 else 300)
def test_all_of_it_on_postgresql(engine: Engine) -> None:
    place = Real(engine)
    check_told([tell(seed, lambda: place, f"g{seed}") for seed in range(HISTORIES // 500)])


@pytest.mark.rule("R22", "R23")
@pytest.mark.parametrize("wrong", WRONG_FOLDINGS | WRONG_REBUILDS)
def test_what_is_wrong_is_found_out_early(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*(WRONG_FOLDINGS | WRONG_REBUILDS)[wrong])
    for seed in range(200):
        shape, steps = drawn_together(seed)
        if found_wrong(Together(Twin(), "g", shape), steps) is not None:
            return
    pytest.fail("two hundred histories did not see it")
