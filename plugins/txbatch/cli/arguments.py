"""Arguments of the command line: moments, parameters and intervals, checked before any work.

Each command imports this module: what a few of the commands need is imported where it is used.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from getpass import getuser
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from txbatch.core.errors import DefinitionError, InvalidKey
from txbatch.core.records.fields import encodable
from txbatch.core.text import WHY_MAX, how_many, one_line

if TYPE_CHECKING:
    from txbatch.core.batch.transaction import Interval
    from txbatch.launch.job_file import Job
    from txbatch.settings import Settings

# The maximum characters cited of a bad argument.
CITED = 200
_HOST = r"[^\s/:,]+(:\d{1,5})?"
_MASTER = re.compile(
    r"local(\[(\*|[1-9]\d*)(, ?[1-9]\d*)?\])?|local-cluster\[\d+,\d+,\d+\]|yarn|k8s://\S+"
    rf"|spark://{_HOST}(,{_HOST})*"
)


class Moment(click.ParamType[datetime]):
    """A moment on the command line, in ISO 8601 and with its zone."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        try:
            moment = datetime.fromisoformat(check_value(self, value, param, ctx))
        except ValueError:
            self.fail(f"{one_line(value, CITED)!r} is no time; write 2013-01-01T05:00:00Z", param, ctx)
        if moment.tzinfo is None:
            self.fail(f"{value!r} has no zone; write it like 2013-01-01T05:00:00Z", param, ctx)
        try:
            return moment.astimezone(UTC)
        except OverflowError:
            self.fail(f"{value!r} is in no year of 1 to 9999 in UTC", param, ctx)


class Parameter(click.ParamType[tuple[str, Any]]):
    """NAME=VALUE. VALUE is JSON if valid, or text."""

    name = "parameter"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        name, given, text = check_value(self, value, param, ctx).partition("=")
        if not (name and given):
            self.fail(f"{one_line(value, CITED)!r} is no parameter; write NAME=VALUE", param, ctx)
        if not text.strip():
            self.fail(f"{name!r} is given no value; where an empty text is meant, write {name}='\"\"'", param, ctx)
        try:
            return name, json.loads(text)
        except ValueError:
            return name, text
        except RecursionError:
            self.fail(f"{name!r} is nested too deeply", param, ctx)


class Text(click.ParamType[str]):
    """A text that is not empty: an empty variable of a script is no default, and no name."""

    name = "text"
    instead = "leave it out, or say what is meant"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not check_value(self, value, param, ctx).strip():
            self.fail(f"it is given empty; {self.instead}", param, ctx)
        return str(value)


class Why(Text):
    """The reason for a command. The reason is kept."""

    name, instead = "why", "say why"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if len(why := super().convert(value, param, ctx)) > WHY_MAX:
            self.fail(f"it has {len(why):,} characters; say it in {WHY_MAX:,}, and where more of it stands", param, ctx)
        return why


class Key(click.ParamType[str]):
    """A key of a state. The key may be empty."""

    name = "key"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return check_value(self, value, param, ctx)


class Master(Text):
    """A Spark master."""

    name = "master"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        master = super().convert(value, param, ctx)
        if not _MASTER.fullmatch(master):
            self.fail(
                f"{one_line(master, CITED)!r} is no Spark master; write local[*], local[4], spark://host:7077, yarn or k8s://...",
                param,
                ctx,
            )
        return master


class Number(click.IntRange):
    """A whole number, in plain digits."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not re.fullmatch(r"-?[0-9]{1,19}", str(value)):
            self.fail(f"{one_line(value, CITED)!r} is no whole number of at most 19 digits", param, ctx)
        return super().convert(value, param, ctx)


class Ledger(click.ParamType[str]):
    """The UUID of a ledger."""

    name = "uuid"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return str(UUID(value))
        except ValueError:
            self.fail(f"{one_line(value, CITED)!r} is no UUID of a ledger", param, ctx)


def check_value(
    type_: click.ParamType[Any], value: Any, param: click.Parameter | None, ctx: click.Context | None
) -> str:
    """Return the text if the database can store the text; fail with click's error if not."""
    if "\0" in value or not encodable(value):
        type_.fail(f"{one_line(value, CITED)!r} is not UTF-8, or holds U+0000", param, ctx)
    return str(value)


