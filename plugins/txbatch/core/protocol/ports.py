"""The ports of a run: the job, the application that runs it on an attempt's folder, names that one process holds, the clock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from txbatch.core.batch.loaded import Loaded
from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.staging import AttemptFolder
from txbatch.core.batch.transaction import Assignment
from txbatch.core.topology.topology import Topology

REBUILD = "rebuild"  # held by who rebuilds; no run is called so

# Runs the job on an attempt's folder; raises when it fails.
Submit = Callable[[AttemptFolder, Assignment], None]


class Job(Protocol):
    """A topology with the code that emits it. `launch.job_file` loads one from a file."""

    @property
    def name(self) -> str:
        """Return what the ledger calls the job: the path of its file."""

    @property
    def topology(self) -> Topology:
        """Its topology, checked."""

    @property
    def code(self) -> str:
        """The digest of its code."""

    def now(self) -> Job:
        """Return the job as its code is now: itself, or one with another digest."""

    def loaded(self) -> Loaded:
        """Return what it is made of, as this process loaded it."""


class Application(Protocol):
    """Something that emits several attempts, one thing after the other. `launch.application` is Spark's."""

    @property
    def killed(self) -> bool:
        """True when it was ended for good: it starts nothing any more."""

    @property
    def stage(self) -> str:
        """What it is at, for people; nothing where that is not known."""

    def start(self, plans: Sequence[BatchPlan], code: str) -> None:
        """Let it start, for attempts of these plans and of this code that are about to begin; nothing where it runs."""

    def emit(self, folder: AttemptFolder, assignment: Assignment) -> None:
        """Run the job on an attempt's folder; raises when it fails."""

    def emit_bulk(self, attempts: Sequence[tuple[AttemptFolder, Assignment]]) -> None:
        """Run the job once for several attempts, which go together (`core.protocol.bulk`). What became of each, its folder says.

        Raises when the job ends before it has said so of all.
        """

    def begin(self, attempts: Sequence[tuple[AttemptFolder, Assignment]]) -> None:
        """Let the same begin, and go on: `wait` before anything else is emitted."""

    def wait(self) -> None:
        """Until what was begun is done. Raises as `emit_bulk` does."""

    def let_end(self) -> None:
        """Say that nothing more is to be emitted, and go on: it ends beside what comes. Where something is, another starts."""

    def close(self) -> None:
        """End it, and wait until it has ended."""


class RunLocks(Protocol):
    """A killed process holds no name any more. `postgres.database.run_locks` has the real ones, `memory.run_locks` their twin."""

    def hold(self, topology: str, name: str) -> AbstractContextManager[bool]:
        """Context manager. Hold a name of a topology until the block ends; yields False while a living process holds it."""

    def held(self, topology: str, name: str) -> bool:
        """True while a living process holds the name."""


class Repeat(Protocol):
    """The clock of what is kept alive: `repeat` in production, one that stands still in the model."""

    def __call__(self, call: Callable[[], object], *, seconds: float, name: str) -> AbstractContextManager[None]:
        """Context manager. Call again and again, every so many seconds, until the block ends."""


@contextmanager
def repeat(call: Callable[[], object], *, seconds: float, name: str) -> Iterator[None]:
    """Context manager. A thread of this name calls every so many seconds, until the block ends; no call outlasts the block.

    `call` handles its own errors.
    """
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(seconds):
            call()

    keeper = threading.Thread(target=repeat, name=name, daemon=True)
    keeper.start()
    try:
        yield
    finally:
        over.set()
        keeper.join()
