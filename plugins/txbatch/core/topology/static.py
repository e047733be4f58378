"""Static state: a table that streams look values up in, and that no batch changes (Trident's newStaticState)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from txbatch.core.batch.transaction import Metadata
from txbatch.core.errors import DefinitionError
from txbatch.core.records.declared import fields_ddl, given_values
from txbatch.core.records.fields import Field, checked_name, parse_fields
from txbatch.core.text import RECORD_MAX, shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txbatch.core.records.declared import Fields


class Versioned(ABC):
    """A reader that can say which version of its rows is there. `StaticFiles` is one."""

    @abstractmethod
    def version(self) -> Metadata:
        """Return the version that is there now, as JSON. Runs where batches are planned, without Spark."""

    @abstractmethod
    def read(self, spark: SparkSession, version: Metadata) -> DataFrame:
        """Return the rows of a version. TransientError when that is not there any more."""

    @abstractmethod
    def check(self, version: Metadata) -> None:
        """Raise TransientError when that version is not there any more."""


# How its rows are had: from Spark, as they are, or in the version that a batch's plan fixes.
Reader = Callable[["SparkSession"], "DataFrame"] | Sequence[Any] | Versioned


class StaticState:
    """Rows with these `fields`, read anew by every attempt that looks something up.

    `reader` is a `StaticFiles`, whose files' version is fixed in the plan of each batch; the rows themselves: tuples or lists in
    the order of the fields, dicts by their names, or of a dataclass; or a function from the Spark session to a DataFrame. What
    such a function reads belongs to no txid: should it change, batches see the change from then on, also one that is retried.
    """

    def __init__(self, name: str, reader: Reader, fields: Fields) -> None:
        self.name, self.fields = checked_name(name, "static state"), parse_fields(fields)
        given = not (isinstance(reader, Versioned) or callable(reader))
        self.reader: Reader = _rows(name, cast("Sequence[Any]", reader), fields_ddl(fields)) if given else reader

    def __repr__(self) -> str:
        return f"static state {self.name!r}"

    @property
    def needs_spark(self) -> bool:
        """True if its rows are not given, and Spark reads them."""
        return isinstance(self.reader, Versioned) or callable(self.reader)

    def field(self, name: str) -> Field:
        """Return the field of this name; DefinitionError names those that exist."""
        for candidate in self.fields:
            if candidate.name == name:
                return candidate
        known = ", ".join(field.name for field in self.fields)
        raise DefinitionError(f"{self} has no field {name!r}; it has {known}")


def _rows(name: str, given: Sequence[Any], fields: str) -> list[tuple[Any, ...]]:
    """Return given rows as tuples; DefinitionError names the first that has other fields."""
    names, rows = [field.name for field in parse_fields(fields)], list[tuple[Any, ...]]()
    for number, row in enumerate(given, 1):
        if (values := given_values(row, names)) is None:
            raise DefinitionError(
                f"static state {name!r}: row {number}, {shown(repr(row), RECORD_MAX)}, has not the fields {fields!r}; give a "
                "tuple or list of values in their order, or a dict by their names"
            )
        rows.append(values)
    return rows
