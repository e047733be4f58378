"""Where a stream has a watermark: on its source, before any step, so that its times are audited as they are read (R25)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from txbatch.core.errors import DefinitionError
from txbatch.core.nodes import Merged, Source
from txbatch.core.operations import Each, Filter, Node, Peek, Project, Repartition, Watermarked, Windowed, on_the_way
from txbatch.core.watermark import MERGE, Watermark, checked_late
from txbatch.core.window import Timed, micros


def watermarked(node: Node, time: str, delay: str, late: str) -> Node:
    """Return a stream's node with a watermark; where streams are merged, each has one, by its field in the place of `time`.

    DefinitionError for a field that is no timestamp, for other lengths and policies, and behind any step.
    """
    of = f"stream {node.name!r}: with_watermark({time!r}, {delay!r})"
    if node.field(time).type != "timestamp":
        raise DefinitionError(
            f"{of}: {time!r} is a {node.field(time).type}; a watermark is of a timestamp that the source has"
        )
    says = Watermark(time, micros(of, "delay", delay), checked_late(of, late))
    return _on_sources(of, node, node.fields.index(node.field(time)), says)


def _on_sources(of: str, node: Node, place: int, says: Watermark) -> Node:
    match node:
        case Source(name=name, fields=fields):
            return Watermarked(name, fields, node, replace(says, time=fields[place].name))
        case Merged(inputs=inputs):
            return replace(node, inputs=tuple(_on_sources(of, each, place, says) for each in inputs))
        case Watermarked(name=name):
            raise DefinitionError(f"{of}: {name!r} has a watermark already; say it once")
        case _:
            raise DefinitionError(
                f"{of}: it comes first, before any operation: the largest time is that of the records as they are read"
            )


def check_window(of: str, node: Node, window: Timed) -> None:
    """DefinitionError for a window by another time of a source than its watermark's: that says nothing of when it has ended.

    A time that a step makes is taken to be as far as the watermark.
    """
    for says, name in _times(node, window.time):
        if name != says.time:
            raise DefinitionError(
                f"{of}: the window is by {name!r}, and the watermark by {says.time!r} does not say when it has ended; give both "
                "the same time"
            )


def _times(node: Node, name: str) -> Iterable[tuple[Watermark, str]]:
    """Yield each watermark that records have met, with the field of its source that is now called so, where it is one."""
    match node:
        case Watermarked(watermark=says):
            yield says, name
        case Merged(inputs=inputs):
            for each in inputs:
                yield from _times(each, each.fields[node.fields.index(node.field(name))].name)
        case Each(appended=appended) if name in {field.name for field in appended}:
            return
        case Each() | Filter() | Peek() | Project() | Repartition() | Windowed():
            yield from _times(node.before, name)
        case _:
            return


def watermarks(node: Node) -> dict[str, Watermark]:
    """Return the watermarks of the sources that the node's records come from, by stream."""
    return {each.name: each.watermark for each in on_the_way(node) if isinstance(each, Watermarked)}


def policy(of: str, node: Node) -> str:
    """Return what becomes of a node's late records; DefinitionError where its streams say different things."""
    policies = {says.late for says in watermarks(node).values()} or {MERGE}
    if len(policies) > 1:
        raise DefinitionError(
            f"{of}: its streams say {' and '.join(f'late={each!r}' for each in sorted(policies))}; of one state say one"
        )
    return policies.pop()


def watermarks_of(topology: str, nodes: Iterable[Node]) -> Mapping[str, Watermark]:
    """Return the watermarks of a topology by stream; DefinitionError for a stream that has two."""
    found: dict[str, Watermark] = {}
    for node in nodes:
        for stream, says in watermarks(node).items():
            if found.setdefault(stream, says) != says:
                raise DefinitionError(
                    f"topology {topology!r}: stream {stream!r} has two watermarks, {found[stream]} and {says}; the "
                    "ledger keeps one of a stream: give its states one"
                )
    return found
