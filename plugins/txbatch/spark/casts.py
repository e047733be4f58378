"""A declared type is a check: accepts an expression of another type if a cast keeps each value or fails, never if a cast
rounds.
"""

from __future__ import annotations

from collections.abc import Sequence

from txbatch.core.errors import WrongType
from txbatch.core.records.fields import FLOATING_TYPES, INTEGER_TYPES, Field, decimal_scale

_INTEGERS = INTEGER_TYPES | {"tinyint"}
# Of what is no number with decimal digits; a string says more than a date or a decimal may keep.
_KEPT = {
    "string": _INTEGERS | FLOATING_TYPES | {"boolean", "timestamp", "binary"},
    "boolean": _INTEGERS | FLOATING_TYPES,
    "double": FLOATING_TYPES,
    "float": FLOATING_TYPES,
    "date": {"timestamp"},
    "timestamp_ntz": {"timestamp"},
}


def check_kept(what: str, given: Sequence[tuple[str, str]], fields: Sequence[Field]) -> None:
    """Raise DefinitionError if the declared type would round or cut an expression, given with the expression's type."""
    for (expression, type_), field in zip(given, fields, strict=True):
        if not keeps(type_, field.type):
            raise WrongType(
                f"{what} {expression!r} is {type_}, {field.name!r} is declared {field.type}, which would round or cut it: "
                f"declare {type_}, or say cast(... as {field.type}) in the expression"
            )


def keeps(given: str, declared: str) -> bool:
    """Return whether a cast keeps every value or fails. Both types have Spark's names.

    >>> keeps("int", "bigint"), keeps("bigint", "int"), keeps("decimal(10,3)", "decimal(10,2)"), keeps("timestamp", "date")
    (True, True, False, False)
    """
    if given in (declared, "void") or declared == "string":
        return True
    digits = 0 if given in _INTEGERS else decimal_scale(given)
    if digits is None:
        return declared in _KEPT.get(given, ())
    room = 0 if declared in INTEGER_TYPES else decimal_scale(declared)
    return declared in FLOATING_TYPES or (room is not None and digits <= room)
