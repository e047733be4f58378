"""Transactions: txid, attempt, batch, run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from txbatch.core.errors import InvalidSchedule, WhyMissing
from txbatch.core.stored_json import STORED_BYTES_MAX as STORED_BYTES_MAX
from txbatch.core.stored_json import Metadata as Metadata
from txbatch.core.stored_json import check_format, digest

if TYPE_CHECKING:
    from txbatch.core.batch.came_late import Look
    from txbatch.core.batch.loaded import Loaded
    from txbatch.core.batch.plan import BatchPlan

INTERVAL_KEY = "interval:"
RESTATE_KEY = "restate:"
ASSIGNMENT_FORMAT = 1
# Into how many intervals a range of time may be cut, each for a batch: all batches are asked for at once.
INTERVALS_MAX = 20_000


@dataclass(frozen=True, slots=True, order=True)
class TransactionAttempt:
    """One try at a txid. `attempt_id` rises with every emit attempt, and is the fence (R5). Prints `7:2`."""

    txid: int
    attempt_id: int

    def __str__(self) -> str:
        return f"{self.txid}:{self.attempt_id}"


@dataclass(frozen=True, slots=True)
class Interval:
    """A half-open range of time, in UTC."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if not all(isinstance(each, datetime) for each in (self.start, self.end)):
            raise InvalidSchedule(
                f"interval {self.start!r}/{self.end!r} is not one: give two datetimes, both with a zone"
            )
        if self.start.tzinfo is None or self.end.tzinfo is None:
            raise InvalidSchedule(f"interval {self.start}/{self.end} is not one: give both with a zone")
        if self.start >= self.end:
            raise InvalidSchedule(f"interval {self.start}/{self.end} is not one: give start before end")
        object.__setattr__(self, "start", self.start.astimezone(UTC))
        object.__setattr__(self, "end", self.end.astimezone(UTC))

    def __str__(self) -> str:
        return f"{self.start.isoformat()}/{self.end.isoformat()}"


class BatchStatus(StrEnum):
    """planned -> emitted -> committed, or planned/emitted -> aborted. The last two are final.

    A new attempt of an emitted batch makes the batch planned again.
    """

    PLANNED = "planned"
    EMITTED = "emitted"
    COMMITTED = "committed"
    ABORTED = "aborted"

    @property
    def final(self) -> bool:
        return self in (BatchStatus.COMMITTED, BatchStatus.ABORTED)


class BatchKind(StrEnum):
    """The purpose of a txid: new records, another txid's records counted again (R17), or records given up (R16)."""

    ORDINARY = "ordinary"
    RESTATE = "restate"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Restate:
    """The request to count the batch at `position` again, with the reason, and by whom the restate was asked for.

    `accept_missing` counts the batch even if some records cannot be read; `skipped` allows a batch that was given up. If
    `found_by` is a txid, the restate is refused once a txid above `found_by` counts the position, or is open and will count it.
    """

    position: int
    why: str
    by: str | None = None
    accept_missing: bool = False
    skipped: bool = False
    found_by: int | None = None

    def __post_init__(self) -> None:
        if not self.why.strip():
            raise WhyMissing(f'txid {self.position}: say why it is counted again: --why "..."')


@dataclass(frozen=True, slots=True)
class Run:
    """A DAG run or a call of `txbatch run`, asking for a batch. The run's key finds the batch again (R2).

    `name` is unique to the run and the same in all retries and clears. `parameters` are the run's parameters that choose
    data, declared by the topology's spouts, and must be the same each time. A run with `restate` has no own interval and
    parameters: the run reads by the interval and parameters of the restated batch.
    """

    name: str
    dag_id: str | None = None
    run_id: str | None = None
    interval: Interval | None = None
    parameters: Metadata = field(default_factory=dict, hash=False)
    restate: Restate | None = None

    @property
    def key(self) -> str:
        """The batch key: by time the interval, by offset the run, and for a restate the run and the position."""
        if self.restate:
            return f"{RESTATE_KEY}{self.restate.position}:{self.name}"
        return f"{INTERVAL_KEY}{self.interval}" if self.interval else f"run:{self.name}"


