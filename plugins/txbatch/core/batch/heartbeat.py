"""Tell a Spark driver, without database credentials, that nobody waits for the driver's attempt any more (R5).

The heartbeat is the file `fence.json` in the attempt's folder. The attempt's task renews the lease in the ledger, and then
raises `beat` (`run.lease`). If a newer attempt begins, the name of the newer attempt is written into `superseded`
(`storage.staging`). `spark.process.heartbeat` obeys the heartbeat. The heartbeat is a hint that ends idle work: only the
fence in the batch's row keeps an old attempt's results out.

>>> from dataclasses import replace
>>> heartbeat = Heartbeat(lease_seconds=120)
>>> watch = HeartbeatWatch(heartbeat, now=0)
>>> watch.why_stop(replace(heartbeat, beat=1), now=100), watch.why_stop(replace(heartbeat, beat=1), now=200)
(None, None)
>>> watch.why_stop(None, now=221)
'its task has not renewed its lease for 120 s'
>>> watch.why_stop(replace(heartbeat, superseded="7:2"), now=221)
'7:2 took its place'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from txbatch.core.errors import StagingUnreadable
from txbatch.core.stored_json import check_format

FORMAT = 1  # written down from format 2 on


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The content of the file: the length of the lease, the number of renewals, and the newer attempt, if any."""

    lease_seconds: float
    beat: int = 0
    superseded: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the content of fence.json."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Heartbeat:
        """Return the heartbeat of a JSON value. Raise NewerFormat if a newer txbatch wrote the value, TypeError if unusable."""
        check_format("the heartbeat", value, FORMAT)
        match value:
            case {"lease_seconds": int() | float() as seconds, "beat": int() as beat, "superseded": str() | None as by}:
                return cls(seconds, beat, by)
        raise TypeError(f"{str(value)[:100]} is no heartbeat")


def of_several(heartbeats: Iterable[Heartbeat]) -> Heartbeat:
    """Return the heartbeat of a job that emits several attempts: the first without a newer attempt, or the last.

    >>> of_several([Heartbeat(9, 4, "7:2"), Heartbeat(9, 5), Heartbeat(9, 5, "9:2")])
    Heartbeat(lease_seconds=9, beat=5, superseded=None)
    """
    last = None
    for last in heartbeats:
        if not last.superseded:
            break
    if last is None:
        raise StagingUnreadable("no attempt has a heartbeat any more")
    return last


class HeartbeatWatch:
    """A decision from successive readings of the heartbeat. `now` is the reader's own monotonic clock, in seconds."""

    def __init__(self, heartbeat: Heartbeat, now: float) -> None:
        self.heartbeat, self.risen_at = heartbeat, now

    def why_stop(self, heartbeat: Heartbeat | None, now: float) -> str | None:
        """Return why the attempt must stop; None while the attempt may go on. If the file is unreadable, `heartbeat` is None."""
        if heartbeat is not None and heartbeat.superseded:
            return f"{heartbeat.superseded} took its place"
        if heartbeat is not None and heartbeat.beat > self.heartbeat.beat:
            self.heartbeat, self.risen_at = heartbeat, now
        if now - self.risen_at > self.heartbeat.lease_seconds:
            return f"its task has not renewed its lease for {self.heartbeat.lease_seconds:g} s"
        return None
