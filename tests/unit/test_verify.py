"""What verifying comes to, decided from what was counted and what is read now (R24)."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from refusals import refused

from txbatch.core.batch.manifest import Manifest, ReadPartition
from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import TransactionAttempt
from txbatch.core.corrections.verify import (
    Compared,
    Finding,
    Outcome,
    Read,
    Recorded,
    check_read,
    judge,
    late,
    reason_if_folded,
    sample,
)

LOG = {
    "partitions": {"0": {"start": 0, "end": 2}, "1": {"start": 5, "end": 9}},
    "unreadable": {"2": "away"},
    "continues": ["0"],
}
DAY = ["2024-01-01T00:00:00+00:00", "2024-01-02T00:00:00+00:00"]
TWO = {"0": ReadPartition(2, "20")}
COUNTED = Recorded(
    "t", 1, 1, BatchPlan.from_json({"format": 2, "streams": {"log": LOG}}), {"log": TWO}, frozenset({"s"})
)
EQUAL, DIFFERENT, FOLDED = Compared("s", 3), Compared("s", 3, 1), Compared("s", why_not="folded")


def now(read: Read, holes: dict[str, dict[str, str]] | None = None) -> Manifest:
    return Manifest("t", TransactionAttempt(1, 0), "token", "code", "digest", read, {}, holes or {})


def test_what_was_a_hole_is_not_read_again() -> None:
    again = COUNTED.plan_again().to_json()
    assert again == {"format": 2, "streams": {"log": {"partitions": {"0": {"start": 0, "end": 2}}, "continues": ["0"]}}}


@pytest.mark.parametrize("format_", [1, 2])
def test_a_stream_of_which_nothing_was_read_is_left_out(format_: int) -> None:
    whole = {"n": 7} if format_ == 1 else {"plan": {"n": 7}}
    plan = BatchPlan.from_json({"format": format_, "streams": {"log": LOG, "list": whole}, "parameters": {"a": 1}})
    again = replace(COUNTED, plan=plan, read={"list": {"": ReadPartition(1, "1")}}).plan_again()
    assert again.to_json() == {"format": format_, "streams": {"list": whole}, "parameters": {"a": 1}}


def test_the_interval_is_that_of_the_plan() -> None:
    plan = BatchPlan.from_json({"format": 2, "streams": {"days": {"plan": {"files": {}}, "interval": DAY}}})
    assert str(replace(COUNTED, plan=plan).interval) == "/".join(DAY)
    assert COUNTED.interval is None


def test_the_same_records_are_those_that_were_counted() -> None:
    check_read(COUNTED, now({"log": TWO}))


@pytest.mark.parametrize(
    ("read", "holes", "told"),
    [
        ({"log": {"0": ReadPartition(3, "20")}}, {}, ("TX610", "2", "3")),
        ({"log": {"0": ReadPartition(2, "21")}}, {}, ("TX610", "2")),
        ({}, {}, ("TX610", "2")),
        ({}, {"log": {"0": "it is away"}}, ("TX610", "partition", "'0'", "'log'")),
    ],
)
def test_other_records_are_told(read: Read, holes: dict[str, dict[str, str]], told: tuple[str, ...]) -> None:
    with refused(*told):
        check_read(COUNTED, now(read, holes))


def test_a_difference_weighs_more_than_what_cannot_be_compared() -> None:
    for some in product((EQUAL, DIFFERENT, FOLDED), repeat=2):
        worst = DIFFERENT if DIFFERENT in some else FOLDED if FOLDED in some else EQUAL
        assert judge(some) is worst.outcome
    assert judge([]) is Outcome.EQUAL


def test_what_is_wrong_and_what_is_missing_is_not_well() -> None:
    assert [each.ok for each in Outcome] == [True, False, False, False, True]
    assert not Finding("missing", reason="a gap").ok


@pytest.mark.parametrize(
    ("read", "told"),
    [
        ({"days": {"": ReadPartition(2, "20")}}, None),
        ({"days": {"": ReadPartition(5, "9")}}, "3 records of stream 'days' came late and are not counted"),
        ({"days": {"": ReadPartition(1, "9")}}, "the interval of stream 'days' has 1 records now, others than the 2"),
        ({"days": {"": ReadPartition(2, "9")}}, "the interval of stream 'days' has 2 records now, others than the 2"),
    ],
)
def test_what_came_late_is_told(read: Read, told: str | None) -> None:
    found = late(replace(COUNTED, read={"days": {"": ReadPartition(2, "20")}}), read)
    assert found == told or (told is not None and str(found).startswith(told))


def test_what_is_at_the_horizon_is_folded() -> None:
    assert [reason_if_folded(txid, 4) is None for txid in (3, 4, 5)] == [False, False, True]


def test_a_sample_is_that_of_its_seed_in_order_and_no_larger_than_all() -> None:
    assert sample(range(1, 100), 5, 7) == sorted(sample(range(1, 100), 5, 7))
    assert len({tuple(sample(range(1, 100), 5, seed)) for seed in range(9)}) > 1
    assert sample([1, 2], 5, 7) == [1, 2]
