"""Shows on a terminal how far a call of many batches has come; elsewhere the log says it now and then."""

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
    """Context manager. Yield what is told: on a terminal one line that changes, below those of the log, and goes at the end.

    Below it stands which stage of Spark is at work.
    """
    if not sys.stderr.isatty():
        with log_progress(topology, of, lambda: application.stage) as tell:
            yield tell
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    now = Progress(0, 0, 0.0, of)

    def line() -> Text:
        at_work = f"\nSpark: {stage}" if (stage := application.stage) else ""
        return Text(f"{topology}: {now}{at_work}", no_wrap=True, overflow="ellipsis")

    def shown(progress: Progress) -> None:
        nonlocal now
        now = progress
        live.refresh()

    before = sys.stderr
    live = Live(console=Console(file=before), transient=True, redirect_stdout=False, get_renderable=line)
    with live, _above(before):
        yield shown


@contextmanager
def _above(before: TextIO) -> Iterator[None]:
    """Context manager. Let the log write where the live line makes room for it."""
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
