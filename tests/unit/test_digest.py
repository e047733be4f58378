"""The digest of a definition: where it is equal to the stored one, there is nothing to compare (R23)."""

from __future__ import annotations

from typing import Any

import pytest
from redefined import JOB, defined
from support import LogSpout, code, manifest_of

from txbatch import Avg, Count, Max, Min, OpaqueState, Sum, Topology, TransactionalState
from txbatch.core.batch.transaction import Run
from txbatch.core.definition.digest import definition_digest
from txbatch.core.errors import NameTaken, SchemaMismatch
from txbatch.memory.ledger import MemoryLedger

pytestmark = pytest.mark.rule("R23")


def named(name: str, **more: Any) -> Topology:
    topology = Topology(name, **more)
    stream = topology.new_stream("in", LogSpout({"a": 1_000}))
    stream.group_by("word").persistent_aggregate(OpaqueState("s"), count=Count())
    return topology


def of_stream(name: str, was: str | None = None) -> Topology:
    topology = Topology("t")
    stream = topology.new_stream(name, LogSpout({"a": 1_000}), was=was)
    stream.group_by("word").persistent_aggregate(OpaqueState("s"), count=Count())
    return topology


def by_interval() -> Topology:
    topology = defined()
    topology.streams["in"].roots[0].spout.by_interval = True
    return topology


DEFINITIONS = [
    defined(),
    defined(count=Count(), mean=Avg("n"), low=Min("n")),
    defined(count=Count(), low=Min("n")),
    defined(low=Min("n"), count=Count()),
    defined(count=Count(), average=Avg("n", was="mean"), low=Min("n")),
    defined(state=TransactionalState("s")),
    defined(state=OpaqueState("s", contributions=False)),
    defined(state=OpaqueState("s", database="warehouse")),
    defined(fields="word string, n int, x float", low=Min("n"), high=Max("x")),
    defined(fields="word string, n bigint, x double", low=Min("n"), high=Max("x")),
    defined(fields="word string, n smallint, x double"),
    defined(fields="word binary, n int, x double"),
    defined(count=Count("n")),
    defined(n=Count("n", was="count")),
    defined(n=Avg("n"), q=Sum("n")),
    defined(n_sum=Sum("n", was="q"), mean=Avg("n", was="n")),
    defined(count=Count(), most=Max("n", since="now")),
    defined(count=Count(), most=Max("n")),
    defined(state=[OpaqueState("s"), OpaqueState("late", since="now")]),
    defined(state=[OpaqueState("s"), OpaqueState("late")]),
    defined(state=[OpaqueState("words", was="s"), OpaqueState("other")]),
    defined(state=[OpaqueState("other"), OpaqueState("s")]),
    named("t"),
    named("u"),
    named("u", was="t"),
    of_stream("in"),
    of_stream("out"),
    of_stream("out", was="in"),
    by_interval(),
]


def history(topology: Topology, *, committed: bool) -> MemoryLedger:
    """A ledger with a batch of the topology, of which none is planned before `committed`."""
    ledger, run = MemoryLedger(), Run("1")
    ledger.register(topology, JOB)
    if committed:
        streams = {name: {"partitions": {"a": {"start": 0, "end": 5}}} for name in topology.streams}
        batch = ledger.plan(ledger.head(topology.name, run), run, {"streams": streams})
        assert batch is not None
        assignment = ledger.start_attempt(batch, run, code())
        partials: dict[str, Any] = {each.state.name: [] for each in topology.aggregates}
        (batch,) = ledger.record_manifests([(assignment, manifest_of(topology, assignment, partials))])
        assert ledger.commit(topology, batch, partials).applied
    return ledger


def differs(ledger: MemoryLedger, topology: Topology) -> bool:
    try:
        return bool(ledger.redefinitions(topology))
    except (NameTaken, SchemaMismatch):
        return True


@pytest.mark.parametrize("committed", [False, True])
def test_definitions_with_one_digest_have_no_difference(committed: bool) -> None:
    told = []
    for before in DEFINITIONS:
        ledger = history(before, committed=committed)
        stored = ledger.tables.topologies[before.name].digest
        assert stored == definition_digest(before)
        told += [differs(ledger, now) for now in DEFINITIONS if definition_digest(now) != stored]
        assert not any(differs(ledger, now) for now in DEFINITIONS if definition_digest(now) == stored)
    assert any(told)


def test_the_digest_is_of_the_definition_and_not_of_the_object() -> None:
    assert definition_digest(defined()) == definition_digest(defined())
    same = 1  # of_stream("in") is named("t")
    assert len({definition_digest(each) for each in DEFINITIONS}) == len(DEFINITIONS) - same
