"""What a stream is made of: frozen nodes, each of which knows the one before it.

A source has the records of a spout, a merge those of several nodes, and a step makes records of records. A backend
matches all of them, closed by `assert_never`: a new node does not pass the type checker until every backend runs it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from txbatch.core.errors import DefinitionError
from txbatch.core.fields import Field
from txbatch.core.spout import Spout, SpoutKind
from txbatch.core.static import StateQuery

# A Spark SQL expression, one per output field, or a Python function from a record (a dict) to the output.
Function = str | Sequence[str] | Callable[[Mapping[str, Any]], Any]
# A Spark SQL condition, or a Python predicate of a record (a dict).
Condition = str | Callable[[Mapping[str, Any]], bool]
_WEAKEST_FIRST = (SpoutKind.NON_TRANSACTIONAL, SpoutKind.OPAQUE, SpoutKind.TRANSACTIONAL)


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

    def field(self, name: str) -> Field:
        """Return the field of this name; DefinitionError names those that exist."""
        for candidate in self.fields:
            if candidate.name == name:
                return candidate
        known = ", ".join(candidate.name for candidate in self.fields)
        raise DefinitionError(f"stream {self.name!r} has no field {name!r} here; it has {known}")


@dataclass(frozen=True, slots=True, eq=False)
class Source(Records):
    """The records of a spout, as it gives them."""

    spout: Spout

    @property
    def roots(self) -> tuple[Source, ...]:
        return (self,)


@dataclass(frozen=True, slots=True, eq=False)
class Merged(Records):
    """The records of several nodes, whose fields have the same types; `fields` are called as in the first."""

    inputs: tuple[Node, ...]

    @property
    def roots(self) -> tuple[Source, ...]:
        return tuple({root.name: root for each in self.inputs for root in each.roots}.values())


@dataclass(frozen=True, slots=True, eq=False)
class _Step(Records):
    before: Node

    @property
    def roots(self) -> tuple[Source, ...]:
        return self.before.roots


@dataclass(frozen=True, slots=True, eq=False)
class Filter(_Step):
    """The records for which the condition is true."""

    condition: Condition


@dataclass(frozen=True, slots=True, eq=False)
class Each(_Step):
    """Each record with more fields."""

    function: Function

    @property
    def appended(self) -> tuple[Field, ...]:
        """The fields that are new."""
        return self.fields[len(self.before.fields) :]


@dataclass(frozen=True, slots=True, eq=False)
class Map(_Step):
    """Another record for each."""

    function: Function


@dataclass(frozen=True, slots=True, eq=False)
class FlatMap(_Step):
    """Any number of records for each."""

    function: Function


@dataclass(frozen=True, slots=True, eq=False)
class Transform(_Step):
    """What Spark code makes of the DataFrame."""

    function: Callable[[Any], Any]


@dataclass(frozen=True, slots=True, eq=False)
class Project(_Step):
    """Each record with only the fields that are left."""


@dataclass(frozen=True, slots=True, eq=False)
class Lookup(_Step):
    """Each record with the fields that a static state has for its key."""

    query: StateQuery


Step = Filter | Each | Map | FlatMap | Transform | Project | Lookup
Node = Source | Merged | Step


def origin_of(node: Node) -> Source | Merged:
    """Return the node at which its steps begin."""
    while not isinstance(node, Source | Merged):
        node = node.before
    return node


def one_for_one(node: Node) -> tuple[Source, ...] | None:
    """Return the sources of which the node has as many records as they have; None where a step may drop or add some."""
    match node:
        case Source():
            return (node,)
        case Merged(inputs=inputs):
            parts = [one_for_one(each) for each in inputs]
            return None if None in parts else tuple(source for part in parts for source in part or ())
        case Filter() | FlatMap() | Transform():
            return None
        case Each() | Map() | Project() | Lookup():
            return one_for_one(node.before)
        case other:
            assert_never(other)
