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
    """What a type without parameters is called by PostgreSQL and by Arrow."""

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
    """A named, typed field. `type` is a Spark SQL name such as `string`, `bigint` or `decimal(10,2)`."""

    name: str
    type: str


def parse_fields(declared: Fields, *, arrays: bool = False) -> tuple[Field, ...]:
    """Read `"word string, price decimal(10,2)"`, in which a name with blanks stands in backticks; or what says the same.

    With `arrays`, a field may be one, such as `array<string>`, as no field of a record can. Raises DefinitionError for what
    cannot be read, an unknown type or a name given twice.

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
    """The type in its one spelling; DefinitionError when txbatch cannot keep it in PostgreSQL."""
    spelled = re.sub(r"\s+", "", type_).lower()
    decimal = _DECIMAL.fullmatch(spelled)
    if spelled in SIMPLE_TYPES or (decimal and 0 <= int(decimal[2]) <= int(decimal[1]) <= 38 and int(decimal[1])):
        return spelled
    simple = ", ".join(sorted(SIMPLE_TYPES))
    raise WrongType(f"type {type_!r} is not one of {simple}, decimal(precision,scale) with a precision of at most 38")


def checked_array(type_: str) -> str:
    """The type in its one spelling, also of an array, which a partial may be; DefinitionError as for `checked_type`."""
    spelled = re.sub(r"\s+", "", type_).lower()
    element = array_of(spelled)
    return checked_type(type_) if element is None else f"array<{checked_type(element)}>"


def decimal_scale(type_: str) -> int | None:
    """Digits after the point of a decimal type; None for every other type."""
    match = _DECIMAL.fullmatch(type_)
    return int(match[2]) if match else None


def decimal_digits(type_: str) -> tuple[int, int] | None:
    """Return all digits of a decimal type, and those after the point; None for every other type."""
    match = _DECIMAL.fullmatch(type_)
    return (int(match[1]), int(match[2])) if match else None


def array_of(type_: str) -> str | None:
    """The type of the elements of an array, which partials may be; None for every other type.

    >>> array_of("array<bigint>"), array_of("bigint")
    ('bigint', None)
    """
    return type_[len("array<") : -1] if type_.startswith("array<") else None


def unique(names: Iterable[str], what: str) -> None:
    """Refuse a name given twice, also in another case: Spark would take one for the other."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.get(name.lower())
        if other == name:
            raise NameTaken(f"{what} {name!r} is given twice; rename one of them")
        if other is not None:
            raise NameTaken(f"{what} {name!r} and {other!r} differ in case alone, which Spark does not see; rename one")
        seen[name.lower()] = name


def checked_name(name: str, what: str, bytes_max: int = NAME_BYTES_MAX) -> str:
    """A name PostgreSQL can keep whole; DefinitionError when it is no text, empty, too long or holds U+0000."""
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
    """Return the name with a suffix, cut to what PostgreSQL keeps of it."""
    return name.encode()[: NAME_BYTES_MAX - len(suffix)].decode(errors="ignore") + suffix


def free_name(name: str, taken: Iterable[str]) -> str:
    """Return the name, or with a number behind it where a state has it already."""
    used = {each.lower() for each in taken}
    return next(
        each
        for each in (name, *(fitted_name(name, f"_{n}") for n in range(2, len(used) + 3)))
        if each.lower() not in used
    )


def key_bytes_max(types: Sequence[str]) -> int:
    """How many bytes the texts of a key with columns of these types may have together, to fit a row of an index.

    PostgreSQL may squeeze a longer one in; that is not counted on, as it depends on the text.
    """
    texts = sum(type_ in KEY_TEXTS for type_ in types)
    decimals = sum(decimal_scale(type_) is not None for type_ in types)
    fixed = len(types) - texts - decimals
    return _KEY_BYTES_MAX - _LENGTH_BYTES * max(texts - 1, 0) - _DECIMAL_BYTES * decimals - _FIXED_BYTES * fixed


def encodable(text: str) -> bool:
    """True if a text can be written as UTF-8: other bytes were read as lone surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def check_since(since: str | None) -> None:
    """DefinitionError when what is said of since when something counts is not "now", and no nothing either (R23)."""
    if since not in (None, "now"):
        raise InvalidOption(f'since={since!r}: write since="now", or leave it out for all history')
