"""Digests of the parts of a topology, from the process that loaded the job, to compare with the digests of another process.

A task checks and plans a job, and Spark's driver loads the job once more: under other variables, or under the name `__main__`,
the driver may load another job. The digests are of texts, of the code of the job's own functions with the plain values named
in the code, of keys, aggregates and sources. The digests leave out files, lines and names of modules.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from txbatch.core.batch.loaded import Loaded, python_version
from txbatch.core.records.own_code import is_own
from txbatch.core.text import one_line
from txbatch.core.topology.nodes import Join, Merged, Node, Source
from txbatch.core.topology.python_steps import operation_of
from txbatch.core.topology.quarantine import QuarantineState
from txbatch.core.topology.topology import Topology
from txbatch.core.topology.walks import on_the_way

_PLAIN = (type(None), bool, int, float, complex, str, bytes, Decimal, date, datetime, time, timedelta)
# Of a node, what other parts tell, and what is the same to each record.
_NOT_OF_A_NODE = frozenset({"before", "inputs", "left", "right", "steps", "sources", "spout", "was", "shown"})
# A value that has more is told by its size: a table to look up in is no part of a job's code.
_ELEMENTS_MAX = 1_000
_DIGITS = 16
_SHOWN_MAX = 60
_OF_EACH_CLASS = frozenset(
    {"__module__", "__doc__", "__dict__", "__weakref__", "__qualname__", "__firstlineno__", "__annotations__"}
)


def loaded(topology: Topology, folder: str = "", variables: Sequence[str] = ()) -> Loaded:
    """Return the digests of a topology's parts. The job's `folder` is removed from texts: the job may lie elsewhere."""
    import hashlib  # here, as in core.batch.transaction

    teller = _Teller(folder)
    told = [
        (name, hashlib.sha256(repr(what).encode(errors="surrogatepass")).hexdigest())
        for name, what in teller.parts(topology)
    ]
    return Loaded(python_version(), [(name, digest[:_DIGITS]) for name, digest in told], variables)


class _Teller:
    """Turns values into nested tuples of texts; equal values give equal texts in every process."""

    def __init__(self, folder: str) -> None:
        self.folder, self._within = folder, set[int]()

    def parts(self, topology: Topology) -> Iterator[tuple[str, Any]]:
        """Yield each part of a topology with its name and nested texts, in the order in which records meet the parts."""
        seen = set[int]()
        for aggregate in topology.aggregates:
            for node in (*aggregate.stream.roots, *on_the_way(aggregate.stream)):
                if id(node) not in seen:
                    seen.add(id(node))
                    yield self._node(node)
            state = aggregate.state
            counted = (
                aggregate.keys,
                state.kind,
                vars(state),
                aggregate.aggregates,
                aggregate.remove,
                aggregate.guarantee,
            )
            what = "its quarantine" if isinstance(state, QuarantineState) else f"state {state.name!r}"
            yield what, self.tell(counted)

    def _node(self, node: Node) -> tuple[str, Any]:
        if isinstance(node, Source):
            spout = node.spout
            return f"stream {node.name!r}", self.tell((type(spout).__name__, spout.identity, spout.kind, node.fields))
        own = {each.name: getattr(node, each.name) for each in fields(node) if each.name not in _NOT_OF_A_NODE}
        return f"stream {node.name!r}: {_called(node)}", (type(node).__name__, self.tell(own))

    def tell(self, value: Any) -> Any:
        """Return the nested texts of a value; a value within itself is only marked."""
        if isinstance(value, Enum):
            return repr(value.value)
        if isinstance(value, str) and self.folder:
            return repr(value.replace(self.folder, ""))
        if isinstance(value, _PLAIN):
            return repr(value)
        if id(value) in self._within:
            return "itself"
        self._within.add(id(value))
        try:
            return self._tell(value)
        finally:
            self._within.discard(id(value))

    def _tell(self, value: Any) -> Any:
        match value:
            case Mapping() | list() | tuple() | set() | frozenset() if len(value) > _ELEMENTS_MAX:
                return type(value).__name__, len(value)
            case Mapping():
                return "mapping", sorted((repr(self.tell(key)), self.tell(each)) for key, each in value.items())
            case list() | tuple():
                return type(value).__name__, [self.tell(each) for each in value]
            case set() | frozenset():
                return "set", sorted(repr(self.tell(each)) for each in value)
            case partial():
                return "partial", self.tell((value.func, value.args, value.keywords))
            case MethodType():
                return "method", self.tell((value.__func__, value.__self__))
            case CodeType():
                return self._code(value)
            case FunctionType():
                return self._function(value)
            case ModuleType() | BuiltinFunctionType():
                return value.__name__
            case type():
                return self._class(value)
            case _ if callable(getattr(value, "__wrapped__", None)):
                return type(value).__name__, self.tell(value.__wrapped__)  # one with a cache
            case _:
                return self._object(value)

    def _code(self, code: CodeType) -> Any:
        names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
        return code.co_code, names, [self.tell(each) for each in code.co_consts]

    def _function(self, function: FunctionType) -> Any:
        if not self._is_own(function.__module__):
            return function.__qualname__
        cells = [self.tell(cell.cell_contents) if _filled(cell) else None for cell in function.__closure__ or ()]
        given = self.tell((function.__defaults__, function.__kwdefaults__))
        named = {
            name: self.tell(function.__globals__[name])
            for name in sorted(_names(function.__code__))
            if name in function.__globals__ and not name.startswith("__")
        }
        return self.tell(function.__code__), given, cells, named

    def _class(self, kind: type) -> Any:
        if not self._is_own(kind.__module__):
            return kind.__qualname__
        found = {name: _unwrapped(each) for name, each in vars(kind).items() if name not in _OF_EACH_CLASS}
        own = {name: each for name, each in found.items() if isinstance(each, (*_PLAIN, FunctionType))}
        return kind.__name__, self.tell(own), [self.tell(each) for each in kind.__bases__]

    def _object(self, value: Any) -> Any:
        """Return the texts of an object: of its attributes if the class is the job's or txbatch's, if not of the class's name."""
        kind = type(value)
        if is_dataclass(value):
            attributes = {each.name: getattr(value, each.name) for each in fields(value)}
        elif self._is_own(kind.__module__):
            attributes = getattr(value, "__dict__", {})
        elif kind.__module__.partition(".")[0] == "txbatch":
            attributes = {
                name: each for name, each in getattr(value, "__dict__", {}).items() if not name.startswith("_")
            }
        else:
            return kind.__qualname__
        return self._class(kind), self.tell(attributes)

    def _is_own(self, module: str | None) -> bool:
        return module is None or is_own(module, getattr(sys.modules.get(module), "__file__", None))


def _unwrapped(attribute: Any) -> Any:
    """Return the function of a method or property of a class."""
    if isinstance(attribute, property):
        return attribute.fget
    return attribute.__func__ if isinstance(attribute, staticmethod | classmethod) else attribute


def _called(node: Node) -> str:
    """Return the name of a node: of its operation and function, if the node has a function."""
    match node:
        case Merged():
            return "merge"
        case Join():
            return str(node)
        case _:
            try:
                called = operation_of(node)
            except KeyError:  # an operation without a function
                return type(node).__name__.lower()
            given = getattr(node, "condition", getattr(node, "function", None))
            return called if callable(given) else f"{called.rpartition(' ')[0]} {one_line(repr(given), _SHOWN_MAX)}"


def _names(code: CodeType) -> set[str]:
    """Return the names that code, and the code within, takes from elsewhere."""
    within = [_names(each) for each in code.co_consts if isinstance(each, CodeType)]
    return set(code.co_names).union(*within)


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 -- it raises where nothing is there yet
    except ValueError:
        return False
    return True
