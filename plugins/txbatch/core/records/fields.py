"""Fields of a record: names with Spark SQL types, checked when a topology is defined."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Context
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from txbatch.core.errors import (
    InvalidArgument,
    InvalidName,
    InvalidOption,
    MissingPart,
    NameTaken,
    WrongType,
)
from txbatch.core.records.declared import fields_ddl

if TYPE_CHECKING:
    from txbatch.core.records.declared import Fields

EXACT = Context(prec=80)


class SimpleType(NamedTuple):
    """The names of a type without parameters in PostgreSQL and in Arrow."""

    postgres: str
    arrow: str


# By their names in Spark SQL. Beside them there is decimal(precision,scale).
SIMPLE_TYPES = {
    "string": SimpleType("text", "string"),
    "bigint": SimpleType("bigint", "int64"),
    "int": SimpleType("integer", "int32"),
    "smallint": SimpleType("smallint", "int16"),
    "boolean": SimpleType("boolean", "bool"),
    "double": SimpleType("double precision", "float64"),
    "float": SimpleType("real", "float32"),
    "date": SimpleType("date", "date32"),
    "timestamp": SimpleType("timestamptz", "timestamp[us]"),
    "binary": SimpleType("bytea", "binary"),
}
INTEGER_TYPES = frozenset({"bigint", "int", "smallint"})
FLOATING_TYPES = frozenset({"double", "float"})
NAME_BYTES_MAX = 63
# Types whose values have any length.
KEY_TEXTS = frozenset({"string", "binary"})
# The years that PostgreSQL and Arrow write alike; a function of Spark that counts, the first and the last number.
YEAR_MAX = 32767
TIME_RANGES = {
    "date": ("unix_date", -719162, 11248737),
    "timestamp": ("unix_micros", -62135596800000000, 971890963199999999),
}
# A row of a PostgreSQL index has at most 2,704 bytes; 28 go for its header, a position, a txid and the length of a text.
_KEY_BYTES_MAX = 2676
_FIXED_BYTES, _DECIMAL_BYTES, _LENGTH_BYTES = 16, 32, 7
_NAME, _TYPE = r"\s*(?:`((?:[^`]|``)+)`|([^\s`,]+))\s+", r"\w+(?:\s*\(\s*\d+\s*,\s*\d+\s*\))?"
_FIELD = re.compile(rf"{_NAME}({_TYPE})\s*(?:,|$)")
_ARRAY_FIELD = re.compile(rf"{_NAME}(array\s*<\s*{_TYPE}\s*>)\s*(?:,|$)", re.IGNORECASE)
_NESTED = re.compile(r"\s*(?:`(?:[^`]|``)+`|[^\s`,]+)\s+((?:array|map|struct)\s*<.*)", re.IGNORECASE | re.DOTALL)
_FORM = "write 'name type, name type', such as 'word string, price decimal(10,2)'"
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


@dataclass(frozen=True, slots=True)
class Field:
    """A named, typed field. `type` is a Spark SQL name: `string`, `bigint`, `decimal(10,2)`."""

    name: str
    type: str


def parse_fields(declared: Fields, *, arrays: bool = False) -> tuple[Field, ...]:
    """Read fields from `"word string, price decimal(10,2)"`, from a dataclass or from a StructType.

    A name with blanks stands in backticks. With `arrays`, a field may be an array, for example `array<string>`; a record has
    no arrays. Raises DefinitionError for text that cannot be read, an unknown type or a repeated name.

    >>> parse_fields("word string, `unit price` decimal(10, 2)")
    (Field(name='word', type='string'), Field(name='unit price', type='decimal(10,2)'))
    """
    if not isinstance(ddl := fields_ddl(declared), str):
        raise InvalidArgument(f"fields {ddl!r} are no text; {_FORM}, or give a dataclass or a StructType")
    return _parsed(ddl, arrays)


@lru_cache(maxsize=1024)
def _parsed(ddl: str, arrays: bool) -> tuple[Field, ...]:
    found, at = [], 0
    while at < len(ddl):
        match = _FIELD.match(ddl, at) or (_ARRAY_FIELD.match(ddl, at) if arrays else None)
        if not match:
            if nested := _NESTED.match(ddl, at):
                raise WrongType(
                    f"fields {ddl!r}: {nested[1]} is a nested type, which no field can have: name the parts that "
                    "count as fields, or keep all of it as a string, by to_json"
                )
            raise InvalidArgument(f"fields {ddl!r}: cannot read {ddl[at:].strip()!r}; {_FORM}")
        quoted, plain, type_ = match.groups()
        found.append(
            Field((quoted or plain).replace("``", "`"), checked_array(type_) if arrays else checked_type(type_))
        )
        at = match.end()
    if not found:
        raise MissingPart(f"no fields given; {_FORM}")
    unique((field.name for field in found), "field")
    return tuple(found)


def checked_type(type_: str) -> str:
    """Return the type in its only spelling. DefinitionError if PostgreSQL cannot keep the type for txbatch."""
    spelled = re.sub(r"\s+", "", type_).lower()
    decimal = _DECIMAL.fullmatch(spelled)
    if spelled in SIMPLE_TYPES or (decimal and 0 <= int(decimal[2]) <= int(decimal[1]) <= 38 and int(decimal[1])):
        return spelled
    simple = ", ".join(sorted(SIMPLE_TYPES))
    raise WrongType(f"type {type_!r} is not one of {simple}, decimal(precision,scale) with a precision of at most 38")


def checked_array(type_: str) -> str:
    """Return a type, or an array type of a partial, in its only spelling. DefinitionError as for `checked_type`."""
    spelled = re.sub(r"\s+", "", type_).lower()
    element = array_of(spelled)
    return checked_type(type_) if element is None else f"array<{checked_type(element)}>"


def decimal_scale(type_: str) -> int | None:
    """Return the digits after the point of a decimal type; None for every other type."""
    match = _DECIMAL.fullmatch(type_)
    return int(match[2]) if match else None


def decimal_digits(type_: str) -> tuple[int, int] | None:
    """Return the number of all digits of a decimal type, and of the digits after the point; None for every other type."""
    match = _DECIMAL.fullmatch(type_)
    return (int(match[1]), int(match[2])) if match else None


def array_of(type_: str) -> str | None:
    """Return the type of the elements of an array, a type that partials may have; None for every other type.

    >>> array_of("array<bigint>"), array_of("bigint")
    ('bigint', None)
    """
    return type_[len("array<") : -1] if type_.startswith("array<") else None


def unique(names: Iterable[str], what: str) -> None:
    """Refuse a name given twice, also in another case: Spark would mistake either name for the other."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.get(name.lower())
        if other == name:
            raise NameTaken(f"{what} {name!r} is given twice; rename one of them")
        if other is not None:
            raise NameTaken(f"{what} {name!r} and {other!r} differ in case alone, which Spark does not see; rename one")
        seen[name.lower()] = name


