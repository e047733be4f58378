"""Named points at which a test or the demo stops the process for good. Inert unless TXBATCH_FAILPOINTS arms them.

`TXBATCH_FAILPOINTS="commit.before_commit=kill:/path/once"` kills the process with SIGKILL the first time it gets there
(the file remembers that it did, and in the middle of what); `=raise` raises instead, `=block:/path/held` creates the
file and waits until it is gone. Several are separated by commas. What names no failpoint and no action is refused: a test of it
would prove nothing.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

NAMES = frozenset(
    {
        "gc.before_commit",
        "gc.folded",
        "gc.windows_left",
        "initialize.before_lock",
        "initialize.planned",
        "attempt.before_lock",
        "emit.attempt_started",
        "emit.manifest_written",
        "emit.recorded",
        "commit.before_lock",
        "commit.loaded",
        "commit.before_commit",
        "commit.apart_loaded",
        "commit.apart_committed",
        "commit.committed",
        "success.cleaned",
        "abort.before_lock",
        "abort.apart_committed",
        "rebuild.begun",
        "rebuild.before_commit",
        "rebuild.counted",
        "rebuild.before_swap",
        "rebuild.swapped",
    }
)


ACTIONS = frozenset({"raise", "kill", "block"})
_doing = ""
_reached: ContextVar[Callable[[str], None] | None] = ContextVar("_reached", default=None)


class FailpointReached(Exception):
    """Raised by a failpoint armed with `raise`."""


def doing(what: str) -> None:
    """Say what this process is in the middle of."""
    global _doing
    _doing = what


def armed() -> dict[str, str]:
    """Return the action of each armed point. ValueError for a name, or an action, that there is not."""
    given = os.environ.get("TXBATCH_FAILPOINTS")
    if not given:
        return {}
    actions = {name: action for name, _, action in (each.partition("=") for each in given.split(","))}
    for name, action in actions.items():
        if name not in NAMES:
            raise ValueError(
                f"TXBATCH_FAILPOINTS: there is no failpoint {name!r}; there are {', '.join(sorted(NAMES))}"
            )
        if action.partition(":")[0] not in ACTIONS:
            raise ValueError(f"TXBATCH_FAILPOINTS: {name} cannot {action!r}; it can {', '.join(sorted(ACTIONS))}")
    return actions


@contextmanager
def watch(reached: Callable[[str], None]) -> Iterator[None]:
    """Context manager. Call with the name of each point that this thread comes to in the block."""
    token = _reached.set(reached)
    try:
        yield
    finally:
        _reached.reset(token)


def hit(name: str) -> None:
    """Do what this point is armed for, if anything. ValueError as for `armed`."""
    if (reached := _reached.get()) is not None:
        reached(name)
    action, _, path = armed().get(name, "").partition(":")
    if action == "raise":
        raise FailpointReached(name)
    if action == "kill" and _first_time(Path(path)):
        os.kill(os.getpid(), signal.SIGKILL)
    if action == "block":
        _block(Path(path))


def _first_time(marker: Path) -> bool:
    try:
        with marker.open("x") as file:
            file.write(_doing)
    except FileExistsError:
        return False
    return True


def _block(held: Path) -> None:
    held.touch()
    while held.exists():
        time.sleep(0.02)
