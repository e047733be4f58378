"""What is run for an attempt: a job, by an application that runs it on the attempt's folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.staging import AttemptFolder
from txbatch.core.batch.transaction import Assignment
from txbatch.core.topology.loaded import Loaded
from txbatch.core.topology.topology import Topology

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

    def emit_fused(self, attempts: Sequence[tuple[AttemptFolder, Assignment]]) -> None:
        """Run the job once for several attempts, which go together (`core.protocol.fused`). What became of each, its folder says.

        Raises when the job ends before it has said so of all.
        """

    def begin(self, attempts: Sequence[tuple[AttemptFolder, Assignment]]) -> None:
        """Let the same begin, and go on: `wait` before anything else is emitted."""

    def wait(self) -> None:
        """Until what was begun is done. Raises as `emit_fused` does."""

    def let_end(self) -> None:
        """Say that nothing more is to be emitted, and go on: it ends beside what comes. Where something is, another starts."""

    def close(self) -> None:
        """End it, and wait until it has ended."""
