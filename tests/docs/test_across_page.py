"""The jobs of docs/across.md run as they stand, and come to what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

BLOCKS = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[2] / "docs" / "across.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=["once", "join"])
def test_what_a_state_remembers_over_batches_is_counted_once(block: str) -> None:
    assert "assert" in block
    exec(block, {})
