"""docs/errors.md, which `txbatch explain` prints: a page for each code, with commands that exist."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import txbatch.core.errors
import txbatch.embedded.postgres
import txbatch.local.airflow
import txbatch.local.airflow_api
import txbatch.spark.failures  # noqa: F401 (each of these modules has classes of errors)
from txbatch.cli.main import main
from txbatch.core.errors import DefinitionError, TerminalError, TransientError, TxbatchError
from txbatch.error_pages import NAMES, advise, first_command, named_commands, read_pages

ROOT = Path(__file__).parents[2]
PAGES = read_pages()
HEADING = re.compile(r"## (TX\d{3}) (\w+) \(([a-z ]+)\)")
# The paragraphs of a page, in their order; the last but one is left out where nothing else helps.
PARAGRAPHS = ("What happened.", "Is any number wrong?", "Do this.", "If that does not help.", "Why.")
# The words of the sentence that an edge prints below an error.
NUMBERS_WORDS_MAX = 15
HELD = {"topology": "my sales", "txid": 8, "job": "jobs/my sales.py", "state": "sales", "key": "B6,JFK"}
# What takes away: records that are given up, a topology, the past, what a rebuild has counted so far.
LOSES = {"drop", "--skip", "--accept-missing", "--drop-past", "--cancel"}
# What counts records again, and may follow such a command as the next step of the same way.
COUNTS = re.compile(r'txbatch (?:run|restate|rebuild) [A-Z ]+(?: --why "\.\.\.")?')
# Pages that begin with an abort: no retry reads the batch, and its records are free for the next plan.
FREES_FIRST = {"TX205", "TX416"}
# Capitals of a command that are no names to fill in.
WORDS = {"SELECT", "FROM", "LIMIT", "JFK"}

# Bases of classes with a situation each, and what a job's own code raises.
GENERIC = frozenset(each.__name__ for each in (TxbatchError, TerminalError, TransientError, DefinitionError))
MODULES = sorted((ROOT / "plugins").rglob("*.py"))
# Calls that ask for the class of an error, and make none.
ASKING = frozenset({"isinstance", "issubclass", "suppress"})


def name_of(node: ast.expr | None) -> str:
    """Return the last name of a class as code has it: `TerminalError`, `errors.TerminalError`; "" for other expressions."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def made(code: ast.AST) -> Iterator[str]:
    """Yield the names of classes that code calls, or raises as they are."""
    for node in ast.walk(code):
        if isinstance(node, ast.Call):
            yield name_of(node.func)
        elif isinstance(node, ast.Raise):
            yield name_of(node.exc)


def given(code: ast.AST) -> Iterator[str]:
    """Yield the names that code calls, raises or passes: as an argument, of a choice between two, in a table, as a result."""
    yield from made(code)
    for node in ast.walk(code):
        match node:
            case ast.Call() if name_of(node.func) not in ASKING:
                found: list[ast.expr | None] = [*node.args, *(each.value for each in node.keywords)]
            case ast.IfExp():
                found = [node.body, node.orelse]
            case ast.Dict():
                found = [*node.values]
            case ast.Return():
                found = [node.value]
            case _:
                continue
        yield from filter(None, map(name_of, found))


def commands(page: str) -> list[str]:
    """The commands of a page: a line of a block, or in backquotes."""
    return re.findall(r"^ {4}(txbatch .+)$", page, re.MULTILINE) + re.findall(r"`(txbatch [^`]+)`", page)


def in_order(page: str) -> list[str]:
    """The commands of a page, as `commands` finds them, in the order of the page."""
    return ["".join(each) for each in re.findall(r"^ {4}(txbatch .+)$|`(txbatch\s[^`]+)`", page, re.MULTILINE)]


def loses(command: str) -> bool:
    return not LOSES.isdisjoint(command.split())


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


def of_code(code: str) -> TxbatchError:
    """An error with a code; some classes want more than a text."""
    return type("Error", (TxbatchError,), {"code": code})("x")


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


