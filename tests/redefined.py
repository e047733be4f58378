"""A topology whose definition changes, on either ledger."""

from __future__ import annotations

from typing import Any

import pytest
from support import LogSpout

from txbatch import Count, OpaqueState, Topology
from txbatch.core.batch.transaction import Batch
from txbatch.core.definition.redefinition import how
from txbatch.core.errors import SchemaMismatch

JOB, WHY = "jobs/job.py", "finance asks for it"


def defined(fields: str = "word string, n int, x double", state: Any = None, **values: Any) -> Topology:
    topology, spout = Topology("t"), LogSpout({"a": 1_000})
    spout.fields = fields
    stream = topology.new_stream("in", spout)
    given = [state or OpaqueState("s")] if not isinstance(state, list) else state
    for each in given:
        stream.group_by("word").persistent_aggregate(each, **(values or {"count": Count()}))
    return topology


def whole(backing: Any, topology: Topology, name: str, **words: Any) -> Batch:
    return backing.whole(topology, {each.state.name: keyed(words) for each in topology.aggregates}, name)


def keyed(words: Any) -> Any:
    return [((word,), partial if isinstance(partial, tuple) else (partial,)) for word, partial in words.items()]


def change(backing: Any, topology: Topology) -> list[tuple[str, str]]:
    """Refused at first by what a run says; then applied, after which nothing is otherwise any more."""
    planned = [(how(each), each.what) for each in backing.ledger.redefinitions(topology)]
    with pytest.raises(SchemaMismatch, match=r"txbatch change jobs/job\.py") as refused:
        backing.initialize(topology, "too early")
    assert all(what in str(refused.value) for _, what in planned)
    applied = backing.ledger.change(topology, JOB, WHY, "ann")
    assert [(how(each), each.what) for each in applied] == planned
    assert backing.ledger.redefinitions(topology) == []
    assert backing.ledger.change(topology, JOB, WHY, "ann") == []
    return planned
