"""Emits committed batches again, to be verified (R24) or counted again (R23).

The folders lie beside the folders of attempts: the driver gets a plan, and sees no difference. No attempt is made, and
nothing is written into the ledger.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from uuid import uuid4

from txbatch.core.batch.heartbeat import Heartbeat
from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Assignment, TransactionAttempt
from txbatch.core.corrections.verify import Again
from txbatch.core.errors import RecordsGone, TransientError, Unverifiable
from txbatch.core.protocol.advice import of_committed
from txbatch.core.protocol.ports import Application, Job, Submit, repeat
from txbatch.storage.staging import TOKEN_CHARACTERS, AttemptFolder

log = logging.getLogger(__name__)
_LEASE_SECONDS = 120.0


class EmitAgain:
    """Reads batches in one application. `close` removes the staged files."""

    def __init__(
        self, application: Application, root: AttemptFolder, job: Job, export: Submit = lambda folder, assignment: None
    ) -> None:
        """`export` writes the records Spark cannot ask for."""
        self.application, self.root, self.token = application, root, uuid4().hex
        self.code, self.loaded = job.code, job.loaded()
        self._export = export
        self._emitted: Counter[int] = Counter()
        self._beating = ExitStack()  # the heartbeats of attempts at work

    def emit(self, topology: str, txid: int, plan: BatchPlan, position: int) -> Again:
        """Read a plan's ranges, and aggregate for a position. If the attempt fails, raise Unverifiable with the reason."""
        folder, assignment = self._begin(topology, txid, plan, position)
        try:
            with _keep_alive([folder]):
                self._export(folder, assignment)
                self.application.emit(folder, assignment)
        except RecordsGone as error:
            folder.remove()
            raise Unverifiable(str(error)) from error
        except TransientError as error:
            if (said := folder.read_error()) is None:
                raise
            folder.remove()
            raise Unverifiable(of_committed(said["message"])) from error
        return _again(folder, assignment)

    def emit_bulk(self, topology: str, plans: Mapping[int, tuple[BatchPlan, int]]) -> dict[int, Again]:
        """Emit several batches by one job, and return the results by txid. Failed batches are left out."""
        return self.begin_bulk(topology, plans)()

    def begin_bulk(self, topology: str, plans: Mapping[int, tuple[BatchPlan, int]]) -> Callable[[], dict[int, Again]]:
        """Begin the work of `emit_bulk`, and return a function that waits for the end."""
        attempts = [self._begin(topology, txid, plan, position) for txid, (plan, position) in plans.items()]
        self._beating.enter_context(_keep_alive([folder for folder, _ in attempts]))
        begun = False
        with self._each_by_itself():
            self.application.begin(attempts)
            begun = True
        return partial(self._end, attempts, begun)

    def _end(self, attempts: Sequence[tuple[AttemptFolder, Assignment]], begun: bool) -> dict[int, Again]:
        """Wait for begun attempts, and return the results by txid."""
        with self._beating, self._each_by_itself():
            if begun:
                self.application.wait()
        done = dict[int, Again]()
        for folder, assignment in attempts:
            if folder.said_something() and folder.read_error() is None:
                done[assignment.attempt.txid] = _again(folder, assignment)
            else:
                folder.remove()
        return done

    @contextmanager
    def _each_by_itself(self) -> Iterator[None]:
        """Context manager. Log a TransientError of a job of several attempts, and go on."""
        try:
            yield
        except TransientError as error:
            log.warning("%s; each is emitted by itself", error)

    def close(self) -> None:
        """Remove the staged files, and end Spark."""
        with self._beating:
            self.application.close()
        self.root.remove()

    def _begin(self, topology: str, txid: int, plan: BatchPlan, position: int) -> tuple[AttemptFolder, Assignment]:
        """Create a folder, and write the assignment."""
        attempt = TransactionAttempt(txid, self._emitted[txid])  # from 0, which no attempt of the ledger has
        self._emitted[txid] += 1
        folder = AttemptFolder(f"{self.root.uri}/{txid}-{attempt.attempt_id}-{self.token[:TOKEN_CHARACTERS]}")
        assignment = Assignment(topology, attempt, self.token, plan.to_json(), self.code, position, loaded=self.loaded)
        folder.write_assignment(assignment)
        return folder, assignment


def _again(folder: AttemptFolder, assignment: Assignment) -> Again:
    manifest = folder.read_manifest()
    return Again(assignment, manifest, lambda: folder.read_partials(manifest), folder.remove)


@contextmanager
def _keep_alive(folders: Sequence[AttemptFolder]) -> Iterator[None]:
    """Context manager. Keep the driver going until the block ends: raise the beats of the heartbeats."""
    heartbeat = Heartbeat(_LEASE_SECONDS)
    for folder in folders:
        folder.write_heartbeat(heartbeat)

    def beat() -> None:
        nonlocal heartbeat
        heartbeat = replace(heartbeat, beat=heartbeat.beat + 1)
        for folder in folders:
            with suppress(OSError):  # the next one may be written
                folder.write_heartbeat(heartbeat)

    with repeat(beat, seconds=_LEASE_SECONDS / 4, name="heartbeat"):
        yield
