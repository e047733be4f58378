"""The stored columns of each value of a state, told by exact names: `n_b` may be a value, or a column of `n`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from txbatch.core.aggregates.python_combiner import by_python


def columns_by_value(stored: Iterable[Sequence[Any]], values: Iterable[str]) -> dict[str, list[Sequence[Any]]]:
    """Return the stored columns of each value; `stored` has name, type and merge of each column, in the stored order.

    A column named like a value belongs to the value. Any other column of an aggregate of txbatch has one more word than the
    value, such as `_sum`. The fields of an own combiner's partial stand before the column of the result, which has the value's
    name.

    >>> columns = [["n_sum", "bigint", "add"], ["n_count", "bigint", "add"], ["n_b", "bigint", "add"]]
    >>> {value: [name for name, *_ in each] for value, each in columns_by_value(columns, ["n", "n_b"]).items()}
    {'n': ['n_sum', 'n_count'], 'n_b': ['n_b']}
    >>> columns = [["far_off_low", "int", "Span.combine"], ["far", "int", "Span.combine"], ["far_off", "bigint", "add"]]
    >>> {value: [name for name, *_ in each] for value, each in columns_by_value(columns, ["far", "far_off"]).items()}
    {'far': ['far_off_low', 'far'], 'far_off': ['far_off']}
    """
    found: dict[str, list[Sequence[Any]]] = {value: [] for value in values}
    fields: list[Sequence[Any]] = []
    for column in stored:
        name, _, merge = column
        if name not in found and by_python(merge):
            fields.append(column)
            continue
        value = name if name in found else name.rpartition("_")[0]
        found.setdefault(value, []).extend([*fields, column])
        fields = []
    return found
