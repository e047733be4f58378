"""The spout's plan is any JSON value, and the framework's words stand apart from it; plans of older ledgers go on (R3, R6)."""

from __future__ import annotations

from typing import Any

import pytest
from refusals import refused
from sqlalchemy import text
from support import Keyed, ListSpout, LogSpout, run, word_count

from txbatch.core.batch.transaction import Batch
from txbatch.core.protocol.coordinator import NothingNew

ONE: dict[str, list[Keyed]] = {"word_count": [(("dog",), (1,))]}
PLANS: list[Any] = [
    0,
    7,
    False,
    "",
    "text",
    [],
    ["a", 1],
    {},
    {"partitions": 3},
    {"partitions": {"a": {"start": 0, "end": 1}}, "continues": ["a"]},
    {"unreadable": {"a": "down"}},
    {"files": {"a": 1}},
    {"interval": ["a", "b"]},
    {"start": 0, "end": 1, "gone": "yes"},
    {"plan": {"plan": 1}},
    {"format": 9, "streams": {}},
]


class Planner(ListSpout):
    """Plans what it is told, and remembers what it is asked."""

    def __init__(self, *plans: Any) -> None:
        super().__init__()
        self.plans, self.prev = list(plans), list[Any]()

    def initialize_transaction(self, txid: int, prev_metadata: Any, curr_metadata: Any) -> Any:
        self.prev.append(prev_metadata)
        return self.plans[txid - 1] if txid <= len(self.plans) else None


def whole(backing: Any, topology: Any, name: str) -> Batch:
    """A batch through its steps."""
    batch = backing.initialize(topology, name)
    backing.emit(topology, batch, ONE, name)
    assert backing.commit(topology, batch, ONE).applied
    assert isinstance(batch, Batch)
    return batch


@pytest.mark.rule("R3")
@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_any_json_value_is_a_plan(backing: Any, plan: Any) -> None:
    spout = Planner(plan, plan)
    topology = word_count(spout)
    batches = [whole(backing, topology, name) for name in "12"]
    assert [batch.plan.streams["words"].plan for batch in batches] == [plan, plan]
    assert spout.prev == [None, plan]
    assert isinstance(backing.initialize(topology, "3"), NothingNew)
    assert backing.state("word_count") == {("dog",): (2, 2)}
    if hasattr(backing, "engine"):
        with backing.engine.connect() as connection:
            assert len(connection.execute(text("SELECT * FROM report.partitions")).all()) == 2
            assert connection.execute(text("SELECT * FROM report.completeness")).all() == []


@pytest.mark.rule("R3")
def test_a_plan_as_large_as_its_spout_may_plan_is_committed(backing: Any) -> None:
    """Of an interval with ten thousand files, each named; and the next one goes on from it."""
    spout = Planner(*[{"files": {f"{number:05}-{'x' * 90}.csv": [1, number] for number in range(12_000)}}] * 2)
    spout.metadata_bytes_max = 10_000_000
    topology = word_count(spout)
    assert [whole(backing, topology, name).txid for name in "12"] == [1, 2]
    assert backing.state("word_count") == {("dog",): (2, 2)}


@pytest.mark.rule("R6")
@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_whatever_is_planned_continues_what_is_committed(backing: Any, plan: Any) -> None:
    """Two in flight, the first is aborted: the second would pass over its records."""
    topology = word_count(Planner(plan, plan, plan), max_pending=2)
    first, second = backing.initialize(topology, "1"), backing.initialize(topology, "2")
    backing.emit(topology, second, ONE, "2")
    backing.ledger.abort("word_count", first.txid, "wrong")
    with refused("TX407", "planned", "txid 1", "committed"):
        backing.commit(topology, second, ONE)


@pytest.mark.rule("R3")
@pytest.mark.parametrize(
    "plan", [{"number": 0, "start": 0, "end": 1}, {"partitions": {"a": {"start": 0, "end": 1}}}], ids=str
)
def test_a_batch_in_flight_of_an_older_ledger_goes_on(backing: Any, plan: Any) -> None:
    """Its metadata stays as it is stored, and so its digest; the next plan continues it."""
    topology = word_count(LogSpout({"a": 20}) if "partitions" in plan else ListSpout(1, 5))
    backing.ledger.register(topology, "jobs/job.py")
    stored = {"format": 1, "streams": {"words": plan}}
    old = backing.ledger.plan(backing.ledger.head("word_count", run("1")), run("1"), stored)
    assert old.metadata == stored
    assert old.plan.streams["words"].plan == plan
    backing.emit(topology, old, ONE, "1")
    assert backing.commit(topology, old, ONE).applied
    after = whole(backing, topology, "2").plan.streams["words"]
    assert [range_["start"] for range_ in after.ranges.values()] == [1]
