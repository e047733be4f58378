"""Every rule of the protocol is shown by a golden case, as data, and proved by a test with real processes that names it.

Nothing is run here: cases are JSON, and the marker `@pytest.mark.rule("R5", ...)` is read off the source.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
RULES = [f"R{number}" for number in (*range(1, 15), 16, 19, 20, 21)]
KNOWN = {f"R{number}" for number in range(1, 25)}
# Tests of these tiers run on PostgreSQL, Airflow or Spark: real servers, real processes.
REAL = {"contract", "golden", "postgres", "soak", "spark", "cli", "model", "airflow", "flights", "demo"}


def golden() -> dict[str, list[str]]:
    """By rule the golden cases that show it."""
    found: dict[str, list[str]] = {}
    for path in sorted((TESTS / "golden").glob("*/*.json")):
        for rule in json.loads(path.read_text(encoding="utf-8")).get("rules", []):
            found.setdefault(rule, []).append(f"{path.parent.name}/{path.stem}")
    return found


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


def test_only_rules_that_exist_are_named() -> None:
    assert {*golden(), *proved()} - KNOWN == set()


def test_the_marker_is_for_tests_with_real_processes() -> None:
    tiers = {test.split("/")[0] for tests in proved().values() for test in tests}
    assert tiers - REAL == set()
