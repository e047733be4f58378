"""What is read of stored metadata, of both formats."""

from __future__ import annotations

from typing import Any

import pytest

from txbatch.core.plan import StreamPlan, partitioned, streams_of

RANGES = {"partitions": {"a": {"start": 0, "end": 1}}, "continues": ["a"], "unreadable": {"b": "down"}}


@pytest.mark.parametrize("format_", [1, 2])
def test_partitions_read_the_same_in_both_formats(format_: int) -> None:
    found = streams_of({"format": format_, "streams": {"s": RANGES}})["s"]
    assert (found, found.to_json()) == (partitioned(RANGES), RANGES)
    assert (found.ranges, found.continues, found.unreadable) == (RANGES["partitions"], ["a"], {"b": "down"})
    assert partitioned({"partitions": {**found.ranges, "c": {}}}).only(["a"]).plan == {"partitions": found.ranges}


@pytest.mark.parametrize(
    "plan", [{"partitions": 3}, {"partitions": {"a": 1}}, {"unreadable": 1}, {"interval": 5}, 7, [], "x"]
)
def test_whatever_an_older_ledger_holds_can_be_read(plan: Any) -> None:
    """Such a plan could be stored, and then broke every head of its topology."""
    found = streams_of({"streams": {"s": plan}})["s"]
    assert (found.plan, found.partitions, found.ranges) == (plan, None, {"": plan})


@pytest.mark.parametrize("planned", [StreamPlan(0), StreamPlan([1]), StreamPlan({"plan": 1}, interval=["a", "b"])])
def test_what_is_stored_is_read_again(planned: StreamPlan) -> None:
    assert streams_of({"format": 2, "streams": {"s": planned.to_json()}}) == {"s": planned}
