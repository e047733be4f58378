"""Pages of the tutorial and the cookbook as scripts: a reader makes their files, runs their commands, and sees their output.

A path in backquotes, alone above a block, is a file. A block `console` has commands behind `$ `, each with its output.
Blocks of other languages, such as `sh`, are not run.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from txbatch import tables
from txbatch.cli.main import main
from txbatch.core.errors import Unexpected

DOCS = Path(__file__).parents[1] / "docs"
TUTORIALS = sorted((DOCS / "tutorial").glob("[1-9]-*.md"))
RECIPES = sorted(page for page in (DOCS / "build").glob("*.md") if page.stem != "index")
# Pages on jobs, of which each block of Python is a whole job.
JOB_PAGES = [DOCS / f"{name}.md" for name in ("jobs", "aggregates", "own-spout")]
BLOCK = re.compile(r"^(?:`(?P<path>[\w./-]+)`\n\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
# What a reader's terminal has.
COLUMNS = 80
UNEXPECTED, SQL_ERROR = f"txbatch: {Unexpected.code} ", "ERROR:  "
EXIT_CODE, NOT_SHOWN = "; echo $?", " > /dev/null"
# What a driver prints, which is another process elsewhere.
PROGRESS = re.compile(r"^txbatch \S+(?: \d+:\d+)?: read .*\n", re.MULTILINE)
# What differs from run to run, as pages have it.
DIGITS, DAY, CLOCK = "3f2a9c1d7b40", "2026-01-05", "09:15:02"


class Killed(BaseException):
    """Ends a command as SIGKILL ends a process: nothing catches it."""


@dataclass(frozen=True)
class Block:
    """A block of a page: a file if it has a path."""

    path: str | None
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page, in order."""
    return [Block(**found.groupdict()) for found in BLOCK.finditer(page.read_text(encoding="utf-8"))]


def example_jobs() -> list[str]:
    """Return the jobs of the pages on jobs, in order."""
    return [each.text for page in JOB_PAGES for each in blocks(page) if each.language == "python"]


def files(page: Path, folder: str = "") -> dict[str, str]:
    """Return the files of a page below a folder, by path, as the page has them last."""
    return {each.path: each.text for each in blocks(page) if each.path and each.path.startswith(folder)}


def shell_lines(page: Path) -> list[str]:
    """Return the lines of a page's blocks of `sh`, in order. They need Airflow, or a shell of the reader's own."""
    return [line for each in blocks(page) if each.language == "sh" for line in each.text.splitlines()]


