"""The commit in memory: writes everything, or nothing (R10). Compare `postgres.commit`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from txbatch import failpoints
from txbatch.core.batch.manifest import check_manifest, check_states
from txbatch.core.batch.transaction import Batch, BatchKind, Run
from txbatch.core.naming import naming
from txbatch.core.protocol import decisions
from txbatch.core.protocol.ledger import Committed
from txbatch.core.protocol.record_numbers import check_base, check_same_number
from txbatch.core.protocol.restate import check_not_folded
from txbatch.core.topology.quarantine import check_joined
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
    batch: Batch,
    partials: Partials,
    run: Run | None,
) -> Committed:
    """Apply the partials of the attempt in `batch`. The partials of states apart come last, into the `warehouses` (R21)."""
    now = tables.batch(batch.topology, batch.txid)
    newest = tables.newest_attempt(now)
    open_before, last_committed = (
        tables.open_before(now.topology, now.txid),
        tables.last_committed(now.topology),
    )
    offsets = tables.offsets(now.topology)
    apply = decisions.check_commit(now, batch, open_before, last_committed, offsets)
    if not apply or newest.manifest is None:
        return Committed(now, applied=False)
    now = now if run is None else replace(now, lease_run=run.name)
    tables.check_definition(topology)
    check_manifest(newest.manifest, newest.assignment)
    check_states(newest.manifest, [aggregate.state.name for aggregate in topology.aggregates])
    check_joined(now, newest.manifest, topology.aggregates, lambda name: tables.states[name].definition.joined)
    expected = {name: staged.rows for name, staged in newest.manifest.states.items()}
    numbers = topology.numbered
    if now.kind is BatchKind.RESTATE:
        version = tables.version(now.topology, now.position)
        check_not_folded(version)
        check_same_number(version, numbers, newest.manifest)
        tables.take_place(now)
    else:
        check_base(now, numbers, lambda: tables.next_numbers(now.topology, numbers))
    for aggregate in topology.aggregates:
        name = aggregate.state.name
        if aggregate.state.database is None:
            with naming(f"{now.topology} {now.attempt}, state {name!r}"):
                apply_partials(tables, aggregate, list(partials[name]), now, expected[name])
    apart = [aggregate for aggregate in topology.aggregates if aggregate.state.database is not None]
    failpoints.hit("commit.loaded")
    warehouses.commit(ledger, apart, newest.assignment, partials, expected, tables.view)
    tables.set_applied_apart([aggregate.state.name for aggregate in apart], now.txid)
    tables.committed_at[now.topology, now.txid] = clock()
    final = tables.record(now, newest.manifest)
    event_time.note_committed(tables, topology, final, newest.manifest)
    committed = Committed(final, applied=True)
    failpoints.hit("commit.before_commit")
    return committed
