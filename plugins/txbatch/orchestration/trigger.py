"""Waiting in the triggerer, without a worker slot: for a txid to end, for the ledger, for a moment, or for a while. A trigger may
run twice.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from airflow.configuration import conf
from airflow.triggers.base import BaseTrigger, TriggerEvent

from txbatch import __version__
from txbatch.core.batch.transaction import BatchStatus, Run
from txbatch.core.errors import DatabaseRefused, OutcomeUnknown, TerminalError, TransientError, TxbatchError
from txbatch.core.protocol.fence import held_by_another
from txbatch.core.text import one_line
from txbatch.orchestration.airflow import ledger_url, open_ledger
from txbatch.run.run_names import OF_CALL

if TYPE_CHECKING:
    from txbatch.postgres.ledger import PostgresLedger

log = logging.getLogger(__name__)
# Seconds for a scheduler to see that a task has left, beyond the supervisor's heartbeat.
MARGIN_SECONDS = 3.0
POLL_SECONDS = 2.0
# Seconds until a task looks itself whose trigger cannot look: the version of the triggerer may be another one.
BLIND_SECONDS = 60.0
# In an event of a trigger: the version of the triggerer's txbatch.
VERSION = "txbatch"


def first_seconds() -> float:
    """Return the minimum seconds for a deferred task to stay away.

    Airflow fails a task that returns before the scheduler has seen the task leave. The scheduler gets the news from the
    task's supervisor. The supervisor may notice the end of the process only after `[workers] min_heartbeat_interval`.
    """
    return conf.getfloat("workers", "min_heartbeat_interval") + MARGIN_SECONDS


def compare_versions(name: str, event: Mapping[str, Any] | None) -> None:
    """Log that the triggerer, which sent an event, has another version of txbatch than this worker. The task goes on."""
    if event is not None and (theirs := event.get(VERSION)) != __version__:
        told = f"txbatch {theirs}" if theirs else "another txbatch"
        log.warning(
            "%s: the triggerer has %s, this worker has txbatch %s: install one version, and restart the triggerer",
            *(name, told, __version__),
        )


def _fired(**told: Any) -> TriggerEvent:
    return TriggerEvent({**told, VERSION: __version__})  # type: ignore[no-untyped-call]


class _Trigger(BaseTrigger):
    """A trigger that fires after `seconds` at the latest. Airflow stores the class and the arguments.

    `_newer` of each trigger: arguments from workers with a newer txbatch. A trigger decides nothing: the task looks itself.
    """

    def __init__(self, seconds: float, **_newer: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seconds = seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{type(self).__module__}.{type(self).__qualname__}", {**self._arguments(), "seconds": self.seconds}

    def _arguments(self) -> dict[str, Any]:
        """Return all arguments except `seconds`."""
        return {}


class AskAgainTrigger(_Trigger):
    """A trigger that fires after some seconds. The task itself asks the source again: a source's code never runs here (R4)."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await asyncio.sleep(max(self.seconds, first_seconds()))
        yield _fired()


class MomentTrigger(_Trigger):
    """A trigger that fires at a moment, also if the triggerer starts anew before. `seconds` is the length of the wait."""

    def __init__(self, moment: str, seconds: float, **_newer: Any) -> None:
        super().__init__(seconds)
        self.moment = moment

    def _arguments(self) -> dict[str, Any]:
        return {"moment": self.moment}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        left = datetime.fromisoformat(self.moment) - datetime.now(UTC)
        await asyncio.sleep(max(left.total_seconds(), first_seconds()))
        yield _fired()


class _PollingTrigger(_Trigger):
    """A trigger that asks now and then, and fires once the wait is over."""

    topology: str
    least = 0.0  # no question before so many seconds

    async def run(self) -> AsyncIterator[TriggerEvent]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.seconds
        await asyncio.sleep(max(self.least, first_seconds()))
        over = False
        try:
            while not (over := await self._is_over()) and loop.time() < deadline:
                await asyncio.sleep(POLL_SECONDS)
        except (TerminalError, DatabaseRefused) as error:  # the task looks itself, and fails if no retry helps
            log.warning("%s: %s", self.topology, error)
            await asyncio.sleep(min(BLIND_SECONDS, max(deadline - loop.time(), 0)))
        yield _fired(**self._told(over=over))

    @abstractmethod
    async def _is_over(self) -> bool:
        """Ask whether the wait is over."""

    @abstractmethod
    def _told(self, *, over: bool) -> dict[str, Any]:
        """Return the event for the task."""


