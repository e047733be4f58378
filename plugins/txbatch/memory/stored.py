"""Values stored by the ledger in memory: an immutable value for each row of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from txbatch.core.aggregates.merge import Partial
from txbatch.core.batch.manifest import Manifest
from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Assignment, Metadata
from txbatch.core.corrections.rebuild import Rebuild
from txbatch.core.definition.stored import StateDefinition
from txbatch.core.protocol.event_time import Ahead
from txbatch.core.protocol.restate import ReadBy
from txbatch.core.protocol.window_closing import Closed, Marks
from txbatch.core.state.keep import Keep
from txbatch.core.state.pruned import Spans
from txbatch.core.state.state import TransactionalValue, Value
from txbatch.core.topology.kept_windows import KeptWindows, Left
from txbatch.core.topology.persistent_aggregate import PersistentAggregate

Rows = Mapping[Any, Value]
# Per state: keys (tuples) with what the batch contributes to each.
Partials = Mapping[str, Iterable[tuple[Any, Partial]]]


@dataclass(frozen=True, slots=True)
class TopologyRow:
    """A registered topology: the owner, the sources, the streams' fields, the rules of retention (R2, R22, R23)."""

    job: str
    by_interval: bool
    source: Mapping[str, Metadata]
    fields: Mapping[str, Mapping[str, str]]
    keep: Keep | None = None
    watermarks: Mapping[str, Metadata] = field(default_factory=dict)
    windows: Mapping[str, KeptWindows] = field(default_factory=dict)
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class StoredState:
    """A state: the owner, the definition, the rows by key, and contributions by key, position and txid.

    `base` holds the folded contributions up to the txid `horizon`, with the last changing txid of each key (R22). A state
    kept apart has rows in the other `database`; `applied_txid` is the last txid committed there (R21). `aggregate` finishes
    the values. `left` names the windows that have left (R30), `pruned` the positions of removed rows (R22).
    """

    topology: str
    definition: StateDefinition
    rows: Rows = field(default_factory=dict)
    contributions: Mapping[tuple[Any, int, int], Partial] = field(default_factory=dict)
    applied_txid: int | None = None
    base: Mapping[Any, TransactionalValue] = field(default_factory=dict)
    horizon: int = 0
    aggregate: PersistentAggregate | None = None
    left: Left | None = None
    pruned: Spans = ()

    @property
    def database(self) -> str | None:
        """The other database of a state kept apart."""
        return self.definition.database

    def based(self, key: Any) -> Partial | None:
        """Return the folded value of a key; None if nothing was folded."""
        return self.base[key].value if key in self.base else None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One emit attempt."""

    assignment: Assignment
    run: str
    status: str = "emitting"
    manifest: Manifest | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Times:
    """For a batch of streams with watermarks: the time of planning, and the commit's records of event time (R25, R26).

    A restate moves no watermark, and closes nothing.
    """

    planned_at: datetime
    watermark: Marks | None = None
    late: Mapping[str, int] = field(default_factory=dict)
    ahead: Ahead | None = None
    closed_to: Marks | None = None
    closed: Mapping[str, Closed] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Counting:
    """A rebuild, the counted states, and the counted version of each position (R23).

    `read` holds, by txid, the plan and the read records of a version. After the swap, `swapped` is the newest txid of the
    replaced states, and `past` holds the replaced states, until they are `dropped`.
    """

    rebuild: Rebuild
    states: Mapping[str, StoredState]
    versions: Mapping[int, int] = field(default_factory=dict)
    swapped: int | None = None
    past: Mapping[str, StoredState] = field(default_factory=dict)
    read: Mapping[int, tuple[BatchPlan, ReadBy]] = field(default_factory=dict)
    late: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    dropped: bool = False

    @property
    def last(self) -> int:
        """The last counted version: the newest; 0 before the first."""
        return max(self.versions.values(), default=0)
