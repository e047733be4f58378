"""Stored plans, of both formats: read, written again as they were, and known by the same digest."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from refusals import refused

from txbatch.core.batch.plan import BatchPlan, Gone, OfInterval, Range, Ranges, Successive
from txbatch.core.stored_json import canonical_json, digest

STORED = json.loads(Path(__file__).with_name("stored_plans.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("stored", STORED, ids=lambda stored: f"{stored['plan'].get('format')} {stored['what']}")
def test_a_stored_plan_is_written_again_as_it_was(stored: Any) -> None:
    """The digest is the one that manifests of its attempts carry (R5)."""
    plan = BatchPlan.from_json(stored["plan"])
    assert canonical_json(plan.to_json()) == canonical_json(stored["plan"])
    assert digest(plan.to_json()) == stored["digest"]
    assert {name: type(planned).__name__ for name, planned in plan.streams.items()} == stored["streams"]
    assert {name: type(planned).__name__ for name, planned in plan.idle.items()} == stored["idle"]


@pytest.mark.parametrize(
    "stored", [each for each in STORED if each["plan"]["format"] == 2], ids=lambda each: each["what"]
)
def test_both_formats_give_the_spout_the_same(stored: Any) -> None:
    plan = BatchPlan.from_json(stored["plan"])
    older = BatchPlan.from_json(replace(plan, format=1).to_json())
    assert [each.plan for each in older.streams.values()] == [each.plan for each in plan.streams.values()]


def test_what_is_read_of_ranges() -> None:
    ranges = {
        "partitions": {"a": {"start": 0, "end": 1, "records": 1}, "b": {"start": 2, "end": 3, "gone": None}},
        "continues": ["a"],
        "unreadable": {"c": "down"},
    }
    a, b = Range(0, 1, rest={"records": 1}), Range(2, 3, Gone(None))
    found = BatchPlan.from_json({"format": 2, "streams": {"s": ranges}}).streams["s"]
    assert found == Ranges({"a": a, "b": b}, ("a",), {"c": "down"})
    assert (found.plan, found.ranges) == (ranges, ranges["partitions"])
    assert found.only(["b"]).plan == {**ranges, "partitions": {"b": ranges["partitions"]["b"]}}


def test_what_is_read_of_streams_without_partitions() -> None:
    streams = {"w": {"plan": [7]}, "i": {"plan": {"f": 1}, "interval": ["a", "b"]}}
    plan = BatchPlan.from_json({"format": 2, "streams": streams, "parameters": {"top": 3}})
    assert plan == BatchPlan({"w": Successive([7]), "i": OfInterval({"f": 1}, ["a", "b"])}, parameters={"top": 3})
    assert [(each.ranges, each.unreadable) for each in plan.streams.values()] == [({"": [7]}, {}), ({"": {"f": 1}}, {})]
    assert plan.partitioned == {}
    assert plan.streams["w"].only(["x"]) == Successive([7])


@pytest.mark.parametrize("format_", [9, 99, 0, -1, "2", None, True, 2.0])
def test_a_plan_of_another_format_is_refused(format_: Any) -> None:
    with refused("TX609", "txid 7", "1"):
        BatchPlan.from_json({"format": format_, "streams": {}}, "t: the plan of txid 7")


def test_a_plan_that_is_to_be_read_whole_says_so_in_a_format_of_its_own() -> None:
    """An older txbatch, which would leave out what an opaque spout cannot read, does not read it."""
    plan = BatchPlan({"w": Successive([7])}, whole=True)
    assert plan.to_json() == {"format": 3, "streams": {"w": {"plan": [7]}}, "whole": True}
    assert BatchPlan.from_json(plan.to_json()).whole
    assert not BatchPlan.from_json(BatchPlan({"w": Successive([7])}).to_json()).whole


def test_a_plan_that_fixes_what_is_looked_up_says_so_in_a_format_of_its_own() -> None:
    """An older txbatch, which would look up in whatever is there, does not read it."""
    plan = BatchPlan({"w": Successive([7])}, static={"names": {"a.csv": 9}})
    stored = {"format": 4, "streams": {"w": {"plan": [7]}}, "static": {"names": {"a.csv": 9}}}
    assert plan.to_json() == BatchPlan.from_json(stored).to_json() == stored
    assert replace(plan, whole=True).to_json() == {**stored, "whole": True}
    assert BatchPlan.from_json({"format": 2, "streams": {}}).static == {}


def test_an_interval_says_how_many_records_in_a_format_of_its_own() -> None:
    """A spout's own key of that name, in a plan that was stored before, is only the spout's."""
    plan = BatchPlan({"i": OfInterval({"records": 7}, ["a", "b"], 7)})
    stored = {"format": 8, "streams": {"i": {"plan": {"records": 7}, "interval": ["a", "b"], "records": 7}}}
    assert plan.to_json() == stored
    assert BatchPlan.from_json(stored).streams == plan.streams
    older = {"format": 2, "streams": {"i": {"plan": {"records": 7}, "interval": ["a", "b"]}}}
    assert BatchPlan.from_json(older).streams == {"i": OfInterval({"records": 7}, ["a", "b"])}
    assert BatchPlan.from_json(older).to_json() == older
