"""Merge: how two values of one partial column become one, in Python and in PostgreSQL; and what is counted of a column.

A merge is one class, which says its rule for two values and for the rows of one key. Null merged with x is x, in both.

>>> ADD.merge(2, 3), ADD.merge(None, 3), LEAST.merge("dog", "cat")
(5, 3, 'cat')
>>> GREATEST.pair_sql("s.best", "e.best")
'GREATEST(s.best, e.best)'
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from enum import StrEnum
from typing import Any, ClassVar

from txbatch.core.errors import BadRecord
from txbatch.core.fields import FLOATING_TYPES

BIGINT_MIN, BIGINT_MAX = -(2**63), 2**63 - 1
DECIMAL_DIGITS_MAX = 38
EXACT = Context(prec=80)
Partial = tuple[Any, ...]


class Total(StrEnum):
    """What of a column is compared between the files of an attempt and the rows that are upserted (R7)."""

    SUM = "sum"
    TRUE = "true"
    PRESENT = "present"

    def together(self, parts: Iterable[Decimal | int | None]) -> str | None:
        """Return the total of disjoint rows as PostgreSQL writes it: every digit, no exponent; None: a sum of nothing."""
        known = [Decimal(part) for part in parts if part is not None]
        if not known and self is Total.SUM:
            return None
        with localcontext(prec=76):
            return format(sum(known, Decimal()), "f")


@dataclass(frozen=True, slots=True)
class Merge(ABC):
    """A rule that is commutative and associative, so that the order of batches does not matter (R18).

    `name` is stored with the state: two definitions of one name must merge alike.
    """

    name: ClassVar[str]

    def __str__(self) -> str:
        return self.name

    def merge(self, left: Any, right: Any) -> Any:
        """Return both values as one; null merged with x is x."""
        if left is None or right is None:
            return right if left is None else left
        return self.both(left, right)

    @abstractmethod
    def both(self, left: Any, right: Any) -> Any:
        """Return both values as one; neither is null. BadRecord for what its type cannot hold."""

    @abstractmethod
    def pair_sql(self, state: str, partial: str) -> str:
        """Return `merge` as a PostgreSQL expression over two columns, each of which may be null."""

    @abstractmethod
    def fold_sql(self, column: str) -> str:
        """Return a PostgreSQL aggregate over all rows of one key: null when all are null."""

    def exact(self, type: str) -> bool:
        """Return whether values of this type merge to the same digits in any order."""
        return True

    def total(self, type: str) -> Total:
        """Return what is compared of a column of this type."""
        return Total.TRUE if type == "boolean" else Total.PRESENT


class Add(Merge):
    """The sum; beyond bigint or decimal(38) it raises BadRecord, never wraps."""

    name = "add"

    def both(self, left: Any, right: Any) -> Any:
        if isinstance(left, Decimal) or isinstance(right, Decimal):
            total = EXACT.add(Decimal(left), Decimal(right))
            fits = len(total.as_tuple().digits) <= DECIMAL_DIGITS_MAX
        else:
            total = left + right
            fits = isinstance(total, float) or BIGINT_MIN <= total <= BIGINT_MAX
        if not fits:
            raise BadRecord(f"{left} + {right} is out of range for its type; sum a decimal with more digits instead")
        return total

    def pair_sql(self, state: str, partial: str) -> str:
        return f"COALESCE({state} + {partial}, {state}, {partial})"

    def fold_sql(self, column: str) -> str:
        return f"sum({column})"

    def exact(self, type: str) -> bool:
        return type not in FLOATING_TYPES

    def total(self, type: str) -> Total:
        return Total.SUM if self.exact(type) else Total.PRESENT


class Least(Merge):
    """The smaller value, as Spark and PostgreSQL compare: strings by their bytes, NaN above all numbers."""

    name = "least"

    def both(self, left: Any, right: Any) -> Any:
        return min(left, right, key=_order)

    def pair_sql(self, state: str, partial: str) -> str:
        return f"LEAST({state}, {partial})"

    def fold_sql(self, column: str) -> str:
        return _first_sql(column, column)


class Greatest(Merge):
    """The greater value, compared as for `Least`."""

    name = "greatest"

    def both(self, left: Any, right: Any) -> Any:
        return max(left, right, key=_order)

    def pair_sql(self, state: str, partial: str) -> str:
        return f"GREATEST({state}, {partial})"

    def fold_sql(self, column: str) -> str:
        return _first_sql(column, f"{column} DESC")


ADD, LEAST, GREATEST = Add(), Least(), Greatest()
MERGES: Mapping[str, Merge] = {each.name: each for each in (ADD, LEAST, GREATEST)}


def merger(merges: Sequence[Merge]) -> Callable[[Partial, Partial], Partial]:
    """Return the `combine` of a whole row of partial columns."""

    def combine(left: Partial, right: Partial) -> Partial:
        return tuple(merge.merge(a, b) for merge, a, b in zip(merges, left, right, strict=True))

    return combine


def _first_sql(column: str, order: str) -> str:
    """There is no min or max of boolean, nor of bytea before PostgreSQL 18; every type has an order."""
    return f"(array_agg({column} ORDER BY {order}) FILTER (WHERE {column} IS NOT NULL))[1]"


def _order(value: Any) -> tuple[bool, Any]:
    return value != value, value
