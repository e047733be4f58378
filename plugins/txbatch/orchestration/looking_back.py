"""Late records in a DAG run: after the commit, the run counts positions within the lookback again, and notes the rest."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from txbatch.core.batch.staging import AttemptFolder
from txbatch.core.batch.transaction import Assignment, Batch, BatchKind, Run
from txbatch.core.errors import TxbatchError
from txbatch.core.protocol import lookback
from txbatch.core.protocol.coordinator import NothingNew
from txbatch.core.protocol.decisions import Wait
from txbatch.core.protocol.lookback import Counting, LatePosition
from txbatch.core.topology.topology import Topology
from txbatch.orchestration import result
from txbatch.orchestration.waiting import Waiting

if TYPE_CHECKING:
    from airflow.sdk import Context

    from txbatch.run.steps import Steps

log = logging.getLogger(__name__)
XCOM_KEY = "late"
# The maximum number of late positions in a note.
TOLD_MAX = 3


class Committing(Protocol):
    """The task `commit`: emits batches together, submits a batch, or waits."""

    def emit_together(self, steps: Steps, runs: Sequence[Run]) -> object:
        """Emit the batches of several runs by one job if possible."""

    def submit(self, folder: AttemptFolder, assignment: Assignment) -> None:
        """Run the job on an attempt's folder."""

    def not_now(self, why: Wait, steps: Steps, waiting: Waiting) -> NoReturn:
        """Defer the task."""


def after_commit(task: Committing, steps: Steps, run: Run, batch: Batch, waiting: Waiting) -> dict[str, list[str]]:
    """Count late positions again, each by a txid of its own, after the commit of a run's batch. Return the texts for the note.

    A retry counts only the rest.
    """
    if run.restate is not None:
        return {}
    from txbatch.run.advance import Advance
    from txbatch.run.look_back import LookBack

    def finish(again: Run) -> list[Batch]:
        found = Advance(steps, again, task.submit).to_commit()
        if isinstance(found, Wait):
            task.not_now(found, steps, replace(waiting, run=again))
        return [] if isinstance(found, NothingNew) else [found.batch]

    counting, look_back = Counting(), LookBack(steps, run)
    counting.add(batch)
    due = look_back.due(counting)
    task.emit_together(steps, [look_back.run_of(late) for late in due])
    for late in due:
        for done in look_back.again(late, finish):
            steps.success(done)
    return left_late(steps.job.topology, look_back.told)


def left_late(topology: Topology, told: Sequence[LatePosition]) -> dict[str, list[str]]:
    """Return the texts of late positions left as counted, for XCom; nothing without such positions."""
    return {XCOM_KEY: [late.told(topology.name) for late in told]} if told else {}


def late_of(steps: Steps, batch: Batch, context: Context) -> list[Mapping[str, Any]]:
    """Return the rows of `report.batches` with the late positions counted again by an ordinary run, by txid."""
    from txbatch.wiring import reader_beside

    if batch.kind is BatchKind.RESTATE or not lookback.lookbacks(steps.job.topology):
        return []
    try:
        rows = reader_beside(steps).batches_of_run(batch.topology, context["dag_run"].run_id)
    except TxbatchError as error:
        log.warning("%s", error)
        return []
    found = (row for row in rows if row["kind"] == "restate" and row["status"] == "committed")
    return sorted(found, key=lambda row: int(row["txid"]))


def restates(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the positions counted again, for an asset event; nothing without such positions."""
    again = [row["position"] for row in rows if row["kind"] == "restate"]
    return {"restates": again} if again else {}


def noted(line: str, rows: Sequence[Mapping[str, Any]], told: Sequence[str]) -> str:
    """Return a run's line with the positions counted again, and with the late positions left as counted."""
    more = [f"{len(told) - TOLD_MAX:,} more are late"] if len(told) > TOLD_MAX else []
    return "; ".join(filter(None, [line, result.restated(rows), *told[:TOLD_MAX], *more]))
