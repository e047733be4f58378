"""How the command line prints: a table of the columns that matter, or all of it as JSON; errors in one line."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import wraps
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from txbatch.core.errors import TxbatchError
from txbatch.local.java import JavaNotFoundError
from txbatch.local.postgres import EmbeddedPostgresError

Rows = Iterable[Mapping[str, Any]]
EXPECTED = (TxbatchError, EmbeddedPostgresError, JavaNotFoundError)


def prints_rows(
    *columns: str, nothing: str, show: Callable[[list[dict[str, Any]]], None] | None = None
) -> Callable[[Callable[..., Rows]], Callable[..., None]]:
    """Adds --json, which prints every column; the table has these `columns` (none: all), without those that are empty.

    `show` prints the rows for people, where a table is not enough, or more below the table where there are `columns`.
    An error ends in exit code 1 and one line that says what to do, and so does a row whose `ok` is False.
    """

    def decorate(function: Callable[..., Rows]) -> Callable[..., None]:
        @click.option("--json", "as_json", is_flag=True, help="Print JSON, with every column there is.")
        @wraps(function)
        def run(*args: Any, as_json: bool, **kwargs: Any) -> None:
            try:
                rows = [dict(row) for row in function(*args, **kwargs)]
            except (click.ClickException, click.Abort):
                raise
            except Exception as error:
                _print_error(error, as_json)
                sys.exit(1)
            if columns or as_json or show is None:
                _print(rows, columns, nothing, as_json)
            if show and not as_json:
                show(rows)
            if not all(row.get("ok", True) for row in rows):
                sys.exit(1)

        return run

    return decorate


def _print_error(error: Exception, as_json: bool) -> None:
    message = str(error)
    if not isinstance(error, EXPECTED):
        message = f"{type(error).__name__}: {message.rstrip('.')}; `txbatch -v` shows where"
    if logging.getLogger("txbatch").isEnabledFor(logging.DEBUG):
        traceback.print_exception(error)
    if as_json:
        click.echo(json.dumps({"error": type(error).__name__, "message": message}, ensure_ascii=False))
    else:
        click.echo(f"txbatch: {message}", err=True)


def _print(rows: list[dict[str, Any]], columns: Sequence[str], nothing: str, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(rows, default=_json, ensure_ascii=False, indent=1))
    elif rows:
        _print_table(rows, columns or list(rows[0]))
    else:
        click.echo(nothing, err=True)


def show_status(rows: list[dict[str, Any]]) -> None:
    """Below the table: who waits for whom and since when, and why what is in flight failed."""
    for row in rows:
        for each in row["failing"]:
            click.echo(
                f"{row['topology']}: attempt {each['attempt']} failed at {_plain(each['finished_at'])}: {each['error']}"
            )
        for each in row["waiting"]:
            who = each["run"] if each["txid"] is None else f"txid {each['txid']} of {each['run']}"
            dead = "" if each["lease_live"] else ", which shows no sign of life"
            click.echo(
                f"{row['topology']}: {who} waits for txid {each['waits_for_txid']} of {each['waits_for_run']} "
                f"({each['waits_for_status']}){dead}, since {_plain(each['since'])} ({_plain(each['waited'])})"
            )


def show_plan(rows: list[dict[str, Any]]) -> None:
    """The guarantee matrix, what is in flight, and the next batch."""
    for row in rows:
        print_table(row["guarantees"])
        for each in row["in_flight"]:
            dead = "" if each["lease_live"] else ", which shows no sign of life"
            click.echo(f"in flight: txid {each['txid']} of {each['run']}{dead}; it is {each['status']}")
        click.echo(f"next: {row['next']['does']}")
        if row["next"].get("ranges"):
            print_table(row["next"]["ranges"])


def print_table(rows: list[dict[str, Any]]) -> None:
    """All columns of some rows, without those that are empty."""
    _print_table(rows, list(dict.fromkeys(name for row in rows for name in row)))


def _print_table(rows: list[dict[str, Any]], columns: Sequence[str]) -> None:
    told = [name for name in columns if any(row.get(name) not in (None, []) for row in rows)]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in told:
        numbers = all(row.get(name) is None or type(row[name]) is int for row in rows)
        table.add_column(_plain(name), justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_plain(row.get(name)) for name in told))
    width = None if sys.stdout.isatty() else 10_000
    Console(width=width, markup=False, emoji=False, highlight=False).print(table)


def _plain(value: Any) -> str:
    """A value in one line, in which no character of a key can do anything to a terminal."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, timedelta):
        return str(timedelta(seconds=round(value.total_seconds())))
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(each)}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    text = str(value)
    return text if text.isprintable() else json.dumps(text)


def _json(value: Any) -> Any:
    """What JSON has no type for: times in ISO 8601, spans of time in seconds, decimals exactly, as text."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    return value.total_seconds() if isinstance(value, timedelta) else str(value)
