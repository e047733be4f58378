"""docs/spouts.md: each example defines a topology; tests/spark counts by the one of a table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from txbatch.launch.job_file import load_job

BLOCKS = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[2] / "docs" / "spouts.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_an_example_defines_a_topology(number: int, tmp_path: Path) -> None:
    job = tmp_path / f"spouts_{number}.py"
    job.write_text(BLOCKS[number])
    assert load_job(str(job)).topology.aggregates
