"""Do something again and again beside other work: keep a lease, a session or a heartbeat alive."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Repeat(Protocol):
    """The clock of what is kept alive: `repeated` in production, one that stands still in the model."""

    def __call__(self, call: Callable[[], object], *, seconds: float, name: str) -> AbstractContextManager[None]:
        """Context manager. Call again and again, every so many seconds, until the block ends."""


@contextmanager
def repeated(call: Callable[[], object], *, seconds: float, name: str) -> Iterator[None]:
    """Context manager. A thread of this name calls every so many seconds, until the block ends; no call outlasts the block.

    `call` handles its own errors.
    """
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(seconds):
            call()

    keeper = threading.Thread(target=repeat, name=name, daemon=True)
    keeper.start()
    try:
        yield
    finally:
        over.set()
        keeper.join()
