"""Wait without a worker slot, until a deadline after the first wait of a try (R4, R6).

`orchestration.trigger` checks whether a wait is over.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import AirflowFailException, TaskDeferred

from txbatch.core.batch.transaction import Batch, Run
from txbatch.core.topology.topology import Topology
from txbatch.orchestration import result
from txbatch.orchestration.trigger import AskAgainTrigger, EmissionTrigger, TurnTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.triggers.base import BaseTrigger

log = logging.getLogger(__name__)
TURN_TIMEOUT_PARAM = "turn_timeout_minutes"
READY_TIMEOUT_PARAM = "ready_timeout_minutes"
ASK_AGAIN_PARAM = "ask_again_seconds"
# If the triggerer never comes back, Airflow itself ends the wait after this time.
GRACE = timedelta(minutes=10)
# The longest wait, even if a form asks for more.
LIMIT = timedelta(days=3650)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Defers a task. After the wait, Airflow calls `execute` again with the deadlines of the task."""

    topology: Topology
    run: Run
    context: Context
    deadlines: dict[str, str]

    @property
    def first_try(self) -> bool:
        """True for try 1 and for its resumptions after a deferral."""
        return bool(self.deadlines) or self.context["ti"].try_number == 1

    def for_batch(self, batch: Batch, own: Batch | None = None) -> NoReturn:
        """Wait until another run's batch is final or abandoned.

        With `own`, wait until all lower txids are final, and renew the lease of `own`.
        """
        whom = f"txid {batch.txid} of {batch.lease_run}"
        left = self._left(TURN_TIMEOUT_PARAM, f"{whom} is {batch.status} still; see `txbatch status`")
        self._say(
            f"{whom} ({batch.status}) to end, or to be given up by a run that shows no sign of life", TURN_TIMEOUT_PARAM
        )
        mine = own.txid if own is not None and not own.status.final and own.txid != batch.txid else None
        trigger = TurnTrigger(self.topology.name, batch.txid, self.run.name, mine, left.total_seconds())
        self._defer(trigger, TURN_TIMEOUT_PARAM, left)

    def for_emission(self, own: Batch) -> NoReturn:
        """Wait until another run has emitted this run's batch, or no longer tries to. Renew the lease of the batch."""
        left = self._left(
            TURN_TIMEOUT_PARAM, f"another run's application is at work still, txid {own.txid} not emitted"
        )
        self._say(f"the application that is at work to emit txid {own.txid}", TURN_TIMEOUT_PARAM)
        trigger = EmissionTrigger(self.topology.name, own.txid, self.run.name, own.txid, left.total_seconds())
        self._defer(trigger, TURN_TIMEOUT_PARAM, left)

    def for_source(self) -> NoReturn:
        """Wait, then ask the source again: an interval is never skipped."""
        left = self._left(
            READY_TIMEOUT_PARAM, f"the source is not ready for {self.run.interval}; clear this task later"
        )
        self._say(f"the source, which is not ready for {self.run.interval}", READY_TIMEOUT_PARAM)
        seconds = min(float(self.context["params"][ASK_AGAIN_PARAM]), left.total_seconds())
        self._defer(AskAgainTrigger(seconds), READY_TIMEOUT_PARAM, left)

    def _say(self, whom: str, parameter: str) -> None:
        latest = datetime.fromisoformat(self.deadlines[parameter]).astimezone(UTC)
        log.info(
            "%s: waits for %s; until %s UTC at the latest", self.topology.name, whom, f"{latest:%Y-%m-%d %H:%M:%S}"
        )

    def _left(self, parameter: str, complaint: str) -> timedelta:
        """Return the time until the deadline for this kind of wait, counted from the first wait. After the deadline,
        fail the task.
        """
        minutes = _limit(self.context["params"][parameter])
        now = datetime.now(UTC)
        deadline = self.deadlines.setdefault(parameter, (now + minutes).isoformat())
        left = datetime.fromisoformat(deadline) - now
        if left <= timedelta():
            told = f"waited {minutes}: {complaint}"
            result.tell(self.context, f"failed: {told}")
            raise AirflowFailException(f"{self.topology.name}: {told}")
        return left

    def _defer(self, trigger: BaseTrigger, parameter: str, left: timedelta) -> NoReturn:
        kwargs: dict[str, Any] = {"deadlines": self.deadlines}
        raise TaskDeferred(trigger=trigger, method_name="execute", kwargs=kwargs, timeout=left + GRACE)


def _limit(minutes: Any) -> timedelta:
    """Return the longest wait from the run's form, at most LIMIT. Fail the task if the form has no number."""
    try:
        return min(timedelta(minutes=minutes), LIMIT)
    except OverflowError:
        return LIMIT
    except (TypeError, ValueError) as error:
        raise AirflowFailException(f"{minutes!r} is no number of minutes to wait") from error
