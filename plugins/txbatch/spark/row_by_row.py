"""SQL expressions of a job see a single record at a time, and always give the same answer for a record.

The check reads Spark's analysed plan, which costs no job: an expression that drops, multiplies or mixes records adds more to
the plan than a projection or a filter. Each state and each attempt evaluates again: an expression with changing answers would
count other records each time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from txbatch.core.errors import DefinitionError, InvalidExpression

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Spark's own names for expressions that need other records.
_CONDITIONS = re.compile(
    "UNSUPPORTED_GENERATOR|MISSING_GROUP_BY|GROUP_BY_AGGREGATE|INVALID_WHERE_CONDITION|WINDOW_FUNCTION_NOT_ALLOWED|"
    "MULTI_GENERATOR|UNSUPPORTED_SUBQUERY|AGGREGATE_FUNCTION"
)
_FUNCTION = re.compile(r"([A-Za-z_]\w*)\s*\(")
_TEXT = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`")
# What asks for the time, or who asks, in an expression as Spark has analysed it.
_NOW = re.compile(r"\b(current_(?!timezone)\w+|now|localtimestamp|session_user|user)\(")
_NOW_LITERAL = re.compile(
    r"\b(?:date|timestamp(?:_ltz|_ntz)?)\s*'\s*(now|today|yesterday|tomorrow)\b|"
    r"\bcast\('\s*(now|today|yesterday|tomorrow)\b[^']*' as (?:date|timestamp)",
    re.IGNORECASE,
)
_OTHERWISE = re.compile(
    r"(rand|randn|random|uniform|randstr|uuid|shuffle|monotonically_increasing_id|spark_partition_id|input_file_\w+|"
    r"java_method|reflect|try_reflect)"
)
_GENERATORS = (
    "explode",
    "posexplode",
    "inline",
    "explode_outer",
    "posexplode_outer",
    "inline_outer",
    "stack",
    "json_tuple",
)
_WAYS_OUT = {
    "session_window": "group by txbatch.session_window, which loses no record, and goes on in the next batch",
    **dict.fromkeys(
        ("window", "window_time"),
        "group by txbatch.window, or cut the time with date_trunc('hour', ts), or for ten minutes with "
        "timestamp_seconds(unix_seconds(ts) - pmod(unix_seconds(ts), 600))",
    ),
    **dict.fromkeys(_GENERATORS, "flat_map makes any number of records of one: give it the array"),
    "over": "count and compare in persistent_aggregate, which sees all batches",
    "select": "look values up with state_query",
}


def check_rows(
    frame: DataFrame, operation: str, expressions: Sequence[str], apply: Callable[[DataFrame], DataFrame]
) -> DataFrame:
    """Return the frame after `apply`. `apply` appends columns of the expressions, or filters by a single expression.

    If an expression does not work record by record, DefinitionError names the operation, the expression, the expression's
    function and the way out.
    """
    from pyspark.errors import AnalysisException

    try:
        after = apply(frame)
    except AnalysisException as error:
        if _CONDITIONS.search(str(error.getCondition() or "")):
            raise _mixes(operation, expressions) from error
        raise
    plan = _plan(after)
    if plan.nodeName() not in ("Project", "Filter") or not plan.children().apply(0).equals(_plan(frame)):
        raise _mixes(operation, expressions)
    found = plan.expressions()
    for number, expression in enumerate(expressions, start=found.size() - len(expressions)):
        _check(frame, operation, expression, found.apply(number))
    return after


def _plan(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _check(frame: DataFrame, operation: str, expression: str, analysed: Any) -> None:
    """Refuse a subquery, and an expression with changing answers."""
    jvm: Any = frame.sparkSession._jvm
    catalyst = jvm.org.apache.spark.sql.catalyst
    if catalyst.expressions.SubqueryExpression.hasSubquery(analysed):
        raise _mixes(operation, [expression])
    function = None
    if not analysed.deterministic():
        function = next(filter(_OTHERWISE.fullmatch, _functions(expression)), "it")
    elif analysed.containsPattern(catalyst.trees.TreePattern.CURRENT_LIKE()):
        function = next(iter(_NOW.findall(analysed.sql())), None)
    elif literal := _NOW_LITERAL.search(f"{expression} {analysed.sql()}"):
        function = f"'{literal[1] or literal[2]}'"
    if function is not None:
        raise InvalidExpression(
            f"{operation} {expression!r}: {function} says something else whenever it is asked, and each state and each attempt "
            "asks anew: they would count other records; take it from a field of the record"
        )


def _mixes(operation: str, expressions: Sequence[str]) -> DefinitionError:
    """Return the error with the expression, the function at fault, and the way out; the first with a known way, if several."""
    named = [(each, name) for each in expressions for name in _functions(each)]
    known = next(((each, name) for each, name in named if name in _WAYS_OUT), None)
    expression, function = known or (expressions[0], " or ".join(dict.fromkeys(name for _, name in named)))
    what = {"over": "a window function", "select": "a subquery"}.get(function, function)
    return InvalidExpression(
        f"{operation} {expression!r}: {what} does not work record by record, but may drop, multiply or mix them; "
        f"{_WAYS_OUT.get(function, 'aggregate in persistent_aggregate')}"
    )


def _functions(expression: str) -> list[str]:
    """Return the names of the functions called by an expression, and `over` and `select`, in order."""
    return [
        name.lower() for name in _FUNCTION.findall(re.sub(r"(?i)\bselect\b", "select(", _TEXT.sub("''", expression)))
    ]
