"""Look-ups (Trident's stateQuery): in a static state, a table that no batch changes, or in a live state of this ledger."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, cast

from txbatch.core.errors import (
    BadKey,
    InvalidArgument,
    MissingPart,
    UnknownField,
    WrongType,
)
from txbatch.core.records.declared import fields_ddl, given_values
from txbatch.core.records.fields import Field, checked_name, parse_fields
from txbatch.core.text import RECORD_MAX, one_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txbatch.core.batch.transaction import Metadata
    from txbatch.core.records.declared import Fields

# Of a key that is refused, so many characters are told.
KEY_CHARACTERS = 100


class How(StrEnum):
    """The side of a join whose records stay without a match on the other side."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"


@dataclass(frozen=True, slots=True, init=False)
class LiveState:
    """A state, of this topology or of another topology; `fields` are the fields of its report to look up.

    The plan of a batch fixes a txid. A look-up returns the values of reports while the txid was the newest committed txid.
    Every attempt reads the same values, and a restate, too.
    """

    name: str
    fields: tuple[Field, ...]

    def __init__(self, name: str, fields: Fields) -> None:
        object.__setattr__(self, "name", checked_name(name, "state"))
        object.__setattr__(self, "fields", parse_fields(fields))

    def __str__(self) -> str:
        return f"state {self.name!r}"

    def field(self, name: str) -> Field:
        """Return the field of this name; DefinitionError names the declared fields."""
        return _field(self, name)


class Versioned(ABC):
    """A reader of rows that have versions, for example `StaticFiles`."""

    @abstractmethod
    def version(self) -> Metadata:
        """Return the current version in JSON. Runs where batches are planned, without Spark."""

    @abstractmethod
    def read(self, spark: SparkSession, version: Metadata) -> DataFrame:
        """Return the rows of a version. TransientError if the version is gone."""

    @abstractmethod
    def check(self, version: Metadata) -> None:
        """Raise TransientError if the version is gone."""


# How its rows are had: from Spark, as they are, or in the version that a batch's plan fixes.
Reader = Callable[["SparkSession"], "DataFrame"] | Sequence[Any] | Versioned


class StaticState:
    """Rows with these `fields`. Every attempt with a look-up reads the rows again.

    `reader` is a `StaticFiles`: the plan of each batch fixes the version of the files. Or `reader` is the rows themselves:
    tuples or lists in the order of the fields, dicts by the fields' names, or objects of a dataclass. Or `reader` is a
    function from the Spark session to a DataFrame. The rows of a function belong to no txid: if the rows change, all later
    attempts see the change, also a retry of a batch.
    """

    def __init__(self, name: str, reader: Reader, fields: Fields) -> None:
        self.name, self.fields = checked_name(name, "static state"), parse_fields(fields)
        given = not (isinstance(reader, Versioned) or callable(reader))
        self.reader: Reader = _rows(name, cast("Sequence[Any]", reader), fields_ddl(fields)) if given else reader

    def __repr__(self) -> str:
        return f"static state {self.name!r}"

    @property
    def needs_spark(self) -> bool:
        """True if Spark reads the rows; False if the job gives the rows."""
        return isinstance(self.reader, Versioned) or callable(self.reader)

    def field(self, name: str) -> Field:
        """Return the field of this name; DefinitionError names the existing fields."""
        return _field(self, name)


def _field(of: LiveState | StaticState, name: str) -> Field:
    for candidate in of.fields:
        if candidate.name == name:
            return candidate
    raise UnknownField(f"{of} has no field {name!r}; it has {', '.join(field.name for field in of.fields)}")


def _rows(name: str, given: Sequence[Any], fields: str) -> list[tuple[Any, ...]]:
    """Return given rows in tuples; DefinitionError names the first row with other fields."""
    names, rows = [field.name for field in parse_fields(fields)], list[tuple[Any, ...]]()
    for number, row in enumerate(given, 1):
        if (values := given_values(row, names)) is None:
            raise InvalidArgument(
                f"static state {name!r}: row {number}, {one_line(repr(row), RECORD_MAX)}, has not the fields {fields!r}; give a "
                "tuple or list of values in their order, or a dict by their names"
            )
        rows.append(values)
    return rows


@dataclass(frozen=True, slots=True)
class StateQuery:
    """A look-up of the fields `names` (None: all others) by `keys`, which are fields of the stream and of the state.

    `how` decides whether a record without a match stays. A key has one row, or, with `many`, any number of rows.
    """

    state: StaticState | LiveState
    keys: tuple[Field, ...]
    names: Sequence[str] | None
    how: How = How.LEFT
    many: bool = False

    def __post_init__(self) -> None:
        if not self.keys:
            raise MissingPart(f"{self.state}: state_query needs at least one key")
        for key in self.keys:
            there = self.state.field(key.name)
            if there != key:
                raise WrongType(
                    f"{self.state}: key {key.name!r} is a {there.type} there and a {key.type} in the stream; cast one of them"
                )

    @property
    def values(self) -> tuple[Field, ...]:
        """The fields that the look-up appends."""
        if self.names is None:
            return tuple(field for field in self.state.fields if field not in self.keys)
        names = (self.names,) if isinstance(self.names, str) else self.names
        return tuple(map(self.state.field, names))

    @property
    def one_for_one(self) -> bool:
        """True if every record comes out exactly once."""
        return self.how is How.LEFT and not self.many

    def twice(self, key: str = "") -> BadKey:
        """Return the error of a key with several rows although one row was promised; `key` is the part of the key to show."""
        keys = ", ".join(each.name for each in self.keys)
        told = f" ({key})" if key else ""
        return BadKey(
            f"{self.state} has two rows with one {keys}{told}; a key has one, unless the look-up says many=True"
        )


def checked_how(how: str, what: str) -> How:
    """Return the treatment of a record without a match; DefinitionError if `how` is neither inner nor left."""
    if how not in (How.LEFT, How.INNER):
        raise InvalidArgument(f"{what}: how={how!r} is neither 'left', by which every record stays, nor 'inner'")
    return How(how)
