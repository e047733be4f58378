"""Wait without a worker slot, until a deadline after the first wait of a try (R4, R6).

`orchestration.trigger` checks whether a wait is over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import AirflowFailException, TaskDeferred

from txbatch.core.batch.transaction import Batch, Interval, Run
from txbatch.core.topology.topology import Topology
from txbatch.orchestration import result
from txbatch.orchestration.trigger import AskAgainTrigger, EmissionTrigger, MomentTrigger, TurnTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.triggers.base import BaseTrigger

log = logging.getLogger(__name__)
TURN_TIMEOUT_PARAM = "turn_timeout_minutes"
READY_TIMEOUT_PARAM = "ready_timeout_minutes"
ASK_AGAIN_PARAM = "ask_again_seconds"
LEDGER_TIMEOUT_PARAM = "ledger_timeout_minutes"
# Of a DAG without the parameter.
LEDGER_TIMEOUT = timedelta(hours=6)
# If the triggerer never comes back, Airflow itself ends the wait after this time.
GRACE = timedelta(minutes=10)
# The longest wait, even if a form asks for more.
LIMIT = timedelta(days=3650)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """The deadlines of a try, by kind of wait. Airflow keeps the deadlines while the task is deferred. `name` is for texts."""

    name: str
    context: Context
    of_waits: dict[str, str]

    def limit(self, parameter: str) -> timedelta:
        """Return the longest wait of a kind, from the run's form."""
        minutes = (self.context.get("params") or {}).get(parameter, LEDGER_TIMEOUT / timedelta(minutes=1))
        return _limit(minutes)

    def left(self, parameter: str, complaint: str, key: str | None = None) -> timedelta:
        """Return the time until the deadline for a kind of wait, counted from the first wait. After the deadline, fail the
        task.

        `key` is the name of the deadline, if two kinds of wait share a parameter.
        """
        limit, now = self.limit(parameter), datetime.now(UTC)
        deadline = self.of_waits.setdefault(key or parameter, (now + limit).isoformat())
        left = datetime.fromisoformat(deadline) - now
        if left <= timedelta():
            told = f"waited {limit}: {complaint}"
            result.tell(self.context, f"failed: {told}")
            raise AirflowFailException(f"{self.name}: {told}")
        return left

    def put_off(self, length: timedelta, keys: Collection[str] | None = None) -> None:
        """Move deadlines by the length of an outage, or of work: all deadlines, or the deadlines with these keys."""
        for key, deadline in self.of_waits.items():
            if keys is None or key in keys:
                self.of_waits[key] = (datetime.fromisoformat(deadline) + length).isoformat()

    def latest(self, key: str) -> str:
        """Return the deadline for a kind of wait, for people."""
        latest = datetime.fromisoformat(self.of_waits[key]).astimezone(UTC)
        return f"{latest:%Y-%m-%d %H:%M:%S} UTC"

    def wait(self, parameter: str, whom: str, complaint: str, trigger: Callable[[timedelta], BaseTrigger]) -> NoReturn:
        """Defer the task until the trigger fires, or until the deadline."""
        left = self.left(parameter, complaint)
        told = f"waits for {whom}; until {self.latest(parameter)} at the latest"
        log.info("%s: %s", self.name, told)
        result.note_now(self.context, told)
        self.defer(trigger(left), left)

    def defer(self, trigger: BaseTrigger, left: timedelta) -> NoReturn:
        """Defer the task. Airflow calls `execute` again with the deadlines."""
        kwargs: dict[str, Any] = {"deadlines": self.of_waits}
        raise TaskDeferred(trigger=trigger, method_name="execute", kwargs=kwargs, timeout=left + GRACE)


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
        mine = own.txid if own is not None and not own.status.final and own.txid != batch.txid else None
        self._of_try.wait(
            TURN_TIMEOUT_PARAM,
            f"{whom} ({batch.status}) to end, or to be given up by a run that shows no sign of life",
            f"{whom} is {batch.status} still; see `txbatch status`",
            lambda left: TurnTrigger(self.topology.name, batch.txid, self.run.name, mine, left.total_seconds()),
        )

    def for_emission(self, own: Batch) -> NoReturn:
        """Wait until another run has emitted this run's batch, or no longer tries to. Renew the lease of the batch."""
        self._of_try.wait(
            TURN_TIMEOUT_PARAM,
            f"the application that is at work to emit txid {own.txid}",
            f"another run's application is at work still, txid {own.txid} not emitted",
            lambda left: EmissionTrigger(self.topology.name, own.txid, self.run.name, own.txid, left.total_seconds()),
        )

    def for_source(self) -> NoReturn:
        """Wait, then ask the source again: an interval is never skipped."""
        again = float(self.context["params"][ASK_AGAIN_PARAM])
        self._of_try.wait(
            READY_TIMEOUT_PARAM,
            f"the source, which is not ready for {self.run.interval}",
            f"the source is not ready for {self.run.interval}; clear this task later",
            lambda left: AskAgainTrigger(min(again, left.total_seconds())),
        )

    def for_end(self, interval: Interval) -> NoReturn:
        """Wait until the interval is over. The end is the deadline: all further deadlines begin later."""
        told = f"waits for the end of its interval, {interval}, and goes on by itself"
        log.info("%s: %s", self.topology.name, told)
        result.tell(self.context, told)
        left = timedelta(seconds=max(interval.end.timestamp() - datetime.now(UTC).timestamp(), 1.0))
        self._of_try.defer(MomentTrigger(interval.end.isoformat(), left.total_seconds()), left)

    @property
    def _of_try(self) -> Deadlines:
        return Deadlines(self.topology.name, self.context, self.deadlines)


def _limit(minutes: Any) -> timedelta:
    """Return the longest wait from the run's form, at most LIMIT. Fail the task if the form has no number."""
    try:
        return min(timedelta(minutes=minutes), LIMIT)
    except OverflowError:
        return LIMIT
    except (TypeError, ValueError):
        raise AirflowFailException(f"{minutes!r} is no number of minutes to wait") from None
