"""Fields declared by a dataclass of Python, or by a StructType of pyspark, instead of by text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields as fields_of
from dataclasses import is_dataclass
from datetime import date, datetime
from decimal import Decimal
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

from txbatch.core.errors import InvalidFunction, WrongType
from txbatch.core.records.sql import spark_name

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    # "name type, name type", a dataclass, or a StructType.
    Fields = str | type[Any] | StructType

_OF_PYTHON: Mapping[object, str] = {
    str: "string",
    int: "bigint",
    float: "double",
    bool: "boolean",
    date: "date",
    datetime: "timestamp",
    bytes: "binary",
}


def fields_ddl(declared: Fields) -> str:
    """Return declared fields in the form `"name type, name type"`; a value of any other type is returned unchanged.

    A dataclass has `str`, `int` (a bigint), `float` (a double), `bool`, `date`, `datetime` (a timestamp) and `bytes`, with or
    without `| None`: every field may be null. A field of another type is annotated with the name of the type, for example by
    `Annotated[Decimal, "decimal(10,2)"]`. DefinitionError for a field of any other type.
    """
    if isinstance(declared, type) and is_dataclass(declared):
        return _joined({each.name: _annotated(declared, each.name) for each in fields_of(declared)})
    if callable(getattr(declared, "fieldNames", None)) and not isinstance(declared, type | str):
        return _joined({each.name: each.dataType.simpleString() for each in declared})
    return declared  # type: ignore[return-value]


def values_of(record: Any, names: Sequence[str]) -> tuple[Any, ...]:
    """Return the result of a job's function with a value for each field: a tuple unchanged, the fields of a dataclass by name.

    >>> values_of(3, ["a"]), values_of((1, 2), ["a", "b"])
    ((3,), (1, 2))
    """
    if isinstance(record, tuple):
        return record
    if (own := getattr(type(record), "__dataclass_fields__", None)) is None:
        return (record,)
    if own.keys() != set(names):
        raise InvalidFunction(
            f"a {type(record).__name__} has the fields {', '.join(own)}; expected are {', '.join(names)}"
        )
    return tuple(getattr(record, name) for name in names)


def given_values(record: Any, names: Sequence[str]) -> tuple[Any, ...] | None:
    """Return a record of a job or a test with a value for each field; None if the record has other fields.

    A record is a tuple or list in the order of the fields, a mapping by their names, a dataclass with the fields, or the bare
    value of a single field.

    >>> given_values([1, 2], ["a", "b"]), given_values({"b": 2, "a": 1}, ["a", "b"]), given_values("ab", ["a", "b"])
    ((1, 2), (1, 2), None)
    """
    if isinstance(record, Mapping):
        return tuple(record[name] for name in names) if record.keys() == set(names) else None
    values = values_of(tuple(record) if isinstance(record, list) else record, names)
    return values if len(values) == len(names) else None


def _joined(types: Mapping[str, str]) -> str:
    return ", ".join(f"{spark_name(name)} {type_}" for name, type_ in types.items())


def _annotated(declared: type[Any], name: str) -> str:
    """Return the Spark SQL name of the type in the annotation of a dataclass field."""
    try:
        hint = get_type_hints(declared, include_extras=True)[name]
    except Exception as error:
        raise WrongType(
            f"dataclass {declared.__name__}: field {name!r} has a type that is not there: {error}"
        ) from error
    given = _without_none(hint)
    if get_origin(given) is Annotated:
        kind, *said = get_args(given)
        named = [each for each in said if isinstance(each, str)]
        given = named[0] if len(named) == 1 else _without_none(kind)
    if isinstance(given, str):
        return given
    if given in _OF_PYTHON:
        return _OF_PYTHON[given]
    like = "decimal(10,2)" if given is Decimal else "string"
    told = getattr(given, "__name__", str(given))
    raise WrongType(
        f"dataclass {declared.__name__}: field {name!r} is {told}, which does not say its type in Spark; write "
        f'Annotated[{told}, "{like}"]'
    )


def _without_none(hint: Any) -> Any:
    if get_origin(hint) not in (Union, UnionType):
        return hint
    others = [each for each in get_args(hint) if each is not NoneType]
    return others[0] if len(others) == 1 else hint