def commands(text: str) -> Iterator[str]:
    """Yield the commands of a block, each as it is written: over several lines where a quote is open, or behind a backslash."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        command = lines.pop(0)
        while lines and (command.endswith("\\") or not _whole(command)):
            command += f"\n{lines.pop(0)}"
        yield command


def _whole(command: str) -> bool:
    try:
        shlex.split(command)
    except ValueError:
        return False
    return True


def canonical(printed: str, folder: Path) -> str:
    """Return what was printed as a page has it: no progress; another place, name, time and duration for those of this run."""
    text = PROGRESS.sub("", printed.replace(str(folder), "/home/ana"))
    text = re.sub(r"\bcli:(restate-)?([0-9a-f]+)", lambda found: f"cli:{found[1] or ''}{DIGITS[: len(found[2])]}", text)
    text = re.sub(r"\b[0-9a-f]{12}\b", DIGITS, text)
    now = datetime.now(UTC)
    for day in (now, now - timedelta(days=1)):
        text = re.sub(rf"{day:%Y-%m-%d}([ T])\d\d:\d\d(?::\d\d)?(?:\.\d+)?", rf"{DAY}\g<1>{CLOCK}", text)
    text = re.sub(r"(?<=  )\d\d:\d\d:\d\d(?=  |$)", CLOCK, text, flags=re.MULTILINE)
    text = re.sub(r"(?:(?<=  )|(?<=took ))\d:\d\d:\d\d(?=  |$)", "0:00:02", text, flags=re.MULTILINE)
    text = re.sub(r"\b(passed|failed) in [\d.]+s", r"\1 in 0.31s", text)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


class Reader:
    """Does what a page says, in a folder of its own, with txbatch in this process."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, *, strict: bool = True) -> None:
        """Begin in the folder, with a terminal of 80 columns, as a user named ana. `strict`: a command must end well."""
        self.folder, self.patch, self.strict = folder, patch, strict
        patch.chdir(folder)
        patch.setenv("LOGNAME", "ana")
        patch.delenv("PYTEST_ADDOPTS", raising=False)  # of the run that this test is in
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        patch.setattr("txbatch.cli.printing.lines_of", _narrow)
        patch.setattr("txbatch.tables._short", _short)
        patch.setattr("txbatch.cli.reading.psql.os", SimpleNamespace(execve=_psql))
        patch.setattr("txbatch.failpoints.os", SimpleNamespace(kill=_kill, getpid=os.getpid, environ=os.environ))

    def follow(self, page: Path) -> str:
        """Make the files and run the commands of a page, in order; return the page with what was printed."""
        return BLOCK.sub(
            lambda found: self._done(Block(**found.groupdict()), found[0]), page.read_text(encoding="utf-8")
        )

    def run(self, command: str) -> str:
        """Run a command; return what it printed."""
        plain = command.removesuffix(EXIT_CODE).removesuffix(NOT_SHOWN)
        words = shlex.split(plain.replace("\\\n", " "))
        given = dict(self._given(words))
        match words[len(given) :]:
            case ["cd", folder]:
                self.patch.chdir(folder)
                return ""
            case ["export", *names]:
                for name in names:
                    self.patch.setenv(*name.split("=", 1))
                return ""
            case ["txbatch", *arguments]:
                printed, well = _txbatch(arguments, given, told=command.endswith(EXIT_CODE))
                assert well or not self.strict, f"{command}\n{printed}"
                return "" if well and command.endswith(NOT_SHOWN) else canonical(printed, self.folder)
        done = subprocess.run(["bash", "-c", command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == 0 or not self.strict, f"{command}\n{done.stdout}"
        return canonical(done.stdout, self.folder)

    def _done(self, block: Block, whole: str) -> str:
        if block.path:
            file = Path.cwd() / block.path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
        elif block.language == "console":
            said = "".join(f"$ {command}\n{self.run(command)}" for command in commands(block.text))
            return f"```console\n{said}```"
        return whole

    @staticmethod
    def _given(words: Sequence[str]) -> Iterator[tuple[str, str]]:
        for word in words:
            name, is_, value = word.partition("=")
            if not (is_ and name.isupper()):
                return
            yield name, value


def _txbatch(arguments: Sequence[str], given: Mapping[str, str], *, told: bool) -> tuple[str, bool]:
    """Return the output of a command, with its exit code if that is asked for, and True if it ended as a page may have it.

    That is: well, killed, with an error of a code, or with its exit code shown.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name, value in given.items():
            patch.setenv(name, value)
        try:
            result = CliRunner().invoke(main, list(arguments), prog_name="txbatch")
        except Killed:
            return "Killed\n", True
    unexpected = (
        UNEXPECTED in result.output or SQL_ERROR in result.output or not isinstance(result.exception, SystemExit | None)
    )
    well = told or result.exit_code == 0 or "txbatch: TX" in result.output
    why = "" if result.exception is None or well else f"{result.exception!r}\n"
    return result.output + (f"{result.exit_code}\n" if told else why), well and not unexpected


def _psql(program: str, line: Sequence[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(line, env={**environment, "PGCLIENTENCODING": "UTF8"}, text=True, capture_output=True)
    click.echo(done.stdout + done.stderr, nl=False)


def _kill(*_: object) -> None:
    raise Killed


def _lines(*given: Any, width: int | None = None, columns_max: int, **named: Any) -> list[str]:
    return LINES_OF(*given, width=width or columns_max, **named)


def _short(value: Any) -> str:
    """As of today, also a minute after midnight."""
    recent = isinstance(value, datetime) and datetime.now(UTC) - value < timedelta(hours=12)
    return f"{value:%H:%M:%S}" if recent else SHORT(value)


LINES_OF, SHORT = tables.lines_of, tables._short
_narrow = partial(_lines, columns_max=COLUMNS)
