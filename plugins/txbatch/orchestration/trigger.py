"""Waiting for a txid to end, in the triggerer: reads the ledger and nothing else, so it may run twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from txbatch.core.errors import TransientError
from txbatch.orchestration.airflow import open_ledger

if TYPE_CHECKING:
    from txbatch.postgres.ledger import PostgresLedger


class TurnTrigger(BaseTrigger):
    """Fires when a txid is final, or when nobody looks after it any more (R6)."""

    def __init__(self, topology: str, txid: int, poll_seconds: float = 2.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.topology, self.txid, self.poll_seconds = topology, txid, poll_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        arguments = {"topology": self.topology, "txid": self.txid, "poll_seconds": self.poll_seconds}
        return (f"{type(self).__module__}.{type(self).__qualname__}", arguments)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        ledger = await open_ledger()
        # Never at once: Airflow may fail a deferred task that is back before its scheduler has seen it leave.
        await asyncio.sleep(self.poll_seconds)
        while not await asyncio.to_thread(self._over, ledger):
            await asyncio.sleep(self.poll_seconds)
        yield TriggerEvent({"txid": self.txid})  # type: ignore[no-untyped-call]

    def _over(self, ledger: PostgresLedger) -> bool:
        try:
            batch = ledger.batch(self.topology, self.txid)
        except TransientError:
            return False
        finally:
            ledger.engine.dispose()  # many may wait for long: none keeps a connection
        return batch.status.final or not batch.lease_live
