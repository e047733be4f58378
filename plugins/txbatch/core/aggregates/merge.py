"""Merge: how two partials are merged, in Python and in PostgreSQL; and the totals compared of a column.

A merge is a class with a rule for two values and a rule for all rows of a key. Most merges are for a single column. A
`RowMerge` may be for several columns that belong together. Null merged with x is x, in Python and in PostgreSQL.

>>> ADD.merge(2, 3), ADD.merge(None, 3), LEAST.merge("dog", "cat")
(5, 3, 'cat')
>>> GREATEST.pair_sql("s.best", "e.best")
'GREATEST(s.best, e.best)'
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from enum import StrEnum
from typing import Any, ClassVar

from txbatch.core.errors import OutOfRange
from txbatch.core.records.fields import EXACT, FLOATING_TYPES, array_of

BIGINT_MIN, BIGINT_MAX = -(2**63), 2**63 - 1
DECIMAL_DIGITS_MAX = 38
Partial = tuple[Any, ...]


class Total(StrEnum):
    """How the files of an attempt and the upserted rows are compared, for a column (R7)."""

    SUM = "sum"
    TRUE = "true"
    PRESENT = "present"
    ELEMENTS = "elements"

    def together(self, parts: Iterable[Decimal | int | None]) -> str | None:
        """Return the total of disjoint rows in the format of PostgreSQL: every digit, no exponent. None for a sum of nothing."""
        known = [Decimal(part) for part in parts if part is not None]
        if not known and self is Total.SUM:
            return None
        with localcontext(prec=76):
            return format(sum(known, Decimal()), "f")


@dataclass(frozen=True, slots=True)
class RowMerge(ABC):
    """A commutative and associative rule: the order of batches does not matter (R18).

    A rule merges `width` neighbouring columns. `name` is stored with the state, for each column: two definitions with the same
    name must merge alike.
    """

    name: ClassVar[str]
    # False: Python alone has the rule, PostgreSQL cannot merge by it.
    in_sql: ClassVar[bool] = True
    # True: a record that comes twice changes nothing.
    takes_twice: ClassVar[bool] = False

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of columns that the rule merges."""

    def __str__(self) -> str:
        return self.name

    @property
    def word(self) -> str:
        """The merge in the words of who defines a value."""
        return str(self)

    @abstractmethod
    def rows(self, left: Partial, right: Partial) -> Partial:
        """Return the columns of two rows merged into a single row."""

    def check(self, row: Partial) -> None:
        """BadRecord for values that the columns' types cannot hold. Called for stored rows, not for intermediate results."""

    @abstractmethod
    def merge_sql(self, state: Sequence[str], partial: Sequence[str]) -> Sequence[str]:
        """Return SQL of PostgreSQL for `rows`, an expression for each column, over the columns of two rows."""

    @abstractmethod
    def rows_sql(self, columns: Sequence[str]) -> Sequence[str]:
        """Return a PostgreSQL aggregate over all rows of one key for each column."""

    def hashed_sql(self, columns: Sequence[str], types: Sequence[str]) -> Sequence[str]:
        """Return `rows_sql` for columns of these types. If no order of rows is needed, rows are hashed, not sorted."""
        return self.rows_sql(columns)

    def exact(self, type: str) -> bool:
        """Return True if values of this type merge to the same digits in any order."""
        return True

    def total(self, type: str) -> Total:
        """Return the total to compare for a column of this type."""
        if array_of(type) is not None:
            return Total.ELEMENTS
        return Total.TRUE if type == "boolean" else Total.PRESENT


@dataclass(frozen=True, slots=True)
class Merge(RowMerge):
    """A rule for the values of one column."""

    width = 1

    def rows(self, left: Partial, right: Partial) -> Partial:
        return (self.merge(left[0], right[0]),)

    def merge_sql(self, state: Sequence[str], partial: Sequence[str]) -> Sequence[str]:
        return [self.pair_sql(state[0], partial[0])]

    def rows_sql(self, columns: Sequence[str]) -> Sequence[str]:
        return [self.fold_sql(columns[0])]

    def merge(self, left: Any, right: Any) -> Any:
        """Return both values merged; null merged with x is x."""
        if left is None or right is None:
            return right if left is None else left
        return self.both(left, right)

    @abstractmethod
    def both(self, left: Any, right: Any) -> Any:
        """Return both values merged; neither is null."""

    @abstractmethod
    def pair_sql(self, state: str, partial: str) -> str:
        """Return SQL of PostgreSQL for `merge`, over two columns; each column may be null."""

    @abstractmethod
    def fold_sql(self, column: str) -> str:
        """Return a PostgreSQL aggregate over all rows of one key: null if all rows are null."""


