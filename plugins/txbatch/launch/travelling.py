"""Checks, before Spark starts, whether a job's Python functions can be sent to Spark's executors.

Spark finds the same fault only in the first batch, after a txid was used, and in Python's words.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from txbatch.core.aggregates.python_combiner import OwnCombiner
from txbatch.core.errors import CannotTravel
from txbatch.core.records.own_code import lies_in
from txbatch.core.text import one_line
from txbatch.core.topology.nodes import Filter
from txbatch.core.topology.python_steps import name_of, operation_of, rows_of
from txbatch.core.topology.topology import Topology
from txbatch.core.topology.walks import on_the_way
from txbatch.spark.process.shipped import own_folders, ship_by_value

_SHOWN_MAX = 200
_WAY = "make it within the function, or let the function import a module that the executors have installed"


def check_travelling(topology: Topology, job: Path) -> None:
    """Raise DefinitionError with the first function that executors could not load, the part at fault, and a way out."""
    functions = list(_functions(topology))
    if not functions or (pickler := _cloudpickle()) is None:
        return
    ship_by_value(pickler, job)
    for of, function in functions:
        if why := _why_not(pickler, function, own_folders(job)):
            raise CannotTravel(f"{of} cannot be sent to Spark's executors: {why}; {_WAY}")


def _functions(topology: Topology) -> Iterator[tuple[str, Any]]:
    """Yield a description and the function, for each function of a topology called on executors."""
    seen = set[int]()
    for aggregate in topology.aggregates:
        for node in on_the_way(aggregate.stream):
            if id(node) not in seen and rows_of(node) is not None:
                seen.add(id(node))
                function = node.condition if isinstance(node, Filter) else getattr(node, "function", None)
                yield f"stream {node.name!r}: {operation_of(node)}", function
        state = f"state {aggregate.state.name!r}"
        if callable(aggregate.remove):
            yield f"{state}: remove {name_of(aggregate.remove)}", aggregate.remove
        for name, aggregator in aggregate.aggregates.items():
            if isinstance(aggregator, OwnCombiner):
                yield f"{state}: value {name!r}, {type(aggregator.given).__name__},", aggregator.given
            if callable(aggregator.where):
                yield f"{state}: value {name!r}, where {name_of(aggregator.where)}", aggregator.where


def _why_not(pickler: Any, function: Any, folders: Sequence[str]) -> str:
    """Return why executors could not load a function, with the name at fault in the function's module; "" if executors can."""
    why = _fault(pickler, function, folders)
    if not why:
        return ""
    for name, value in _named(function):
        if found := _fault(pickler, value, folders):
            return f"it names {name!r}, and {found}"
    return why


def _fault(pickler: Any, value: Any, folders: Sequence[str]) -> str:
    try:
        pickled: bytes = pickler.dumps(value)
    except Exception as error:
        return one_line(f"that cannot be pickled ({type(error).__name__}: {error})", _SHOWN_MAX)
    for module in _modules(pickled):
        found = sys.modules.get(module)
        if module == "__main__" or any(lies_in(found, folder) for folder in folders):
            return f"that is only known by its name in the module {module}, which executors have not"
    return ""


def _modules(pickled: bytes) -> Iterator[str]:
    """Yield the modules needed to load a pickle."""
    import pickletools  # only where there are functions

    texts = list[str]()
    for opcode, argument, _ in pickletools.genops(pickled):
        if opcode.name in ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"):
            texts.append(str(argument))
        elif opcode.name == "GLOBAL":
            yield str(argument).partition(" ")[0]
        elif opcode.name == "STACK_GLOBAL" and len(texts) > 1:
            yield texts[-2]


def _named(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and values a function takes from the module or from an outer function."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        return
    known = function.__globals__
    yield from ((name, known[name]) for name in code.co_names if name in known)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        yield name, cell.cell_contents


@cache
def _cloudpickle() -> Any:
    """Return a copy of PySpark's cloudpickle, because importing PySpark takes half a second; None if not found."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin).parent / "cloudpickle" / "cloudpickle.py"
    own = spec_from_file_location("txbatch_cloudpickle", file)
    if own is None or own.loader is None or not file.is_file():
        return None
    module: ModuleType = module_from_spec(own)
    sys.modules[own.name] = module  # what it pickles names it
    own.loader.exec_module(module)
    return module