TEXT, WHY, KEY, MASTER, LEDGER, MOMENT = Text(), Why(), Key(), Master(), Ledger(), Moment()
EARLIER_TXID = Number(0, 2**63 - 1)
TXID, LIMIT = Number(1, 2**63 - 1), Number(1, 1_000_000)
interval_option = click.option(
    "--interval",
    nargs=2,
    type=Moment(),
    metavar="START END",
    help="The interval to read, for a spout that reads by time.",
)
param_option = click.option(
    "--param",
    "params",
    multiple=True,
    type=Parameter(),
    metavar="NAME=VALUE",
    help="A parameter that chooses data, declared by a spout. VALUE is JSON if valid, or text. May be given several times.",
)


def whoever() -> str | None:
    """Return the name of the user on this machine; None if unknown."""
    with suppress(OSError, KeyError, ImportError):
        return getuser()
    return None


def job_of(given: str, where: Settings) -> Job:
    """Return the job of a file, or of a topology with a job file in the ledger.

    The path in the ledger is relative to the project's folder: this folder, or the nearest folder above with the file.
    Raise DefinitionError if there is no such file.
    """
    from txbatch.launch.job_file import load_job
    from txbatch.launch.job_search import job_above
    from txbatch.postgres.database.engine import connect
    from txbatch.postgres.database.migrate import check_migrated
    from txbatch.postgres.reading.ledger_reader import LedgerReader

    if given.endswith(".py") or Path(given).is_file():
        return load_job(given)
    engine = connect(where.database_url)
    check_migrated(engine)
    or_else = ", or give the path of the job file in place of the topology's name"
    return job_above(Path.cwd(), given, LedgerReader(engine).job(given), or_else)


def interval(job: Job, given: tuple[datetime, datetime] | None) -> Interval | None:
    """Return the interval of --interval, for a job that reads by time."""
    from txbatch.core.batch.transaction import Interval

    if given and not job.topology.by_interval:
        raise click.BadParameter(f"{job.name} does not read by time; leave it out", param_hint="--interval")
    try:
        return Interval(*given) if given else None
    except DefinitionError as error:
        raise click.BadParameter(str(error), param_hint="--interval") from error


def keys(given: Sequence[str], columns: Collection[str]) -> list[list[str]]:
    """Return the columns of each key. Several columns are written in CSV. Raise TerminalError if the number of columns
    is wrong.
    """
    if len(columns) <= 1:
        return [[key] for key in given]
    return [_columns_of(key, columns) for key in given]


def parts_of(text: str) -> list[str]:
    """Return the parts of a text in CSV. Raise TerminalError if the text is no CSV."""
    try:
        return next(csv.reader([text]), [])
    except csv.Error as error:
        raise InvalidKey(
            f"{text!r} is no line of CSV ({error}); enclose a part with such characters in quotes"
        ) from None


def _columns_of(key: str, columns: Collection[str]) -> list[str]:
    parts = parts_of(key)
    if len(parts) != len(columns):
        raise InvalidKey(
            f"key {key!r} has {how_many(len(parts), 'part')}; the state's keys are {', '.join(columns)}: write them "
            "as CSV"
        )
    return parts


def check_cron(run_id: str | None, interval: object, cron: str | None, timezone: str | None) -> None:
    """Reject options that do not go together with --cron."""
    if cron is None and timezone is not None:
        raise click.UsageError("--timezone is the zone of --cron: give both")
    if cron is not None and interval is None:
        raise click.UsageError("--cron cuts an interval: give --interval START END, too")
    if cron is not None and run_id is not None:
        raise click.UsageError("--cron makes a run of each interval: leave out --run-id")


def pieces(whole: Interval, cron: str, timezone: str) -> list[Interval]:
    """Cut the interval by --cron, and return the pieces in order."""
    from txbatch.cli.cron import split_by_cron

    try:
        return split_by_cron(whole, cron, timezone)
    except DefinitionError as error:
        raise click.BadParameter(str(error), param_hint="--cron") from error


def parameters(job: Job, given: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the parameters of --param. Raise BadParameter for a name not declared by a spout of the job."""
    for name, _ in given:
        if name not in job.topology.parameters:
            known = ", ".join(job.topology.parameters) or "none"
            raise click.BadParameter(f"{job.name} has no parameter {name!r}; its spouts declare {known}")
    return dict(given)
