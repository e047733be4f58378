"""The command `txbatch`: the four steps without Airflow, and questions about the ledger."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import click

from txbatch import __version__, settings
from txbatch.cli import arguments, database
from txbatch.cli.database import chosen_settings
from txbatch.cli.printing import CALLED, errors_told
from txbatch.core.errors import UsageError
from txbatch.places import in_checkout

# In the order in which people come to need them; `demo` comes last. Each is imported when it is asked for.
COMMANDS = {
    "init": "project.project:init",
    "run": "run:run",
    "follow": "follow:follow",
    "plan": "plan.plan:plan",
    "status": "reading.status:status",
    "batches": "reading.batches:batches",
    "query": "reading.query:query",
    "ask": "reading.ask:ask",
    "why": "reading.why:why",
    "as-of": "reading.as_of:as_of",
    "psql": "reading.psql:psql",
    "abort": "abort:abort",
    "restate": "restate:restate",
    "verify": "verify:verify",
    "gc": "retention:gc",
    "change": "change:change",
    "rebuild": "rebuild:rebuild",
    "source": "source:source",
    "doctor": "project.project:doctor",
    "explain": "explain:explain",
    "docs": "docs:docs",
    "up": "project.project:up",
    "down": "project.project:down",
    "migrate": "project.project:migrate",
    "grants": "grants:grants",
    "drop": "drop:drop",
}
EPILOG = (
    """\b
Example:
  txbatch run jobs/sentences.py && txbatch query sentences how are

`txbatch run --help` says more of a command, `txbatch explain TX402` of an
error."""
    if in_checkout()
    else """\b
Example:
  txbatch init shop && cd shop && make demo && make test

`txbatch run --help` says more of a command, `txbatch explain TX402` of an
error."""
)


class CodedUsageError(click.UsageError):
    """An error of the command line, with its code and kind in front."""

    def __init__(self, error: click.UsageError) -> None:
        super().__init__(str(UsageError(error.format_message())), error.ctx)


@contextmanager
def usage_errors_coded() -> Iterator[None]:
    """Context manager. Give errors of the command line a code, like all errors."""
    try:
        yield
    except CodedUsageError:
        raise
    except click.UsageError as error:
        raise CodedUsageError(error) from error


class Unread(click.Command):
    """A command not imported yet: click lists the name, and offers the name for a similar name."""


class OnDemand(click.Group):
    """Imports a command in `COMMANDS` when the command itself is asked for."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        if isinstance(found, Unread):
            found = self.commands[cmd_name] = resolve_name(f"{__package__}.{COMMANDS[cmd_name]}")
        return found


class ByUse(OnDemand):
    """Lists commands in the order of use, each with its whole summary."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def make_context(self, info_name: str | None, args: list[str], *given: Any, **named: Any) -> click.Context:
        called = list(args)  # click takes the words out of `args`
        with usage_errors_coded():
            context = super().make_context(info_name, args, *given, **named)
        context.meta[CALLED] = called
        return context

    def invoke(self, ctx: click.Context) -> object:
        with usage_errors_coded():
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        listed = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, each.get_short_help_str(500)) for name, each in listed if each and not each.hidden]
            )


@click.group(
    cls=ByUse,
    commands={name: Unread(name) for name in COMMANDS},
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EPILOG,
)
@click.version_option(__version__)
@click.option("-v", "--verbose", is_flag=True, help="Print more, and the origin of an error.")
def main(verbose: bool) -> None:
    """Exactly-once batch aggregation on Airflow, Spark and PostgreSQL.

    The database is TXBATCH_DATABASE_URL, or, if not set, the embedded PostgreSQL under .txbatch/, started when needed.
    """
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("txbatch").setLevel(logging.DEBUG if verbose else logging.INFO)
    settings.sources_from(_source_of_examples)


def _source_of_examples(name: str) -> str | None:
    from txbatch.local.example_sources import example_source

    return example_source(name)


@main.group(cls=OnDemand, commands={name: Unread(name) for name in ("status", "batches", "query", "psql")})
@click.pass_context
def demo(context: click.Context) -> None:
    """Watch the protocol at work, and look at the results of a demo.

    Demos have a database of their own in the embedded PostgreSQL, and ignore TXBATCH_DATABASE_URL.
    """
    context.obj = _settings_of_demos


def _settings_of_demos(home: Path) -> settings.Settings:
    from txbatch.local.databases import demo_settings

    return demo_settings(home)


@demo.command()
@click.option("--number", type=arguments.LIMIT, default=100, show_default=True, help="How many sales.")
@click.option("--days-back", type=int, default=0, show_default=True, help="The day: 1 is yesterday, in UTC.")
def sell(number: int, days_back: int) -> None:
    """Add sales to the table shop.sale of the embedded PostgreSQL, which the examples sales and sales_by_day read."""
    from txbatch.local.shop import sell as add

    with errors_told():
        add(settings.home(), number, days_back)
        click.echo(f"added {number:,} sales")


@demo.command()
def topic() -> None:
    """Offer a topic of Kafka on this machine, which the example clicks reads; a partition goes and comes as you say."""
    from txbatch.local.topic import serve

    with errors_told():
        for line in serve(settings.home(), sys.stdin):
            click.echo(line)


@demo.command()
@click.option(
    "--yes",
    is_flag=True,
    help="Use the configured database, and first drop its topology demo_outage.",
)
@click.option("--kafka", is_flag=True, help="Of a topic of Kafka, by a mock of its brokers on this machine.")
def outage(yes: bool, kafka: bool) -> None:
    """One of sixteen partitions is away while a batch is retried, and returns three batches later."""
    from txbatch.local.outage import play

    with errors_told():
        for line in play(database.start_database() if yes else chosen_settings(), kafka=kafka):
            click.echo(line, err=True)
