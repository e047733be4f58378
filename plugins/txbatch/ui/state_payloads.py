"""What the routes on states and on time answer: frozen values. A value, an offset, a sum and a key are the text of PostgreSQL."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """A key or a value of a state, or a field of a stream."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class State:
    """A state of a topology. `horizon`: txids up to it are folded. `apart`: the other database that keeps the state."""

    state: str
    kind: str
    keys: list[Column]
    values: list[Column]
    contributions: bool
    apart: str | None
    horizon: int
    merged_by_job: bool
    past_kept: bool


@dataclass(frozen=True, slots=True)
class Changed:
    """A key whose values differ. None: the key was not there."""

    key: list[str | None]
    before: list[str | None] | None
    after: list[str | None] | None


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs in a state between two txids."""

    state: str
    from_txid: int
    to_txid: int
    keys: list[Column]
    values: list[Column]
    rows: list[Changed]
    more: bool


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys to choose from."""

    keys: list[Column]
    rows: list[list[str | None]]
    more: bool


@dataclass(frozen=True, slots=True)
class Version:
    """A batch's contribution to a key. `position` None: folded by retention."""

    position: int | None
    txid: int
    replaced_by: int | None
    counts: bool
    values: list[str | None]
    start: str | None
    end: str | None
    attempt: str | None
    dag_id: str | None
    run_id: str | None
    committed_at: str | None
    reason: str | None
    requested_by: str | None
    reads: list[str]


@dataclass(frozen=True, slots=True)
class Why:
    """Where a key's value comes from. `value` None: the key is not there. `equal` None: only the job can compare."""

    state: str
    key: list[str]
    keys: list[Column]
    columns: list[Column]
    value: list[str | None] | None
    txid: int | None
    equal: bool | None
    versions: list[Version]
    more: bool


@dataclass(frozen=True, slots=True)
class AsOf:
    """A key's values as of a txid, with the moment and the interval of the batch. `row` None: the key was not there."""

    state: str
    key: list[str]
    txid: int
    corrected: bool
    columns: list[Column]
    row: list[str | None] | None
    first: int
    last: int
    committed_at: str | None
    start: str | None
    end: str | None


@dataclass(frozen=True, slots=True)
class Committed:
    """The txid that was committed last before a time; None: none was."""

    txid: int | None
