"""Fields as Arrow has them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from txbatch.core.fields import decimal_scale

if TYPE_CHECKING:
    import pyarrow as pa

_ALIASES = {
    "string": "string",
    "bigint": "int64",
    "int": "int32",
    "smallint": "int16",
    "boolean": "bool",
    "double": "float64",
    "float": "float32",
    "date": "date32",
    "binary": "binary",
}


def arrow_type(type_: str) -> pa.DataType:
    """The Arrow type of a field's type."""
    import pyarrow as pa

    if type_ == "timestamp":
        return pa.timestamp("us", "UTC")
    if decimal_scale(type_) is not None:
        return pa.decimal128(*map(int, re.findall(r"\d+", type_)))
    return pa.type_for_alias(_ALIASES[type_])
