"""`make test`: tiers in parts that are a pytest each; one more at a time than there are cores, the longest first."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from budget import budgets, costs_of, told
from slowness import CORES, Speedometer
from tools import fails, missing
from tools import told as told_missing

TESTS = Path(__file__).parent
LOGS = TESTS.parent / ".txbatch" / "logs"
# Airflow's tests wait most of their time.
LANES = CORES + 1
# Set in the environment of a part, which ends with this process.
LANE = "A_LANE_OF_THE_TESTS"
# A tier of so many CPU seconds is worth a pytest of its own, which takes about five; all others are together.
ALONE_SECONDS = 60
OTHERS = "others"
CLOSING = re.compile(r"=* ?(?P<counts>\d+ [a-z]+.*) in [\d.]+s")
# In the order in which pytest tells them.
OUTCOMES = ("failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "warnings", "errors")


def parts(asked: Sequence[str] = ()) -> dict[str, list[str]]:
    """The tiers of each part by its name, the longest part first; a tier without a budget is among the others.

    Of a few tiers that are asked for, each that is a third of their cost is a part.
    """
    seconds = budgets()
    tiers = list(asked) or [each.name for each in TESTS.iterdir() if each.is_dir() and any(each.glob("test_*.py"))]
    alone = sum(seconds.get(tier, 0) for tier in tiers) / 3 if asked else ALONE_SECONDS
    found: dict[str, list[str]] = {}
    for tier in sorted(tiers):
        found.setdefault(tier if seconds.get(tier, 0) >= alone else OTHERS, []).append(tier)
    return dict(sorted(found.items(), key=lambda each: -sum(seconds.get(tier, 0) for tier in each[1])))


@dataclass
class Part:
    """A pytest at work, in a session of its own: Ctrl-C reaches it once, from here."""

    name: str
    process: subprocess.Popen[bytes]
    shown: int = 0
    began: float = field(default_factory=time.monotonic)
    seconds: float = 0.0

    @classmethod
    def begin(cls, name: str, tiers: list[str]) -> Part:
        """Start the tests of these tiers."""
        colour = "yes" if sys.stdout.isatty() else "no"
        command = [sys.executable, "-m", "pytest", f"--color={colour}", *(f"tests/{tier}" for tier in tiers)]
        with log_of(name).open("wb") as file:
            process = subprocess.Popen(
                command,
                cwd=TESTS.parent,
                env=os.environ | {LANE: name},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        return cls(name, process)

    @property
    def at_work(self) -> bool:
        """True until it has ended."""
        if self.process.poll() is None:
            return True
        self.seconds = self.seconds or time.monotonic() - self.began
        return False

    def show(self) -> bool:
        """Print what is new in the log; return True once that was all."""
        at_work = self.at_work
        written = log_of(self.name).read_bytes()
        sys.stdout.buffer.write(written[self.shown :])
        sys.stdout.flush()
        self.shown = len(written)
        return not at_work

    def lines(self) -> list[str]:
        """The log without its colours."""
        return re.sub(r"\x1b\[[\d;]*m", "", log_of(self.name).read_text(errors="replace")).splitlines()

    def complaints(self) -> list[str]:
        """What went wrong, as pytest's short summary says it."""
        return [line for line in self.lines() if line.startswith(("FAILED ", "ERROR "))]


def log_of(part: str) -> Path:
    """Where the pytest of a part writes, unless another run of the same checkout writes there."""
    return LOGS / f"test-{part}{_run}.log"


_run = ""


@contextmanager
def own_logs() -> Iterator[None]:
    """Context manager. Give this run logs that no other run of the checkout writes to."""
    global _run
    LOGS.mkdir(parents=True, exist_ok=True)
    with (LOGS / "test.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _run = f"-{os.getpid()}"
        yield


@dataclass
class Suite:
    """The parts that wait for a lane, and those that were begun."""

    waiting: deque[tuple[str, list[str]]]
    begun: list[Part] = field(default_factory=list)

    def run(self) -> None:
        """Run all parts; show the log of one after the other."""
        shown = 0
        while self.fill() or shown < len(self.begun):
            shown += self.begun[shown].show()
            time.sleep(0.2)

    def fill(self) -> bool:
        """Begin a part in each lane that is free; return True while parts are waiting."""
        while self.waiting and sum(part.at_work for part in self.begun) < LANES:
            self.begun.append(Part.begin(*self.waiting.popleft()))
        return bool(self.waiting)

    def interrupt(self) -> None:
        """Let every part end as on Ctrl-C: it cleans up, and says how far it came; begin no other."""
        self.waiting.clear()
        for part in self.begun:
            with suppress(ProcessLookupError):
                part.process.send_signal(signal.SIGINT)


def counts_of(lines: list[str]) -> Counter[str]:
    """How many tests ended how, as the closing line of a pytest says; nothing, where none was reached."""
    closing = next(filter(None, map(CLOSING.match, reversed(lines))), None)
    found: Counter[str] = Counter()
    for number, outcome in re.findall(r"(\d+) ([a-z]+)", closing["counts"] if closing else ""):
        found[{"error": "errors", "warning": "warnings"}.get(outcome, outcome)] += int(number)
    return found


def closing_line(counts: Mapping[str, int], seconds: float) -> str:
    """As pytest writes it."""
    told = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts.get(outcome))
    clock = f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02}:{int(seconds) % 60:02}"
    return f" {told or 'no tests ran'} in {seconds:.2f}s ({clock}) ".center(100, "=")


def worse(codes: list[int]) -> int:
    """The exit code of all: of the first that is not 0; one that was killed counts as 1."""
    return next((code if code > 0 else 1 for code in codes if code != 0), 0)


def main(asked: Sequence[str]) -> int:
    """Run all parts, or those of the tiers that are asked for; return the worse exit code."""
    started, speed = time.monotonic(), Speedometer()
    suite = Suite(deque(parts(asked).items()))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: suite.interrupt())
    with own_logs():
        suite.run()
    for line in (line for part in suite.begun for line in part.complaints()):
        print(line)
    print(told([cost for part in suite.begun for cost in costs_of(part.lines())]))
    print(f"This machine is {speed.mean():.2f} times slower than the one that the budgets were made for.")
    counts = sum((counts_of(part.lines()) for part in suite.begun), Counter[str]())
    print(closing_line(counts, time.monotonic() - started))
    without = [] if asked else missing()
    if without:
        print(told_missing(without))
    return worse([part.process.returncode for part in suite.begun] + [fails(without, os.environ.get("CI"))])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
