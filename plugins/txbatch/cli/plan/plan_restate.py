"""`txbatch restate --plan`: the changes by counting batches again. Reads the source with Spark, and stores nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

from txbatch.cli.differences import key_told, sides_told
from txbatch.cli.printing import print_table
from txbatch.core.text import one_line
from txbatch.launch.job_file import Job, check_emission
from txbatch.previews import headline, preview_restates, restates_of
from txbatch.settings import Settings
from txbatch.wiring import open_application, open_emitter, open_steps


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
    asked = restates_of(steps, txids, accept_missing=accept_missing, skipped=skipped)
    return preview_restates(steps, open_emitter(steps, open_application(job, where, master)), asked)


def show_restate(row: Mapping[str, Any]) -> None:
    """Print the ranges to read, the totals of each state, and some keys before and after."""
    click.echo(f"{row['topology']}: {headline(row)}")
    print_table(row["ranges"], cut=("stream", "partition", "start", "end", "note"))
    print_table([{name: value for name, value in each.items() if name != "examples"} for each in row["states"]])
    for state in row["states"]:
        for each in state["examples"]:
            stored, again = sides_told(each)
            click.echo(one_line(f"{state['state']}, {key_told(each)}: {stored} -> {again}"))
        if (more := state["keys_changed"] - len(state["examples"])) > 0:
            click.echo(f"{state['state']}: and {more:,} more keys; nothing is stored")
