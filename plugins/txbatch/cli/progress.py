"""Show the progress of a call with many batches: live on a terminal, or now and then in the log."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from txbatch.core.protocol.ports import Application
from txbatch.run.progress import Progress, Tell, log_progress


@contextmanager
def show_progress(topology: str, of: int | None, application: Application) -> Iterator[Tell]:
    """Context manager. Yield a function to show progress: on a terminal one changing line, below the log, removed at the end.

    The current stage of Spark is below the line. The cursor stands on an empty line below, for the shell's word of a killed
    process.
    """
    if not sys.stderr.isatty():
        with log_progress(topology, of, lambda: application.stage) as tell:
            yield tell
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    class CursorStays(Console):
        """A console without a hidden cursor: a killed process could not show the cursor again."""

        def show_cursor(self, show: bool = True) -> bool:
            return False

    now = Progress(0, 0, 0.0, of)

    def line() -> Text:
        at_work = f"\nSpark: {stage}" if (stage := application.stage) else ""
        return Text(f"{topology}: {now}{at_work}\n", no_wrap=True, overflow="ellipsis")

    def shown(progress: Progress) -> None:
        nonlocal now
        now = progress
        live.refresh()

    before = sys.stderr
    live = Live(console=CursorStays(file=before), transient=True, redirect_stdout=False, get_renderable=line)
    with live, _above(before):
        yield shown


@contextmanager
def _above(before: TextIO) -> Iterator[None]:
    """Context manager. Let the log write above the live line."""
    handlers = [
        each
        for each in logging.getLogger().handlers
        if isinstance(each, logging.StreamHandler) and each.stream is before
    ]
    for each in handlers:
        each.setStream(sys.stderr)
    try:
        yield
    finally:
        for each in handlers:
            each.setStream(before)
