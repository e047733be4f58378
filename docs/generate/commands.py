"""The page on the command line: each command of click with its arguments and options."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import cleandoc

import click

from docs.generate.markdown import block, page, plain, table
from txbatch.cli.main import main

EXITS = (("0", "done"), ("1", "failed, or a check found something"), ("2", "wrong usage"), ("130", "stopped by Ctrl-C"))


def commands() -> str:
    """Return the page."""
    return page(
        "The command line",
        "Here you find each command of `txbatch` with its arguments and options.",
        "You need an installed package, or `bin/txbatch` of a checkout. `--help` of a command prints the same.",
        [*_shared(), *(line for name, each in _within(main) for line in _command(f"txbatch {name}", each))],
    )


def _shared() -> Iterator[str]:
    yield from (
        "`--json` prints each column as JSON. Times are in UTC. An error has a code: `txbatch explain TX402`.",
        "",
    )
    yield from table(("exit code", "meaning"), EXITS)
    yield from ("Options of `txbatch` itself stand before the command:", "")
    yield from _options(main, click.Context(main, info_name="txbatch"))


def _command(path: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=path, **command.context_settings)
    yield from (f"## {path}", "")
    yield from block("", " ".join([path, *command.collect_usage_pieces(context)]))
    yield from _help(command)
    yield from _options(command, context)
    if isinstance(command, click.Group):
        same = [name for name, each in _within(command) if dict(_within(main)).get(name) is each]
        if same:
            yield from (f"As of the commands of the same names: {', '.join(f'`{path} {name}`' for name in same)}.", "")
        for name, each in _within(command):
            if name not in same:
                yield from _command(f"{path} {name}", each)


def _within(group: click.Group) -> list[tuple[str, click.Command]]:
    """Return each command of a group, in order, imported."""
    context = click.Context(group)
    return [(name, each) for name in group.commands if (each := group.get_command(context, name)) is not None]


def _help(command: click.Command) -> Iterator[str]:
    for part in cleandoc(command.help or "").split("\n\n"):
        if part.startswith("\b\n"):
            yield from block("", cleandoc("\n" + part.removeprefix("\b\n")))
        else:
            yield from (plain(part), "")


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    shown = [each for each in command.get_params(context) if isinstance(each, click.Option) and not each.hidden]
    records = [record for each in shown if "--help" not in each.opts and (record := each.get_help_record(context))]
    if records:
        yield from table(("option", "meaning"), [(f"`{option}`", plain(text)) for option, text in records])
