"""What a manifest must agree with before anything is loaded (R5, R7)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from txbatch.core.batch.manifest import (
    Manifest,
    ReadPartition,
    StagedState,
    check_manifest,
    check_same_records,
    check_states,
)
from txbatch.core.batch.plan import BatchPlan, OfInterval
from txbatch.core.batch.transaction import Assignment, TransactionAttempt
from txbatch.core.errors import Incomplete, PartitionUnreadable, StaleAttempt

PLAN = {
    "streams": {
        "words": {"partitions": {"a": {"start": 0, "end": 5}, "b": {"start": 0, "end": 5}}},
        "list": {"start": 0},
    }
}
ASSIGNMENT = Assignment("t", TransactionAttempt(7, 2), "token", PLAN, "code")
READ = ReadPartition(5, "123")
HONEST = Manifest(
    topology="t",
    attempt=TransactionAttempt(7, 2),
    token="token",
    code="code",
    metadata_digest=ASSIGNMENT.digest,
    streams={"words": {"a": READ, "b": READ}, "list": {"": READ}},
    states={"s": StagedState((), 0, {})},
)
SOURCE = {"words": {"kind": "transactional"}, "list": {"kind": "transactional"}}
OPAQUE = {"words": {"kind": "opaque"}, "list": {"kind": "opaque"}}


def test_an_honest_manifest_passes() -> None:
    check_manifest(HONEST, ASSIGNMENT)
    check_same_records(HONEST, [HONEST, HONEST], SOURCE)
    check_states(HONEST, ["s"])


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"topology": "u"}, "topology 'u', expected 't'"),
        ({"attempt": TransactionAttempt(8, 2)}, "attempt '8:2', expected '7:2'"),
        ({"attempt": TransactionAttempt(7, 1)}, "attempt '7:1', expected '7:2'"),
        ({"token": "other"}, "token 'other', expected 'token'"),
        ({"code": "changed"}, "code 'changed', expected 'code'"),
        ({"metadata_digest": "0"}, "metadata '0', expected"),
    ],
)
def test_another_attempts_manifest(change: Any, what: str) -> None:
    with pytest.raises(
        StaleAttempt, match=f"t 7:2: the staged manifest has {what}.*it is not this attempt's work: emit again"
    ):
        check_manifest(replace(HONEST, **change), ASSIGNMENT)


@pytest.mark.parametrize(
    ("streams", "unreadable", "says"),
    [
        ({"words": {"a": READ}, "list": {"": READ}}, {}, "of stream 'words' was not read: b; emit again"),
        ({"words": {"a": READ, "b": READ}}, {}, "of stream 'list' was not read: ;"),
        (
            {"words": dict.fromkeys("abcd", READ), "list": {"": READ}},
            {},
            "of stream 'words' was read but not planned: c, d",
        ),
        ({**HONEST.streams, "more": {"": READ}}, {}, "of stream 'more' was read but not planned"),
        ({"words": {"a": READ, "b": READ}, "list": {"x": READ}}, {}, "of stream 'list' was not read"),
        (HONEST.streams, {"words": {"b": "down"}}, "of stream 'words' was both read and left out: b"),
        (HONEST.streams, {"words": {"z": "down"}}, "of stream 'words' was left out but not planned: z"),
    ],
)
def test_a_manifest_that_does_not_cover_the_plan(streams: Any, unreadable: Any, says: str) -> None:
    with pytest.raises(Incomplete, match=f"t 7:2: {says}"):
        check_manifest(replace(HONEST, streams=streams, unreadable=unreadable), ASSIGNMENT)


@pytest.mark.parametrize("found", [0, 1, 3])
def test_a_range_that_says_how_many_records_it_has(found: int) -> None:
    """A file that was cut off after it was planned loses nothing in silence."""
    metadata = {"streams": {"in": {"partitions": {"a": {"start": 0, "end": 9, "records": 2}}}}}
    assignment = replace(ASSIGNMENT, metadata=metadata)
    honest = replace(HONEST, metadata_digest=assignment.digest, streams={"in": {"a": ReadPartition(2, "0")}})
    check_manifest(honest, assignment)
    with pytest.raises(
        Incomplete, match=rf"partition 'a' was planned with 2 records, {found} were read; the source changed"
    ):
        check_manifest(replace(honest, streams={"in": {"a": ReadPartition(found, "0")}}), assignment)


@pytest.mark.parametrize("found", [0, 1, 3])
def test_an_interval_that_says_how_many_records_it_has(found: int) -> None:
    """An empty answer is no day without records."""
    metadata = BatchPlan({"in": OfInterval({"records": 2}, ["a", "b"], 2)}).to_json()
    assignment = replace(ASSIGNMENT, metadata=metadata)
    honest = replace(HONEST, metadata_digest=assignment.digest, streams={"in": {"": ReadPartition(2, "0")}})
    check_manifest(honest, assignment)
    with pytest.raises(
        Incomplete,
        match=rf"the interval of stream 'in' was planned with 2 records, {found} were read; the source changed",
    ):
        check_manifest(replace(honest, streams={"in": {"": ReadPartition(found, "0")}}), assignment)


def test_a_partition_that_could_not_be_asked_when_planning_may_be_left_out() -> None:
    plan = {"streams": {"words": {**PLAN["streams"]["words"], "unreadable": {"z": "down"}}, "list": {}}}
    assignment = replace(ASSIGNMENT, metadata=plan)
    check_manifest(replace(HONEST, metadata_digest=assignment.digest, unreadable={"words": {"z": "down"}}), assignment)


def test_nothing_readable_at_all() -> None:
    nothing = replace(HONEST, streams={}, unreadable={"words": {"a": "down", "b": "down"}, "list": {"": "down"}})
    with pytest.raises(PartitionUnreadable, match="t 7:2: nothing could be read"):
        check_manifest(nothing, ASSIGNMENT)


@pytest.mark.parametrize("other", [ReadPartition(4, "123"), ReadPartition(5, "124"), None])
def test_other_records_of_a_transactional_partition(other: ReadPartition | None) -> None:
    changed = {"words": {"a": READ, **({"b": other} if other else {})}, "list": {"": READ}}
    says = (
        r"t 7:2: partition 'b' was read differently: attempt 7:2 found .*'123'.*use an opaque spout with opaque state"
    )
    with pytest.raises(Incomplete, match=says):
        check_same_records(replace(HONEST, streams=changed), [HONEST], SOURCE)
    check_same_records(replace(HONEST, streams=changed), [HONEST], OPAQUE)


def test_the_same_number_lost_and_doubled_is_noticed() -> None:
    """Trident compares counts alone."""
    with pytest.raises(Incomplete, match="read differently"):
        check_same_records(
            replace(HONEST, streams={"words": {"a": READ, "b": ReadPartition(5, "999")}, "list": {"": READ}}),
            [HONEST],
            SOURCE,
        )


@pytest.mark.parametrize("kind", ["transactional", "non_transactional"])
def test_only_an_opaque_stream_may_leave_a_partition_out(kind: str) -> None:
    hole = replace(HONEST, streams={"words": {"a": READ}, "list": {"": READ}}, unreadable={"words": {"b": "down"}})
    with pytest.raises(Incomplete, match="b of stream 'words' was left out, which only an opaque spout may do"):
        check_same_records(hole, [], {**OPAQUE, "words": {"kind": kind}})
    check_same_records(hole, [HONEST], OPAQUE)


def test_states_must_be_those_of_the_topology() -> None:
    for states in ([], ["s", "t"], ["t"]):
        with pytest.raises(Incomplete, match="t 7:2: staged partials of s; the topology now has the states"):
            check_states(HONEST, states)
