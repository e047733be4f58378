"""The fence file: how an attempt's Spark driver, which holds no database credentials, learns that nobody waits for it (R5).

The attempt's task renews its lease in the ledger and then lets `beat` rise; whoever begins a newer attempt writes into
`superseded` what took its place.

>>> from dataclasses import replace
>>> fence = Fence(lease_seconds=120)
>>> watch = FenceWatch(fence, now=0)
>>> watch.why_stop(replace(fence, beat=1), now=100), watch.why_stop(replace(fence, beat=1), now=200)
(None, None)
>>> watch.why_stop(None, now=221)
'its task has not renewed its lease for 120 s'
>>> watch.why_stop(replace(fence, superseded="7:2"), now=221)
'7:2 took its place'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from txbatch.core.formats import check_format

FORMAT = 1  # written down from format 2 on


@dataclass(frozen=True, slots=True)
class Fence:
    """What the file says: the lease's length, how often it was renewed, and what took the attempt's place, if anything did."""

    lease_seconds: float
    beat: int = 0
    superseded: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return what fence.json holds."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Fence:
        """Return what `to_json` made; raise NewerFormat for what a newer txbatch wrote."""
        check_format("the fence", value, FORMAT)
        return cls(value["lease_seconds"], value["beat"], value["superseded"])


class FenceWatch:
    """Looks at the fence from time to time; `now` is the watcher's own clock, in seconds, which never goes back."""

    def __init__(self, fence: Fence, now: float) -> None:
        self.fence, self.risen_at = fence, now

    def why_stop(self, fence: Fence | None, now: float) -> str | None:
        """Why the attempt must stop; None: it may go on. `fence` is None while it cannot be read."""
        if fence is not None and fence.superseded:
            return f"{fence.superseded} took its place"
        if fence is not None and fence.beat > self.fence.beat:
            self.fence, self.risen_at = fence, now
        if now - self.risen_at > self.fence.lease_seconds:
            return f"its task has not renewed its lease for {self.fence.lease_seconds:g} s"
        return None
