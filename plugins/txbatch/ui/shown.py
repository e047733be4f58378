"""Payloads made of rows. Every value is the text of PostgreSQL, every moment ISO 8601 in UTC."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from txbatch.ui.payloads import (
    Attempt,
    Batch,
    Cell,
    Failing,
    Gap,
    GivenUp,
    Interval,
    Partition,
    Read,
    Restatement,
    Stream,
    Topology,
    Waiting,
)
from txbatch.ui.state_payloads import Column, State

Row = Mapping[str, Any]


def at(moment: datetime | None) -> str | None:
    """Return a moment as text.

    >>> at(datetime(2013, 1, 1, 5, tzinfo=UTC))
    '2013-01-01T05:00:00Z'
    """
    return None if moment is None else moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def known(moment: datetime) -> str:
    """Return a moment that a row always has, as text."""
    return str(at(moment))


def text(value: object) -> str | None:
    """Return a number as text."""
    return None if value is None else str(value)


def counts(of_states: Mapping[str, object] | None) -> dict[str, str] | None:
    """Return numbers by state, as texts."""
    return None if of_states is None else {name: str(number) for name, number in of_states.items()}


def columns(listed: Iterable[Mapping[str, str]] | None) -> list[Column]:
    """Return columns with their types."""
    return [Column(each["name"], each["type"]) for each in listed or ()]


def topology(row: Row) -> Topology:
    """Return a topology of the list."""
    numbers = (row[name] for name in ("in_flight", "failing", "waiting", "gaps", "left_out"))
    txids = row["newest_txid"], row["current_to_txid"]
    return Topology(
        row["topology"], row["by_interval"], row["zone"], *txids, at(row["whole_to"]), at(row["committed_at"]), *numbers
    )


def stream(name: str, fields: Mapping[str, str], partitioned: Iterable[str]) -> Stream:
    """Return a stream with its fields."""
    return Stream(name, [Column(*each) for each in fields.items()], name in {*partitioned})


def state(row: Row) -> State:
    """Return a state. The past can be asked for if the state keeps contributions here, and PostgreSQL merges them."""
    past_kept = row["contributions"] and row["apart"] is None and not row["merged_by_job"]
    return State(
        row["state"],
        row["kind"],
        columns(row["key_columns"]),
        columns(row["value_columns"]),
        row["contributions"],
        row["apart"],
        row["horizon"],
        row["merged_by_job"],
        past_kept,
    )


def failing(row: Row) -> Failing:
    """Return a batch whose newest attempt has failed."""
    return Failing(row["txid"], row["attempt"], at(row["finished_at"]), row["error"], row["error_code"])


def waiting(row: Row) -> Waiting:
    """Return who waits for whom."""
    return Waiting(**row)


def batch(row: Row) -> Batch:
    """Return a batch."""
    return Batch(
        txid=row["txid"],
        position=row["position"],
        kind=row["kind"],
        status=row["status"],
        final=row["final"],
        failing=row["failing"],
        start=at(row["interval_start"]),
        end=at(row["interval_end"]),
        attempts=row["attempts"],
        records=text(row["records"]),
        kept=counts(row["kept"]),
        keys=counts(row["keys"]),
        late=counts(row["late"]),
        ahead=text(row["ahead"]),
        seconds=row["seconds"],
        emit_seconds=row["emit_seconds"],
        dag_id=row["dag_id"],
        run_id=row["run_id"],
        run=row["run"],
        lease_live=row["lease_live"],
        created_at=known(row["created_at"]),
        committed_at=at(row["committed_at"]),
        aborted_at=at(row["aborted_at"]),
        reason=row["reason"],
        requested_by=row["requested_by"],
        replaced_by=row["replaced_by"],
    )


def attempt(row: Row) -> Attempt:
    """Return an attempt."""
    return Attempt(
        row["attempt_id"],
        row["attempt"],
        row["status"],
        row["run"],
        row["error"],
        row["error_code"],
        known(row["started_at"]),
        at(row["finished_at"]),
        row["seconds"],
        row["code"],
    )


def read(row: Row) -> Read:
    """Return what was read of a source."""
    offsets = row["start"], row["end"], text(row["records"])
    return Read(row["stream"], row["source"], row["status"], *offsets, row["reason"])


def restatement(row: Row) -> Restatement:
    """Return a restate."""
    return Restatement(
        row["txid"],
        row["position"],
        row["replaced_txid"],
        row["status"],
        row["reason"],
        row["requested_by"],
        known(row["created_at"]),
        at(row["committed_at"]),
        text(row["records_before"]),
        text(row["records"]),
        row["replaced_by"],
    )


def interval(row: Row) -> Interval:
    """Return a batch by time."""
    return Interval(
        known(row["interval_start"]),
        known(row["interval_end"]),
        row["txid"],
        row["kind"],
        row["status"],
        row["failing"],
        row["counts"],
        row["attempts"],
        text(row["records"]),
        row["run_id"],
        row["reason"],
        row["requested_by"],
        None,
    )


def gap(row: Row) -> Gap:
    """Return time that is not counted."""
    given_up = None
    if row["aborted"] is not None:
        covers = known(row["interval_start"]), known(row["interval_end"])
        given_up = GivenUp(row["aborted"], *covers, at(row["aborted_at"]), row["reason"])
    return Gap(known(row["gap_start"]), known(row["gap_end"]), row["txid"], row["status"], given_up)


def partition(row: Row) -> Partition:
    """Return how far a partition is counted."""
    current = row["current_to_txid"], at(row["current_to"])
    return Partition(row["stream"], row["partition"], row["consumed_to"], *current, row["unreadable_since_txid"])


def cell(row: Row) -> Cell:
    """Return what a batch read of a partition."""
    offsets = row["start"], row["end"], text(row["records"])
    return Cell(row["stream"], row["partition"], row["txid"], row["status"], *offsets, row["reason"])
