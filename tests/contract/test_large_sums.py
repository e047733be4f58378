"""Sums whose total fits bigint while some of what they are made of would not, in both ledgers."""

from __future__ import annotations

from typing import Any

import pytest
from contract.test_restate import NAME, Case

LARGE = 5 * 10**18


@pytest.mark.rule("R17", "R22")
def test_what_is_folded_has_been_a_total_that_fits(backing: Any) -> None:
    """What positions 1 and 2 come to would not fit: the restate that counts for one of them is folded with all before it."""
    case = Case(backing)
    for number, counted in enumerate((LARGE, -LARGE, -LARGE), 1):
        case.counts(f"{number}", dog=counted)
    case.restates(2, dog=LARGE)
    case.counts("5", dog=1)
    assert case.rows() == {"dog": (LARGE + 1, 5)}
    retention = case.backing.retention
    for horizon in range(1, 5):
        list(retention.fold(NAME, horizon))
        assert case.backing.base(NAME) == {("dog",): (LARGE, 4 if horizon == 4 else 1)}
    assert case.rows() == {"dog": (LARGE + 1, 5)}
