"""Static state: a table that streams look values up in, and that no batch changes (Trident's newStaticState)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from txbatch.core.errors import DefinitionError
from txbatch.core.fields import Field, checked_name, parse_fields

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txbatch.core.declared import Fields

# How its rows are had: from Spark, or as they are, one tuple each.
Reader = Callable[["SparkSession"], "DataFrame"] | Sequence[tuple[Any, ...]]


class StaticState:
    """Rows with these `fields`, read anew by every attempt that looks something up.

    `reader` is a function from the Spark session to a DataFrame, or the rows themselves as tuples. What it says belongs
    to no txid: should it change, batches see the change from then on, also one that is retried.
    """

    def __init__(self, name: str, reader: Reader, fields: Fields) -> None:
        self.name, self.reader, self.fields = checked_name(name, "static state"), reader, parse_fields(fields)
        for row in () if callable(reader) else reader:
            if len(row) != len(self.fields):
                raise DefinitionError(f"static state {name!r}: row {row!r} has not the fields {fields!r}")

    def __repr__(self) -> str:
        return f"static state {self.name!r}"


@dataclass(frozen=True, slots=True)
class StateQuery:
    """A look-up: by `keys`, which are fields of the stream and of the static state, of the fields `names` (None: all others)."""

    static: StaticState
    keys: tuple[Field, ...]
    names: Sequence[str] | None

    def __post_init__(self) -> None:
        if not self.keys:
            raise DefinitionError(f"{self.static}: state_query needs at least one key")
        for key in self.keys:
            if self.field(key.name) != key:
                raise DefinitionError(
                    f"{self.static}: key {key.name!r} is a {self.field(key.name).type} there and a {key.type} in the stream; "
                    "cast one of them"
                )

    @property
    def values(self) -> tuple[Field, ...]:
        """The fields that the look-up appends."""
        if self.names is None:
            return tuple(field for field in self.static.fields if field not in self.keys)
        names = (self.names,) if isinstance(self.names, str) else self.names
        return tuple(self.field(name) for name in names)

    def field(self, name: str) -> Field:
        """The static state's field of this name; DefinitionError names those that exist."""
        for candidate in self.static.fields:
            if candidate.name == name:
                return candidate
        known = ", ".join(field.name for field in self.static.fields)
        raise DefinitionError(f"{self.static} has no field {name!r}; it has {known}")
