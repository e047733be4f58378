"""The rows of a ledger that a look for late records asks for: a part of `rows`, and of no commit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from txbatch.core.batch.transaction import Batch
from txbatch.core.protocol.lookback import CountedPlan, FoundLate, LookFacts


class LookBackRows(Protocol):
    """The questions of a look, inside a transaction of the ledger."""

    def look_facts(self, batch: Batch, since: datetime | None) -> LookFacts:
        """Return the plan of the last look before a batch, and the intervals of earlier batches."""

    def found_late(self, topology: str) -> Sequence[FoundLate]:
        """Return the late records met by committed batches, unless a later version counts the records."""

    def counted_plans(self, topology: str, since: datetime | None, until: datetime, most: int) -> Sequence[CountedPlan]:
        """Return the newest committed positions with intervals in a time, with the counting plans, newest first."""
