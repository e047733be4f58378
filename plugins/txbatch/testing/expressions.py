"""Spark SQL with the same meaning everywhere: a plain field, and whether a field is null."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from txbatch.core.records.fields import Field

_NAME = r"(?P<name>[A-Za-z_]\w*|`(?:[^`]|``)+`)"
_IS_NULL = re.compile(rf"\s*{_NAME}(?:\s+is\s+(?P<known>not\s+)?(?P<null>null))?\s*", re.IGNORECASE | re.ASCII)
# What Spark takes for a value, also where a field is called so.
_LITERALS = frozenset({"null", "true", "false"})


def plain_function(sql: str, fields: Sequence[Field], type_: str) -> Callable[[Mapping[str, Any]], Any] | None:
    """Return an expression's function of a record; None if only Spark can evaluate the expression.

    >>> fields = [Field("word", "string"), Field("unit price", "bigint")]
    >>> plain_function("`Unit Price` IS NOT NULL", fields, "boolean")({"word": "a", "unit price": None})
    False
    >>> plain_function("word", fields, "string")({"word": "a", "unit price": None})
    'a'
    >>> plain_function("word", fields, "boolean"), plain_function("lower(word)", fields, "string")
    (None, None)
    """
    if (found := _IS_NULL.fullmatch(sql)) is None or found["name"].lower() in _LITERALS:
        return None
    quoted = found["name"].startswith("`")
    name = found["name"][1:-1].replace("``", "`") if quoted else found["name"]
    named = [field for field in fields if field.name.lower() == name.lower()]
    if len(named) != 1 or type_ != ("boolean" if found["null"] else named[0].type):
        return None
    (field,) = named
    if not found["null"]:
        return lambda record: record[field.name]
    return lambda record: (record[field.name] is None) is not bool(found["known"])
