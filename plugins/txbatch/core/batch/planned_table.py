"""A table as the plan of an interval names the table, and how its rows differ from the plan: decided without looking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """The rows of an interval in the plan of a batch that counts; `source` is the identity of the stream's spout.

    `many` is how many such batches the topology has.
    """

    topology: str
    stream: str
    source: Mapping[str, Any]
    plan: Mapping[str, Any]
    txid: int | None = None
    many: int = 1


def row_difference(counted: int, there: int, late: int) -> str | None:
    """Return how the rows of an interval differ from those counted; None if as many are there, and none came late.

    `there` are rows of the plan's snapshot, `late` are later rows.

    >>> row_difference(7, 7, 0), row_difference(7, 7, 2), row_difference(7, 9, 0)
    (None, '2 rows came late', '2 rows were moved here')
    >>> row_difference(7, 6, 2), row_difference(7, 5, 1)
    ('1 row came late, 1 row was changed or replaced', '1 row was changed or replaced, 1 row is gone')
    """
    changed, gone = replaced(counted, there, late), max(counted - there, 0)
    found = [
        (late - changed, "came late", "came late"),
        (changed, "was changed or replaced", "were changed or replaced"),
        (gone - changed, "is gone", "are gone"),
        (max(there - counted, 0), "was moved here", "were moved here"),
    ]
    return ", ".join(f"{_rows(number)} {one if number == 1 else many}" for number, one, many in found if number) or None


def replaced(counted: int, there: int, late: int) -> int:
    """Return the number of later rows in place of counted rows: an UPDATE is a row that went and a row that came."""
    return min(late, max(counted - there, 0))


def _rows(number: int) -> str:
    return "1 row" if number == 1 else f"{number:,} rows"
