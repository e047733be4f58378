"""Each command that a page for operators shows to be typed is parsed by the command line as it stands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from txbatch.cli.main import main

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^ *```(?:bash|sh)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
TYPED = re.compile(r"^\s*txbatch (?:-v )?(.+)$", re.MULTILINE)
# What a reader fills in; options take times and numbers.
FILLED = {"TXID": "7", "BATCH": "7", "START": "2026-01-01T00:00Z", "END": "2026-01-02T00:00Z", "CODE": "TX402"}
FILLED |= {"UUID": "5694d08a-2e53-4fca-b0c3-103e5ad6f607"}


def typed(page: Path) -> list[str]:
    """Return the commands of a page's blocks, without comments, pipes and what follows them."""
    lines = [line for block in BLOCK.findall(page.read_text(encoding="utf-8")) for line in TYPED.findall(block)]
    return [line.partition(" #")[0].partition(" |")[0].strip() for line in lines]


COMMANDS = [
    (page.stem, command)
    for room in ("run", "explanation")
    for page in (DOCS / room).glob("*.md")
    for command in typed(page)
]


def parsed(command: click.Command, arguments: list[str]) -> None:
    """Let click parse the arguments, and those of a command within; click.UsageError if they do not fit."""
    context = click.Context(command, info_name=command.name, **command.context_settings)
    given, rest, _ = command.make_parser(context).parse_args(list(arguments))
    missing = [each for each in command.params if each.required and each.name not in given]
    if missing and "help" not in given:
        raise click.MissingParameter(ctx=context, param=missing[0])
    if isinstance(command, click.Group) and rest:
        _, within, left = command.resolve_command(context, rest)
        assert within is not None
        parsed(within, left)


def test_there_are_commands_on_many_pages() -> None:
    assert len(COMMANDS) > 60
    assert len({page for page, _ in COMMANDS}) > 12


@pytest.mark.parametrize(("page", "command"), sorted(set(COMMANDS)))
def test_a_command_is_parsed(page: str, command: str) -> None:
    words = [FILLED.get(word, word) for word in shlex.split(command)]
    try:
        parsed(main, words)
    except click.UsageError as error:
        pytest.fail(f"{page}: txbatch {command}: {error.format_message()}")
