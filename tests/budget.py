"""CPU seconds of each tier, of the tests and all processes they start, held against what budget.json allows."""

from __future__ import annotations

import json
import os
import re
import resource
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from leftovers import IN_MEMORY, MARK
from sizes import EVERYTHING, SIZE, SIZES
from slowness import FILE, Speedometer, slowness

TESTS = Path(__file__).parent
# On top of a budget, which is what was measured and a tenth: machines differ.
EXCESS = 1.15
TOLD = "CPU seconds of their budget, and by the clock: "
# What imports and a busy neighbour make of a tier of a few seconds.
SLACK_SECONDS = 5.0


def tier_of(item: pytest.Item) -> str:
    """The folder of tests that this one is in."""
    return item.path.relative_to(TESTS).parts[0]


def budgets() -> dict[str, float]:
    """CPU seconds by tier, servers and Java included, for the size of this run."""
    tiers = json.loads(FILE.read_text(encoding="utf-8"))["tiers"]
    return {tier: each[SIZES.index(SIZE)] for tier, each in tiers.items()}


def allowed(budget: float, scale: float) -> float:
    """CPU seconds from which on a tier is too dear, on a machine that is so many times slower."""
    return max(budget * EXCESS, budget + SLACK_SECONDS) * scale


@dataclass(frozen=True)
class Cost:
    """What a tier took: CPU seconds with all that it started, those that it may take, and seconds by the clock."""

    tier: str
    seconds: float
    budget: float
    clock: float


def told(costs: list[Cost]) -> str:
    """Return the line that says what each tier took, and all of them together."""
    of_all = Cost("all", *(sum(getattr(cost, name) for cost in costs) for name in ("seconds", "budget", "clock")))
    each = [f"{cost.tier} {cost.seconds:.0f}/{cost.budget:.0f} in {cost.clock:.0f}s" for cost in (*costs, of_all)]
    return f"{TOLD}{', '.join(each)}"


def costs_of(lines: list[str]) -> list[Cost]:
    """Return what the line of `told` says that a pytest ended with, without the sum; nothing where it came to no end."""
    line = next((line for line in reversed(lines) if line.startswith(TOLD)), "")
    found = re.findall(r"(\w+) (\d+)/(\d+) in (\d+)s", line)
    return [Cost(tier, *map(float, numbers)) for tier, *numbers in found[:-1]]


@dataclass
class Meter:
    """CPU seconds of this process, of its ended children, and of what lives and bears `mark` or works below `folders`."""

    mark: str
    folders: tuple[Path, ...]
    detached: dict[psutil.Process, float] = field(default_factory=dict)
    ended: float = 0.0

    def read(self) -> float:
        """Return all CPU seconds spent so far; a server that ended without a parent counts as it was last seen."""
        living = {process: spent(process) for process in psutil.process_iter() if self._ours(process)}
        self.ended += sum(seconds for process, seconds in self.detached.items() if process not in living)
        family = {os.getpid(), *(process.pid for process in living)}
        self.detached = {process: seconds for process, seconds in living.items() if parent(process) not in family}
        own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(each.ru_utime + each.ru_stime for each in own) + sum(living.values()) + self.ended

    def _ours(self, process: psutil.Process) -> bool:
        if process.pid == os.getpid():
            return False
        with suppress(psutil.Error, OSError):
            if any(Path(process.cwd()).is_relative_to(folder) for folder in self.folders):
                return True
            return process.environ().get(MARK) == self.mark
        return False


def spent(process: psutil.Process) -> float:
    """CPU seconds of a process and of the children it has waited for."""
    with suppress(psutil.Error):
        return float(sum(process.cpu_times()[:4]))
    return 0.0


def parent(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return int(process.ppid())
    return 0


class Budget:
    """The plugin: measures at the borders of tiers, prints what each took, and fails a run that took too much."""

    def __init__(self, config: pytest.Config) -> None:
        self.config, self.budget = config, budgets()
        self.spent: dict[str, float] = {}
        self.clock: dict[str, float] = {}
        self.partial: set[str] = set()
        self.too_dear: list[str] = []
        self.meter: Meter | None = None
        self.last = 0.0
        self.began = time.monotonic()
        self.speed: Speedometer | None = None

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self.partial |= {tier_of(item) for item in items if EVERYTHING or not item.get_closest_marker("whole")}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        if self.meter is None:
            os.environ[MARK] = str(os.getpid())
            on_disk = self.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
            self.meter = Meter(os.environ[MARK], (on_disk, IN_MEMORY))
            self.last, self.speed = self.meter.read(), Speedometer()
        done = yield
        if nextitem is None or tier_of(nextitem) != tier_of(item):
            tier, now, clock = tier_of(item), self.meter.read(), time.monotonic()
            self.spent[tier] = self.spent.get(tier, 0.0) + now - self.last
            self.clock[tier] = self.clock.get(tier, 0.0) + clock - self.began
            self.last, self.began = now, clock
        return done

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> None:
        """Read the meter a moment before the servers end that the whole session had: ended, they count as last seen."""
        if nextitem is None and self.meter is not None:
            self.meter.read()

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run of whole tiers in which all went well but the time. The speed of the machine along the run counts."""
        if self.speed:
            self.speed.end()
        if session.exitstatus == pytest.ExitCode.OK:
            scale = max(slowness(), self.speed.mean() if self.speed else 1.0)
            tiers = {tier: self.budget[tier] for tier in self.spent if self._whole(tier)}
            self.too_dear = [tier for tier, of in tiers.items() if self.spent[tier] > allowed(of, scale)]
            if self.too_dear:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _whole(self, tier: str) -> bool:
        asked = {Path(self.config.invocation_params.dir, name).resolve() for name in self.config.args}
        return tier in self.budget and tier not in self.partial and bool(asked & {TESTS, TESTS / tier})

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        of = self.budget
        if self.spent:
            costs = [Cost(tier, took, of.get(tier, 0), self.clock[tier]) for tier, took in self.spent.items()]
            terminalreporter.write_line(told(costs))
        for tier in self.too_dear:
            terminalreporter.write_line(
                f"ERROR tests/{tier} took {self.spent[tier]:.0f} CPU seconds, {of[tier]} are its budget: make it cheaper, or"
                f" let tests/budget.json say why it may cost more",
                red=True,
            )
