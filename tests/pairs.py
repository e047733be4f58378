"""Which capabilities meet, pair by pair; and the table beside the rules that says in how many mixed histories each pair did.

Two have met where both befell one window of one word: the second after the first, while what the first did stood. What is
refused of a pair has a test of its own, which is looked for. `.venv/bin/python tests/pairs.py` tells the histories of
`make test`, and writes the table into docs/rules.md.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations

from proofs import DOCUMENT, TESTS

CAPABILITIES = {
    "restate": "a batch is counted again in its place (R17)",
    "rebuild": "all is counted again, and swapped (R23)",
    "change": "a value is renamed, joins or goes (R23)",
    "gc": "what a batch contributed is folded (R22)",
    "prune": "rows that were kept go when they are folded (R22)",
    "leave": "a window leaves (R30)",
    "closings": "a commit closes a window (R26)",
    "sessions": "a session joins what several batches have of it (R27)",
    "look-ups": "another topology looks it up (R22)",
    "as-of": "it is told as it was at an earlier txid (R19)",
    "apart": "another topology counts it in a state of another database (R21)",
    "skip": "records are given up (R16)",
    "numbered": "records are numbered as they are read (R29)",
    "trains": "batches are planned at once, behind each other (R6)",
    "quarantine": "a record fails, and is kept aside (R24)",
    "late": "a record is late (R25)",
}
ORDER = list(CAPABILITIES)
PAIRS = list(combinations(CAPABILITIES, 2))
# So many histories have a pair at least.
LEAST = 3
# A word, and of its records those of forty minutes.
Cell = tuple[str, int]
Pair = tuple[str, str]
# What of a pair is refused, and the test that says so.
REFUSED: dict[Pair, tuple[str, str]] = {
    ("restate", "gc"): (
        "what is folded is restated no more",
        "contract/test_retention.py::test_what_is_folded_is_restated_no_more",
    ),
    ("restate", "prune"): (
        "who read all rows reads them no more once some have gone",
        "contract/test_pruned_rows.py::test_what_read_all_rows_is_not_counted_again_once_some_have_gone",
    ),
    ("restate", "leave"): (
        "what was given up is restated no more where its windows have left",
        "contract/test_keep_windows.py::test_what_was_given_up_late_is_restated_no_more_where_its_windows_have_left",
    ),
    ("restate", "apart"): (
        "a topology with a state apart restates nothing itself",
        "contract/test_apart.py::test_nothing_is_counted_again_where_a_state_is_apart",
    ),
    ("rebuild", "apart"): (
        "nor does it rebuild",
        "contract/test_apart.py::test_nothing_is_counted_again_where_a_state_is_apart",
    ),
    ("rebuild", "change"): (
        "no definition is changed while a rebuild runs, and what one replaced keeps its names",
        "contract/test_rebuild.py::test_no_definition_is_changed_while_a_rebuild_runs",
    ),
    ("rebuild", "gc"): (
        "nothing is folded while a rebuild counts it",
        "contract/test_retention.py::test_no_past_is_folded_while_a_rebuild_counts_it",
    ),
    ("rebuild", "late"): (
        "a watermark does not follow another time",
        "contract/test_watermarks.py::test_a_watermark_of_another_time_is_refused_by_change_and_by_rebuild",
    ),
    ("change", "look-ups"): (
        "values stay while an open batch looks them up",
        "contract/test_over_swaps.py::test_values_stay_while_an_open_batch_looks_the_state_up",
    ),
    ("prune", "apart"): (
        "a state apart keeps what it has",
        "contract/test_rows.py::test_what_keeps_no_contributions_cannot_be_pruned",
    ),
    ("leave", "apart"): (
        "a state apart keeps its windows",
        "unit/test_keep_windows.py::test_without_contributions_nobody_knows_what_is_folded",
    ),
    ("leave", "late"): (
        "windows in which late records count do not leave",
        "unit/test_keep_windows.py::test_late_records_that_count_would_begin_one_anew",
    ),
    ("look-ups", "apart"): (
        "nothing is looked up in a state apart",
        "contract/test_look_ups.py::test_a_state_without_a_past_is_refused",
    ),
    ("skip", "numbered"): (
        "records that were given up have no numbers, and are not counted after all",
        "contract/test_numbered.py::test_what_was_given_up_has_no_numbers_and_is_not_counted_after_all",
    ),
    ("numbered", "trains"): (
        "`max_pending` is one, and of batches that are planned at once the second is planned anew",
        "contract/test_numbered.py::test_of_batches_that_are_planned_ahead_the_first_alone_has_its_numbers",
    ),
}
BEGIN, END = "<!-- pairs: written by tests/pairs.py -->\n", "<!-- end of pairs -->\n"


@dataclass
class Met:
    """What befell each cell, in one history, and which pairs did."""

    stands: dict[Cell, set[str]] = field(default_factory=dict)
    pairs: set[Pair] = field(default_factory=set)

    def befalls(self, what: str, cells: Iterable[Cell]) -> None:
        for cell in cells:
            there = self.stands.setdefault(cell, set())
            self.pairs |= {pair_of(what, other) for other in there - {what}}
            there.add(what)

    def ends(self, what: str, cells: Iterable[Cell]) -> None:
        """What a capability did to these cells is undone."""
        for cell in cells:
            self.stands.get(cell, set()).discard(what)


def pair_of(one: str, other: str) -> Pair:
    """Return both in the order of the table."""
    first, second = sorted((one, other), key=ORDER.index)
    return first, second


def counted(histories: Iterable[Met]) -> Counter[Pair]:
    """Return how many histories had each pair."""
    return Counter(pair for each in histories for pair in each.pairs)


def not_there() -> list[str]:
    """Return the tests that are named here, and are none."""
    return [test for _, test in REFUSED.values() if not _is_test(*test.split("::"))]


def _is_test(module: str, name: str) -> bool:
    path = TESTS / module
    body = ast.parse(path.read_text(encoding="utf-8")).body if path.exists() else []
    return any(isinstance(each, ast.FunctionDef) and each.name == name for each in body)


def table(counts: Mapping[Pair, int]) -> str:
    """Return the table: a row and a column for each capability, with the histories of each pair."""
    head, *rows = [f"| {' | '.join(['', *ORDER[1:]])} |", f"|---|{'---:|' * (len(ORDER) - 1)}"]
    for one in ORDER[:-1]:
        cells = [_shown(counts, (one, other)) if (one, other) in PAIRS else "" for other in ORDER[1:]]
        rows.append(f"| **{one}** | {' | '.join(cells)} |")
    return "\n".join([head, *rows, ""])


def _shown(counts: Mapping[Pair, int], pair: Pair) -> str:
    return f"{counts[pair]}{'*' if pair in REFUSED else ''}"


def refusals() -> str:
    """Return what is refused of pairs, each with its test."""
    return "".join(f"- *{one}, {other}*: {what} (`{test}`)\n" for (one, other), (what, test) in REFUSED.items())


def told(page: str) -> dict[Pair, int]:
    """Return what the table of a page says. ValueError where that is no such table."""
    lines = page.partition(BEGIN)[2].partition(END)[0].splitlines()
    found: dict[Pair, int] = {}
    for one, *cells in (re.findall(r"\| \*\*([\w-]+)\*\* \|(.*)\|", line)[0] for line in lines if "| **" in line):
        numbers = [cell.strip().rstrip("*") for cell in cells[0].split("|")]
        found |= {(one, other): int(cell) for other, cell in zip(ORDER[1:], numbers, strict=True) if cell}
    return found


def with_table(page: str, counts: Mapping[Pair, int]) -> str:
    """Return the page with the table of these counts. ValueError where the page has no place for one."""
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{DOCUMENT.name} lacks the lines {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n{table(counts)}\n{refusals()}\n{END}{after}"


if __name__ == "__main__":
    from model.mixed import EACH, some_told

    counts = counted(each.met for each in some_told(range(EACH)))
    DOCUMENT.write_text(with_table(DOCUMENT.read_text(encoding="utf-8"), counts), encoding="utf-8")
