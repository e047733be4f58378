"""`txbatch why`: the origin of a value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import click

from txbatch.cli import arguments, database
from txbatch.cli.printing import Rows, prints_rows
from txbatch.core.text import how_many, one_line
from txbatch.tables import plain

# The maximum number of partitions or files named of a batch; --json has all.
READS_SHOWN = 3
LIMIT = 1_000


@click.command(context_settings={"ignore_unknown_options": True})  # -1 is a key
@click.argument("state", type=arguments.TEXT)
@click.argument("key", required=False, type=arguments.KEY)
@click.option(
    "--limit",
    default=LIMIT,
    show_default=True,
    type=arguments.LIMIT,
    help="Show this many of the newest positions; --json has all.",
)
@prints_rows(nothing="", show=lambda rows: show_why(rows, click.get_current_context().params["limit"]))
def why(state: str, key: str | None, limit: int) -> Rows:
    """Show the origin of the value of KEY in STATE: every contributing batch, including replaced versions.

    Write a key with several columns in CSV; a global value has no key. Exit code 1 if the contributions do not amount to
    the value.
    """
    reader = database.history()
    columns = reader.key_columns(state)
    given = [key] if key is not None else []
    parts = arguments.keys(given, columns) if given else [[]]
    told = reader.why(state, parts[0])
    return [{**told, "ok": told["equal"] is not False}]


def show_why(rows: list[dict[str, Any]], limit: int = LIMIT) -> None:
    """Print the value, a line per position with its source below, and whether the contributions amount to the value.

    Of many positions, print only the newest `limit`.
    """
    for row in rows:
        what = one_line(" ".join([row["state"], ",".join(row["key"].values())]).rstrip())
        value = (
            f"{_values(row['values'])}, changed last by txid {row['txid']}"
            if row["values"]
            else "there is no such key now"
        )
        click.echo(f"{what}: {value}")
        positions = [list(versions) for _, versions in groupby(row["versions"], itemgetter("position"))]
        if (earlier := len(positions) - limit) > 0:
            are = "1 earlier position is" if earlier == 1 else f"{earlier:,} earlier positions are"
            click.echo(f"  {are} not shown: --limit, --json, or report.why_<state> in SQL")
        for versions in positions[-limit:]:
            _show_position(versions)
        click.echo(_ends(row, what))


def _show_position(versions: Sequence[Mapping[str, Any]]) -> None:
    *_, newest = versions
    if newest["position"] is None:
        click.echo(f"  folded up to txid {newest['txid']}{_unless(newest)}: {_values(newest['values'])}")
        return
    was = _was([each for each in versions if each["replaced_by"]])
    if newest["replaced_by"]:
        click.echo(f"  position {newest['position']}, without it by txid {newest['replaced_by']}{was}")
    else:
        by = f", counted by txid {newest['txid']}" if newest["txid"] != newest["position"] else ""
        click.echo(f"  position {newest['position']}{by}{was}: {_values(newest['values'])}{_unless(newest)}")
    for line in _about(newest):
        click.echo(f"    {line}")


def _was(versions: Iterable[Mapping[str, Any]]) -> str:
    """Describe the replaced values of a position. Equal values in a row are described once."""
    told = []
    for values, equal in groupby(versions, lambda each: _values(each["values"])):
        txids = [each["txid"] for each in equal]
        by = f"txid {txids[0]}" if len(txids) == 1 else f"{len(txids):,} txids from {txids[0]} to {txids[-1]}"
        told.append(f", was {values} by {by}")
    return "".join(told)


def _about(version: Mapping[str, Any]) -> list[str]:
    """Return lines with the run, the source and the reason of a restate."""
    of = f"{version['dag_id']} {version['run_id']}" if version["dag_id"] else version["run"]
    lines = [f"attempt {version['attempt']} of run {plain(of)}, committed at {plain(version['committed_at'])}"]
    if version["interval_start"]:
        lines.append(f"{plain(version['interval_start'])} to {plain(version['interval_end'])}")
    if reads := version["reads"]:
        more = f", and {len(reads) - READS_SHOWN:,} more; --json names all" if len(reads) > READS_SHOWN else ""
        lines.append(f"read {', '.join(map(plain, reads[:READS_SHOWN]))}{more}")
    if version["reason"]:
        by = f" by {plain(version['requested_by'])}" if version["requested_by"] else ""
        lines.append(f"restated{by}: {plain(version['reason'])}")
    return lines


def _ends(row: Mapping[str, Any], what: str) -> str:
    counted = sum(each["counts"] for each in row["versions"])
    those = how_many(counted, "contribution")
    match row["equal"]:
        case None:
            return f"  {those}; whether they amount to the value, its job alone can say: it has a merge of its own"
        case True:
            return f"  {those} amount{'s'[: counted == 1]} to the value"
        case _:
            return one_line(
                f"  {those} do not amount to the value of {what}: the state was changed outside the ledger; "
                f"`txbatch verify {row['topology']}` says which batches differ"
            )


def _unless(version: Mapping[str, Any]) -> str:
    if version.get("removed") and not version["counted"]:
        return ", the key was removed"
    return "" if version["counts"] else ", removed since"


def _values(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{plain(name)} {plain(value) or 'null'}" for name, value in values.items())
