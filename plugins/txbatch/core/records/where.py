"""What `where=` says of an aggregate: which records it is of. The others are left out of that value alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from txbatch.core.errors import OutOfPlace
from txbatch.core.records.functions import check_condition

# A Spark SQL condition, or a Python predicate of a record (a dict).
Condition = str | Callable[[Mapping[str, Any]], bool]
_QUOTED = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`(?:``|[^`])*`""")
_INNERMOST = re.compile(r"\([^()]*\)")


def described(condition: Condition | None) -> str:
    """Return the condition as definitions and comments have it, with a blank before it; of a function, that it is one.

    >>> described("price > 0"), described(None)
    (' where price > 0', '')
    """
    if condition is None:
        return ""
    return f" where {condition}" if isinstance(condition, str) else " where a function holds"


def check_where(of: str, condition: object, aggregate: str) -> None:
    """DefinitionError when it is no condition, or the Spark SQL of a column more than one call, which it would not reach.

    No Spark SQL at all: Python makes the column, of the records for which it holds.
    """
    check_condition(f"{of}: where", condition)
    if aggregate and not _is_call(aggregate):
        raise OutOfPlace(
            f"{of}: where cannot be said of {aggregate!r}, which is more than one call of a function; filter the stream before"
        )


def _is_call(expression: str) -> bool:
    before, left = None, _QUOTED.sub("", expression)
    while left != before:
        before, left = left, _INNERMOST.sub("", left)
    return left.strip().isidentifier() and "(" in expression