class LedgerTrigger(_PollingTrigger):
    """A trigger that fires once the ledger answers. The event says whether the ledger answers.

    In an outage nobody renews a lease, and nobody adopts a batch. Once the ledger answers, all waiting triggers renew the leases
    of their runs' open batches, before a task comes back: without a lease, other runs would adopt or abort the batches (R6).
    """

    def __init__(self, seconds: float, topology: str = "", run: str = "", least: float = 0.0, **_newer: Any) -> None:
        super().__init__(seconds)
        self.topology, self.run_name, self.least = topology, run, least

    def _arguments(self) -> dict[str, Any]:
        return {"topology": self.topology, "run": self.run_name, "least": self.least}

    async def _is_over(self) -> bool:
        if not await _ledger_answers():
            return False
        if self.run_name:
            await self._renew_leases()
        return True

    async def _renew_leases(self) -> None:
        """Renew the leases of the run. After an error, the task goes on without the leases: no batch counts twice (R5)."""
        try:
            ledger = await open_ledger()
            try:
                await asyncio.to_thread(ledger.renew_leases_of_run, self.topology, self.run_name, OF_CALL)
            finally:
                ledger.engine.dispose()
        except Exception as error:
            log.warning("%s: the leases of %s were not renewed: %s", self.topology, one_line(self.run_name), error)

    def _told(self, *, over: bool) -> dict[str, Any]:
        return {"answers": over}


# By the loop of the triggerer: when the ledger was asked last, and the answer to come. All waiting tasks share one question.
_ASKED: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[float, asyncio.Task[bool]]] = WeakKeyDictionary()


async def _ledger_answers() -> bool:
    loop = asyncio.get_running_loop()
    at, asked = _ASKED.get(loop, (0.0, None))
    if asked is None or (asked.done() and loop.time() - at >= POLL_SECONDS):
        asked = loop.create_task(_ask_ledger())
        _ASKED[loop] = loop.time(), asked
    return await asyncio.shield(asked)


async def _ask_ledger() -> bool:
    from txbatch.postgres.database.reach import away

    try:
        return await asyncio.to_thread(away, await ledger_url()) is None
    except TxbatchError:  # no outage: the task asks again, and says what is wrong
        return True
    except Exception as error:  # Airflow itself may be away for a moment
        log.warning("%s", error)
        return False


class TurnTrigger(_PollingTrigger):
    """A trigger that fires once the run need not wait any longer (R6).

    A run with an `own` batch waits until every lower txid is final, or the lowest open txid is abandoned. A run without a
    batch waits for `txid` alone. Meanwhile the trigger keeps the lease of the run's own batch, and does nothing else: the
    trigger of a deleted or cleared run ends too, and other runs soon adopt the batch.
    """

    def __init__(
        self, topology: str, txid: int, run: str, own: int | None = None, seconds: float = 3600.0, **_newer: Any
    ) -> None:
        super().__init__(seconds)
        self.topology, self.txid, self.run_name, self.own = topology, txid, run, own
        self._ledger: PostgresLedger | None = None

    def _arguments(self) -> dict[str, Any]:
        return {"topology": self.topology, "txid": self.txid, "run": self.run_name, "own": self.own}

    async def _is_over(self) -> bool:
        self._ledger = self._ledger or await open_ledger()
        return await asyncio.to_thread(self._over, self._ledger)

    def _told(self, *, over: bool) -> dict[str, Any]:
        return {"txid": self.txid}

    def _over(self, ledger: PostgresLedger) -> bool:
        try:
            if self.own is not None:
                ledger.renew_waiting_lease(ledger.batch(self.topology, self.own), Run(self.run_name))
            return self._fires(ledger)
        except DatabaseRefused:
            raise
        except (TransientError, OutcomeUnknown):  # of a look, the outcome is of no interest
            return False
        finally:
            ledger.engine.dispose()  # many triggers may wait for long: none keeps a connection

    def _fires(self, ledger: PostgresLedger) -> bool:
        lowest = self.txid if self.own is None else ledger.turn_of(self.topology, self.own)
        return lowest is None or not held_by_another(ledger.batch(self.topology, lowest), Run(self.run_name))


class EmissionTrigger(TurnTrigger):
    """A trigger that fires once the run's own batch `txid` is emitted, or no process emits for all any more."""

    def _fires(self, ledger: PostgresLedger) -> bool:
        from txbatch.postgres.database.run_locks import PostgresRunLocks
        from txbatch.run.shared_emission import somebody_emits

        batch = ledger.batch(self.topology, self.txid)
        return batch.status is not BatchStatus.PLANNED or not somebody_emits(
            PostgresRunLocks(ledger.engine), self.topology
        )
