"""The ports of a run: the job, the application that emits attempts, names held by one process, the clock."""

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

REBUILD = "rebuild"  # the name held by a rebuild; no run has the name

# Runs the job on an attempt's folder; raises if the job fails.
Submit = Callable[[AttemptFolder, Assignment], None]


class Job(Protocol):
    """A topology with the code of the job. `launch.job_file` loads a job from a file."""

    @property
    def name(self) -> str:
        """The job's name in the ledger: the path of the file."""

    @property
    def topology(self) -> Topology:
        """The job's topology, checked."""

    @property
    def code(self) -> str:
        """The digest of the job's code."""

    def now(self) -> Job:
        """Return the job as the code is now: the same job, or a job with another digest."""

    def loaded(self) -> Loaded:
        """Return the job's parts with the digest of each, as loaded by this process."""


class Application(Protocol):
    """An application emits several attempts, one call after the other. `launch.application` runs on Spark."""

    @property
    def killed(self) -> bool:
        """True if the application was ended for good, and starts nothing any more."""

    @property
    def stage(self) -> str:
        """The current step of the application, for people; empty if unknown."""

    def start(self, plans: Sequence[BatchPlan], code: str) -> None:
        """Let the application start, for coming attempts of these plans and this code; do nothing if it runs."""

    def emit(self, folder: AttemptFolder, assignment: Assignment) -> None:
        """Run the job on an attempt's folder. Raise if the job fails."""

    def emit_bulk(self, attempts: Sequence[tuple[AttemptFolder, Assignment]]) -> None:
        """Run the job once for several attempts that go together (`core.protocol.bulk`). Each attempt's folder has the outcome.

        Raise if the job ends before all folders have an outcome.
        """

    def begin(self, attempts: Sequence[tuple[AttemptFolder, Assignment]]) -> None:
        """Begin the work of `emit_bulk`, and return at once; call `wait` before emitting anything more."""

    def wait(self) -> None:
        """Wait until the begun attempts are done. Raise as `emit_bulk` does."""

    def let_end(self) -> None:
        """Let the application end in the background, and return at once. If more is emitted later, another application starts."""

    def close(self) -> None:
        """End the application, and wait for the end."""


class RunLocks(Protocol):
    """Names held by living processes. `postgres.database.run_locks` has the real locks, `memory.run_locks` the twin."""

    def hold(self, topology: str, name: str) -> AbstractContextManager[bool]:
        """Context manager. Hold a name of a topology until the block ends. Yield False if a living process holds the name."""

    def held(self, topology: str, name: str) -> bool:
        """True while a living process holds the name."""


class Repeat(Protocol):
    """The clock of leases and heartbeats: `repeat` in production, a clock that stands still in the model."""

    def __call__(self, call: Callable[[], object], *, seconds: float, name: str) -> AbstractContextManager[None]:
        """Context manager. Call every `seconds` seconds, until the block ends."""


@contextmanager
def repeat(call: Callable[[], object], *, seconds: float, name: str) -> Iterator[None]:
    """Context manager. A thread named `name` calls every `seconds` seconds, until the block ends; no call outlasts the block.

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
