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

    `there` are rows of the plan's snapshot, `late` are later ones.

    >>> row_difference(7, 7, 0), row_difference(7, 6, 2), row_difference(7, 9, 0)
    (None, '2 rows came late, 1 row is gone', '2 rows were moved here')
    """
    found = []
    if late:
        found.append(f"{_rows(late)} came late")
    if there < counted:
        found.append(f"{_rows(counted - there)} {'is' if counted - there == 1 else 'are'} gone")
    if there > counted:
        found.append(f"{_rows(there - counted)} {'was' if there - counted == 1 else 'were'} moved here")
    return ", ".join(found) or None


def _rows(number: int) -> str:
    return "1 row" if number == 1 else f"{number:,} rows"
