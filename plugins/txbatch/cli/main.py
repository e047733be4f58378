"""The command `txbatch`: the four steps without Airflow, and questions about the ledger."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, MutableMapping
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

# In the order in which people come to need them; `demo` comes last. Each is imported when its name is asked for.
PLACES = {
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


class Commands(MutableMapping[str, click.Command]):
    """Commands by name, in order; a command in `PLACES` is imported on demand."""

    def __init__(self, names: Iterable[str]) -> None:
        self._found: dict[str, click.Command | None] = dict.fromkeys(names)

    def __getitem__(self, name: str) -> click.Command:
        """Return a command. Raise ImportError for a KeyError of the import: a KeyError stands for an unknown command."""
        if (found := self._found[name]) is None:
            place = f"{__package__}.{PLACES[name]}"
            try:
                found = self._found[name] = resolve_name(place)
            except KeyError as error:
                raise ImportError(f"`{name}`: KeyError: {error}") from error
        return found

    def __setitem__(self, name: str, command: click.Command) -> None:
        """Add a command."""
        self._found[name] = command

    def __delitem__(self, name: str) -> None:
        """Take a command away."""
        del self._found[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, in order."""
        return iter(self._found)

    def __len__(self) -> int:
        """Return how many commands there are."""
        return len(self._found)


class ByUse(click.Group):
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
        listed = [(name, self.commands[name]) for name in self.list_commands(ctx) if not self.commands[name].hidden]
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(500)) for name, command in listed])


@click.group(
    cls=ByUse,
    commands=Commands(PLACES),
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


@main.group(commands=Commands(["status", "batches", "query", "psql"]))
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
