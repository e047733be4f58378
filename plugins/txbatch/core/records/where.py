"""The argument `where=` of an aggregate: the records the aggregate counts. All others are left out of that value alone."""

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
    """Return the condition in the words of definitions and comments, after a blank. A Python function is only called a
    function.

    >>> described("price > 0"), described(None)
    (' where price > 0', '')
    """
    if condition is None:
        return ""
    return f" where {condition}" if isinstance(condition, str) else " where a function holds"


def check_where(of: str, condition: object, aggregate: str) -> None:
    """DefinitionError if `condition` is no condition, or if the aggregate's Spark SQL is more than a single call.

    `where` would not reach all of a longer expression. If `aggregate` is empty, Python makes the column from records that meet
    the condition.
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
