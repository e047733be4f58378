"""The pages on Python: the names of job files, DAGs, reports and tests, with their docstrings."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Sequence
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import txbatch
from docs.generate import signatures
from docs.generate.markdown import block, page, prose

PACKAGE = Path(txbatch.__file__).parent
ORCHESTRATION = PACKAGE / "orchestration"
# The chapters of the page on job files: the modules of a name, by their beginnings, decide.
CHAPTERS = {
    "Topologies and streams": ("core.topology.topology", "core.topology.stream", "core.topology.grouped"),
    "Look-ups and queries": ("core.topology.", "spouts.static_files"),
    "Spouts": ("spouts.",),
    "States": ("core.state.", "storage."),
    "Aggregates": ("core.aggregates.",),
    "Windows": ("core.windows.",),
    "Spouts of your own": ("core.sources.",),
    "Batches and errors": ("core.batch.", "core.errors"),
}
# Classes without a name in `txbatch`: a method returns an object of the class, or a class of a chapter is of its kind.
BESIDE = {
    "GroupedStream": "core.topology.grouped",
    "QueryStream": "core.topology.query_stream",
    "State": "core.state.state",
}
# The chapter of classes whose methods runs call, and people do not.
BY_RUNS = "Spouts"
# Made by methods alone.
RETURNED = frozenset({"Stream", "GroupedStream", "QueryStream", "State"})


def jobs() -> str:
    """Return the page on the names of job files."""
    places = txbatch._MODULES | BESIDE
    chapters: dict[str, list[str]] = {title: [] for title in CHAPTERS}
    for name, module in places.items():
        chapters[next(title for title, begins in CHAPTERS.items() if module.startswith(begins))].append(name)
    found = {name: getattr(import_module(f"txbatch.{module}"), name) for name, module in places.items()}
    return page(
        "Python: job files",
        "Here you find each name that a job file imports from `txbatch`: how it is called, and what it does.",
        "You need a job: [write a job](../jobs.md) shows one. Types such as `Fields` are texts, dataclasses or `StructType`.",
        [*_emit(), *(line for title, names in chapters.items() for line in _chapter(title, names, found))],
    )


def _emit() -> Iterator[str]:
    yield from ("## The end of a job file", "", *_function("emit", txbatch.emit))


def _chapter(title: str, names: Sequence[str], found: dict[str, Any]) -> Iterator[str]:
    yield from (f"## {title}", "")
    classes = {each for each in found.values() if isinstance(each, type)}
    for name in names:
        if isinstance(found[name], type):
            yield from _class(name, found[name], classes, methods=title != BY_RUNS)
        else:
            yield from _function(name, found[name])


def reports() -> str:
    """Return the page on `txbatch.reports`."""
    return page(
        "Python: reports",
        "Here you find the names of `txbatch.reports`: counted values as frozen rows, without SQL.",
        "You need the URL of the ledger, or a task of Airflow. The columns are those of the [views](sql.md).",
        _module(import_module("txbatch.reports")),
    )


def testing() -> str:
    """Return the page on `txbatch.testing`."""
    return page(
        "Python: tests of jobs and spouts",
        "Here you find the names of `txbatch.testing`: a job in memory, feeders, and the contract of spouts.",
        "You need pytest; [test a job](../testing.md) shows tests. Neither Spark nor PostgreSQL runs.",
        _module(import_module("txbatch.testing")),
    )


def _module(module: ModuleType) -> Iterator[str]:
    names = list(getattr(module, "__all__", ())) or [name for name, each in vars(module).items() if _own(module, each)]
    found = {name: getattr(module, name) for name in names}
    classes = {each for each in found.values() if isinstance(each, type)}
    for name, each in found.items():
        yield from _class(name, each, classes, level=2) if isinstance(each, type) else _function(name, each, level=2)


def _own(module: ModuleType, found: Any) -> bool:
    return isinstance(found, type) and found.__module__ == module.__name__ and not found.__name__.startswith("_")


def _function(name: str, function: Any, level: int = 3) -> Iterator[str]:
    yield from (f"{'#' * level} {name}", "", *block("python", signatures.of_object(name, function)))
    yield from (prose(function.__doc__ or ""), "")


def _class(name: str, found: type, classes: set[type], level: int = 3, *, methods: bool = True) -> Iterator[str]:
    """Yield the lines of a class: its call, its docstring, and its methods, but for those of another class of the page."""
    yield from (f"{'#' * level} {name}", "")
    yield from block("python", f"class {name}" if not _is_called(name, found) else signatures.of_object(name, found))
    yield from (prose(found.__doc__ or ""), "")
    bases = [base.__name__ for base in found.__mro__[1:] if base in classes]
    if bases:
        yield from (f"Of the kind {', '.join(f'`{base}`' for base in bases)}.", "")
    if issubclass(found, Enum):
        yield from (f"Values: {', '.join(f'`{name}.{each.name}`' for each in found)}.", "")
    for method, each in _methods(found, classes).items() if methods else ():
        yield from (f"{'#' * (level + 1)} {name}.{method}", "", *block("python", _called(method, each)))
        yield from (prose(_docstring(each)), "")


def _is_called(name: str, found: type) -> bool:
    """Return whether people make objects of a class: not of abstract ones, of errors and of those that methods return."""
    return not (name in RETURNED or inspect.isabstract(found) or issubclass(found, Enum | Exception))


def _methods(found: type, classes: set[type]) -> dict[str, Any]:
    """Return the methods and properties with a docstring, without those that another class of the page has."""
    others = {name for base in found.__mro__[1:] if base in classes for name in dir(base)}
    ours = [
        base
        for base in found.__mro__
        if base is found or (base not in classes and base.__module__.startswith("txbatch"))
    ]
    return {
        name: each
        for base in reversed(ours)
        for name, each in vars(base).items()
        if not name.startswith("_") and name not in others and _is_method(each) and _docstring(each)
    }


def _is_method(found: Any) -> bool:
    return isinstance(found, FunctionType | property | classmethod | staticmethod)


def _docstring(found: Any) -> str:
    return str((found.fget if isinstance(found, property) else found).__doc__ or "")


def _called(name: str, found: Any) -> str:
    if isinstance(found, property):
        returns = inspect.signature(found.fget).return_annotation if found.fget else ""
        return f"{name}: {returns}"
    return signatures.of_object(name, getattr(found, "__func__", found))


def dags() -> str:
    """Return the page on `txbatch.orchestration`, by its source."""
    return page(
        "Python: DAG files",
        "Here you find the functions that a DAG file imports from `txbatch.orchestration`.",
        "You need Airflow 3.1 to 3.4. Fields of a run's form are under [settings](settings.md).",
        _of_source(),
    )


def _of_source() -> Iterator[str]:
    constants = dict(_constants())
    for name, file in _exported():
        tree = ast.parse(file.read_text(encoding="utf-8"))
        (function,) = (each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == name)
        yield from (f"## {name}", "", *block("python", signatures.of_source(function, constants)))
        yield from (prose(ast.get_docstring(function) or ""), "")


def _exported() -> list[tuple[str, Path]]:
    """Return each name that the room exports, with the file of the name."""
    tree = ast.parse((ORCHESTRATION / "__init__.py").read_text(encoding="utf-8"))
    imports = [each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)]
    rooms = [each for each in imports if str(each.module).startswith("txbatch.orchestration.")]
    return sorted(
        (alias.name, ORCHESTRATION / f"{str(each.module).rpartition('.')[2]}.py")
        for each in rooms
        for alias in each.names
    )


def _constants() -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each constant with a length of time."""
    for file in sorted(ORCHESTRATION.glob("*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("timedelta("):
                yield ast.unparse(node.targets[0]), ast.unparse(node.value)
