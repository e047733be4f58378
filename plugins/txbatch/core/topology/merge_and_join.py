"""Streams made of several streams: merged, and joined."""

from __future__ import annotations

from collections.abc import Sequence

from txbatch.core.errors import InvalidArgument, MissingPart, NameTaken, OutOfPlace, WrongType
from txbatch.core.records.fields import Field, unique
from txbatch.core.topology.look_up import How
from txbatch.core.topology.nodes import Join, Merged
from txbatch.core.topology.stream import Stream


def merged(name: str, streams: Sequence[Stream]) -> Stream:
    """Return one stream of the records of several streams; fields have their names in the first stream.

    Raises DefinitionError unless all streams are of one topology and their fields have the same types in the same order.
    """
    if len(streams) < 2:
        raise MissingPart(f"stream {name!r}: merge at least two streams")
    for each in streams:
        _check_batches(each, f"stream {name!r}: merge")
    first = streams[0]
    for other in streams[1:]:
        if other.topology is not first.topology:
            raise OutOfPlace(f"stream {name!r}: {other.name!r} is of another topology; merge streams of one")
        if [field.type for field in other.fields] != [field.type for field in first.fields]:
            raise WrongType(
                f"stream {name!r}: {first.name!r} has {_listed(first)}, {other.name!r} has {_listed(other)}; bring them to "
                "the same types by map or project"
            )
    return Stream(first.topology, Merged(name, first.fields, tuple(each.node for each in streams)))


def _listed(stream: Stream) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in stream.fields)


def join(name: str, left: Stream, right: Stream, on: Sequence[str], how: str) -> Stream:
    """Return one stream of the records of two streams that are equal in the fields `on`: these fields once, then all others.

    Raises DefinitionError unless both streams are of one topology, have the fields `on` with the same types, and share no
    other name.
    """
    names = (on,) if isinstance(on, str) else tuple(on)
    _check_join(name, left, right, names, how)
    fields = (*map(left.field, names), *_others(left, names), *_others(right, names))
    return Stream(left.topology, Join(name, fields, left.node, right.node, names, How(how)))


def _check_join(name: str, left: Stream, right: Stream, on: Sequence[str], how: str) -> None:
    of = f"stream {name!r}: join"
    for each in (left, right):
        _check_batches(each, of)
    if right.topology is not left.topology:
        raise OutOfPlace(f"{of}: {right.name!r} is of another topology; join streams of one")
    if how not in [*How]:
        raise InvalidArgument(f"{of}: how is {how!r}; it is one of {', '.join(How)}")
    if not on:
        raise MissingPart(f"{of}: on is empty; name the fields that are equal in both")
    unique(on, "key")
    for key in on:
        one, other = left.field(key).type, right.field(key).type
        if one != other:
            raise WrongType(
                f"{of} on {key!r}, a {one} of {left.name!r} and a {other} of {right.name!r}; cast one of them"
            )
    own = {field.name.lower() for field in _others(left, on)} | {key.lower() for key in on}
    for field in (field for field in _others(right, on) if field.name.lower() in own):
        raise NameTaken(
            f"{of}: {left.name!r} and {right.name!r} both have {field.name!r}; rename one by map, or leave it out by project"
        )


def _check_batches(stream: Stream, of: str) -> None:
    if not stream.roots:
        raise OutOfPlace(
            f"{of}: {stream.name!r} is a query stream, whose answer is one line of operations; take a stream"
        )


def _others(stream: Stream, on: Sequence[str]) -> list[Field]:
    return [field for field in stream.fields if field.name not in on]
