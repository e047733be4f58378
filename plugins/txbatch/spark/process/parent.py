"""Ends Spark with the submitting process: an attempt left alone would work for nobody.

Each process asks the kernel to be killed with the parent: spark-submit's Java, started through this file as a program, and
the Python driver started by Java.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Be killed when the thread that started the process ends; do nothing on systems without Linux.

    The thread waits for the process: the thread that runs spark-submit, or the main thread of spark-submit's Java. Kept over
    exec.
    """
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    die_with_parent()
    os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606
