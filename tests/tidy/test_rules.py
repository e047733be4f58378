"""Every rule of docs/rules.md is shown by a golden case, as data, and proved by a test with real processes that names it.

Nothing is run here: cases are JSON, and the marker `@pytest.mark.rule("R5", ...)` is read off the source.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
DOCUMENT = ROOT / "docs" / "rules.md"
# A rule is a heading, which is its anchor; parts of a rule (R7a) are the items of a list.
KNOWN = re.findall(r"^(?:### |- )(R\d+[a-z]?)\b", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
LINKED = re.compile(r"rules\.md(#[^)]*)\)")
NAMED = re.compile(r"\bR\d{1,2}[a-z]?\b")
RULES = [f"R{number}" for number in range(1, 22)]
# Tests of these tiers run on PostgreSQL, Airflow or Spark: real servers, real processes.
REAL = {"contract", "golden", "postgres", "soak", "spark", "cli", "model", "airflow", "flights"}


@cache
def golden() -> dict[str, list[str]]:
    """By rule the golden cases that show it."""
    found: dict[str, list[str]] = {}
    for path in sorted((TESTS / "golden").glob("*/*.json")):
        for rule in json.loads(path.read_text(encoding="utf-8")).get("rules", []):
            found.setdefault(rule, []).append(f"{path.parent.name}/{path.stem}")
    return found


@cache
def proved() -> dict[str, list[str]]:
    """By rule the tests that are marked with it."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.glob("*/test_*.py")):
        for name, rule in marked(ast.parse(path.read_text(encoding="utf-8"))):
            found.setdefault(rule, []).append(f"{path.parent.name}/{path.name}::{name}")
    return found


def marked(module: ast.Module) -> Iterator[tuple[str, str]]:
    """Each test with each rule that one of its `@pytest.mark.rule(...)` names."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.rule":
                    yield from ((node.name, ast.literal_eval(rule)) for rule in decorator.args)


def test_every_rule_has_a_golden_case() -> None:
    assert [rule for rule in RULES if rule not in golden()] == []


def test_every_rule_is_proved_with_real_processes() -> None:
    assert [rule for rule in RULES if rule not in proved()] == []


def test_every_golden_case_of_the_protocol_says_which_rules_it_shows() -> None:
    cases = {f"protocol/{path.stem}" for path in (TESTS / "golden" / "protocol").glob("*.json")}
    assert cases - {case for cases in golden().values() for case in cases} == set()


def texts() -> Iterator[Path]:
    """Everything of the project that is written by hand and may name a rule."""
    yield from ROOT.glob("*.md")
    for folder in ("plugins", "sql", "docs", "dags", "jobs", "bench", "tests"):
        yield from (path for ending in ("py", "sql", "md") for path in (ROOT / folder).rglob(f"*.{ending}"))
    yield from (TESTS / "golden").glob("*/*.json")


def test_each_rule_is_defined_once_and_they_are_numbered_without_a_gap() -> None:
    assert len(KNOWN) == len({*KNOWN})
    numbers = sorted(int(rule[1:]) for rule in KNOWN if rule[1:].isdigit())
    assert numbers == list(range(1, len(numbers) + 1))


def test_only_rules_that_are_defined_are_named() -> None:
    assert {*RULES, *golden(), *proved()} - {*KNOWN} == set()
    named = {(rule, path) for path in texts() for rule in NAMED.findall(path.read_text(encoding="utf-8"))}
    assert [f"{rule} in {path.relative_to(ROOT)}" for rule, path in named if rule not in KNOWN] == []


def test_links_to_rules_lead_to_their_headings() -> None:
    assert {link for path in texts() for link in LINKED.findall(path.read_text(encoding="utf-8"))} - anchors() == set()


def test_the_index_of_the_rules_leads_to_all_of_them() -> None:
    index = re.findall(r"\[(R\d+)\]\((#[^)]*)\)", DOCUMENT.read_text(encoding="utf-8").partition("\n## ")[0])
    assert [rule for rule, _ in index] == [f"R{number + 1}" for number in range(len(index))]
    assert {anchor for _, anchor in index} == {anchor for anchor in anchors() if re.match(r"#r\d", anchor)}


def anchors() -> set[str]:
    """What the headings of the rules are linked by: their words, with hyphens between them."""
    headings = re.findall(r"^#+ (.*)$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    return {"#" + re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_marker_is_for_tests_with_real_processes() -> None:
    tiers = {test.split("/")[0] for tests in proved().values() for test in tests}
    assert tiers - REAL == set()
