"""Emits what committed batches read again, to be verified (R24) or counted anew (R23).

In folders of its own, beside those of attempts: the driver is told a plan as ever, and knows no difference. No attempt is made:
the ledger is told nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from uuid import uuid4

from txbatch.core.application import Application, Submit
from txbatch.core.errors import RecordsGone, TransientError
from txbatch.core.heartbeat import Heartbeat
from txbatch.core.plan import BatchPlan
from txbatch.core.repeat import repeated
from txbatch.core.transaction import Assignment, TransactionAttempt
from txbatch.core.verify import Again, Unverifiable
from txbatch.spouts.listing import ABORT
from txbatch.storage.staging import TOKEN_CHARACTERS, AttemptFolder

_LEASE_SECONDS = 120.0


class EmitAgain:
    """Reads batches in one application. What it stages is removed by `close`."""

    def __init__(
        self, application: Application, root: AttemptFolder, code: str, export: Submit = lambda folder, assignment: None
    ) -> None:
        """`export` writes what Spark cannot ask for itself."""
        self.application, self.root, self.code, self.token = application, root, code, uuid4().hex
        self._export = export
        self._emitted: Counter[int] = Counter()

    def emit(self, topology: str, txid: int, plan: BatchPlan, position: int) -> Again:
        """Read what a plan names, and aggregate it for a position; Unverifiable with the reason when that fails."""
        attempt = TransactionAttempt(txid, self._emitted[txid])  # from 0, which no attempt of the ledger has
        self._emitted[txid] += 1
        folder = AttemptFolder(f"{self.root.uri}/{txid}-{attempt.attempt_id}-{self.token[:TOKEN_CHARACTERS]}")
        assignment = Assignment(topology, attempt, self.token, plan.to_json(), self.code, position)
        folder.write_assignment(assignment)
        try:
            with _kept_alive(folder):
                self._export(folder, assignment)
                self.application.emit(folder, assignment)
        except RecordsGone as error:
            folder.remove()
            raise Unverifiable(str(error)) from error
        except TransientError as error:
            if (said := folder.read_error()) is None:
                raise
            folder.remove()
            raise Unverifiable(_of_committed(said["message"])) from error
        manifest = folder.read_manifest()
        return Again(assignment, manifest, lambda: folder.read_partials(manifest), folder.remove)

    def close(self) -> None:
        """Remove what was staged, and end Spark."""
        self.application.close()
        self.root.remove()


def _of_committed(message: str) -> str:
    """Return what an attempt failed with, without the way out that only an uncommitted batch has."""
    return message.replace(f", or {ABORT}", "").replace(f", then {ABORT}", "")


@contextmanager
def _kept_alive(folder: AttemptFolder) -> Iterator[None]:
    """Context manager. Raise the heartbeat, by which the driver goes on, until the block ends."""
    heartbeat = Heartbeat(_LEASE_SECONDS)
    folder.write_heartbeat(heartbeat)

    def beat() -> None:
        nonlocal heartbeat
        heartbeat = replace(heartbeat, beat=heartbeat.beat + 1)
        with suppress(OSError):  # the next one may be written
            folder.write_heartbeat(heartbeat)

    with repeated(beat, seconds=_LEASE_SECONDS / 4, name="heartbeat"):
        yield
