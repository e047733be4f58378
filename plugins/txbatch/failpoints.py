"""Named points where a test or the demo stops the process for good. Inert unless armed by TXBATCH_FAILPOINTS.

`TXBATCH_FAILPOINTS="commit.before_commit=kill:/path/once"` kills the process with SIGKILL when the point is first reached,
and writes the text of `doing` into the file. `=raise` raises instead, `=block:/path/held` creates the file and waits until
the file is gone. Commas separate several points. An unknown failpoint or action is refused: a test with an unknown failpoint
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
        "gc.versions_read",
        "gc.windows_left",
        "initialize.before_lock",
        "initialize.planned",
        "attempt.before_lock",
        "emit.attempt_started",
        "emit.manifest_written",
        "emit.recorded",
        "commit.before_lock",
        "commit.loaded",
        "commit.times_read",
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
    """Note the process's current work, for the file of a kill."""
    global _doing
    _doing = what


def armed() -> dict[str, str]:
    """Return the action of each armed point. Raise ValueError for an unknown name or action."""
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
    """Context manager. Call `reached` with the name of each point the current thread reaches in the block."""
    token = _reached.set(reached)
    try:
        yield
    finally:
        _reached.reset(token)


def hit(name: str) -> None:
    """Do the armed action of a point, if any. Raise ValueError like `armed`."""
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
