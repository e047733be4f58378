"""The third way to tell a story: its batches are begun and emitted as those of many are, by `run.bulk` and `run.pipeline`.

An attempt of a planned batch is an `Emission`'s, and its job does what the step says; `whole` runs, one behind the other, are
those of `Trains`: planned at once, emitted by one job, and committed in order. What such a job leaves to the batch's own run, as
it does with a hole, a refusal and an attempt that came too late, is told as ever: it comes to the same. So does an attempt of a
batch that was emitted before. Whether the spout of a story could be read so is not asked: its job is a twin of Spark's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
from golden.telling import Step, Told
from model.ledgers import View
from model.source import STREAM, records_of
from model.story import CODE, Work

from txbatch import PartitionUnreadable
from txbatch.core.batch.manifest import Manifest
from txbatch.core.batch.staging import AttemptFolder
from txbatch.core.batch.transaction import Assignment, Batch, BatchStatus, Run
from txbatch.memory.application import MemoryApplication
from txbatch.memory.run_locks import MemoryRunLocks
from txbatch.memory.runner import MemoryJob
from txbatch.memory.staging import MemoryStaging
from txbatch.run import bulk
from txbatch.run.bulk import Emission, Planned
from txbatch.run.pipeline import Pipeline
from txbatch.run.steps import Steps

# What a `whole` step may say besides, to be told with its neighbours as one call of many.
PLAIN = {"whole", "day", "gives", "why"}


def groups(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Yield the steps, those together that are one call of many runs."""
    found = list[Step]()
    for step in steps:
        if "whole" in step and step.keys() <= PLAIN:
            found.append(step)
            continue
        if found:
            yield found
        yield [step]
        found = []
    if found:
        yield found


def not_renewed(call: Callable[[], object], *, seconds: float, name: str) -> AbstractContextManager[None]:
    """The clock of leases stands still."""
    return nullcontext()


class Noting:
    """A ledger of which the story notes what it took."""

    def __init__(self, story: Together) -> None:
        self.story = story

    def __getattr__(self, name: str) -> Any:
        return getattr(self.story.ledger, name)

    def record_manifests(self, recorded: Sequence[tuple[Assignment, Manifest]]) -> list[Batch]:
        batches = self.story.ledger.record_manifests(recorded)
        for batch, (assignment, _) in zip(batches, recorded, strict=True):
            self.story.note(Work(assignment, batch, self.story.reads(assignment)))
        return batches


class Application(MemoryApplication):
    """A job that begins attempts at once, and emits them when it is waited for: all of them, or none."""

    def __init__(self, story: Together, staging: MemoryStaging) -> None:
        super().__init__(story.topology, staging)
        self.story, self.begun = story, list[tuple[AttemptFolder, Assignment]]()

    def begin(self, attempts: Sequence[tuple[AttemptFolder, Assignment]]) -> None:
        self.begun = list(attempts)
        for _, assignment in attempts:
            self.story.note(Work(assignment))

    def wait(self) -> None:
        begun, self.begun = self.begun, []
        for _, assignment in begun:
            if not assignment.plan.streams[STREAM].ranges.keys().isdisjoint(self.story.away):
                raise PartitionUnreadable("a job of several leaves nothing out")
        self.story.jobs.append(len(begun))
        for _, assignment in begun:
            partials = self.story.source.partials(self.story.reads(assignment))
            staged = self.story.view.as_partials(self.story.topology, partials)
            self.staging.attempt(assignment).write_result(self.story.manifest(assignment, ()), staged)


class Together(Told):
    """A story whose batches are emitted by jobs of several; `jobs` are how many each had."""

    def __init__(self, case: Step, view: View, patch: pytest.MonkeyPatch) -> None:
        super().__init__(case, view, patch)
        patch.setattr(bulk, "_together", planned_of)
        self.staging, self.jobs = MemoryStaging(), list[int]()
        self.emissions = dict[str, Emission]()
        job = MemoryJob(self.topology, "jobs/model.py", CODE)
        self.steps = Steps(job, Noting(self), self.staging, MemoryRunLocks(), not_renewed)  # type: ignore[arg-type]

    def tell_all(self, steps: Sequence[Step]) -> None:
        """All steps, as many of them at once as are one call."""
        for group in groups(steps):
            if "whole" in group[0] and group[0].keys() <= PLAIN:
                self.step = group[0]
                self._run(group)
                self.check()
            else:
                self.tell(group[0])

    def note(self, work: Work) -> None:
        """Keep in mind an attempt, or what came of it."""
        attempt = work.assignment.attempt
        known = list(self.works.get(attempt.txid, ()))
        known[attempt.attempt_id - 1 :] = [work]
        self.works = {**self.works, attempt.txid: tuple(known)}

    def reads(self, assignment: Assignment) -> Any:
        """The records that an attempt reads, if none is away."""
        return records_of(assignment.plan.streams[STREAM].ranges)

    # ---- steps

    def attempt(self, name: str, txid: int) -> None:
        batch = self.ledger.batch(self.name, txid)
        emission = Emission(self.steps, Application(self, self.staging), [(batch, self.run(name))])
        if not emission.attempts:
            super().attempt(name, txid)
            return
        emission.begin()
        self.emissions[str(emission.attempts[0][1].attempt)] = emission

    def do_emit(self, attempt: str) -> None:
        emission = self.emissions.pop(attempt, None)
        if emission is not None:
            emission.end()
        if emission is None or emission.planned[0][0].status is not BatchStatus.EMITTED:
            super().do_emit(attempt)

    def do_forget(self, _: bool) -> None:
        super().do_forget(True)
        self.emissions = {}

    def _run(self, steps: Sequence[Step]) -> None:
        """Bring the runs of some steps to their commits by one call."""
        self.source.away = ()
        self.days |= {step["whole"]: step["day"] for step in steps if "day" in step}
        runs = [self.run(step["whole"]) for step in steps]
        trains = Pipeline(self.steps, Application(self, self.staging), self._alone, self.steps.succeeded)
        done = [f"txid {batch.txid}" for batch in trains.run(iter(runs))]
        assert done == [step.get("gives", txid) for step, txid in zip(steps, done, strict=True)]

    def _alone(self, run: Run) -> list[Batch]:
        txid = int(super().do_whole(run.name).removeprefix("txid "))
        return [self.ledger.batch(self.name, txid)]


def planned_of(steps: Steps, planned: Sequence[Planned]) -> list[Planned]:
    """Those that nobody has emitted yet, also of a spout that is not read so, and one alone."""
    return [each for each in planned if each[0].status is BatchStatus.PLANNED]
