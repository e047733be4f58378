"""What is killed: the command at the points that a batch meets, and Spark's processes below a running command."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from subprocess import Popen

import psutil

Start = Callable[..., Popen[str]]
KILLED = -signal.SIGKILL
# In the order in which a batch meets them; the demo's own, inside Airflow's operator, is not met here.
POINTS = [
    "initialize.planned",
    "emit.attempt_started",
    "emit.manifest_written",
    "emit.recorded",
    "commit.loaded",
    "commit.before_commit",
    "commit.committed",
    "success.cleaned",
]
# A condition of a job: the first task of Spark stays in the middle of its records until the file HELD is gone.
WAIT = """
import os, time
def wait(record):
    held = os.environ.get("HELD")
    if held and not os.path.exists(held + ".before"):
        open(held + ".before", "w").close()
        open(held, "w").close()
        while os.path.exists(held):
            time.sleep(0.02)
    return True
"""


def spark_processes(started: Popen[str]) -> dict[str, psutil.Process]:
    """Java and the Python driver below a running `txbatch run`."""
    java, driver = None, None
    for child in psutil.Process(started.pid).children(recursive=True):
        with suppress(psutil.Error):
            if child.name() == "java":
                java = child
            elif "--attempt-folder" in child.cmdline():
                driver = child
    assert java is not None
    assert driver is not None
    return {"java": java, "driver": driver}


def kill_python_workers(started: Popen[str]) -> None:
    """Kill the Python processes of Spark's tasks below a running `txbatch run`; one that has ended meanwhile is passed over."""
    for child in spark_processes(started)["java"].children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "pyspark.daemon" in " ".join(child.cmdline()):
                child.kill()
