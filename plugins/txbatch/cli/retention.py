"""`txbatch gc`: fold what need not be asked for or restated any more (R22)."""

from __future__ import annotations

import click

from txbatch.cli import arguments, database
from txbatch.cli.printing import Rows, prints_rows
from txbatch.core.retention import Keep
from txbatch.postgres.retention import Retention


@click.command()
@click.argument("topology", type=arguments.TEXT)
@click.option("--keep-txids", type=arguments.Number(1, 2**31), help="The newest so many txids stay as they are.")
@click.option(
    "--keep-days", type=arguments.Number(1, 36_500), help="What was committed in the last so many days stays."
)
@click.option("--dry-run", is_flag=True, help="Say how far it would go, and change nothing.")
@prints_rows("topology", "horizon_before", "horizon", "versions", "rows", nothing="")
def gc(topology: str, keep_txids: int | None, keep_days: int | None, dry_run: bool) -> Rows:
    """Fold old contributions of TOPOLOGY into one row per key.

    \b
      txbatch gc word_count --keep-days 90

    The values stay. What is folded can be asked for no more by `as-of` and `why`, and not be restated. Commits and reports go on
    meanwhile; a call that was ended is called again. The newest batch is never folded.
    """
    if (keep_txids is None) == (keep_days is None):
        raise click.UsageError("say what stays: --keep-txids N or --keep-days N")
    engine = database.migrated(database.started())
    kept = Retention(engine)
    before, wanted = kept.horizon(topology), kept.wanted(topology, Keep(keep_txids, keep_days))
    told = {"topology": topology, "horizon_before": before}
    if dry_run:
        return [told | {"horizon": max(before, wanted)}]
    done = list(kept.fold(topology, wanted))
    if (reached := kept.horizon(topology)) < wanted:
        click.echo(
            f"{topology}: txid {reached + 1} stays, which a restate counts again; call again when that is older",
            err=True,
        )
    return [
        told
        | {"horizon": reached, "versions": sum(each.versions for each in done), "rows": sum(each.rows for each in done)}
    ]
