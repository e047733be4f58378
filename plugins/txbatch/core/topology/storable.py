"""Keys and values that PostgreSQL cannot store, the same in all backends; and the errors for such keys and values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from txbatch.core.aggregates.merge import Partial
from txbatch.core.errors import REFUSED, BadKey, BadRecord, BadText
from txbatch.core.records.fields import KEY_TEXTS, Field, array_of, encodable, key_bytes_max
from txbatch.core.topology.persistent_aggregate import PersistentAggregate

HOLDS_NUL, NO_UTF8 = "holds U+0000", "is invalid UTF-8"
# Of a value that is refused, so many characters are told.
TOLD_CHARACTERS = 40


def refused_value(aggregate: PersistentAggregate, number: int, why: str, told: str = "") -> BadRecord:
    """Return the error for a column of a state's partials, keys first; `told` is the part of the value that may be shown."""
    names = [
        *(f"key {key.name!r}" for key in aggregate.keys),
        *(f"value {each.name!r}" for each in aggregate.partial_columns),
    ]
    value = f": {told!r}" if told and aggregate.stream.show_records else ""
    situation = BadText if why in (HOLDS_NUL, NO_UTF8) else BadKey
    return situation(f"{names[number]} {why}{value}; {REFUSED}")


def too_long(keys: Sequence[Field]) -> str:
    """Return why a key is refused: all texts of the key have more bytes than an index takes."""
    most = f"{key_bytes_max([key.type for key in keys]):,}"
    several = f", with the other columns of its key {most}" if len(keys) > 1 else f" {most}"
    return f"is too long for an index, which takes at most{several} bytes; it begins"


def check_storable(aggregate: PersistentAggregate, key: Sequence[Any], partial: Partial) -> None:
    """BadKey for a key that is too long for an index, BadText for a text that holds U+0000 or is invalid UTF-8."""
    types = [key.type for key in aggregate.keys]
    texts = [number for number, type_ in enumerate(types) if type_ in KEY_TEXTS]
    if sum(len(_bytes(key[number])) for number in texts) > key_bytes_max(types):
        raise refused_value(aggregate, texts[0], too_long(aggregate.keys), _start(key[texts[0]]))
    types += [column.partial.type for column in aggregate.partial_columns]
    for number, (value, type_) in enumerate(zip((*key, *partial), types, strict=True)):
        for text in _strings(value, type_):
            if "\0" in text or not encodable(text):
                raise refused_value(aggregate, number, HOLDS_NUL if "\0" in text else NO_UTF8)


def _strings(value: Any, type_: str) -> Iterator[str]:
    if type_ == "string" and value is not None:
        yield value
    elif array_of(type_) == "string":
        yield from filter(None, value or ())


def _bytes(value: Any) -> bytes:
    return value.encode(errors="surrogatepass") if isinstance(value, str) else value


def _start(value: Any) -> str:
    return (value if isinstance(value, str) else bytes(value).hex().upper())[:TOLD_CHARACTERS]
