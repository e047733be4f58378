"""The commit in memory: writes everything, or nothing (R10). Compare `postgres.commit`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from txbatch import failpoints
from txbatch.core.batch.transaction import Batch, BatchKind, BatchStatus, Run
from txbatch.core.naming import naming
from txbatch.core.protocol.commit import CommitFacts, asks_definition, decide_commit
from txbatch.core.protocol.ledger import Committed
from txbatch.core.topology.topology import Topology
from txbatch.memory import event_time
from txbatch.memory.apart import MemoryWarehouses
from txbatch.memory.stored import Partials
from txbatch.memory.tables import Tables
from txbatch.memory.update import apply as apply_partials


def commit_batch(
    tables: Tables,
    warehouses: MemoryWarehouses,
    ledger: str,
    clock: Callable[[], datetime],
    topology: Topology,
    named: Batch,
    partials: Partials,
    run: Run | None,
) -> Committed:
    """Apply the partials of the attempt in `named`. The partials of states apart come last, into the `warehouses` (R21)."""
    plan = decide_commit(topology, named, _facts(tables, topology, tables.batch(named.topology, named.txid)))
    if isinstance(plan, Committed):
        return plan
    batch = plan.batch if run is None else replace(plan.batch, lease_run=run.name)
    if plan.replaced is not None:
        tables.take_place(plan.replaced, batch)
    for state in plan.here:
        with naming(f"{batch.topology} {batch.attempt}, state {state.name!r}"):
            apply_partials(tables, state, list(partials[state.name]), batch)
    failpoints.hit("commit.loaded")
    warehouses.commit(ledger, plan.assignment, plan.apart, partials, tables.view)
    tables.set_applied_apart([state.name for state in plan.apart], batch.txid)
    tables.committed_at[batch.topology, batch.txid] = clock()
    final = tables.record(batch, plan.manifest)
    event_time.note_committed(tables, plan, final)
    failpoints.hit("commit.before_commit")
    return Committed(final, applied=True)


def _facts(tables: Tables, topology: Topology, batch: Batch) -> CommitFacts:
    newest, name = tables.newest_attempt(batch), batch.topology
    before = tables.open_before(name, batch.txid), tables.last_committed(name), tables.offsets(name)
    order = newest.assignment, newest.manifest, *before
    if batch.status is not BatchStatus.EMITTED:
        return CommitFacts(batch, *order)
    asked = asks_definition(topology, batch, tables.topologies[name].digest)
    definition = tables.known(topology) if asked else None
    version = tables.version(name, batch.position) if batch.kind is BatchKind.RESTATE else None
    return CommitFacts(batch, *order, definition, version, tables.next_numbers(name, topology.numbered))
