"""Stored JSON: the only spelling of a value, and formats: a process may meet the JSON of a newer txbatch, and must not guess.

>>> check_format("the plan of txid 7", {"format": 2}, newest=2)
2
>>> check_format("the plan of txid 7", {"format": 3}, newest=2)  # doctest: +ELLIPSIS
Traceback (most recent call last):
txbatch...NewerFormat: TX609 (no retry helps): the plan of txid 7 has format 3, this txbatch reads 1 to 2: update this txbatch
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from txbatch.core.errors import InvalidPlan, NewerFormat

# JSON, planned by a coordinator and read by an emitter.
Metadata = Mapping[str, Any]
# The largest plan of a spout by default.
METADATA_BYTES_MAX = 1_000_000
# The largest JSON in the ledger: a manifest has more about a partition than a plan, but not ten times as much.
STORED_BYTES_MAX = 100_000_000
Value = TypeVar("Value")
# Made once: a plan is written several times on its way to the ledger.
_write = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def canonical_json(value: Any, bytes_max: int = METADATA_BYTES_MAX) -> str:
    """Return the only spelling of a JSON value. Raise DefinitionError if not JSON, or if over `bytes_max`, 1 MB by default."""
    try:
        text = _write(value)
        size = len(text.encode())
    except (TypeError, ValueError) as error:
        raise InvalidPlan(f"metadata is not JSON: {error}; return dicts, lists, strings, integers") from error
    if size > bytes_max:
        raise InvalidPlan(
            f"metadata has {size:,} bytes; at most {bytes_max:,}: plan smaller batches, of fewer partitions or files "
            "(files_per_batch=, a narrower pattern= or root, small files merged into larger ones)"
        )
    return text


def as_stored(value: Any) -> Any:
    """Return a JSON value in the form read back from the ledger."""
    return json.loads(canonical_json(value, STORED_BYTES_MAX))


def copy_of(value: Any) -> Any:
    """Return a copy of a JSON value as read from the ledger, for code that may change the copy.

    >>> plan = {"files": ["a", "b"]}
    >>> copy_of(plan) == plan, copy_of(plan)["files"] is plan["files"]
    (True, False)
    """
    if isinstance(value, dict):
        return {name: copy_of(each) for name, each in value.items()}
    return [copy_of(each) for each in value] if isinstance(value, list) else value


def digest(value: Any) -> str:
    """Return the sha256 of the canonical JSON, in hex."""
    import hashlib  # here, as OpenSSL would be a twentieth of what importing a job takes

    return hashlib.sha256(canonical_json(value, STORED_BYTES_MAX).encode()).hexdigest()


def check_format(what: str, value: Mapping[str, Any], newest: int) -> int:
    """Return the format of a stored object, 1 if none is written. Raise NewerFormat if the format is above `newest`."""
    found = value.get("format", 1)
    if type(found) is int and 1 <= found <= newest:
        return found
    readable = "1" if newest == 1 else f"1 to {newest}"
    raise NewerFormat(f"{what} has format {found!r}, this txbatch reads {readable}: update this txbatch")


def is_range(value: Any) -> bool:
    """True if the value is the JSON of a range: an object with both ends."""
    return isinstance(value, Mapping) and "start" in value and "end" in value


# ---- reading JSON that may be damaged: each raises ValueError


def read_each(values: Mapping[str, Any], read: Callable[[Any], Value]) -> dict[str, Value]:
    """Return an object with texts for names, each value read by `read`."""
    return {read_text(name): read(value) for name, value in values.items()}


def read_count(value: Any) -> int:
    """Return a whole number from 0 on."""
    found = read_whole(value)
    if found < 0:
        raise ValueError(f"{str(found)[:80]!r} is no count")
    return found


def read_whole(value: Any) -> int:
    """Return a whole number."""
    if type(value) is not int:
        raise ValueError(f"{str(value)[:80]!r} is no whole number")
    return int(value)


def read_text(value: Any, pattern: str = r"[\s\S]*") -> str:
    """Return a text with the given pattern, by default any text."""
    if not isinstance(value, str) or not re.fullmatch(pattern, value):
        raise ValueError(f"{str(value)[:80]!r} is not what stands there")
    return value
