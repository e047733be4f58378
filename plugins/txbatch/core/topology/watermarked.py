"""Where a stream has a watermark: on its source, before any step, so that its times are audited as they are read (R25)."""

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
from txbatch.core.windows.watermark import MERGE, Watermark, checked_late
from txbatch.core.windows.window import Timed, micros


def add_watermark(node: Node, time: str, delay: str, late: str) -> Node:
    """Return a stream's node with a watermark; where streams are merged, each has one, by its field in the place of `time`.

    DefinitionError for a field that is no timestamp, for other lengths and policies, and behind any step.
    """
    of = f"stream {node.name!r}: with_watermark({time!r}, {delay!r})"
    if node.field(time).type != "timestamp":
        raise WrongType(
            f"{of}: {time!r} is a {node.field(time).type}; a watermark is of a timestamp that the source has"
        )
    says = Watermark(time, micros(of, "delay", delay), checked_late(of, late))
    return _on_sources(of, node, node.fields.index(node.field(time)), says)


def timed_by_plan(node: Node, name: str) -> Node:
    """Return a stream's node whose records have when their batch was planned as the field `name`, which its watermark follows.

    DefinitionError for a name that is taken, or is none, and behind any step.
    """
    of = f"stream {node.name!r}: with_processing_time({name!r})"
    says = Watermark(checked_name(name, f"{of}: field"), 0, planned=True)
    return _on_sources(of, node, None, says)


def _on_sources(of: str, node: Node, place: int | None, says: Watermark) -> Node:
    """Return the node with a watermark behind each source: by its field in a place, or in none by one that is new."""
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
                f"{of}: it comes first, before any operation: its time is that of the records as they are read"
            )


def check_window(of: str, node: Node, window: Timed) -> None:
    """DefinitionError for a window by another time of a source than its watermark's: that says nothing of when it has ended.

    A time that a step makes is taken to be as far as the watermark.
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
    """Return the streams of whose watermarks a field has not the time: a step made it."""
    return frozenset(source.name for source, field in _times(node, name, deep=True) if field != source.watermark.time)


def _times(node: Node, name: str, *, deep: bool = False) -> Iterable[tuple[Watermarked, str | None]]:
    """Yield each watermark that records have met, with the field of its source that is now called so; None: a step made it.

    If `deep`, also behind steps that keep a field and are no bar to a window by any other.
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
    """Return the watermarks of the sources that the node's records come from, by stream."""
    return {each.name: each.watermark for each in on_the_way(node) if isinstance(each, Watermarked)}


def policy(of: str, node: Node) -> str:
    """Return what becomes of a node's late records; DefinitionError where its streams say different things."""
    policies = {says.late for says in watermarks(node).values()} or {MERGE}
    if len(policies) > 1:
        raise InvalidWindow(
            f"{of}: its streams say {' and '.join(f'late={each!r}' for each in sorted(policies))}; of one state say one"
        )
    return policies.pop()


def watermarks_of(topology: str, nodes: Iterable[Node]) -> Mapping[str, Watermark]:
    """Return the watermarks of a topology by stream; DefinitionError for a stream that has two."""
    found: dict[str, Watermark] = {}
    for node in nodes:
        for stream, says in watermarks(node).items():
            if found.setdefault(stream, says) != says:
                raise InvalidWindow(
                    f"topology {topology!r}: stream {stream!r} has two watermarks, {found[stream]} and {says}; the "
                    "ledger keeps one of a stream: give its states one"
                )
    return found
