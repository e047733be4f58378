"""Spark ends when the process that submitted it does: an attempt left alone would work for nobody.

Each process asks the kernel to be killed with its parent: spark-submit's Java, started through this file as a program,
and the Python driver that Java starts.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Be killed when the thread that started this process ends; nothing is done where there is no Linux.

    That thread is one that waits for us: the one that runs spark-submit, or the main thread of its Java. Kept over exec.
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
