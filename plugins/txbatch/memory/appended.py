"""The records of a batch as rows of a state that keeps them, in memory."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from math import isfinite, isnan
from typing import Any

from txbatch.core.append import BATCH, COPY, RECORD, RECORD_CHARACTERS
from txbatch.core.fields import Field, decimal_scale
from txbatch.core.persistent_aggregate import PersistentAggregate
from txbatch.memory.within_batch import Record

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def appended(records: Iterable[Record], aggregate: PersistentAggregate, position: int) -> Iterator[Record]:
    """Yield each record with the key of its row."""
    copies: Counter[str] = Counter()
    for record in records:
        told = "".join(_told(field, record[field.name]) for field in aggregate.rows_of)
        digest = hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:RECORD_CHARACTERS]
        copies[digest] += 1
        yield {BATCH.name: position, RECORD.name: digest, COPY.name: copies[digest], **record}


def _told(field: Field, value: Any) -> str:
    """A field as Spark tells it: as a text that no other value of it has, behind its length."""
    if value is None:
        return "-"
    text = _text(field, value)
    return f"{len(text.encode('utf-8', 'surrogatepass'))}:{text}"


def _text(field: Field, value: Any) -> str:
    scale = decimal_scale(field.type)
    match value:
        case _ if scale is not None:
            return f"{Decimal(value):.{scale}f}"
        case bool():
            return str(value).lower()
        case float():
            return _hexadecimal(value)
        case bytes():
            return value.hex().upper()
        case datetime():
            since = (value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH
            return str((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)
        case date():
            return str((value - _EPOCH.date()).days)
        case _:
            return str(value)


def _hexadecimal(value: float) -> str:
    """A number as Java's %a writes it.

    >>> [_hexadecimal(each) for each in (0.5, -0.0, 10.25, float("nan"), float("-inf"))]
    ['0x1.0p-1', '-0x0.0p0', '0x1.48p3', 'NaN', '-Infinity']
    """
    if not isfinite(value):
        return "NaN" if isnan(value) else f"{'-' * (value < 0)}Infinity"
    digits, _, exponent = value.hex().partition("p")
    whole, _, fraction = digits.partition(".")
    return f"{whole}.{fraction.rstrip('0') or '0'}p{int(exponent)}"
