"""Errors as data: a code, and the values that a text names. A sentence can be mended without tests that repeat the sentence.

A value is a name, a number or a file, or the noun that tells one text of a code from another ("exponent", "comma"). A value
stands in the text as a whole: `txid 1` is not found in `txid 12`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from txbatch.core.errors import TxbatchError


def missing(text: str, values: tuple[str, ...]) -> list[str]:
    """Return the values that a text does not name."""
    return [value for value in values if not re.search(_whole(value), text)]


def _whole(value: str) -> str:
    before, after = (r"(?<!\w)" if value[:1].isalnum() else ""), (r"(?!\w)" if value[-1:].isalnum() else "")
    return f"{before}{re.escape(value)}{after}"


def check_refusal(error: BaseException, code: str, *values: str) -> None:
    """Check the code of an error, and that the text names each value."""
    assert isinstance(error, TxbatchError), repr(error)
    assert (error.code, missing(error.text, values)) == (code, []), str(error)


@contextmanager
def refused(code: str, *values: str) -> Iterator[pytest.ExceptionInfo[TxbatchError]]:
    """Context manager. Expect an error of a code, the text of which names each value."""
    with pytest.raises(TxbatchError) as caught:
        yield caught
    check_refusal(caught.value, code, *values)
