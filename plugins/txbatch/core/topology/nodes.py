"""Where a stream's records come from: a spout, several nodes that are merged or joined, or the node before a step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from txbatch.core.errors import DefinitionError
from txbatch.core.records.fields import Field
from txbatch.core.sources.spout import Spout, SpoutKind

if TYPE_CHECKING:
    from txbatch.core.topology.operations import Node

_WEAKEST_FIRST = (SpoutKind.NON_TRANSACTIONAL, SpoutKind.OPAQUE, SpoutKind.TRANSACTIONAL)


class How(StrEnum):
    """Of which side of a join the records stay that match none of the other side."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"


@dataclass(frozen=True, slots=True, eq=False)
class Records(ABC):
    """What every node has: the name of its stream, and the fields of its records."""

    name: str
    fields: tuple[Field, ...]

    @property
    @abstractmethod
    def roots(self) -> tuple[Source, ...]:
        """The sources its records come from, each once."""

    @property
    def kind(self) -> SpoutKind:
        """That of its spout; the weakest, where streams are merged (R11)."""
        return min((root.spout.kind for root in self.roots), key=_WEAKEST_FIRST.index)

    @property
    def show_records(self) -> bool:
        """True if errors may show its records: their topology does not forbid it."""
        return all(root.shown for root in self.roots)

    def field(self, name: str) -> Field:
        """Return the field of this name; DefinitionError names those that exist."""
        for candidate in self.fields:
            if candidate.name == name:
                return candidate
        known = ", ".join(candidate.name for candidate in self.fields)
        raise DefinitionError(f"stream {self.name!r} has no field {name!r} here; it has {known}")


@dataclass(frozen=True, slots=True, eq=False)
class Source(Records):
    """The records of a spout, as it gives them. `was` is the name that the stream had, where it has history by that (R23).

    `shown` says whether errors may show them.
    """

    spout: Spout
    was: str | None = None
    shown: bool = True

    @property
    def roots(self) -> tuple[Source, ...]:
        return (self,)


@dataclass(frozen=True, slots=True, eq=False)
class Arguments(Records):
    """What a query stream is asked: a record for each question, which is a batch of its own and no spout's."""

    shown: bool = True

    @property
    def roots(self) -> tuple[Source, ...]:
        return ()


@dataclass(frozen=True, slots=True, eq=False)
class Merged(Records):
    """The records of several nodes, whose fields have the same types; `fields` are called as in the first."""

    inputs: tuple[Node, ...]

    @property
    def roots(self) -> tuple[Source, ...]:
        return _roots(self.inputs)


@dataclass(frozen=True, slots=True, eq=False)
class Join(Records):
    """The records of two nodes that are equal in the fields `on`, which are there once; `how` says whose records stay alone."""

    left: Node
    right: Node
    on: tuple[str, ...]
    how: How

    @property
    def roots(self) -> tuple[Source, ...]:
        return _roots((self.left, self.right))

    def __str__(self) -> str:
        sides = (", ".join(root.name for root in side.roots) for side in (self.left, self.right))
        return f"{self.how} join of {' and '.join(sides)} on {', '.join(self.on)}"


@dataclass(frozen=True, slots=True, eq=False)
class Failed(Records):
    """The records for which functions of some steps fail, with what is told of each: those of a quarantine."""

    steps: tuple[Node, ...]
    sources: tuple[Source, ...]

    @property
    def roots(self) -> tuple[Source, ...]:
        return self.sources


@dataclass(frozen=True, slots=True, eq=False)
class After(Records):
    """What a step makes of the records of the node before it."""

    before: Node

    @property
    def roots(self) -> tuple[Source, ...]:
        return self.before.roots


def _roots(nodes: Iterable[Node]) -> tuple[Source, ...]:
    """The sources of several nodes, each once."""
    return tuple({root.name: root for each in nodes for root in each.roots}.values())
