"""Quarantine: the records for which functions of a topology fail, in rows of their own state, up to a limit in each batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from math import isfinite
from typing import TYPE_CHECKING, Any

from txbatch.core.errors import InvalidArgument, MissingPart, OutOfPlace, QuarantineFull
from txbatch.core.records.fields import parse_fields
from txbatch.core.records.functions import describe_error
from txbatch.core.sources.spout import SpoutKind
from txbatch.core.state.append import ROW_KEYS, AppendState, values_of
from txbatch.core.text import escape_json, one_line
from txbatch.core.topology.checks import check_aggregate
from txbatch.core.topology.nodes import Failed, Node, Source
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.topology.walks import on_the_way

if TYPE_CHECKING:
    from txbatch.core.batch.manifest import Manifest
    from txbatch.core.batch.transaction import Batch

FIELDS = parse_fields("stream string, partition string, operation string, error string, data string")
ERROR_CHARACTERS_MAX = 1_000
DATA_CHARACTERS_MAX = 10_000


class QuarantineState(AppendState):
    """The rows of a quarantine. A topology with history may begin a quarantine, and counts failed records from then on."""

    def __init__(self, topology: str, limit: int, was: str | None = None) -> None:
        super().__init__(quarantine_name(topology), prune=True)
        self.was = None if was is None else quarantine_name(was)
        self.since, self.limit = "now", limit


def quarantine_name(topology: str) -> str:
    """Return the name of a topology's quarantine."""
    return f"{topology}_quarantine"


def check_limit(topology: str, limit: object) -> None:
    """DefinitionError if the limit is no number of records."""
    if limit is not None and (type(limit) is not int or limit < 1):
        raise InvalidArgument(
            f"topology {topology!r}: quarantine={limit!r}; say how many records of a batch may fail, at least 1, or leave it out"
        )
    if limit is not None:
        QuarantineState(topology, limit)


def quarantines(of: str, on_error: str | None, function: object, limit: int | None) -> bool:
    """Return True if records for which an operation fails go into quarantine. DefinitionError for an impossible `on_error`.

    Records go into quarantine if the topology has a quarantine, the operation is a Python function, and `on_error` is not
    `"fail"`.
    """
    if on_error not in (None, "fail", "quarantine"):
        raise InvalidArgument(f"{of}: on_error={on_error!r} is neither 'fail' nor 'quarantine'")
    if on_error == "quarantine" and limit is None:
        raise MissingPart(f"{of}: on_error='quarantine', and the topology has none; say Topology(..., quarantine=1000)")
    if on_error == "quarantine" and not callable(function):
        raise OutOfPlace(
            f"{of} {function!r}: an expression of Spark SQL fails the whole batch; write a Python function to quarantine records"
        )
    return limit is not None and on_error != "fail" and callable(function)


def quarantine_of(
    topology: str, state: QuarantineState, sources: Sequence[Source], aggregates: Iterable[PersistentAggregate]
) -> PersistentAggregate:
    """Return the aggregate that keeps the failed records of all steps on the way to the given aggregates."""
    node = Failed("quarantine", FIELDS, tuple(_steps(each.stream for each in aggregates)), tuple(sources))
    guarantee = "at_least_once" if node.kind is SpoutKind.NON_TRANSACTIONAL else "exactly_once"
    return check_aggregate(PersistentAggregate(topology, node, ROW_KEYS, state, values_of(FIELDS), guarantee))


def failed_row(
    place: tuple[str, str], operation: str, record: Mapping[str, Any], error: Exception, *, show: bool
) -> Any:
    """Return the row of a record for which an operation fails; `place` is the stream and the partition, '' if unknown."""
    stream, partition = place
    data = _cut(_json(record)) if show else None
    return stream, partition or None, operation, one_line(describe_error(error, show=show), ERROR_CHARACTERS_MAX), data


def check_number(of: str, state: QuarantineState, number: int, first: Mapping[str, Any] | None) -> None:
    """QuarantineFull if more records failed than the quarantine takes; `first` is one of the rows."""
    if number <= state.limit:
        return
    of_one = f"; one of them: {first['operation']}, {first['error']}" if first else ""
    record = f", for the record {first['data']}" if first and first["data"] else ""
    raise QuarantineFull(
        f"{of}: functions fail for more than {state.limit:,} records of the batch, which is all that quarantine= takes"
        f"{of_one}{record}; mend the source or the function, or raise the limit"
    )


def check_joined(
    batch: Batch, manifest: Manifest, aggregates: Iterable[PersistentAggregate], joined: Callable[[str], int]
) -> None:
    """QuarantineFull if records of a batch failed and the batch is older than the quarantine: the records would be lost."""
    for state in (each.state for each in aggregates if isinstance(each.state, QuarantineState)):
        failed, since = manifest.states[state.name].rows, joined(state.name)
        if failed and batch.position < since:
            raise QuarantineFull(
                f"{batch.topology}: functions fail for {failed:,} records of the batch at position {batch.position}, and the "
                f"quarantine counts from txid {since} on: mend the source or the function, and restate it then, or rebuild"
            )


def _steps(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yield the steps that quarantine, each once, in the order in which records meet the steps."""
    seen = set[int]()
    for node in nodes:
        for step in on_the_way(node):
            if id(step) not in seen and getattr(step, "quarantined", False):
                seen.add(id(step))
                yield step


def _json(record: Mapping[str, Any]) -> str:
    return escape_json(json.dumps(_plain(record), ensure_ascii=False))


def _plain(value: Any) -> Any:
    """Return a value in a type of JSON; a value without a type in JSON becomes text."""
    match value:
        case None | bool() | str() | int():
            return value
        case float():
            return value if isfinite(value) else str(value)
        case bytes() | bytearray():
            return value.hex()
        case datetime():
            return (value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()
        case date():
            return value.isoformat()
        case Mapping():
            return {str(name): _plain(each) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case _:
            return str(value)


def _cut(text: str) -> str:
    more = f"... ({len(text):,} characters)"
    return text if len(text) <= DATA_CHARACTERS_MAX else text[: DATA_CHARACTERS_MAX - len(more)] + more
