"""Which tests prove which rule, in `make test` and in `make test-all` alone, read off their marks; and the table that says so.

Nothing is run here. `.venv/bin/python tests/proofs.py` writes the table into CONTRIBUTING.md.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
DOCUMENT = ROOT / "docs" / "rules.md"
PAGE = ROOT / "CONTRIBUTING.md"
# A rule is a heading, which is its anchor; parts of a rule (R7a) are the items of a list.
KNOWN = re.findall(r"^(?:### |- )(R\d+[a-z]?)\b", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
RULES = [f"R{number}" for number in range(1, 1 + sum(rule[1:].isdigit() for rule in KNOWN))]
BEGIN, END = "<!-- proofs: written by tests/proofs.py -->\n", "<!-- end of proofs -->\n"


@dataclass(frozen=True)
class Proof:
    """A test that is marked with a rule; `whole` if `make test` leaves the test out."""

    rule: str
    tier: str
    module: str
    test: str
    whole: bool


@cache
def proofs() -> list[Proof]:
    """All of them, by tier, module and place."""
    return [
        Proof(rule, path.parent.name, path.stem.removeprefix("test_"), test, whole)
        for path in sorted(TESTS.glob("*/test_*.py"))
        for rule, test, whole in _marked(ast.parse(path.read_text(encoding="utf-8")))
    ]


def _marked(module: ast.Module) -> Iterator[tuple[str, str, bool]]:
    """Each rule of each test, from `@pytest.mark.rule("R5", ...)`, and whether it, its class or its module is marked whole."""
    marks = [
        node.value
        for node in module.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    yield from _marked_in(module.body, any("mark.whole" in ast.unparse(mark) for mark in marks))


def _marked_in(body: list[ast.stmt], whole: bool) -> Iterator[tuple[str, str, bool]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            of_node = whole or any(ast.unparse(each) == "pytest.mark.whole" for each in node.decorator_list)
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.rule":
                    yield from ((ast.literal_eval(rule), node.name, of_node) for rule in decorator.args)
            if isinstance(node, ast.ClassDef):
                yield from _marked_in(node.body, of_node)


def table() -> str:
    """Return the table: for each rule the modules of tests that prove the rule, with how many tests of each."""
    rows = [f"| {rule} | {_told(rule, False)} | {_told(rule, True)} |" for rule in RULES]
    return "\n".join(["| rule | `make test` proves it by | `make test-all` by these too |", "|---|---|---|", *rows, ""])


def _told(rule: str, whole: bool) -> str:
    """Return the modules of a rule's proofs by tier, as `cli: gc 2, rows · contract: plans`."""
    found = Counter((each.tier, each.module) for each in proofs() if (each.rule, each.whole) == (rule, whole))
    tiers: dict[str, list[str]] = {}
    for (tier, module), number in sorted(found.items()):
        tiers.setdefault(tier, []).append(f"{module} {number}" if number > 1 else module)
    return " · ".join(f"{tier}: {', '.join(modules)}" for tier, modules in tiers.items())


def with_table(page: str) -> str:
    """Return the page with the table as it must be now. Raises ValueError where the page has no place for the table."""
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{PAGE.name} lacks the lines {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
