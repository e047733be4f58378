"""How much of the past a topology keeps, as defined by a job. `core.corrections.retention` decides the consequences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from txbatch.core.errors import InvalidRetention

DAYS_MAX = 36_500
FOR_EVER = "for ever"


@dataclass(frozen=True, slots=True)
class Keep:
    """How much of a topology's past can be asked for and restated: the last `txids`, or the txids of the last `days`.

    >>> str(Keep(txids=1000)), str(Keep(days=0.5)), str(Keep(days=1)), Keep.from_json(Keep(days=90).to_json())
    ('the last 1,000 txids', 'the last 0.5 days', 'the last day', Keep(txids=None, days=90))
    """

    txids: int | None = None
    days: float | None = None

    def __post_init__(self) -> None:
        if (self.txids is None) == (self.days is None):
            raise InvalidRetention("retention keeps a number of txids or of days: say one of both")
        if self.txids is not None and (type(self.txids) is not int or self.txids < 1):
            raise InvalidRetention(f"Keep(txids={self.txids!r}): at least one txid is kept, a whole number")
        if self.days is not None and (type(self.days) not in (int, float) or not 0 < self.days <= DAYS_MAX):
            raise InvalidRetention(f"Keep(days={self.days!r}): more than 0 and at most {DAYS_MAX:,} days are kept")

    def __str__(self) -> str:
        number, what = (self.txids, "txid") if self.days is None else (self.days, "day")
        return f"the last {what}" if number == 1 else f"the last {number:,} {what}s"

    def to_json(self) -> dict[str, float]:
        """Return the policy as JSON for the ledger."""
        return {"txids": self.txids} if self.txids is not None else {"days": self.days or 0}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Keep:
        """Return the policy of a stored JSON value."""
        return cls(stored.get("txids"), stored.get("days"))

    @classmethod
    def stored(cls, stored: Mapping[str, Any] | None) -> Keep | None:
        """Return a stored policy without the part about windows (R30); None if nothing is stored, and everything kept."""
        found = {name: each for name, each in (stored or {}).items() if name in ("txids", "days")}
        return cls.from_json(found) if found else None


def describe_keep(keep: Keep | None) -> str:
    """Return a policy in words."""
    return FOR_EVER if keep is None else str(keep)
