"""The rows of `txbatch.reports` have what the views of the schema `report` have."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from txbatch.reports import Attempt, Batch, Restatement

SCHEMA = (Path(__file__).parents[2] / "sql" / "schema.sql").read_text(encoding="utf-8")


@pytest.mark.parametrize(("kind", "view"), [(Batch, "batches"), (Attempt, "attempts"), (Restatement, "restatements")])
def test_a_row_has_each_column_of_its_view(kind: type[Batch | Attempt | Restatement], view: str) -> None:
    commented = re.findall(rf"COMMENT ON COLUMN report\.{view}\.(\w+) IS", SCHEMA)
    assert {field.name for field in fields(kind)} == {*commented}
