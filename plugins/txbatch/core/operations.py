"""What a stream is made of: frozen nodes, each of which knows the one before it.

A source has the records of a spout, a merge those of several nodes, and a step makes records of records: one by one, or,
per batch, of all that the batch has there. A backend matches all of them, closed by `assert_never`: a new node does not pass
the type checker until every backend runs it.
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
from txbatch.core.where import Condition as Condition

# A Spark SQL expression, one per output field, or a Python function from a record (a dict) to the output.
Function = str | Sequence[str] | Callable[[Mapping[str, Any]], Any]
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
    """Each record with more fields; as often as a Python function says, which returns a list."""

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


@dataclass(frozen=True, slots=True, eq=False)
class Peek(_Step):
    """The same records, each of which a function has seen."""

    function: Callable[[Mapping[str, Any]], object]


@dataclass(frozen=True, slots=True, eq=False)
class Repartition(_Step):
    """The same records, spread over so many of Spark's partitions; those that are equal in `by` in the same one."""

    number: int
    by: tuple[Field, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Distinct(_Step):
    """The batch's different records, each once."""

    def __str__(self) -> str:
        return "distinct"


@dataclass(frozen=True, slots=True, eq=False)
class FirstN(_Step):
    """The batch's first records by a field, of each group if there are keys; of equal ones the least by all fields.

    Nulls come last; with `known` alone, those that are null in the field are none of them.
    """

    keys: tuple[Field, ...]
    number: int
    by: Field
    descending: bool
    known: bool

    def __str__(self) -> str:
        of = f" of each {', '.join(key.name for key in self.keys)}" if self.keys else ""
        known = " that is known" if self.known else ""
        return f"first {self.number} by {self.by.name}{' descending' if self.descending else ''}{known}{of}"


RecordStep = Filter | Each | Map | FlatMap | Transform | Project | Lookup | Peek | Repartition
BatchStep = Distinct | FirstN
Step = RecordStep | BatchStep
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
        case Each(function=function) if callable(function):
            return None
        case Filter() | FlatMap() | Transform() | Distinct() | FirstN():
            return None
        case Each() | Map() | Project() | Lookup() | Peek() | Repartition():
            return one_for_one(node.before)
        case other:
            assert_never(other)


def per_batch(node: Node) -> tuple[str, ...]:
    """Return what the node's records went through whose result depends on where batches end, in order; empty: nothing."""
    match node:
        case Source():
            return ()
        case Merged(inputs=inputs):
            return tuple(each for part in inputs for each in per_batch(part))
        case Distinct() | FirstN():
            return (*per_batch(node.before), str(node))
        case step:
            return per_batch(step.before)
