"""The manifest: the records an emit attempt read and the files the attempt wrote, and the checks of both (R5, R7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, assert_never

from txbatch.core.batch.came_late import CameLate, came_from_json, came_to_json
from txbatch.core.batch.plan import OfInterval, Ranges, StreamPlan, Whole
from txbatch.core.batch.transaction import Assignment, TransactionAttempt
from txbatch.core.errors import Incomplete, PartitionUnreadable, ReadDifferently, StaleAttempt
from txbatch.core.stored_json import check_format, read_count, read_each, read_text, read_whole

FORMAT = 1
# Fields left out if unknown.
_UNSAID = frozenset({"latest", "ahead", "late"})


@dataclass(frozen=True, slots=True)
class ReadPartition:
    """The number of records read from a partition, and the sum of the records' xxhash64 (as text, decimal(38,0)).

    `latest` is the largest time of a stream with a watermark, in microseconds since 1970. `ahead` is the number of records
    with a time after the batch was planned; None if the time of planning is unknown. Both follow from the records, and are
    not compared.
    """

    records: int
    fingerprint: str
    latest: int | None = field(default=None, compare=False, repr=False)
    ahead: int | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A Parquet file of partials, by the path in the attempt's folder."""

    name: str
    bytes: int
    rows: int
    sha256: str


@dataclass(frozen=True, slots=True)
class StagedState:
    """The partials of one state: files, rows, and per value column the total over all rows, as text.

    `kept` is the number of records counted in the state, after the stream's operations; None from an older version. `late` is
    the number of records in a window over by the plan's watermark; None if the state has no watermark.
    """

    files: tuple[StagedFile, ...]
    rows: int
    totals: Mapping[str, str | None]
    kept: int | None = None
    late: int | None = None


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
        streams = {
            stream: {name: _said(part) for name, part in parts.items()} for stream, parts in self.streams.items()
        }
        states = {name: {**_said(of), "files": [_said(file) for file in of.files]} for name, of in self.states.items()}
        return {
            "format": FORMAT,
            "topology": self.topology,
            "attempt": _said(self.attempt),
            "token": self.token,
            "code": self.code,
            "metadata_digest": self.metadata_digest,
            "streams": streams,
            "states": states,
            "unreadable": self.unreadable,
            **({} if self.came_late is None else {"came_late": came_to_json(self.came_late)}),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Manifest:
        """Return the manifest of a JSON value.

        Raise NewerFormat if a newer txbatch wrote the value. For any other fault, also for impossible counts, raise
        ValueError, LookupError, TypeError or AttributeError.
        """
        check_format("the manifest", value, FORMAT)
        of = value["attempt"]
        return cls(
            topology=read_text(value["topology"]),
            attempt=TransactionAttempt(read_count(of["txid"]), read_count(of["attempt_id"])),
            token=read_text(value["token"]),
            code=read_text(value["code"]),
            metadata_digest=read_text(value["metadata_digest"]),
            streams=read_each(value["streams"], lambda parts: read_each(parts, _read_partition)),
            states=read_each(value["states"], _staged_state),
            unreadable=read_each(value["unreadable"], lambda holes: read_each(holes, read_text)),
            came_late=None if value.get("came_late") is None else came_from_json(value["came_late"]),
        )


def _said(of: ReadPartition | StagedState | StagedFile | TransactionAttempt) -> dict[str, Any]:
    """Return the fields by name. `dataclasses.asdict` would copy each value: too slow for ten thousand files."""
    found = {each.name: getattr(of, each.name) for each in fields(of)}
    return {name: value for name, value in found.items() if value is not None or name not in _UNSAID}


def _read_partition(value: Mapping[str, Any]) -> ReadPartition:
    latest = None if value.get("latest") is None else read_whole(value["latest"])
    ahead = None if value.get("ahead") is None else read_count(value["ahead"])
    return ReadPartition(read_count(value["records"]), read_text(value["fingerprint"], r"-?\d{1,38}"), latest, ahead)


def _staged_state(value: Mapping[str, Any]) -> StagedState:
    totals = read_each(value["totals"], lambda total: None if total is None else read_text(total))
    files, rows = tuple(map(_staged_file, value["files"])), read_count(value["rows"])
    kept, late = (None if value.get(name) is None else read_count(value[name]) for name in ("kept", "late"))
    return StagedState(files, rows, totals, kept, late)


def _staged_file(value: Mapping[str, Any]) -> StagedFile:
    """Return a staged file. Raise ValueError if the file's name leads out of the attempt's folder."""
    name = read_text(value["name"], r"partials/\d+/[^/\\\0]+\.parquet")
    return StagedFile(name, read_count(value["bytes"]), read_count(value["rows"]), read_text(value["sha256"]))


def check_manifest(manifest: Manifest, assignment: Assignment) -> None:
    """Refuse a manifest of another attempt (StaleAttempt), or without a part of the plan (Incomplete)."""
    for what, found, expected in (
        ("topology", manifest.topology, assignment.topology),
        ("attempt", str(manifest.attempt), str(assignment.attempt)),
        ("token", manifest.token, assignment.token),
        ("code", manifest.code, assignment.code),
        ("metadata", manifest.metadata_digest, assignment.digest),
    ):
        if found != expected:
            raise StaleAttempt(
                f"{assignment.topology} {assignment.attempt}: the staged manifest has {what} {found!r}, expected {expected!r}; "
                "it is not this attempt's work: emit again"
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
            raise Incomplete(
                f"{assignment.topology} {assignment.attempt}: of stream {stream!r} {what}: {listed}; emit again"
            )
    for stream, planned_of in plans.items():
        _check_records(
            f"{assignment.topology} {assignment.attempt}", stream, planned_of, manifest.streams.get(stream, {})
        )
    if left_out and assignment.plan.whole:
        raise PartitionUnreadable(
            f"{assignment.topology} {assignment.attempt}: {_listed(left_out)} could not be read, and a restate counts whole or "
            "not at all; try again when it can be read, or abort it and restate with --accept-missing"
        )
    if left_out and not read:
        raise PartitionUnreadable(
            f"{assignment.topology} {assignment.attempt}: nothing could be read: {manifest.unreadable}"
        )


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
        case Whole():
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
    """Refuse other records from a transactional spout than earlier (R7c): Incomplete names partition, expected and found.

    Only an opaque spout may leave a partition out (R13), unless a restate accepts missing partitions. `source` is the
    topology's source identity, with the kind of each stream.
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