def test_each_page_begins_with_a_short_sentence_on_numbers_and_a_command_to_copy() -> None:
    """An edge prints both below the error, with the names filled in."""
    for code in PAGES:
        advice = advise(of_code(code), HELD)
        assert 3 <= len(advice.numbers.split()) <= NUMBERS_WORDS_MAX, advice
        assert advice.numbers.endswith("."), advice
        assert advice.next not in (None, advice.more), f"{code}: the first command has a name that no reader holds"
        assert set(re.findall(r"[A-Z]{3,}|\.\.\.", advice.next)) <= WORDS, f"{advice}: something is left to fill in"
        parsed(main, shlex.split(advice.next)[1:])


@pytest.mark.parametrize("code", PAGES)
def test_a_page_names_the_way_that_loses_nothing_first(code: str) -> None:
    """The first command is the `Next:` below the error, which people copy."""
    first, *others = in_order(PAGES[code])
    assert first.startswith("txbatch abort ") == (code in FREES_FIRST), first
    assert not loses(first), first
    behind = others[next((at for at, each in enumerate(others) if loses(each)), len(others)) :]
    assert [each for each in behind if not loses(each) and not COUNTS.fullmatch(each)] == []


def test_the_ways_out_of_a_changed_definition_are_a_list_with_a_command_a_line() -> None:
    ways = [line for line in PAGES["TX601"].splitlines() if line.startswith("- ")]
    assert len(ways) > 4
    assert [way for way in ways if len(commands(way)) > 1] == []


def test_airflow_runs_a_job_by_itself() -> None:
    for code in PAGES:
        command = advise(of_code(code), HELD, in_airflow=True).next
        assert command is not None
        assert " run " not in command
        parsed(main, shlex.split(command)[1:])


def test_a_reader_who_holds_no_name_gets_the_page() -> None:
    for code, page in PAGES.items():
        advice, first = advise(of_code(code), {}), first_command(page)
        assert first is not None
        assert advice.next == (advice.more if any(name in first for name in NAMES) else first)
        parsed(main, shlex.split(advice.more)[1:])


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


@pytest.mark.parametrize("module", MODULES, ids=[str(each.relative_to(ROOT / "plugins")) for each in MODULES])
def test_no_module_makes_an_error_of_no_situation(module: Path) -> None:
    assert not GENERIC & set(made(ast.parse(module.read_text(encoding="utf-8"))))


def texts(code: ast.AST) -> Iterator[str]:
    """Yield the texts of code, with an x for each value that is filled in."""
    for node in ast.walk(code):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(each.value) if isinstance(each, ast.Constant) else "x" for each in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_the_whole_commands_that_messages_name_exist() -> None:
    """If a message names a whole command, an edge prints no other one."""
    named = {
        command
        for module in MODULES
        for text in texts(ast.parse(module.read_text()))
        for command in named_commands(text)
    }
    assert len(named) > 20
    for command in named:
        program, *arguments = shlex.split(command.replace("%s", "1").replace("{}", "x"))
        if program == "txbatch":
            parsed(main, arguments)


def test_an_error_of_no_situation_would_be_found() -> None:
    wrong = 'raise TerminalError\ndef f():\n    return errors.TransientError("x")\nraise DefinitionError("x") from None'
    assert GENERIC & set(made(ast.parse(wrong))) == GENERIC - {"TxbatchError"}
    assert not set(given(ast.parse("isinstance(error, NotEmitted)\ntry: pass\nexcept NotEmitted: pass"))) & {
        "NotEmitted"
    }


def test_each_class_with_a_situation_is_made_somewhere() -> None:
    """In a module, or in the SQL of the ledger's functions, which raise by the code."""
    modules = {name for module in MODULES for name in given(ast.parse(module.read_text(encoding="utf-8")))}
    sql = set(re.findall(r"\bTX\d{3}\b", (ROOT / "sql" / "schema.sql").read_text(encoding="utf-8")))
    unused = {each.__name__ for code, each in TxbatchError.by_code.items() if code not in sql} - modules
    assert unused == GENERIC - {"TxbatchError"}
