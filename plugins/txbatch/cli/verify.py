"""`txbatch verify`: read committed batches again, and compare (R24)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from random import SystemRandom
from typing import Any

import click

from txbatch.cli import arguments, database
from txbatch.cli.differences import key_told, sides_told
from txbatch.cli.printing import Rows, prints_rows
from txbatch.core.corrections.verify import Finding
from txbatch.core.text import one_line
from txbatch.launch.job_file import check_emission
from txbatch.launch.submission import LOCAL_MASTER
from txbatch.run.verify import Asked
from txbatch.tables import plain
from txbatch.wiring import open_application, open_steps, open_verifier

COLUMNS = ("what", "outcome", "records", "keys", "different", "reason")
# The maximum number of changed files named of a batch.
FILES_SHOWN = 5
_SEED = arguments.Number(1, 2**31)


def row(topology: str, finding: Finding) -> dict[str, Any]:
    """Return a finding as a row of the table and of --json."""
    different = sum(each.different for each in finding.compared) or None
    told = {"what": finding.name, "outcome": finding.outcome_told, "different": different, "ok": finding.ok}
    return asdict(finding) | told | {"kind": finding.what, "topology": topology}


def show(rows: list[dict[str, Any]]) -> None:
    """Print below the table the differing keys, the changed files, and the command to count again."""
    for each in rows:
        for compared in each["compared"]:
            for example in compared["examples"]:
                click.echo(f"{each['what']}, state {compared['state']}: {_example(example)}")
            if (more := compared["different"] - len(compared["examples"])) > 0:
                click.echo(f"{each['what']}, state {compared['state']}: and {more:,} more keys")
        for file in each["changed"][:FILES_SHOWN]:
            click.echo(f"{each['what']}: {plain(file['file'])}: {file['change']}")
        if (more := len(each["changed"]) - FILES_SHOWN) > 0:
            click.echo(f"{each['what']}: and {more:,} more files; --json names all")
        if each["restate"]:
            click.echo(f"{each['what']}: count today's records instead: {each['restate']}")


def _example(example: Mapping[str, Any]) -> str:
    stored, again = sides_told(example)
    return one_line(f"{key_told(example)}: stored {stored}, counted again {again}")


@click.command()
@click.argument("job", metavar="TOPOLOGY|JOB", type=arguments.TEXT)
@click.argument("txids", nargs=-1, type=arguments.TXID, metavar="[TXID]...")
@click.option("--sample", type=arguments.LIMIT, help="Verify this many batches, chosen at random.")
@click.option("--seed", type=_SEED, help="Choose the same batches as an earlier call that printed this seed.")
@click.option("--master", type=arguments.MASTER, default=LOCAL_MASTER, show_default=True, help="Spark master.")
@prints_rows(*COLUMNS, nothing="nothing is committed yet", show=show, drop=("keys", "records"), cut=("reason",))
def verify(job: str, txids: tuple[int, ...], sample: int | None, seed: int | None, master: str) -> Rows:
    """Read committed batches again, and compare the results with the stored rows.

    \b
      txbatch verify word_count
      txbatch verify jobs/word_count.py 3 7

    Changes nothing. Exit code 1 if a batch or state is LATE (records came since the count), DIFFERENT, UNVERIFIABLE (the
    source has changed), or not counted at all. Without TXIDs, verifies every batch, or a --sample, then prints gaps and
    holes. States are always verified.
    """
    if txids and sample is not None:
        raise click.UsageError("--sample chooses txids: leave out those that are named")
    if seed is not None and sample is None:
        raise click.UsageError("--seed is that of a sample: give --sample, too")
    where = database.ready()
    loaded = arguments.job_of(job, where)
    check_emission(loaded)
    asked = Asked(txids, sample, SystemRandom().randrange(1, 10**6) if seed is None else seed)
    steps = open_steps(loaded, where)
    verifier = open_verifier(steps, open_application(loaded, where, master))
    return [row(loaded.topology.name, finding) for finding in verifier.verify(asked)]
