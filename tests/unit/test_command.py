"""`txbatch --version`: printed at once, also on a busy machine."""

from __future__ import annotations

import os
import sys
from resource import RUSAGE_CHILDREN, getrusage
from subprocess import run

import txbatch
from txbatch.settings import project_root

# On an idle machine a hundredth of it.
CPU_SECONDS = 0.3


def cpu() -> float:
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def called(*arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(project_root() / "plugins")}
    command = [sys.executable, "-m", "txbatch", *arguments]
    return run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_the_version_is_printed_without_the_commands() -> None:
    """The least of some calls counts: the tests beside it may take the processor's caches."""
    took = []
    for _ in range(3):
        before = cpu()
        assert called("--version") == f"txbatch, version {txbatch.__version__}\n"
        took.append(cpu() - before)
    assert min(took) < CPU_SECONDS


def test_with_another_option_click_prints_the_same() -> None:
    assert called("-v", "--version") == f"txbatch, version {txbatch.__version__}\n"