@dataclass(frozen=True)
class Batch:
    """A row of the ledger, as of the time of reading: a txid with metadata, which are the stored plan.

    `position` is the batch's own txid, or the restated one. A committed batch counts until replaced by a restate,
    `replaced_by`. An aborted batch is `replanned` if a run aborted the batch so that the batch's own run plans the records
    again (R6): no live run looked after the batch, or the batch did not continue the committed batches. A restate by a look back
    has `found_by`, the txid that met the late records.
    """

    topology: str
    txid: int
    status: BatchStatus
    metadata: Metadata
    key: str
    prev_txid: int | None = None
    fence: int = 0
    token: str | None = None
    lease_run: str | None = None
    lease_live: bool = False
    succeeded: bool = False
    created_at: datetime | None = None
    kind: BatchKind = BatchKind.ORDINARY
    position: int = 0
    replaced_by: int | None = None
    reason: str | None = None
    requested_by: str | None = None
    records: int | None = None  # of a committed batch
    replanned: bool = False
    found_by: int | None = None

    def __post_init__(self) -> None:
        if not self.position:
            object.__setattr__(self, "position", self.txid)

    @property
    def restate(self) -> Restate | None:
        """The request behind a restate; None for any other batch."""
        if self.kind is not BatchKind.RESTATE:
            return None
        # a whole plan accepts nothing missing; no row keeps `skipped`, for a planned restate may count what was given up
        accept_missing, why = not self.plan.whole, self.reason or "restate"
        return Restate(self.position, why, self.requested_by, accept_missing, skipped=True, found_by=self.found_by)

    @cached_property
    def plan(self) -> BatchPlan:
        """The batch's plan. Raise NewerFormat if a newer txbatch made the plan."""
        from txbatch.core.batch.plan import BatchPlan  # no definition needs it

        return BatchPlan.from_json(self.metadata, f"{self.topology}: the plan of txid {self.txid}")

    @property
    def by_interval(self) -> bool:
        """True if the batch has a data interval: the run finds the batch by the interval, and no other batch may overlap (R2)."""
        return self.key.startswith(INTERVAL_KEY)

    @property
    def attempt(self) -> TransactionAttempt:
        """The newest attempt; attempt_id 0 before the first."""
        return TransactionAttempt(self.txid, self.fence)

    @property
    def planned_at(self) -> int | None:
        """When the batch's row was stored, in microseconds since 1970; None if the batch was not read from a ledger."""
        from txbatch.core.records.time_buckets import micros_of

        return None if self.created_at is None else micros_of(self.created_at)


@dataclass(frozen=True)
class Assignment:
    """The instructions to an emit attempt, and all that Spark learns; written to the attempt's folder (R5).

    `position` is the batch's own txid, or the restated one. `planned_at` is `Batch.planned_at`; None if the batch is read once
    more, for comparing or rebuilding. `loaded` is the job as loaded at the start of the attempt, `look` the late records to
    look for, None if the attempt does not look; the ledger keeps neither.
    """

    topology: str
    attempt: TransactionAttempt
    token: str
    metadata: Metadata
    code: str
    position: int = 0
    planned_at: int | None = None
    loaded: Loaded | None = None
    look: Look | None = None

    def __post_init__(self) -> None:
        if not self.position:
            object.__setattr__(self, "position", self.attempt.txid)

    @cached_property
    def plan(self) -> BatchPlan:
        """The attempt's plan. Raise NewerFormat if a newer txbatch made the plan."""
        from txbatch.core.batch.plan import BatchPlan  # no definition needs it

        return BatchPlan.from_json(self.metadata, f"{self.topology} {self.attempt}: the plan")

    @cached_property
    def digest(self) -> str:
        """The digest of the metadata, repeated in the manifest."""
        return digest(self.metadata)

    def to_json(self) -> dict[str, Any]:
        """Return the content of assignment.json."""
        position = {} if self.position == self.attempt.txid else {"position": self.position}
        planned_at = {} if self.planned_at is None else {"planned_at": self.planned_at}
        return {
            "format": ASSIGNMENT_FORMAT,
            "topology": self.topology,
            "txid": self.attempt.txid,
            "attempt_id": self.attempt.attempt_id,
            "token": self.token,
            "code": self.code,
            "metadata_digest": self.digest,
            "metadata": self.metadata,
            **position,
            **planned_at,
            **({} if self.loaded is None else {"loaded": self.loaded.to_json()}),
            **({} if self.look is None else {"look": self.look.to_json()}),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Assignment:
        """Return the assignment of a JSON value. Raise NewerFormat if a newer txbatch wrote the value."""
        from txbatch.core.batch.came_late import Look
        from txbatch.core.batch.loaded import Loaded

        check_format("the assignment", value, ASSIGNMENT_FORMAT)
        attempt = TransactionAttempt(value["txid"], value["attempt_id"])
        loaded = Loaded.from_json(value["loaded"]) if "loaded" in value else None
        look = Look.from_json(value["look"]) if "look" in value else None
        of = value.get("position", 0), value.get("planned_at"), loaded, look
        return cls(value["topology"], attempt, value["token"], value["metadata"], value["code"], *of)
