"""Numbers of records: which a batch's have, and what is refused where it is defined (R29)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from refusals import refused
from support import LogSpout

from txbatch import AppendState, Count, FixedBatchSpout, Max, OpaqueState, StateSpout, Stream, Topology
from txbatch.core.batch.plan import BatchPlan, Range, Ranges
from txbatch.core.errors import DefinitionError
from txbatch.core.protocol.bulk import go_together, reason_against
from txbatch.core.protocol.record_numbers import pin_record_numbers
from txbatch.core.topology.walks import one_for_one, parted, per_batch
from txbatch.direct.operations import records
from txbatch.memory.ledger import MemoryLedger
from txbatch.memory.runner import run
from txbatch.testing import FeederBatchSpout, LocalTopology

pytestmark = pytest.mark.rule("R29")


def visits(*shops: str | None, max_pending: int = 1, size: int = 3) -> Stream:
    return Topology("t", max_pending).new_stream("visits", FixedBatchSpout("shop string", size, *shops or "xyz"))


def test_records_have_numbers_in_the_order_of_all_fields() -> None:
    stream = visits().numbered("at")
    assert [(each.name, each.type) for each in stream.fields] == [("shop", "string"), ("at", "bigint")]
    read = {"visits": {"b": [{"shop": "y"}, {"shop": None}], "a": [{"shop": "x"}]}}
    found = records(stream.node, read, plan=BatchPlan({}, base={"visits": 5}))
    assert [*found] == [{"shop": "x", "at": 5}, {"shop": "y", "at": 6}, {"shop": None, "at": 7}]
    assert [each["at"] for each in records(stream.node, read)] == [None, None, None]


def test_what_it_is_among_the_operations() -> None:
    stream = visits().numbered()
    assert one_for_one(stream.node) == stream.roots
    assert per_batch(stream.node) == ("numbered by number",)
    assert parted(stream.node) is stream.node


def test_batches_go_on_where_the_last_one_ended() -> None:
    """Seven visits in batches of three, by windows of five; a global value beside them."""
    stream = visits(*"gfedcba").numbered()
    fives = stream.each(lambda record: record["number"] // 5, "five bigint")
    fives.group_by("five").persistent_aggregate(OpaqueState("s"), n=Count(), last=Max("shop"))
    stream.persistent_aggregate(OpaqueState("all"), newest=Max("number"))
    topology: Any = stream.topology
    ledger = run(topology)
    assert {key: row.value for key, row in ledger.rows("s").items()} == {(0,): (5, "g"), (1,): (2, "d")}
    assert ledger.rows("all")[()].value == (6,)
    assert topology.numbered == {"visits"}


def test_a_reader_of_changes_gets_each_window_once_when_it_is_full() -> None:
    """Also where a restate changes what is counted in it."""
    visits, full, ledger = Topology("visits"), Topology("full"), MemoryLedger()
    spout = FeederBatchSpout("price int")
    twos = visits.new_stream("in", spout).numbered().each(lambda visit: visit["number"] // 2, "two bigint")
    twos.group_by("two").persistent_aggregate(OpaqueState("twos"), visits=Count(), most=Max("price"))
    fields = "two bigint, visits_before bigint, visits_after bigint, most_after int"
    changes = full.new_stream("twos", StateSpout("twos", fields))
    became = changes.filter(lambda each: each["visits_after"] == 2 and (each["visits_before"] or 0) < 2)
    became.project("two", "most_after").persist(AppendState("full"))
    counting, reading = LocalTopology(visits, ledger), LocalTopology(full, ledger)
    for prices in ((1, 2, 3), (4,), (5, 6, 7)):
        spout.feed(*prices)
        counting.run()
        reading.run()
        spout.mend(1, 10, 20, 30)
        counting.restate(1, why="again")
        reading.run()
    found = sorted((row["two"], row["most_after"]) for row in reading.rows("full"))
    assert found == [(0, 2), (1, 30), (2, 6)]


def test_a_plan_says_them_in_a_format_of_its_own() -> None:
    said = {"format": 7, "streams": {"a": {"plan": [7]}}, "base": {"a": 3, "b": 0}}
    assert pin_record_numbers({"format": 2, "streams": {"a": {"plan": [7]}}}, {"b", "a"}, {"a": 3}) == said
    assert BatchPlan.from_json(said).to_json() == said


def test_each_batch_is_emitted_by_itself() -> None:
    topology = Topology("t")
    stream = topology.new_stream("in", Log({})).numbered()
    stream.persistent_aggregate(OpaqueState("s"), n=Count())
    assert reason_against(topology) == "state 's': numbered by number is made of all records of a batch"
    first, other = (BatchPlan({"in": Ranges({name: Range(0, 1)})}) for name in "ab")
    assert go_together(topology, first, other)
    assert not go_together(topology, replace(first, base={"in": 0}), replace(other, base={"in": 0}))


class Log(LogSpout):
    """A source of which one pass reads any ranges."""

    fusable = True

    def fused(self, plans: Sequence[Any]) -> Any:
        return {"partitions": {name: of for plan in plans for name, of in plan["partitions"].items()}}


def _merged(stream: Stream) -> Stream:
    topology: Any = stream.topology
    other = topology.new_stream("web", FixedBatchSpout("shop string", 3, "w"))
    return topology.merge(stream, other, name="both").numbered()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda s: s.numbered("shop"), ("TX102", "'shop'")),
        (lambda s: s.numbered("SHOP"), ("TX102", "'SHOP'")),
        (lambda s: s.numbered(""), ("TX101", "''")),
        (lambda s: s.filter("true").numbered(), ("TX107", "watermark")),
        (lambda s: s.numbered().numbered("b"), ("TX107", "watermark")),
        (_merged, ("TX107", "watermark")),
        (lambda s: s.numbered().partition_aggregate(n=Count()), ("TX107", "partition")),
    ],
)
def test_what_cannot_be_is_refused_by_name(make: Callable[[Any], Any], told: tuple[str, ...]) -> None:
    with refused(*told):
        make(visits())


def test_batches_that_are_planned_ahead_are_refused() -> None:
    stream = visits(max_pending=3).numbered()
    stream.persistent_aggregate(OpaqueState("s"), n=Count())
    told = "topology 't': max_pending=3, and stream 'visits' is numbered: .* leave max_pending out"
    with pytest.raises(DefinitionError, match=told):
        stream.topology.check()  # type: ignore[attr-defined]
    assert visits().with_processing_time().numbered().fields[-1].name == "number"
