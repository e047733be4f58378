"""Signals that end a program, made to end it in order."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Handler = Callable[[int, FrameType | None], None] | signal.Handlers


@contextlib.contextmanager
def unwinding() -> Iterator[None]:
    """Context manager. Let a signal that would end the program at once raise SystemExit, so that `with` blocks are left.

    Leaves alone what the program handles itself or was told to ignore. Only the main thread can do it; in others
    nothing changes.
    """
    with _handling(_exit, [number for number in ENDING if signal.getsignal(number) is signal.SIG_DFL]):
        yield


@contextlib.contextmanager
def ignore_signals() -> Iterator[None]:
    """Context manager. Ignore the signals that end a program, for a block that must run to its end."""
    with _handling(signal.SIG_IGN, ENDING):
        yield


@contextlib.contextmanager
def _handling(handler: Handler, numbers: Iterable[int]) -> Iterator[None]:
    """Context manager. Handle these signals by `handler` until the block ends; in other threads than the main one do nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _exit(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)