def checked_name(name: str, what: str, bytes_max: int = NAME_BYTES_MAX) -> str:
    """Return a name, which PostgreSQL keeps whole. DefinitionError if the name is no text, empty, too long or holds U+0000."""
    if not isinstance(name, str):
        raise InvalidName(f"{what} {name!r} is not a name: it is no text")
    if not name or "\0" in name:
        raise InvalidName(f"{what} {name!r} is not a name: it must not be empty or hold U+0000")
    if not encodable(name):
        raise InvalidName(f"{what} {name!r} is not a name: it cannot be written as UTF-8")
    size = len(name.encode())
    if size > bytes_max:
        raise InvalidName(
            f"{what} {name!r} has {size} bytes; PostgreSQL would cut the names made from it: use at most {bytes_max}"
        )
    return name


def fitted_name(name: str, suffix: str) -> str:
    """Return the name with a suffix; the name is cut so that PostgreSQL keeps the whole result."""
    return name.encode()[: NAME_BYTES_MAX - len(suffix)].decode(errors="ignore") + suffix


def free_name(name: str, taken: Iterable[str]) -> str:
    """Return the name; with a number behind it if a state already has the name."""
    used = {each.lower() for each in taken}
    return next(
        each
        for each in (name, *(fitted_name(name, f"_{n}") for n in range(2, len(used) + 3)))
        if each.lower() not in used
    )


def key_bytes_max(types: Sequence[str]) -> int:
    """Return how many bytes all texts of a key may have together, to fit a row of an index. `types` are the types of its
    columns.

    PostgreSQL may squeeze in a longer key, but only for some texts; the limit does not count on that.
    """
    texts = sum(type_ in KEY_TEXTS for type_ in types)
    decimals = sum(decimal_scale(type_) is not None for type_ in types)
    fixed = len(types) - texts - decimals
    return _KEY_BYTES_MAX - _LENGTH_BYTES * max(texts - 1, 0) - _DECIMAL_BYTES * decimals - _FIXED_BYTES * fixed


def encodable(text: str) -> bool:
    """True if a text can be written in UTF-8: bytes outside UTF-8 were read into lone surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def check_since(since: str | None) -> None:
    """DefinitionError if `since` is neither "now" nor None; `since` is the time from which something counts (R23)."""
    if since not in (None, "now"):
        raise InvalidOption(f'since={since!r}: write since="now", or leave it out for all history')
