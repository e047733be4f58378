"""Random histories of corrections, folded at random horizons (R19, R22), and foldings that are wrong on purpose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from model.corrections import found_wrong
from model.folded import Folded, drawn_folded
from model.places import Twin
from twin import retention

from txbatch.core.corrections import retention as decided
from txbatch.core.corrections.retention import FoldableVersion

IN_BASE, FOLD, VERSIONS = retention._based, retention.fold, retention._versions


def _dated_by_what_counts(contributions: Any, at: int | None = None) -> int | None:
    """What took something away changes no txid."""
    return max((each.txid for each in contributions if each.replaced_by is None), default=None)


def _as_if_all_counted(base: Any, contributions: Any, combine: Any, at: int | None = None) -> Any:
    """Replaced versions are added to those that count."""
    return FOLD(base, [replace(each, replaced_by=None) for each in contributions], combine)


def _without_what_was_folded(stored: Any, key: Any, contributions: Any, merges: Any) -> Any:
    """The second slice takes the place of the first."""
    return IN_BASE(replace(stored, base={}), key, contributions, merges)


def _but_for_the_newest(stored: Any, key: Any, contributions: Any, merges: Any) -> Any:
    """Of what goes, the newest version is not folded."""
    newest = max(each.txid for each in contributions)
    return IN_BASE(stored, key, [each for each in contributions if each.txid != newest], merges)


def _however_late(versions: Any, wanted: int, pending: Any) -> int:
    """Also where a later txid counts a position again, or is about to."""
    return wanted


def _for_ever(tables: Any, topology: str) -> dict[int, int]:
    """Nothing is in flight."""
    return {}


def _whatever_came_later(tables: Any, topology: str, wanted: int) -> list[FoldableVersion]:
    """Restates above the wanted txid are not looked at."""
    return [each for each in VERSIONS(tables, topology, wanted) if each.txid <= wanted]


WRONG: dict[str, tuple[Any, str, Any]] = {
    "what took something away leaves no txid": (retention, "last_changed", _dated_by_what_counts),
    "replaced versions are folded": (retention, "fold", _as_if_all_counted),
    "the base is made anew": (retention, "_based", _without_what_was_folded),
    "the newest version is lost": (retention, "_based", _but_for_the_newest),
    "what is restated late is folded": (decided, "reach", _however_late),
    "restates in flight are not waited for": (retention, "_pending", _for_ever),
    "later restates are not looked at": (retention, "_versions", _whatever_came_later),
}


@pytest.mark.rule("R22")
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_folding_is_found_out(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*WRONG[wrong])
    for seed in range(1000):
        shape, steps = drawn_folded(seed)
        if found_wrong(Folded(Twin(), "t", shape), steps) is not None:
            return
    pytest.fail("a thousand histories did not see it")
