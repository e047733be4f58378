"""What a spout of the job raises, told with its stream; what a value is refused for, told with whose it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from txbatch.core.errors import BadRecord, SpoutFailed, TxbatchError
from txbatch.core.text import text_of


@contextmanager
def naming_stream(what: str) -> Iterator[None]:
    """Context manager. SpoutFailed, which names `what` and the cause, for what the block raises; errors of ours pass."""
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
    """Context manager. Name `what` in a BadRecord that the block raises."""
    try:
        yield
    except BadRecord as error:
        raise error.retold(f"{what}: {error.text}") from error
