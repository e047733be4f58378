"""How a name is called, as the source has it; of Airflow's room read from the source, because its import takes seconds."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

# A longer call has a line for each argument.
WIDTH = 100
MARKS = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}


def written(name: str, arguments: Sequence[str], returns: str = "") -> str:
    """Return a call in one line, or with a line for each argument."""
    behind = f" -> {returns}" if returns else ""
    line = f"{name}({', '.join(arguments)}){behind}"
    return (
        line if len(line) <= WIDTH else "\n".join([f"{name}(", *(f"    {each}," for each in arguments), f"){behind}"])
    )


def of_object(name: str, called: Any) -> str:
    """Return how a function, a method or a class is called. A class returns itself: the return type is left out."""
    found = inspect.signature(called)
    arguments = [each for each in found.parameters.values() if each.name not in ("self", "cls")]
    returns = "" if isinstance(called, type) else _type(found.return_annotation)
    return written(name, [*_arguments(arguments)], returns)


def _arguments(given: Sequence[inspect.Parameter]) -> Iterator[str]:
    star = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in given)
    for each in given:
        if each.kind is inspect.Parameter.KEYWORD_ONLY and not star:
            star = True
            yield "*"
        mark = MARKS.get(each.kind.name, "")
        type_ = _type(each.annotation)
        typed = f"{mark}{each.name}: {type_}" if type_ else f"{mark}{each.name}"
        yield typed if each.default is inspect.Parameter.empty else f"{typed} = {_default(each.default)}"


def _type(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _default(value: Any) -> str:
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    told = repr(value)
    return "..." if told.startswith("<") else told


def of_source(function: ast.FunctionDef, constants: Mapping[str, str]) -> str:
    """Return how a function is called, by its source. `constants` has the values of names in place of the names."""
    given = function.args
    plain = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [*[None] * (len(plain) - len(given.defaults)), *given.defaults]
    arguments = [_argument(each, default, constants) for each, default in zip(plain, defaults, strict=True)]
    if given.vararg:
        arguments.append(f"*{_argument(given.vararg, None, constants)}")
    elif given.kwonlyargs:
        arguments.append("*")
    arguments += [_argument(*each, constants) for each in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    if given.kwarg:
        arguments.append(f"**{_argument(given.kwarg, None, constants)}")
    return written(function.name, arguments, ast.unparse(function.returns) if function.returns else "")


def _argument(argument: ast.arg, default: ast.expr | None, constants: Mapping[str, str]) -> str:
    typed = f"{argument.arg}: {ast.unparse(argument.annotation)}" if argument.annotation else argument.arg
    if default is None:
        return typed
    value = ast.unparse(default)
    return f"{typed} = {constants.get(value, value)}"
