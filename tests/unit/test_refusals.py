"""tests/refusals.py finds a wrong code, a missing value, and a value that is a part of another value."""

from __future__ import annotations

import pytest
from refusals import check_refusal, missing, refused

from txbatch.core.errors import NotItsTurn, TransientError


@pytest.mark.parametrize(
    ("text", "values", "absent"),
    [
        ("txid 12 waits for txid 1", ("txid 12", "txid 1"), []),
        ("txid 12 waits", ("txid 1",), ["txid 1"]),
        ("attempt 1:10 of 'b'", ("1:1", "'b'", "b"), ["1:1"]),
        ("say quote='' or sep=','", ("quote=''", "sep=','", "sep=';'"), ["sep=';'"]),
        ("U+0000 in a.csv", ("U+0000", "a.csv"), []),
    ],
)
def test_a_value_stands_in_a_text_as_a_whole(text: str, values: tuple[str, ...], absent: list[str]) -> None:
    assert missing(text, values) == absent


def test_code_and_values_are_compared() -> None:
    with refused("TX402", "txid 2") as caught:
        raise NotItsTurn("txid 2 waits for txid 1")
    assert caught.value.text == "txid 2 waits for txid 1"
    for code, value in (("TX403", "txid 2"), ("TX402", "txid 3")):
        with pytest.raises(AssertionError, match="txid 2 waits for txid 1"):
            check_refusal(caught.value, code, value)


def test_an_error_of_another_kind_is_no_refusal() -> None:
    with pytest.raises(AssertionError, match="ValueError"):
        check_refusal(ValueError("txid 2"), "TX402", "txid 2")
    with pytest.raises(AssertionError, match="TX002"), refused("TX402", "txid 2"):
        raise TransientError("txid 2")
