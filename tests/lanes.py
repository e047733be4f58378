"""`make test`: every tier, in two lanes beside each other, each a pytest of its own with a log of its own."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parent
LOGS = TESTS.parent / ".txbatch" / "logs"
# What takes about half the time: Airflow, and long Spark sessions. All other tiers are in the first lane.
SECOND = ("spark", "local_airflow", "airflow", "flights", "demo")
CLOSING = re.compile(r"=* ?(?P<counts>\d+ [a-z]+.*) in [\d.]+s")
# In the order in which pytest tells them.
OUTCOMES = ("failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "warnings", "errors")


def lanes() -> tuple[list[str], list[str]]:
    """The tiers of each lane; a new tier is in the first."""
    tiers = sorted(each.name for each in TESTS.iterdir() if each.is_dir() and any(each.glob("test_*.py")))
    return [tier for tier in tiers if tier not in SECOND], [tier for tier in tiers if tier in SECOND]


@dataclass(frozen=True)
class Lane:
    """A pytest at work, in a session of its own: Ctrl-C reaches it once, from here."""

    log: Path
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, number: int, tiers: list[str]) -> Lane:
        """Start the tests of these tiers."""
        log = LOGS / f"test-{number}.log"
        colour = "yes" if sys.stdout.isatty() else "no"
        command = [sys.executable, "-m", "pytest", f"--color={colour}", *(f"tests/{tier}" for tier in tiers)]
        with log.open("wb") as file:
            process = subprocess.Popen(
                command, cwd=TESTS.parent, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )
        return cls(log, process)

    def show(self) -> None:
        """Print the log from its beginning, until the lane has ended."""
        with self.log.open("rb") as file:
            ended = False
            while not ended:
                ended = self.process.poll() is not None
                sys.stdout.buffer.write(file.read())
                sys.stdout.flush()
                time.sleep(0 if ended else 0.2)

    def lines(self) -> list[str]:
        """The log without its colours."""
        return re.sub(r"\x1b\[[\d;]*m", "", self.log.read_text(errors="replace")).splitlines()

    def complaints(self) -> list[str]:
        """What went wrong, as pytest's short summary says it."""
        return [line for line in self.lines() if line.startswith(("FAILED ", "ERROR "))]


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


def main() -> int:
    """Run both lanes and show one after the other; return the worse exit code."""
    started = time.monotonic()
    LOGS.mkdir(parents=True, exist_ok=True)
    running = [Lane.start(number, tiers) for number, tiers in enumerate(lanes(), 1)]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: interrupt(running))
    for lane in running:
        lane.show()
    for line in (line for lane in running for line in lane.complaints()):
        print(line)
    print(closing_line(sum((counts_of(lane.lines()) for lane in running), Counter()), time.monotonic() - started))
    return worse([lane.process.returncode for lane in running])


def interrupt(running: list[Lane]) -> None:
    """Let every lane end as on Ctrl-C: it cleans up, and says how far it came."""
    for lane in running:
        with suppress(ProcessLookupError):
            lane.process.send_signal(signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main())
