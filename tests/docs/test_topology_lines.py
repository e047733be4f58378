"""Every line of the tables of docs/topology.md runs; here in memory, and in tests/spark/ with the same results. So do the
examples of its neighbours.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from operation_cases import DOCUMENT, LINES, QUERIES, QUERY_LINES, documented, given, in_memory
from twin.retention import MemoryRetention
from twin.window_retention import MemoryWindows

from txbatch import Stream, Topology
from txbatch.memory.ask import ask
from txbatch.memory.runner import run


def section(begin: str, end: str) -> str:
    """The document from one heading to another."""
    return DOCUMENT.read_text(encoding="utf-8").partition(begin)[2].partition(end)[0]


def examples(page: str) -> list[str]:
    """The blocks of Python of a page beside the document, in order."""
    return re.findall(r"```python\n(.*?)```", (DOCUMENT.parent / page).read_text(encoding="utf-8"), re.DOTALL)


def test_what_sql_is_called_here_exists() -> None:
    rows = re.findall(r"^\|.+\| (`.+) \|$", section("## Where you know SQL", "## Record by record"), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert len(rows) > 5
    assert named == {name for name in named if hasattr(Stream, name) or hasattr(Topology, name)}


def test_every_row_of_the_tables_is_one_that_runs() -> None:
    tables = section("## Record by record", "## What is left out")
    rows = [line for line in tables.splitlines() if line.startswith("| ") and not line.startswith("| Trident |")]
    assert len(rows) == len(LINES) == len(set(LINES))


def test_the_look_up_in_a_live_state_runs() -> None:
    look_up, *_ = examples("chains.md")
    exec(look_up, {})


def test_the_chain_of_topologies_runs() -> None:
    _, chain, _ = examples("chains.md")
    exec(chain, {})


def test_closed_windows_and_sessions_are_handed_on() -> None:
    windows, sessions, _ = examples("closed-windows.md")
    exec(windows + sessions, {})


def test_old_windows_leave() -> None:
    *_, example = examples("closed-windows.md")
    names: dict[str, Any] = {}
    exec(example, names)
    ledger = run(names["visits"])
    list(MemoryRetention(ledger).fold("visits", 9))
    ((state, left),) = MemoryWindows(ledger).leave("visits")
    assert (state, left.windows, left.records) == ("per_day", 3, 3)
    assert [key[0].day for key in sorted(ledger.rows("per_day"))] == [4, 5, 6, 7, 8, 9, 10]


def test_files_are_written() -> None:
    files, _ = examples("rows.md")
    exec(files, {})


def test_new_values_are_written() -> None:
    _, new_values = examples("rows.md")
    exec(new_values, {})


@pytest.mark.parametrize("line", LINES)
def test_a_line_runs(line: str) -> None:
    made, topology = documented(line)
    if isinstance(made, Stream):
        assert in_memory(made, given(made))
    else:
        assert run(topology).rows(made.state.name)


def test_every_row_on_queries_is_one_that_runs() -> None:
    rows = [line for line in QUERIES.splitlines() if line.startswith("| ") and not line.startswith("| Trident |")]
    assert len(rows) == len(QUERY_LINES) == len(set(QUERY_LINES)) > 4


@pytest.mark.parametrize("line", QUERY_LINES)
def test_a_query_answers_as_its_row_says(line: str) -> None:
    (said,) = re.findall(rf"`{re.escape(line)}` \| (\w+) record", QUERIES)
    _, topology = documented(line)
    (answer,) = ask(run(topology), topology, "shops", ["Soho Mayfair Leeds"])
    assert len(answer) == {"one": 1, "three": 3}[said]
    assert answer[0].get("sales", 2) in (2, 3)


def test_what_is_asked_from_python_is_what_is_answered() -> None:
    _, topology = documented(QUERY_LINES[0])
    ledger = run(topology)
    (called,) = re.findall(r"found = Reports.open\(\)\.ask\((.*?)\)  #", QUERIES)
    assert [
        len(answer) for answer in eval(f"ask(ledger, {called})", {"ask": ask, "ledger": ledger, "topology": topology})
    ] == [2, 1]
    soho = ledger.rows("by_shop")["Soho",]
    assert f'{{"sales": {soho.value[0]}, "turnover": {soho.value[1]}}}, None]' in QUERIES
