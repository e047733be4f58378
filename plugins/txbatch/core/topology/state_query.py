"""A look-up in a state (Trident's stateQuery): by which of its fields, of which others, and how many rows a key may have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from txbatch.core.errors import BadRecord, DefinitionError
from txbatch.core.records.fields import Field
from txbatch.core.topology.live_state import LiveState
from txbatch.core.topology.nodes import How
from txbatch.core.topology.static import StaticState

# Of a key that is refused, so many characters are told.
KEY_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class StateQuery:
    """A look-up: by `keys`, which are fields of the stream and of the state, of the fields `names` (None: all others).

    `how` says whether a record without a match stays. A key has one row, or, with `many`, any number of them.
    """

    state: StaticState | LiveState
    keys: tuple[Field, ...]
    names: Sequence[str] | None
    how: How = How.LEFT
    many: bool = False

    def __post_init__(self) -> None:
        if not self.keys:
            raise DefinitionError(f"{self.state}: state_query needs at least one key")
        for key in self.keys:
            there = self.state.field(key.name)
            if there != key:
                raise DefinitionError(
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
        """True if each record comes out once."""
        return self.how is How.LEFT and not self.many

    def twice(self, key: str = "") -> BadRecord:
        """Return the error of a key that has several rows where one was promised; `key` is what may be shown of it."""
        keys = ", ".join(each.name for each in self.keys)
        told = f" ({key})" if key else ""
        return BadRecord(
            f"{self.state} has two rows with one {keys}{told}; a key has one, unless the look-up says many=True"
        )


def checked_how(how: str, what: str) -> How:
    """Return how a look-up treats a record without a match; DefinitionError for what is neither inner nor left."""
    if how not in (How.LEFT, How.INNER):
        raise DefinitionError(f"{what}: how={how!r} is neither 'left', by which every record stays, nor 'inner'")
    return How(how)
