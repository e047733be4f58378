"""`txbatch --version`: printed at once, also on a busy machine; and commands are imported when they are asked for."""

from __future__ import annotations

import os
import sys
from resource import RUSAGE_CHILDREN, getrusage
from subprocess import run

from click.testing import CliRunner

import txbatch
from txbatch.cli.main import COMMANDS, main
from txbatch.settings import project_root

# On an idle machine a hundredth of it.
CPU_SECONDS = 0.3


def cpu() -> float:
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def called(*arguments: str) -> str:
    return python("-m", "txbatch", *arguments)


def python(*arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(project_root() / "plugins")}
    return run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=True).stdout


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


# Prints the modules of commands that are imported after a command line.
IMPORTED = """
import sys
from txbatch.cli.main import COMMANDS, main
main(sys.argv[1:], standalone_mode=False)
print(*sorted(COMMANDS.keys() & {name for name, at in COMMANDS.items() if f"txbatch.cli.{at.partition(':')[0]}" in sys.modules}))
"""


def test_a_command_is_imported_when_it_is_asked_for() -> None:
    assert python("-c", IMPORTED, "-v", "--version").splitlines()[1:] == [""]
    assert python("-c", IMPORTED, "explain", "--help").splitlines()[-1] == "explain"
    assert python("-c", IMPORTED, "demo", "query", "--help").splitlines()[-1] == "query"
    assert python("-c", IMPORTED, "--help").splitlines()[-1].split() == sorted(COMMANDS)


def test_a_command_by_a_similar_name_is_offered() -> None:
    """Of a command that is not imported, too: click compares the name with all names of the group."""
    for group in ([], ["demo"]):
        told = CliRunner().invoke(main, [*group, "statu"])
        assert (told.exit_code, "Did you mean" in told.stderr, "status" in told.stderr) == (2, True, True)
