"""Turn signals that end a program into an orderly end."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Handler = Callable[[int, FrameType | None], None] | signal.Handlers


@contextlib.contextmanager
def unwinding() -> Iterator[None]:
    """Context manager. If a signal would end the program at once, raise SystemExit instead: `with` blocks are then left
    in order.

    Signals handled by the program or ignored stay unchanged. In threads other than the main thread nothing changes.
    """
    with _handling(_exit, [number for number in ENDING if signal.getsignal(number) is signal.SIG_DFL]):
        yield


@contextlib.contextmanager
def ignore_signals() -> Iterator[None]:
    """Context manager. Ignore signals that end a program, for a block that must run to the end."""
    with _handling(signal.SIG_IGN, ENDING):
        yield


@contextlib.contextmanager
def _handling(handler: Handler, numbers: Iterable[int]) -> Iterator[None]:
    """Context manager. Handle signals by `handler` until the block ends. In threads other than the main thread, do nothing."""
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
