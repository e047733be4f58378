"""Batches in trains: commit the batches of one train in order while Spark emits the next train (R6, R10).

Spark is another process, so the pipeline needs no thread: start the job, commit, then record the staged partials. A failure
stops the train after the last committed batch. The next call commits all batches emitted by then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice

from txbatch.core.batch.transaction import Batch, BatchStatus, Run
from txbatch.core.errors import BrokenChain, Incomplete, LeaseHeld, NotItsTurn, StaleAttempt, TxbatchError
from txbatch.core.protocol import bulk
from txbatch.core.protocol.ports import Application
from txbatch.core.text import list_txids
from txbatch.run.bulk import Emission, Planned, emitting, plan_ahead
from txbatch.run.lease import batches_kept
from txbatch.run.steps import Recorded, Steps

log = logging.getLogger(__name__)
# Runs success of a committed batch, and returns the batch with its new status.
Succeed = Callable[[Batch], Batch]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Brings the batches of runs to their commits, train by train, and succeeds each batch.

    `finish` brings the batch of a single run to its commit, and returns the finished batches.
    """

    steps: Steps
    application: Application
    finish: Callable[[Run], list[Batch]]
    succeed: Succeed
    # Called before each batch with the number of batches planned after the batch.
    behind: Callable[[int], None] = lambda number: None
    # Collects txids committed before, by another call.
    found: set[int] = field(default_factory=set)

    def run(self, runs: Iterator[Run], *, until_idle: bool = False) -> Iterator[Batch]:
        """Yield the batch of each run after its commit, in order. If `until_idle`, stop once nothing is new."""
        train, left, full, lengths = list[Planned](), list[Run](), True, bulk.lengths()
        recorded: Mapping[int, Recorded] = {}
        while (left := [*left, *islice(runs, bulk.BATCHES_MAX - len(left))]) or train:
            length = next(lengths)
            # If a train is not full, the run after the train has no batch for now.
            goes_on = not train or (full and all(batch.status is not BatchStatus.PLANNED for batch, _ in train))
            with batches_kept(self.steps.ledger, train, self.steps.repeat):
                ahead = plan_ahead(self.steps, left, [batch.txid for batch, _ in train], length) if goes_on else []
                with emitting(self.steps, self.application, ahead) as emission:
                    yield from self._commit(train, recorded, emission)
            if not train and not ahead:
                run, *left = left
                done = self.finish(run)
                yield from done
                if until_idle and not done:
                    return
            train, recorded, left, full = emission.planned, emission.recorded, left[len(ahead) :], len(ahead) >= length
            if not left:
                self.application.let_end()

    def _commit(self, train: Sequence[Planned], recorded: Mapping[int, Recorded], beside: Emission) -> Iterator[Batch]:
        """Commit a train in order while Spark emits the next train. `recorded` has the attempts emitted by this call."""
        for number, (batch, run) in enumerate(train, 1):
            with _naming_behind(batch, [other for other, _ in (*train[number:], *beside.planned)]):
                done = self._finish_emitted(batch, run, recorded.get(batch.txid), beside)
            self.behind(len(train) - number + len(beside.planned))
            yield from done

    def _finish_emitted(self, batch: Batch, run: Run, recorded: Recorded | None, beside: Emission) -> list[Batch]:
        """Commit and succeed an emitted batch, unless the batch has succeeded.

        If the batch cannot be committed now, finish the run by itself when Spark is free.
        """
        if batch.succeeded:
            log.info("%s: already committed as txid %s", batch.topology, batch.txid)
            self.found.add(batch.txid)
            return [batch]
        now = self.steps.ledger.batch(batch.topology, batch.txid) if recorded is None else batch
        if now.status is BatchStatus.COMMITTED:
            self.found.add(now.txid)
            return [self.succeed(now)]
        if now.status is BatchStatus.EMITTED and now.lease_run == run.name:
            try:
                committed = self.steps.commit(now, run, recorded)
            except (BrokenChain, Incomplete, LeaseHeld, NotItsTurn, StaleAttempt) as error:
                log.info("%s", error)
            else:
                return [self.succeed(committed.batch)]
        beside.end()
        return self.finish(run)


@contextmanager
def _naming_behind(batch: Batch, behind: Sequence[Batch]) -> Iterator[None]:
    """Context manager. If a batch fails, log the open batches behind the failed batch, and how to continue."""
    try:
        yield
    except TxbatchError:
        if behind:
            topology, txid, open_ = batch.topology, batch.txid, list_txids(each.txid for each in behind)
            log.warning(
                '%s: behind txid %s stay open: %s; mend it, or `txbatch abort %s %s --why "..."`, and call this again',
                *(topology, txid, open_, topology, txid),
            )
        raise
