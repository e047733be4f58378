"""Writes Spark's progress into a file, for a process waiting on the same machine."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext, StatusTracker

_LOOK_SECONDS = 0.5


def tell_stages(context: SparkContext, file: Path) -> None:
    """Write the running stages into the file, twice a second, in a thread, until Spark ends or the file's folder is gone."""
    threading.Thread(target=_tell, args=(context.statusTracker(), file), name="stages", daemon=True).start()


def _tell(tracker: StatusTracker, file: Path) -> None:
    told = ""
    with suppress(Exception):  # nobody needs it
        while True:
            now = at_work(tracker)
            if now != told:
                beside = file.with_suffix(".new")
                beside.write_text(now, encoding="utf-8")
                beside.replace(file)
                told = now
            time.sleep(_LOOK_SECONDS)


def at_work(tracker: StatusTracker) -> str:
    """Return the stages at work, each with the number of finished tasks; "" if none is at work."""
    stages = (tracker.getStageInfo(each) for each in sorted(tracker.getActiveStageIds()))
    return "; ".join(
        f"stage {stage.stageId}, {stage.numCompletedTasks} of {stage.numTasks} tasks" for stage in stages if stage
    )
