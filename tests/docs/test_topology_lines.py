"""Every line of the tables of docs/topology.md runs; here in memory, and in tests/spark/ with the same results."""

from __future__ import annotations

import pytest
from operation_cases import DOCUMENT, LINES, documented, given, in_memory

from txbatch import Stream
from txbatch.memory.runner import run


def test_every_row_of_the_tables_is_one_that_runs() -> None:
    tables = DOCUMENT.read_text(encoding="utf-8").partition("## What is left out")[0]
    rows = [line for line in tables.splitlines() if line.startswith("| ") and not line.startswith("| Trident |")]
    assert len(rows) == len(LINES) == len(set(LINES))


@pytest.mark.parametrize("line", LINES)
def test_a_line_runs(line: str) -> None:
    made, topology = documented(line)
    if isinstance(made, Stream):
        assert in_memory(made, given(made))
    else:
        assert run(topology).rows(made.state.name)