class Add(Merge):
    """The sum; a total beyond bigint or decimal(38) is a BadRecord, and never wraps."""

    name = "add"
    word = "summed"

    def both(self, left: Any, right: Any) -> Any:
        if isinstance(left, Decimal) or isinstance(right, Decimal):
            return EXACT.add(Decimal(left), Decimal(right))
        return left + right

    def check(self, row: Partial) -> None:
        (total,) = row
        if isinstance(total, Decimal):
            fits, instead = len(total.as_tuple().digits) <= DECIMAL_DIGITS_MAX, "fewer digits after the point"
        else:
            fits = not isinstance(total, int) or BIGINT_MIN <= total <= BIGINT_MAX
            instead = "a decimal with more digits"
        if not fits:
            raise OutOfRange(f"the total {total} is out of range for its type; sum {instead} instead")

    def pair_sql(self, state: str, partial: str) -> str:
        return f"COALESCE({state} + {partial}, {state}, {partial})"

    def fold_sql(self, column: str) -> str:
        return f"sum({column})"

    def exact(self, type: str) -> bool:
        return type not in FLOATING_TYPES

    def total(self, type: str) -> Total:
        return Total.SUM if self.exact(type) else Total.PRESENT


class Least(Merge):
    """The smaller value, compared like in Spark and PostgreSQL: strings by their bytes, NaN above all numbers."""

    name = "least"
    word = "smallest"
    takes_twice = True

    def both(self, left: Any, right: Any) -> Any:
        return min(left, right, key=order)

    def pair_sql(self, state: str, partial: str) -> str:
        return f"LEAST({state}, {partial})"

    def fold_sql(self, column: str) -> str:
        return _first_sql(column, column)

    def hashed_sql(self, columns: Sequence[str], types: Sequence[str]) -> Sequence[str]:
        function = _extreme(types[0], "min", "bool_and")
        return [f"{function}({columns[0]})"] if function else self.rows_sql(columns)


class Greatest(Merge):
    """The greater value, compared as for `Least`."""

    name = "greatest"
    takes_twice = True

    def both(self, left: Any, right: Any) -> Any:
        return max(left, right, key=order)

    def pair_sql(self, state: str, partial: str) -> str:
        return f"GREATEST({state}, {partial})"

    def fold_sql(self, column: str) -> str:
        return _first_sql(column, f"{column} DESC")

    def hashed_sql(self, columns: Sequence[str], types: Sequence[str]) -> Sequence[str]:
        function = _extreme(types[0], "max", "bool_or")
        return [f"{function}({columns[0]})"] if function else self.rows_sql(columns)


class GreatestBy(RowMerge):
    """Two columns of the record with the greatest first column.

    If first columns tie, the greatest second column wins; null loses. A record with a null first column is left out.
    """

    name = "greatest_by"
    word = "of the greatest"
    takes_twice = True
    width = 2
    _beats, _descends = ">", " DESC"

    def rows(self, left: Partial, right: Partial) -> Partial:
        found = [each for each in (left, right) if each[0] is not None]
        return self._first(found) if found else (None, None)

    def _first(self, found: Sequence[Partial]) -> Partial:
        return max(
            found, key=lambda each: (order(each[0]), each[1] is not None, order(each[1] if each[1] is not None else 0))
        )

    def merge_sql(self, state: Sequence[str], partial: Sequence[str]) -> Sequence[str]:
        (at, value), (new_at, new) = state, partial
        tie = f"({new} {self._beats} {value} OR ({value} IS NULL AND {new} IS NOT NULL))"
        newer = f"({at} IS NULL OR {new_at} {self._beats} {at} OR ({new_at} = {at} AND {tie}))"
        # Spelled out: (a, b) > (c, d) is null where b or d is.
        return [
            f"CASE WHEN {new_at} IS NOT NULL AND {newer} THEN {new_at} ELSE {at} END",
            f"CASE WHEN {new_at} IS NOT NULL AND {newer} THEN {new} ELSE {value} END",
        ]

    def rows_sql(self, columns: Sequence[str]) -> Sequence[str]:
        at, value = columns
        first = f"{at}{self._descends}, {value}{self._descends} NULLS LAST"
        return [f"(array_agg({each} ORDER BY {first}) FILTER (WHERE {at} IS NOT NULL))[1]" for each in columns]


