"""ReducerAggregator: records of a group one by one, in an order of their own; errors that name the value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from refusals import refused
from support import LogSpout

from txbatch import Count, FixedBatchSpout, OpaqueState, ReducerAggregator, Stream, Topology
from txbatch.core.errors import BadRecord, DefinitionError
from txbatch.direct.operations import records


class Told(ReducerAggregator):
    """The numbers, one behind the other."""

    result: str | None = "string"

    def init(self) -> Any:
        return ""

    def reduce(self, value: Any, record: dict[str, Any]) -> Any:
        return f"{value}{record.pop('n')},"


class Bad(Told):
    """What it is told to be."""

    def __init__(self, made: Any) -> None:
        self.made = made

    def reduce(self, value: Any, record: dict[str, Any]) -> Any:
        return self.made / 1 if record["n"] is None else self.made


def stream(*given: tuple[Any, ...], show_records: bool = True) -> Stream:
    topology = Topology("numbers", show_records=show_records)
    return topology.new_stream("numbers", FixedBatchSpout("k string, n int", 9, *(given or (("a", 1),))))


def made(of: Stream, *given: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    named = [dict(zip(("k", "n"), each, strict=True)) for each in given]
    return [tuple(each.values()) for each in records(of.node, {"numbers": {"": named}})]


def test_records_come_in_the_order_of_all_fields() -> None:
    given = [("b", 3), ("a", 2), (None, 9), ("a", None), ("b", 1), ("a", 1)]
    expected = [("a", "1,2,None,"), ("b", "1,3,"), (None, "9,")]
    assert made(stream().group_by("k").aggregate(told=Told()), *given) == expected
    assert made(stream().group_by("k").aggregate(told=Told()), *reversed(given)) == expected


def test_several_of_the_whole_batch_and_of_no_records() -> None:
    whole = stream().aggregate(one=Told(), other=Told())
    assert made(whole, ("b", 2), ("a", 3)) == [("3,2,", "3,2,")]
    assert made(whole) == [("", "")]
    assert made(stream().group_by("k").aggregate(told=Told())) == []


def test_it_is_told_as_what_is_per_batch() -> None:
    assert str(stream().group_by("k").aggregate(told=Told()).node) == "aggregate told Told by k"


@pytest.mark.parametrize(
    ("reducer", "record", "says"),
    [
        (Bad("x"), ("a", None), ("TX307", "TypeError", "'k'", "'a'", "'n'")),
        (Bad(3), ("a", 1), ("TX308", "3")),
    ],
)
def test_what_fails_is_named(reducer: ReducerAggregator, record: tuple[Any, ...], says: tuple[str, ...]) -> None:
    with refused(*says):
        made(stream().aggregate(told=reducer), record)


def test_records_that_are_not_shown_are_in_no_error() -> None:
    hidden = stream(show_records=False)
    for reducer, record in ((Bad("secret"), ("a", None)), (Bad([]), ("secret", 1))):
        with pytest.raises(BadRecord) as raised:
            made(hidden.aggregate(told=reducer), record)
        assert "secret" not in str(raised.value)


class Untyped(Told):
    """One that says not what it makes."""

    result = None


REFUSED: dict[str, tuple[Callable[[Stream], object], str]] = {
    "of no type": (lambda s: s.aggregate(told=Untyped()), "told: Untyped says not of what type it is"),
    "beside another": (
        lambda s: s.aggregate(told=Told(), count=Count()),
        "told is a ReducerAggregator, count is none",
    ),
    "by partition": (
        lambda s: s.partition_aggregate(told=Told()),
        "told is a ReducerAggregator, which aggregate takes alone",
    ),  # type: ignore[arg-type]
    "of a name that is taken": (lambda s: s.group_by("k").aggregate(k=Told()), "'k' is given twice"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    define, says = REFUSED[name]
    with pytest.raises(DefinitionError, match=says):
        define(stream())


def test_a_state_needs_a_combine() -> None:
    words = Topology("t").new_stream("in", LogSpout({"a": 1}))
    with refused("TX107", "ReducerAggregator"):
        words.persistent_aggregate(OpaqueState("s"), told=Told())  # type: ignore[arg-type]
