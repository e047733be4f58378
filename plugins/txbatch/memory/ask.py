"""Asks a query stream, with answers from the states in memory.

>>> from txbatch import Count, FixedBatchSpout, OpaqueState, Sum, Topology
>>> from txbatch.memory.runner import run
>>> topology = Topology("words")
>>> grouped = topology.new_stream("words", FixedBatchSpout("word string", 2, "how", "are", "are")).group_by("word")
>>> counts = grouped.persistent_aggregate(OpaqueState("words"), count=Count())
>>> asked = topology.new_query_stream("words", "args string").flat_map(lambda r: r["args"].split(), "word string")
>>> total = asked.state_query(counts, "word").aggregate(total=Sum("count"))
>>> ask(run(topology), topology, "words", ["how are you", "are"])
[[{'total': 3}], [{'total': 2}]]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from txbatch.core.aggregates.merge import Partial
from txbatch.core.errors import UnknownName
from txbatch.core.state.state import Value
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.topology.sessions import join_pieces
from txbatch.core.topology.topology import Topology
from txbatch.direct.batch_operations import Record
from txbatch.direct.queries import Key, answers
from txbatch.memory.ledger import MemoryLedger


def ask(ledger: MemoryLedger, topology: Topology, query: str, questions: Sequence[Any]) -> list[list[Record]]:
    """Return the answer to each question from the states in memory, all of one moment; compare `Reports.ask`."""
    with ledger.transaction() as tables:
        rows = {name: ledger.rows(name) for name in tables.states}

    def look_up(aggregate: PersistentAggregate, keys: Sequence[Key]) -> list[Mapping[str, Any] | None]:
        name = aggregate.state.name
        if name not in rows:
            raise UnknownName(f"no state {name!r} is known; run its topology first")
        found = _partials(aggregate, rows[name])
        return [_finished(aggregate, found.get(key)) for key in keys]

    return answers(topology.query_stream(query), questions, look_up)


def _partials(aggregate: PersistentAggregate, rows: Mapping[Key, Value]) -> Mapping[Key, Partial]:
    """Return the values of rows in memory without tombstones; for a state by sessions, the joined pieces."""
    there = {key: (row.value, row.txid) for key, row in rows.items() if row.value is not None}
    return {key: partial for key, (partial, _) in join_pieces(aggregate, there).items()}


def _finished(aggregate: PersistentAggregate, partial: Partial | None) -> Mapping[str, Any] | None:
    """Return a key's values like in a report; None for a missing key."""
    if partial is None:
        return None
    of = {name: [n for n, each in enumerate(aggregate.columns) if each.value == name] for name in aggregate.aggregates}
    values = aggregate.aggregates.items()
    return {name: aggregator.finish(tuple(partial[n] for n in of[name])) for name, aggregator in values}
