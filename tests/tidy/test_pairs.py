"""The table beside the rules tells of each pair of capabilities in how many histories they met, and what of it is refused.

Nothing is run here: `tests/model/test_mixed.py` counts. `.venv/bin/python tests/pairs.py` writes the table anew.
"""

from __future__ import annotations

import pytest
from pairs import LEAST, PAIRS, REFUSED, not_there, told, with_table
from proofs import DOCUMENT


def test_every_pair_met_in_histories_enough() -> None:
    counts = told(DOCUMENT.read_text(encoding="utf-8"))
    assert {pair: counts.get(pair) for pair in PAIRS if counts.get(pair, 0) < LEAST} == {}


def test_the_page_is_as_it_is_written() -> None:
    page = DOCUMENT.read_text(encoding="utf-8")
    assert page == with_table(page, told(page))


def test_what_is_refused_has_a_test() -> None:
    assert REFUSED.keys() - PAIRS == set()
    assert not_there() == []


@pytest.mark.parametrize(
    "test", ["contract/test_apart.py::test_that_is_none", "contract/test_none.py::test_that_is_none"]
)
def test_a_test_that_is_not_there_is_found(test: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REFUSED, PAIRS[0], ("a thing", test))
    assert not_there() == [test]
