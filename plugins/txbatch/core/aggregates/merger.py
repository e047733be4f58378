"""Merger: whole rows of partial columns as one, in Python and in PostgreSQL, each column by its merge.

>>> from txbatch.core.aggregates.merge import ADD, GREATEST
>>> Merger([ADD, GREATEST])((2, "cat"), (3, "dog"))
(5, 'dog')
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce

from txbatch.core.aggregates.merge import Partial, RowMerge


def grouped(merges: Sequence[RowMerge]) -> Iterator[tuple[RowMerge, slice]]:
    """Yield the merges of a row's columns, each with a slice of the columns to merge.

    >>> from txbatch.core.aggregates.merge import ADD, LEAST_BY
    >>> [merge.name for merge, _ in grouped([ADD, LEAST_BY, LEAST_BY, ADD])]
    ['add', 'least_by', 'add']
    """
    at = 0
    while at < len(merges):
        yield merges[at], slice(at, at + merges[at].width)
        at += merges[at].width


class Merger:
    """The `combine` of a whole row of partial columns: of two rows, of two rows to be merged further, or of all rows of a key."""

    def __init__(self, merges: Sequence[RowMerge]) -> None:
        self._groups = list(grouped(merges))

    def __call__(self, left: Partial, right: Partial) -> Partial:
        """Return both rows merged; BadRecord if the columns cannot hold a value."""
        return self.checked(self.on_the_way(left, right))

    def on_the_way(self, left: Partial, right: Partial) -> Partial:
        """Return both rows merged, to be merged further: a value too large for its column may become smaller again."""
        return tuple(value for merge, at in self._groups for value in merge.rows(left[at], right[at]))

    def checked(self, row: Partial) -> Partial:
        """Return a row to be stored; BadRecord if the columns cannot hold a value."""
        for merge, at in self._groups:
            merge.check(row[at])
        return row

    def whole(self, rows: Iterable[Partial]) -> Partial:
        """Return all rows of a key merged, in any order; BadRecord if the columns cannot hold a value."""
        return self.checked(reduce(self.on_the_way, rows))


def folded_columns(merges: Sequence[RowMerge], columns: Sequence[str]) -> list[str]:
    """Return a PostgreSQL aggregate over all rows of one key, for each of its columns."""
    return [sql for merge, at in grouped(merges) for sql in merge.rows_sql(columns[at])]


def hashed(merges: Sequence[RowMerge], columns: Sequence[str], types: Sequence[str]) -> list[str]:
    """Return the SQL of `folded_columns` for columns of these types; rows are in no order if no order is needed."""
    return [sql for merge, at in grouped(merges) for sql in merge.hashed_sql(columns[at], types[at])]
