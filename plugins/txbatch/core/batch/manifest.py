"""The manifest: the records an emit attempt read and the files the attempt wrote, and the checks of both (R5, R7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, assert_never

from txbatch.core.batch.came_late import CameLate
from txbatch.core.batch.emitted import ReadPartition as ReadPartition
from txbatch.core.batch.emitted import StagedFile as StagedFile
from txbatch.core.batch.emitted import StagedState as StagedState
from txbatch.core.batch.manifest_json import read_manifest, write_manifest
from txbatch.core.batch.plan import OfInterval, Ranges, StreamPlan, Successive
from txbatch.core.batch.transaction import Assignment, TransactionAttempt
from txbatch.core.errors import Incomplete, PartitionUnreadable, ReadDifferently, StaleAttempt


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of an attempt. `streams` has the records read by stream and partition; '' if a stream has no partitions.

    `came_late` has the late records met by the attempt; None if the attempt did not look.
    """

    topology: str
    attempt: TransactionAttempt
    token: str
    code: str
    metadata_digest: str
    streams: Mapping[str, Mapping[str, ReadPartition]]
    states: Mapping[str, StagedState]
    unreadable: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    came_late: CameLate | None = None

    @property
    def records(self) -> int:
        """The number of source records read in all."""
        return sum(part.records for parts in self.streams.values() for part in parts.values())

    def to_json(self) -> dict[str, Any]:
        """Return the JSON for manifest.json and the ledger."""
        return write_manifest({each.name: getattr(self, each.name) for each in fields(self)})

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Manifest:
        """Return the manifest of a JSON value.

        Raise NewerFormat if a newer txbatch wrote the value. For any other fault, also for impossible counts, raise
        ValueError, LookupError, TypeError or AttributeError.
        """
        return cls(**read_manifest(value))


def check_manifest(manifest: Manifest, assignment: Assignment) -> None:
    """Refuse a manifest of another attempt (StaleAttempt), or without a part of the plan (Incomplete).

    Raise PartitionUnreadable if all partitions were left out, or any partition of a plan that counts whole or not at all.
    """
    of = f"{assignment.topology} {assignment.attempt}"
    for what, found, expected in (
        ("topology", manifest.topology, assignment.topology),
        ("attempt", str(manifest.attempt), str(assignment.attempt)),
        ("token", manifest.token, assignment.token),
        ("code", manifest.code, assignment.code),
        ("metadata", manifest.metadata_digest, assignment.digest),
    ):
        if found != expected:
            raise StaleAttempt(
                f"{of}: the staged manifest has {what} {found!r}, expected {expected!r}; it is not this attempt's work: "
                "emit again"
            )
    plans = assignment.plan.streams
    planned = _names({stream: plan.ranges for stream, plan in plans.items()})
    not_asked = _names({stream: plan.unreadable for stream, plan in plans.items()})
    read, left_out = _names(manifest.streams), _names(manifest.unreadable)
    for what, names in (
        ("was not read", planned - read - left_out),
        ("was read but not planned", read - planned),
        ("was left out but not planned", left_out - planned - not_asked),
        ("was both read and left out", read & left_out),
    ):
        if names:
            stream = min(names)[0]
            listed = ", ".join(sorted(partition for each, partition in names if each == stream)[:5])
            raise Incomplete(f"{of}: of stream {stream!r} {what}: {listed}; emit again")
    for stream, planned_of in plans.items():
        _check_records(of, stream, planned_of, manifest.streams.get(stream, {}))
    if left_out and assignment.plan.whole:
        raise PartitionUnreadable(
            f"{of}: {_listed(left_out)} could not be read, and a restate counts whole or not at all; try again when it can be "
            "read, or abort it and restate with --accept-missing"
        )
    if left_out and not read:
        raise PartitionUnreadable(f"{of}: nothing could be read: {manifest.unreadable}")


def _check_records(of: str, stream: str, planned: StreamPlan, read: Mapping[str, ReadPartition]) -> None:
    """Refuse a number of records that differs from the number in the range, or in the plan of the interval."""
    for partition, found in read.items():
        expected = _planned_records(planned, partition)
        if isinstance(expected, int) and found.records != expected:
            what = f"partition {partition!r}" if partition else f"the interval of stream {stream!r}"
            raise Incomplete(
                f"{of}: {what} was planned with {expected:,} records, {found.records:,} were read; the source changed since: "
                "restore it, or abort the batch"
            )


def _planned_records(planned: StreamPlan, partition: str) -> Any:
    match planned:
        case Ranges(partitions):
            return partitions[partition].rest.get("records")
        case OfInterval(records=records):
            return records
        case Successive():
            return None
        case _:
            assert_never(planned)


def _names(streams: Mapping[str, Iterable[str]]) -> set[tuple[str, str]]:
    return {(stream, partition) for stream, partitions in streams.items() for partition in partitions}


def _listed(names: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"partition {partition!r} of stream {stream!r}" for stream, partition in sorted(names)[:5])


def check_states(manifest: Manifest, states: Iterable[str]) -> None:
    """Refuse a manifest if the partials are not of exactly the given states."""
    staged, defined = sorted(manifest.states), sorted(states)
    if staged != defined:
        raise Incomplete(
            f"{manifest.topology} {manifest.attempt}: staged partials of {', '.join(staged)}; the topology now has the states "
            f"{', '.join(defined)}: emit again"
        )


def check_same_records(
    manifest: Manifest, earlier: Iterable[Manifest], source: Mapping[str, Any], *, accept_missing: bool = False
) -> None:
    """Refuse other records from a transactional spout than earlier (R7c): ReadDifferently names partition, expected and found.

    Raise Incomplete if a partition was left out, unless the spout is opaque (R13), or a restate accepts missing partitions.
    `source` is the topology's source identity, with the kind of each stream.
    """
    for stream, holes in manifest.unreadable.items():
        if holes and source[stream]["kind"] != "opaque" and not accept_missing:
            raise Incomplete(
                f"{manifest.topology} {manifest.attempt}: {', '.join(holes)} of stream {stream!r} was left out, which only "
                "an opaque spout may do; emit again when it can be read"
            )
    for other in earlier:
        for stream, partitions in other.streams.items():
            if source[stream]["kind"] != "transactional":
                continue
            for partition, expected in partitions.items():
                found = manifest.streams.get(stream, {}).get(partition)
                if found != expected:
                    raise ReadDifferently(
                        f"{manifest.topology} {manifest.attempt}: partition {partition or stream!r} was read differently: "
                        f"attempt {other.attempt} found {expected}, this one {found}; the source changed under its txid: "
                        "restore it, or use an opaque spout with opaque state"
                    )
