"""How an operation computes: SQL, with an expression for each field, or a Python function of a single argument."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from decimal import DecimalException

from txbatch.core.errors import BadRecord, InvalidArgument, InvalidFunction, TxbatchError
from txbatch.core.records.fields import Field
from txbatch.core.text import text_of


def check_condition(of: str, condition: object) -> None:
    """DefinitionError if a condition is neither SQL nor a function of a record."""
    if not (callable(condition) or _is_sql(condition)):
        raise InvalidFunction(
            f"{of} {condition!r} is no condition; give SQL that is true or false, or a function of a record"
        )
    check_callable(of, condition)


def check_python(of: str, function: object) -> None:
    """DefinitionError if `function` is no Python function of a single argument."""
    if not callable(function):
        raise InvalidFunction(f"{of} {function!r} is no function; give one of a record")
    check_callable(of, function)


def check_number(of: str, number: object) -> None:
    """DefinitionError if `number` is no whole number of at least 1."""
    if type(number) is not int or number < 1:
        raise InvalidArgument(f"{of} {number!r}: give a whole number, at least 1")


def check_function(of: str, function: object, fields: Sequence[Field] | None) -> None:
    """DefinitionError if `function` is neither a Python function of a record nor SQL with an expression for each of the
    fields.

    If `fields` is None, a single expression has all fields.
    """
    if callable(function):
        check_callable(of, function)
    else:
        _check_expressions(of, function, fields)


def _check_expressions(of: str, function: object, fields: Sequence[Field] | None) -> None:
    listed = function if isinstance(function, list | tuple) else [function]
    if not all(map(_is_sql, listed)):
        raise InvalidFunction(
            f"{of} {function!r} is no function; give SQL, an expression for each field, or a function of a record"
        )
    if fields is None and len(listed) != 1:
        raise InvalidArgument(f"{of}: {len(listed)} expressions; give one, which is an array")
    if fields is not None and len(listed) != len(fields):
        named = ", ".join(f"{field.name} {field.type}" for field in fields)
        raise InvalidArgument(f"{of}: {len(listed)} expressions for the {len(fields)} fields {named}; give one each")


def check_callable(of: str, function: object) -> None:
    """DefinitionError if a Python function cannot be called with a single argument."""
    try:
        signature = inspect.signature(function) if callable(function) else None
    except (TypeError, ValueError):  # of some that are written in C nothing is known
        return
    try:
        if signature is not None:
            signature.bind(None)
    except TypeError:
        name = getattr(function, "__name__", type(function).__name__)
        raise InvalidFunction(f"{of}: {name}{signature} is called with one argument; let it take one") from None


def _is_sql(given: object) -> bool:
    return isinstance(given, str) and bool(given.strip())


def is_of_record(error: Exception) -> bool:
    """True if a record may have made a function fail, rather than a disk, a network, memory, or an error of the job itself."""
    ours = isinstance(error, TxbatchError) and not isinstance(error, BadRecord)
    return not (ours or isinstance(error, OSError | MemoryError))


def describe_error(error: Exception, *, show: bool) -> str:
    """Return an exception in one line. The exception's text may have values of the record, and is left out unless `show` is
    true.

    >>> from decimal import Decimal
    >>> try:
    ...     Decimal("1,5")
    ... except ArithmeticError as error:
    ...     describe_error(error, show=True)
    'InvalidOperation: ConversionSyntax'
    >>> describe_error(BadRecord("no word"), show=True)
    'BadRecord: no word'
    """
    text = error.text if isinstance(error, TxbatchError) else text_of(error)
    if isinstance(error, DecimalException) and error.args and isinstance(error.args[0], list):
        text = ", ".join(signal.__name__ for signal in error.args[0])  # as text they are Python's classes
    return f"{type(error).__name__}: {text}" if show else type(error).__name__
