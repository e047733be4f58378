"""docs/errors.md, which `txbatch explain` prints: a page for each code, with commands that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

import txbatch.core.errors
import txbatch.embedded.postgres
import txbatch.local.airflow
import txbatch.local.airflow_api
import txbatch.spark.failures  # noqa: F401 (each of these modules has classes of errors)
from txbatch.cli.explain import read_pages
from txbatch.cli.main import main
from txbatch.core.errors import TxbatchError

ROOT = Path(__file__).parents[2]
PAGES = read_pages()
HEADING = re.compile(r"## (TX\d{3}) (\w+) \(([a-z ]+)\)")
# The paragraphs of a page, in their order; the last but one is left out where nothing else helps.
PARAGRAPHS = ("What happened.", "Is any number wrong?", "Do this.", "If that does not help.", "Why.")


def commands(page: str) -> list[str]:
    """The commands of a page: a line of a block, or in backquotes."""
    return re.findall(r"^ {4}(txbatch .+)$", page, re.MULTILINE) + re.findall(r"`(txbatch [^`]+)`", page)


def parsed(command: click.Command, arguments: list[str]) -> None:
    """Let click parse the arguments, and those of a command within: UsageError for an option that is not there, or is missing."""
    context = click.Context(command, info_name=command.name, **command.context_settings)
    given, rest, _ = command.make_parser(context).parse_args(arguments)
    for each in command.params:
        if each.required and each.name not in given and "help" not in given:
            raise click.MissingParameter(ctx=context, param=each)
    if isinstance(command, click.Group) and rest:
        name, within, left = command.resolve_command(context, rest)
        assert name
        assert within
        parsed(within, left)


def test_each_code_has_a_page_and_each_page_a_class() -> None:
    assert set(PAGES) == set(TxbatchError.by_code)
    assert list(PAGES) == sorted(PAGES)
    headings = re.findall(r"^## (TX\d{3})", (ROOT / "docs" / "errors.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == list(PAGES), "a page stands twice, or is none of explain's"


@pytest.mark.parametrize("code", sorted(TxbatchError.by_code))
def test_the_heading_names_class_and_kind(code: str) -> None:
    found = HEADING.fullmatch(PAGES[code].splitlines()[0])
    error = TxbatchError.by_code[code]
    assert found is not None
    assert found.groups() == (code, error.__name__, error.kind)


@pytest.mark.parametrize("code", PAGES)
def test_a_page_says_what_happened_whether_a_number_is_wrong_and_what_to_do(code: str) -> None:
    told = re.findall(r"^\*\*(.+?)\*\* \S", PAGES[code], re.MULTILINE)
    assert told in (list(PARAGRAPHS), [each for each in PARAGRAPHS if each != "If that does not help."])


@pytest.mark.parametrize("code", PAGES)
def test_the_commands_of_a_page_exist_with_their_options(code: str) -> None:
    for command in commands(PAGES[code]):
        _, *arguments = shlex.split(command)
        try:
            parsed(main, arguments)
        except click.UsageError as error:
            pytest.fail(f"{command}: {error.format_message()}")


@pytest.mark.parametrize("code", PAGES)
def test_a_page_names_nothing_that_a_wheel_lacks(code: str) -> None:
    page = PAGES[code]
    assert "docs/" not in page
    assert "](" not in page, "a link leads nowhere on a terminal"
    assert not re.search(r"`make |bin/txbatch", page), "an installed package has no checkout's commands"


@pytest.mark.parametrize("code", PAGES)
def test_rules_and_codes_that_a_page_names_exist(code: str) -> None:
    rules = re.findall(r"^### (R\d+)$", (ROOT / "docs" / "rules.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(re.findall(r"\bR\d+\b", PAGES[code])) <= set(rules)
    assert set(re.findall(r"\bTX\d{3}\b", PAGES[code])) <= set(TxbatchError.by_code)


@pytest.mark.parametrize(
    "wrong", ["restat x", "restate x --whyy y", "restate x --why", "abort x 1", "demo outage --no", "-x status"]
)
def test_a_wrong_command_would_be_found(wrong: str) -> None:
    with pytest.raises(click.UsageError):
        parsed(main, shlex.split(wrong))
