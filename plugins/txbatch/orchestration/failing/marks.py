"""A commit that somebody marked as successful does not pass for a commit (R8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from txbatch.core.batch.transaction import BatchStatus
from txbatch.core.errors import NotEmitted

if TYPE_CHECKING:
    from airflow.sdk import Context

    from txbatch.core.batch.transaction import Run
    from txbatch.run.steps import Steps

_COMMIT = "commit"


def check_committed(steps: Steps, runs: Sequence[Run], context: Context) -> None:
    """Raise NotEmitted if the task `commit` did not end by itself, and the batch of any of these runs is not committed.

    A task that ends by itself leaves a value for XCom, a mark by hand leaves none. After a commit that ended by itself the
    batches are not looked up: an interval in a form may have more positions by then.
    """
    if not runs or context["ti"].xcom_pull(task_ids=_COMMIT) is not None:
        return
    topology = steps.job.topology.name
    owns = [head.own for head in steps.ledger.heads(topology, runs)]
    done = sum(own is not None and own.status is BatchStatus.COMMITTED for own in owns)
    if done < len(runs):
        raise NotEmitted(
            f"{topology}: committed are {done:,} of {len(runs):,} batches of the run; clear the task {_COMMIT}"
        )
