"""`txbatch as-of`: a state in the past."""

from __future__ import annotations

from datetime import datetime

import click

from txbatch.cli import arguments, database
from txbatch.cli.printing import Rows, prints_rows

LIMIT = 1_000


@click.command("as-of", context_settings={"ignore_unknown_options": True})
@click.argument("state", type=arguments.TEXT)
@click.argument("given", nargs=-1, type=arguments.KEY, metavar="[TXID] [KEY]...")
@click.option("--at", type=arguments.MOMENT, help="As of the newest txid committed at this time; instead of TXID.")
@click.option("--corrected", is_flag=True, help="Include all restates of batches up to TXID until today.")
@click.option(
    "--limit",
    default=LIMIT,
    show_default=True,
    type=arguments.LIMIT,
    help="Show at most this many keys, if no KEY is named.",
)
@prints_rows(nothing="no key had been counted")
def as_of(state: str, given: tuple[str, ...], at: datetime | None, corrected: bool, limit: int) -> Rows:
    """Show STATE when TXID was the newest committed txid: the KEYs, or all keys.

    \b
      txbatch as-of word_count 3 whale
      txbatch as-of word_count --at 2026-01-05T08:00Z whale
    """
    if at is None and not given:
        raise click.UsageError("as of when? give a TXID, or --at TIME")
    reader = database.history()
    columns = reader.key_columns(state)
    if at is not None and given and not columns:
        raise click.UsageError(
            f"{state} is one global value, which has no key, and --at takes the place of TXID: give one"
        )
    txid = (
        reader.txid_at(state, at) if at else arguments.EARLIER_TXID.convert(given[0], None, click.get_current_context())
    )
    keys = arguments.keys(given if at else given[1:], columns)
    rows = reader.as_of(state, txid, keys, corrected=corrected, limit=limit + 1)
    if (without := reader.told_without(state, txid)) is not None:
        click.echo(without, err=True)
    if at:
        click.echo(f"as of txid {txid}, the newest at {at.isoformat()}", err=True)
    if not keys and len(rows) > limit:
        click.echo(f"there are more than the {limit:,} keys shown: --limit, or report.as_of_<state> in SQL", err=True)
    return rows if keys else rows[:limit]
