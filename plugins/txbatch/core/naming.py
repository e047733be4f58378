"""Errors with names: a spout's error with the name of the stream, a refused value's error with the name of the owner."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from txbatch.core.errors import BadRecord, SpoutFailed, TxbatchError
from txbatch.core.text import text_of


@contextmanager
def naming_stream(what: str) -> Iterator[None]:
    """Context manager. Raise SpoutFailed, with `what` and the cause, if the block raises; txbatch's own errors pass."""
    try:
        yield
    except TxbatchError:
        raise
    except Exception as error:
        raise SpoutFailed(
            f"{what} raised {type(error).__name__}: {text_of(error)}; mend the spout, and run again"
        ) from error


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Context manager. If the block raises BadRecord, name `what` in the message."""
    try:
        yield
    except BadRecord as error:
        raise error.retold(f"{what}: {error.text}") from error
