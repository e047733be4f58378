"""`txbatch restate --plan`: the changes by counting batches again. Reads the source with Spark, and stores nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import click

from txbatch.cli.differences import key_told, sides_told
from txbatch.cli.plan.explain import read
from txbatch.cli.printing import print_table
from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Restate, Run
from txbatch.core.corrections.verify import EmitAgain
from txbatch.core.errors import SourceChanged, Unverifiable
from txbatch.core.protocol.planning import plan_restate
from txbatch.core.protocol.restate import check_whole
from txbatch.core.text import one_line
from txbatch.launch.job_file import Job, check_emission
from txbatch.postgres.corrections.restate_preview import Effect, effects
from txbatch.run.steps import Steps
from txbatch.settings import Settings
from txbatch.tables import plain
from txbatch.wiring import open_application, open_emitter, open_steps, reader_beside

NAME = "plan"


def preview_restate(
    job: Job,
    where: Settings,
    txids: Iterable[int],
    master: str,
    *,
    accept_missing: bool = False,
    skipped: bool = False,
) -> list[dict[str, Any]]:
    """Return the records and changes of a restate of each txid, by itself. Raise the errors of the restate."""
    check_emission(job)
    steps = open_steps(job, where)
    ledger, topology = steps.ledger, job.topology
    ledger.check_definition(topology, job.name)
    positions = sorted({ledger.batch(topology.name, txid).position for txid in txids})
    emitter = open_emitter(steps, open_application(job, where, master))
    try:
        return [_preview(steps, emitter, Restate(each, NAME, None, accept_missing, skipped)) for each in positions]
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


def show_restate(row: Mapping[str, Any]) -> None:
    """Print the ranges to read, the totals of each state, and some keys before and after."""
    took = f"; emitting it took {plain(row['took'])}" if row["took"] else ""
    click.echo(
        f"{row['topology']}: txid {row['replaces']}, at position {row['position']}, would be counted again: "
        f"{row['records_after']:,} records, {row['records_before'] or 0:,} before{took}"
    )
    print_table(row["ranges"], cut=("stream", "partition", "start", "end", "note"))
    print_table([{name: value for name, value in each.items() if name != "examples"} for each in row["states"]])
    for state in row["states"]:
        for each in state["examples"]:
            stored, again = sides_told(each)
            click.echo(one_line(f"{state['state']}, {key_told(each)}: {stored} -> {again}"))
        if (more := state["keys_changed"] - len(state["examples"])) > 0:
            click.echo(f"{state['state']}: and {more:,} more keys; nothing is stored")
