"""Live state: a state of this ledger that streams look values up in, while its own topology goes on (Trident's stateQuery)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from txbatch.core.errors import DefinitionError
from txbatch.core.records.fields import Field, checked_name, parse_fields

if TYPE_CHECKING:
    from txbatch.core.records.declared import Fields


@dataclass(frozen=True, slots=True, init=False)
class LiveState:
    """A state, of this topology or of another one, with those `fields` of its report that are looked up.

    The plan of a batch fixes as of which txid: what reports showed while that was the newest committed one. Every attempt sees
    the same, and so does a restate.
    """

    name: str
    fields: tuple[Field, ...]

    def __init__(self, name: str, fields: Fields) -> None:
        object.__setattr__(self, "name", checked_name(name, "state"))
        object.__setattr__(self, "fields", parse_fields(fields))

    def __str__(self) -> str:
        return f"state {self.name!r}"

    def field(self, name: str) -> Field:
        """Return the field of this name; DefinitionError names those that are declared."""
        for candidate in self.fields:
            if candidate.name == name:
                return candidate
        known = ", ".join(field.name for field in self.fields)
        raise DefinitionError(f"{self} has no field {name!r}; it has {known}")
