"""Watermarks of streams: on the source, before any step, so that times are audited when records are read (R25)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from txbatch.core.errors import InvalidWindow, NameTaken, OutOfPlace, WrongType
from txbatch.core.records.fields import Field, checked_name
from txbatch.core.topology.nodes import (
    Aggregate,
    Distinct,
    Each,
    Filter,
    FirstN,
    Lookup,
    Merged,
    Node,
    Numbered,
    Peek,
    Project,
    Repartition,
    Source,
    Watermarked,
    Windowed,
)
from txbatch.core.topology.walks import on_the_way
from txbatch.core.windows.timed import Timed
from txbatch.core.windows.watermark import MERGE, Watermark, checked_late
from txbatch.core.windows.window import micros


def add_watermark(node: Node, time: str, delay: str, late: str) -> Node:
    """Return a stream's node with a watermark. If streams are merged, each has a watermark, by its field in the place of
    `time`.

    DefinitionError for a field that is no timestamp, for an invalid length or policy, and after any step.
    """
    of = f"stream {node.name!r}: with_watermark({time!r}, {delay!r})"
    if node.field(time).type != "timestamp":
        raise WrongType(
            f"{of}: {time!r} is a {node.field(time).type}; a watermark is of a timestamp that the source has"
        )
    says = Watermark(time, micros(of, "delay", delay), checked_late(of, late))
    return _on_sources(of, node, node.fields.index(node.field(time)), says)


def timed_by_plan(node: Node, name: str) -> Node:
    """Return a stream's node with the time of planning in the field `name`, and a watermark that follows the field.

    DefinitionError for a name that is taken or invalid, and after any step.
    """
    of = f"stream {node.name!r}: with_processing_time({name!r})"
    says = Watermark(checked_name(name, f"{of}: field"), 0, planned=True)
    return _on_sources(of, node, None, says)


def _on_sources(of: str, node: Node, place: int | None, says: Watermark) -> Node:
    """Return the node with a watermark behind each source: by the field at `place`, or by a new field if `place` is None."""
    new = (Field(says.time, "timestamp"),) if place is None else ()
    match node:
        case Source(name=name, fields=fields):
            if new and says.time.lower() in {field.name.lower() for field in fields}:
                raise NameTaken(f"{of}: {name!r} has a field {says.time!r} already; give the time another name")
            time = says.time if place is None else fields[place].name
            return Watermarked(name, fields + new, node, replace(says, time=time))
        case Merged(inputs=inputs, fields=fields):
            united = tuple(_on_sources(of, each, place, says) for each in inputs)
            return replace(node, fields=fields + new, inputs=united)
        case Watermarked(name=name):
            raise InvalidWindow(
                f"{of}: {name!r} has a watermark already, by with_watermark or with_processing_time; say it once"
            )
        case _:
            raise OutOfPlace(
                f"{of} stands behind an operation; put the watermark first, because it reads the time of source records"
            )


def check_window(of: str, node: Node, window: Timed) -> None:
    """DefinitionError for a window by a time of the source that its watermark does not follow: the window's end would be
    unknown.

    A time made by a step is taken to be as far as the watermark.
    """
    times = [(source.watermark, name) for source, name in _times(node, window.time) if name is not None]
    if len({says.planned for says, _ in times}) > 1:
        raise InvalidWindow(
            f"{of}: the window is by event time of one stream and by processing time of another; give both the same"
        )
    for says, name in times:
        if name != says.time:
            raise InvalidWindow(
                f"{of}: the window is by {name!r}, and the watermark by {says.time!r} does not say when it has ended; give both "
                "the same time"
            )


def of_another_time(node: Node, name: str) -> frozenset[str]:
    """Return the streams whose watermark does not follow the field: a step made the field."""
    return frozenset(source.name for source, field in _times(node, name, deep=True) if field != source.watermark.time)


def _times(node: Node, name: str, *, deep: bool = False) -> Iterable[tuple[Watermarked, str | None]]:
    """Yield each watermark on the way of records, with the source's field now named `name`; None if a step made the field.

    If `deep`, also behind steps that keep the field, but are no bar to windows by other fields.
    """
    match node:
        case Watermarked():
            yield node, name
        case Merged(inputs=inputs):
            for each in inputs:
                yield from _times(each, each.fields[node.fields.index(node.field(name))].name, deep=deep)
        case Filter() | Peek() | Project() | Repartition() | Windowed() | Numbered():
            yield from _times(node.before, name, deep=deep)
        case Each(appended=appended) if name not in {field.name for field in appended}:
            yield from _times(node.before, name, deep=deep)
        case Lookup(query=query) if deep and name not in {field.name for field in query.values}:
            yield from _times(node.before, name, deep=deep)
        case Distinct() | FirstN() if deep:
            yield from _times(node.before, name, deep=deep)
        case Aggregate(keys=keys) if deep and name in {field.name for field in keys}:
            yield from _times(node.before, name, deep=deep)
        case _:
            yield from ((each, None) for each in on_the_way(node) if isinstance(each, Watermarked))


def watermarks(node: Node) -> dict[str, Watermark]:
    """Return the watermarks of the node's sources, by stream."""
    return {each.name: each.watermark for each in on_the_way(node) if isinstance(each, Watermarked)}


def policy(of: str, node: Node) -> str:
    """Return the treatment of a node's late records; DefinitionError if its streams treat late records differently."""
    policies = {says.late for says in watermarks(node).values()} or {MERGE}
    if len(policies) > 1:
        raise InvalidWindow(
            f"{of}: its streams say {' and '.join(f'late={each!r}' for each in sorted(policies))}; of one state say one"
        )
    return policies.pop()


def watermarks_of(topology: str, nodes: Iterable[Node]) -> Mapping[str, Watermark]:
    """Return the watermarks of a topology by stream; DefinitionError for a stream with two watermarks."""
    found: dict[str, Watermark] = {}
    for node in nodes:
        for stream, says in watermarks(node).items():
            if found.setdefault(stream, says) != says:
                raise InvalidWindow(
                    f"topology {topology!r}: stream {stream!r} has two watermarks, {found[stream]} and {says}; the "
                    "ledger keeps one watermark a stream: give all states of the stream the same watermark"
                )
    return found
