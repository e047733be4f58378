"""Sessions in memory: which records are together, what is refused, and what is said of them (R27)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
import refusals
from hypothesis import given, settings
from hypothesis import strategies as st

from txbatch import Count, FixedBatchSpout, Max, OpaqueState, Stream, Topology, session_window, window
from txbatch.core.aggregates.aggregator import CombinerAggregator
from txbatch.core.definition.changes import column_changes
from txbatch.core.definition.stored import columns
from txbatch.core.errors import DefinitionError
from txbatch.core.protocol.bulk import reason_against
from txbatch.core.topology.guarantee import guarantees
from txbatch.core.topology.walks import one_for_one
from txbatch.memory.runner import run
from txbatch.testing import submit_topology

DAY = datetime(2026, 11, 24, tzinfo=UTC)
HALF_HOUR = session_window("at", "30 minutes")


def stream_of(*records: Any, size: int = 3) -> Stream:
    spout = FixedBatchSpout("at timestamp, user string", size, *(records or [(DAY, "x")]))
    return Topology("t").new_stream("in", spout)


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 20))), st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_what_is_together_does_not_depend_on_the_order(spans: list[tuple[int, int]], random: Random) -> None:
    """And in a session each piece is within the gap of an earlier one, in two of them none."""
    pieces = [(start, start + length) for start, length in spans]
    made = session_window("at", "5 seconds")

    def together(given_: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
        return list(made.together(given_, of=lambda piece: piece, micros=lambda second: second * 1_000_000))

    found = together(pieces)
    shuffled = [sorted(session) for session in together(random.sample(pieces, len(pieces)))]
    assert [sorted(session) for session in found] == shuffled
    moments = {second for start, end in pieces for second in range(start, end + 1)}
    covered = {second + more for second in moments for more in range(5)}
    runs = sum(1 for second in moments if second - 1 not in covered)
    assert len(found) == runs


def test_a_state_has_a_row_for_each_session_with_its_end() -> None:
    records = [(DAY + timedelta(minutes=minute), "x") for minute in (0, 90, 30, 121, 60)]
    for size in (1, 2, 5):
        stream = stream_of(*records, size=size)
        stream.group_by(HALF_HOUR, "user").persistent_aggregate(OpaqueState("sessions"), views=Count())
        local = submit_topology(stream.topology)
        local.run()
        assert local.rows("sessions") == [
            {"user": "x", "session_start": DAY, "session_end": DAY + timedelta(minutes=90), "views": 4},
            {"user": "x", "session_start": records[3][0], "session_end": records[3][0], "views": 1},
        ]


def test_the_session_is_the_last_key_and_its_end_the_first_value() -> None:
    made = stream_of().group_by(session_window("at", "1 hour", name="begin"), "user")
    aggregate = made.persistent_aggregate(OpaqueState("s"), n=Count())
    assert [key.name for key in aggregate.keys] == ["user", "begin"]
    assert list(aggregate.aggregates) == ["begin_end", "n"]
    assert one_for_one(aggregate.stream) == aggregate.stream.roots
    assert aggregate.window_end({"user": "", "begin": ""}) == {}


def test_a_topology_says_by_which_sessions_it_counts() -> None:
    def aggregate(by: Any) -> Any:
        return stream_of().group_by(by, "user").persistent_aggregate(OpaqueState("s"), n=Count())

    half, same, hour = (aggregate(session_window("at", gap)) for gap in ("30 minutes", "1800 seconds", "1 hour"))
    assert columns(half)["windows"] == columns(same)["windows"] == ["sessions by at, 30 minutes apart"]
    assert list(column_changes("s", columns(half), columns(hour))) == [
        "state 's' changes from counting by sessions by at, 30 minutes apart to counting by sessions by at, 1 hour apart"
    ]
    topology = Topology("t")
    topology.add(half)
    assert guarantees(topology)[0]["windows"] == "sessions by at, 30 minutes apart"


def test_sessions_by_a_watermark_are_emitted_batch_by_batch() -> None:
    class Fusable(FixedBatchSpout):
        fusable = True

    topology = Topology("t")
    stream = topology.new_stream("in", Fusable("at timestamp, user string", 3, (DAY, "x")))
    for told, by in ((None, stream), ("sessions, in which what is late", stream.with_watermark("at", "1 hour"))):
        topology.aggregates.clear()
        by.group_by(HALF_HOUR, "user").persistent_aggregate(OpaqueState("s"), n=Count())
        assert (reason_against(topology) is None) if told is None else told in str(reason_against(topology))


def test_a_null_time_is_refused() -> None:
    stream = stream_of((None, "x"), (DAY, "x"))
    stream.group_by(HALF_HOUR).persistent_aggregate(OpaqueState("s"), n=Count())
    with refusals.refused("TX306", "key", "null", "'at'", "'user'", "'x'", "'session_start'"):
        run(stream.topology)


# ---- what is refused

BAD: dict[str, tuple[tuple[Any, ...], str]] = {
    "nothing": (("at", "0 minutes"), "session_window('at', '0 minutes'): the gap '0 minutes' is not at least 1 minute"),
    "less than nothing": (("at", "-5 minutes"), "the gap '-5 minutes' is not at least 1 minute"),
    "too many digits": (("at", "1" * 5_000 + " seconds"), "of 5,000 digits is not at most 10,000 years"),
    "no length": (("at", "soon"), "the gap 'soon' is not a whole number and a unit, such as '10 minutes'"),
    "a number": (("at", 600), "the gap 600 is not a whole number and a unit"),
    "a month": (("at", "1 month"), "months and years differ in length, and the gap '1 month' is one; give days"),
    "too long": (("at", "9999999 weeks"), "and at most 10,000 years"),
    "no time": (("", "1 hour"), "time is ''; give the name of a field"),
}


@pytest.mark.parametrize(("given_", "says"), BAD.values(), ids=BAD)
def test_a_gap_that_is_none_is_refused(given_: tuple[Any, ...], says: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        session_window(*given_)
    assert says in str(refused.value)


class Span(CombinerAggregator):
    partial = "low bigint, high bigint"

    def init(self, value: Any) -> Any:
        return value, value

    def combine(self, left: Any, right: Any) -> Any:
        return min(left[0], right[0]), max(left[1], right[1])

    def finish(self, partial: Any) -> Any:
        return partial[0]


def test_what_sessions_have_not_is_refused() -> None:
    stream, state = stream_of(), OpaqueState("s")
    grouped = stream.group_by(HALF_HOUR, "user")
    refused: dict[str, Any] = {
        "group_by: 2 windows; group by one of them": lambda: stream.group_by(HALF_HOUR, window("at", "1 day")),
        "a window is of 'user', a string": lambda: stream.group_by(session_window("user", "1 hour")),
        "aggregate: a session may go on in the next batch": lambda: grouped.aggregate(n=Count()),
        "first_n, min_by or max_by: a session may go on": lambda: grouped.max_by("at"),
        "'session_end' is when the last record of a session was": lambda: grouped.persistent_aggregate(
            state, session_end=Max("at")
        ),
        "state 's': n is Span, which Python combines": lambda: grouped.persistent_aggregate(state, n=Span("at")),
        "state 's': remove takes a key away": lambda: grouped.persistent_aggregate(
            state, n=Count(), remove=lambda r: True
        ),
        "new_values_into('a.b'): a commit writes pieces of sessions": lambda: grouped.persistent_aggregate(
            OpaqueState("t"), n=Count()
        ).new_values_into("a.b"),
    }
    for says, make in refused.items():
        with pytest.raises(DefinitionError) as error:
            make()
        assert says in str(error.value)
