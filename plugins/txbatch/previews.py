"""Preview a restate: the changes by counting batches again. Reads the source with Spark, and stores nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.planned_ranges import read
from txbatch.core.batch.transaction import Restate, Run
from txbatch.core.corrections.verify import EmitAgain
from txbatch.core.errors import SourceChanged, Unverifiable
from txbatch.core.protocol.planning_again import plan_restate
from txbatch.core.protocol.restate import check_whole
from txbatch.postgres.corrections.restate_preview import Effect, effects
from txbatch.run.steps import Steps
from txbatch.tables import plain
from txbatch.wiring import reader_beside

NAME = "plan"


def restates_of(
    steps: Steps, txids: Iterable[int], *, accept_missing: bool = False, skipped: bool = False
) -> list[Restate]:
    """Return the restate of each position of some txids, in order. Raise UnknownName for an unknown txid."""
    topology, ledger = steps.job.topology, steps.ledger
    ledger.check_definition(topology, steps.job.name)
    positions = sorted({ledger.batch(topology.name, txid).position for txid in txids})
    return [Restate(each, NAME, None, accept_missing, skipped) for each in positions]


def preview_restates(steps: Steps, emitter: EmitAgain, asked: Iterable[Restate]) -> list[dict[str, Any]]:
    """Return the records and changes of each restate, by itself. Raise the errors of the restate. Ends the emitter."""
    try:
        return [_preview(steps, emitter, each) for each in asked]
    finally:
        emitter.close()


def _preview(steps: Steps, emitter: EmitAgain, asked: Restate) -> dict[str, Any]:
    ledger, topology = steps.ledger, steps.job.topology
    version = ledger.version(topology.name, asked.position)
    metadata = plan_restate(
        topology, ledger.head(topology.name, Run(NAME, restate=asked)), version, asked, ledger.upstream
    )
    reader = reader_beside(steps)
    (counted,) = reader.batches_by_txid(topology.name, [version.current.txid])
    try:
        plan = BatchPlan.from_json(metadata)
        again = emitter.emit(topology.name, version.current.txid, plan, asked.position)
        if not asked.accept_missing:
            check_whole(topology, version, plan, again.manifest)
        states = [_state(each) for each in effects(reader.engine, topology, version, again)]
    except Unverifiable as error:
        raise SourceChanged(f"{topology.name}: txid {asked.position} cannot be counted again: {error}") from error
    return {
        "topology": topology.name,
        "position": asked.position,
        "replaces": version.current.txid,
        "records_before": counted["records"],
        "records_after": again.manifest.records,
        "took": reader.emitted_in(topology.name, version.current.txid),
        "states": states,
        **read(metadata),
    }


def _state(effect: Effect) -> dict[str, Any]:
    found = effect.compared
    rows = {"rows_before": found.keys, "rows_after": effect.rows_after}
    examples = [asdict(each) for each in found.examples]
    return {
        "state": found.state,
        "keys_touched": effect.touched,
        "keys_changed": found.different,
        **rows,
        "examples": examples,
    }


def headline(row: Mapping[str, Any]) -> str:
    """Return the first line of a preview: the batch, and its records before and after."""
    took = f"; emitting it took {plain(row['took'])}" if row["took"] else ""
    return (
        f"txid {row['replaces']}, at position {row['position']}, would be counted again: "
        f"{row['records_after']:,} records, {row['records_before'] or 0:,} before{took}"
    )
