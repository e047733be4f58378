"""Timed: what all kinds of windows have, and what differs from kind to kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from txbatch.core.errors import NameTaken, UnknownField, WrongType
from txbatch.core.records.fields import Field, fitted_name


@dataclass(frozen=True, slots=True)
class Timed(ABC):
    """A kind of window: a key made from the times of the field `time`, in the field `name`.

    All that differs from kind to kind is asked of the window. Windows close, are late and leave in the order of `closes_by`.
    """

    time: str
    name: str

    @property
    @abstractmethod
    def per_record(self) -> int:
        """The largest number of windows in which a record counts."""

    @property
    @abstractmethod
    def described(self) -> str:
        """The windows in the words of definitions."""

    @abstractmethod
    def starts(self, time: datetime | None) -> list[datetime | None]:
        """Return the keys of all windows around a time; null for null."""

    @property
    @abstractmethod
    def spark(self) -> str:
        """Spark SQL for the key of a window; for an array of keys if a record counts in several windows."""

    @abstractmethod
    def first_open(self, time: int) -> int:
        """Return the least value of `closes_by` of a window that has not ended at a time."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return the window as stored by the ledger, without the job's field of time."""

    def late_before(self, time: int) -> int:
        """Return the key of the first open window at a time; windows with earlier keys have ended. Late windows are closed."""
        return self.first_open(time)

    @property
    def closes_by(self) -> str:
        """The report column by which the windows closed by a commit are found: the key's column (R26)."""
        return self.name

    @property
    def left(self) -> str:
        """The words for windows that have left, before a time."""
        return "that begin"

    def derived(self, key: datetime) -> dict[str, datetime | None]:
        """Return the report's columns that follow from the key; none by default."""
        return {}

    def derived_sql(self, key: str) -> dict[str, str]:
        """Return SQL of PostgreSQL for `derived`, over the SQL of the key."""
        return {}

    @property
    def derived_said(self) -> dict[str, str]:
        """The comments on the columns of `derived`."""
        return {}

    @property
    def field(self) -> Field:
        """The field of the start."""
        return Field(self.name, "timestamp")

    @property
    def end_name(self) -> str:
        """The name of the end in reports."""
        return fitted_name(self.name.removesuffix("_start"), "_end")

    def check(self, of: str, fields: Sequence[Field]) -> None:
        """DefinitionError if records with these fields cannot be grouped by the span."""
        types = {field.name: field.type for field in fields}
        if self.time not in types:
            raise UnknownField(f"{of}: a window is of {self.time!r}, which is no field here; it has {', '.join(types)}")
        if types[self.time] != "timestamp":
            raise WrongType(
                f"{of}: a window is of {self.time!r}, a {types[self.time]}; windows are of a timestamp: make one of it by each"
            )
        if self.name.lower() in {name.lower() for name in types}:
            raise NameTaken(
                f"{of}: the window's start is to be the field {self.name!r}, which is there already; give it another name, "
                'window(..., name="...")'
            )
