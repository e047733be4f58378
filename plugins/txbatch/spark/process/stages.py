"""What Spark is at, written into a file while it is: for whoever waits for it on this machine."""

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
    """Write into the file which stages run, twice a second, until Spark ends or the file's folder is gone. By a thread."""
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
    """Return the stages at work, each with how many of its tasks are done; nothing when there is none."""
    stages = (tracker.getStageInfo(each) for each in sorted(tracker.getActiveStageIds()))
    return "; ".join(
        f"stage {stage.stageId}, {stage.numCompletedTasks} of {stage.numTasks} tasks" for stage in stages if stage
    )