class LeastBy(GreatestBy):
    """Two columns of the record with the least first column. If first columns tie, the least second column wins; null loses."""

    name = "least_by"
    word = "of the least"
    _beats, _descends = "<", ""

    def _first(self, found: Sequence[Partial]) -> Partial:
        return min(
            found, key=lambda each: (order(each[0]), each[1] is None, order(each[1] if each[1] is not None else 0))
        )


@dataclass(frozen=True, slots=True)
class Top(Merge):
    """The greatest values of both arrays, greatest first, at most `size`."""

    name = "top"
    size: int

    def __str__(self) -> str:
        return f"{self.name}({self.size})"

    def both(self, left: Any, right: Any) -> Any:
        return sorted([*left, *right], key=order, reverse=True)[: self.size]

    def pair_sql(self, state: str, partial: str) -> str:
        return f"report.merge_{self.name}({state}, {partial}, {self.size:d})"

    def fold_sql(self, column: str) -> str:
        return f"report.fold_{self.name}({column}, {self.size:d})"


class Smallest(Top):
    """The smallest different values of both arrays, in order, at most `size`."""

    name = "smallest"
    takes_twice = True

    def both(self, left: Any, right: Any) -> Any:
        different = {order(value): value for value in (*left, *right)}
        return [different[each] for each in sorted(different)][: self.size]


class Bins(Merge):
    """Numbers of bins, each with a count behind it, in order: the counts of a bin are added."""

    name = "bins"

    def both(self, left: Any, right: Any) -> Any:
        counts: dict[int, int] = {}
        for bins in (left, right):
            for bin_, count in zip(bins[::2], bins[1::2], strict=True):
                counts[bin_] = counts.get(bin_, 0) + count
        return [number for bin_ in sorted(counts) for number in (bin_, counts[bin_])]

    def pair_sql(self, state: str, partial: str) -> str:
        return f"report.merge_bins({state}, {partial})"

    def fold_sql(self, column: str) -> str:
        return f"report.fold_bins({column})"


BINS = Bins()
ADD, LEAST, GREATEST, LEAST_BY, GREATEST_BY = Add(), Least(), Greatest(), LeastBy(), GreatestBy()
MERGES: Mapping[str, RowMerge] = {each.name: each for each in (ADD, LEAST, GREATEST, LEAST_BY, GREATEST_BY, BINS)}
_SIZED = {"top": Top, "smallest": Smallest}
_SIZED_NAME = re.compile(r"(\w+)\((\d+)\)")


def merge_named(name: str) -> RowMerge | None:
    """Return the merge that is stored by this name; None for a merge of a user's own.

    >>> str(merge_named("top(10)")), merge_named("bit_or")
    ('top(10)', None)
    """
    sized = _SIZED_NAME.fullmatch(name)
    if sized and sized[1] in _SIZED:
        return _SIZED[sized[1]](int(sized[2]))
    return MERGES.get(name)


def _extreme(type: str, function: str, of_boolean: str) -> str | None:
    """Return the PostgreSQL aggregate for the least or greatest value of a type; None if some versions have none."""
    if type == "binary" or array_of(type) is not None:
        return None
    return of_boolean if type == "boolean" else function


def _first_sql(column: str, order: str) -> str:
    """Return the first value in an order. PostgreSQL has no min or max of boolean, nor of bytea before PostgreSQL 18."""
    return f"(array_agg({column} ORDER BY {order}) FILTER (WHERE {column} IS NOT NULL))[1]"


def order(value: Any) -> tuple[bool, Any]:
    """Return the sort key of a value, like in Spark and PostgreSQL: NaN is above all numbers, and equal to itself."""
    return value != value, None if value != value else value
