"""The formats of stored JSON: a process may meet the JSON of a newer txbatch, and must not guess at the meaning.

>>> check_format("the plan of txid 7", {"format": 2}, newest=2)
2
>>> check_format("the plan of txid 7", {"format": 3}, newest=2)  # doctest: +ELLIPSIS
Traceback (most recent call last):
txbatch...NewerFormat: TX609 (no retry helps): the plan of txid 7 has format 3, this txbatch reads 1 to 2: update this txbatch
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from txbatch.core.errors import NewerFormat

# JSON, planned by a coordinator and read by an emitter.
Metadata = Mapping[str, Any]
# The largest plan of a spout by default.
METADATA_BYTES_MAX = 1_000_000


def check_format(what: str, value: Mapping[str, Any], newest: int) -> int:
    """Return the format of a stored object, 1 if none is written. Raise NewerFormat if the format is above `newest`."""
    found = value.get("format", 1)
    if type(found) is int and 1 <= found <= newest:
        return found
    readable = "1" if newest == 1 else f"1 to {newest}"
    raise NewerFormat(f"{what} has format {found!r}, this txbatch reads {readable}: update this txbatch")


def is_range(value: Any) -> bool:
    """True if the value is the JSON of a range: an object with both ends."""
    return isinstance(value, Mapping) and {"start", "end"} <= set(value)
