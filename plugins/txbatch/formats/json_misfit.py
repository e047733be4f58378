"""Explains, from the line itself, why a line is not the declared record: nothing is decided here."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from txbatch.core.errors import BadText
from txbatch.core.records.fields import FLOATING_TYPES, INTEGER_TYPES, Field, decimal_scale
from txbatch.formats.cells import beyond
from txbatch.formats.misfit import Misfit, describe_value


class _Number(str):
    """A number in the written form."""


class _Object(list[tuple[str, Any]]):
    """An object's members in order, including names present twice."""


_WORDS = {str: "a text", bool: "true or false", _Object: "an object", list: "an array", _Number: "a number"}
_BLANKS = " \t\r\n"
_TOO_DEEP = "is nested too deeply; let the writer flatten it"
_ONE_LINE = "write each object on a line of its own"
_FLATTEN = "a field holds a single value; let the writer flatten objects and arrays"


def misfit(number: int, line: bytes, fields: Sequence[Field], options: Mapping[str, Any], error: Exception) -> Misfit:
    """Return the misfit of a refused line, for the given error."""
    if isinstance(error, RecursionError):
        return Misfit(number, _TOO_DEEP)
    text = line.decode().strip(_BLANKS)
    try:
        value, end = _decoder().raw_decode(text)
    except RecursionError:
        return Misfit(number, _TOO_DEEP)
    except ValueError as broken:
        return Misfit(number, _broken(text, broken))
    if rest := text[end:].strip(_BLANKS):
        return Misfit(number, f"has more than one value: {describe_value(rest)} follows; write one object a line")
    if not isinstance(value, _Object):
        way_out = " (jq -c '.[]' does that)" if isinstance(value, list) else ""
        return Misfit(number, f"holds {_word(value)}; write one object a line{way_out}")
    return _member(number, value, fields, options) or Misfit(number, f"is refused: {error}")


def twice(line: bytes, fields: Sequence[Field]) -> str | None:
    """Return a text about a declared field present twice, or None."""
    try:
        names = [name for name, _ in parsed(line)]
    except RecursionError:
        return _TOO_DEEP
    found = next((field.name for field in fields if names.count(field.name) > 1), None)
    return found and f"has {describe_value(found)} twice; mend the source"


def other_capitals(line: bytes, field: str) -> str | None:
    """Return a text about a field present in other capitals, or None."""
    try:
        names = [name for name, _ in parsed(line)]
    except RecursionError:
        return _TOO_DEEP
    return _missing(field, names) if field.lower() in map(str.lower, names) else None


def value_of(line: bytes, field: str) -> str:
    """Return a field's value in a text, for messages."""
    try:
        return _text(dict(parsed(line)).get(field))
    except RecursionError:
        return "..."


def parsed(text: bytes) -> Any:
    """Return the written value, with numbers in the written form."""
    return _decoder().decode(text.decode().strip(_BLANKS))


def unlike(value: Any, type_: str, options: Mapping[str, Any]) -> str:
    """Return a value's fault for the type, in a predicate; empty without a fault."""
    wanted = _wanted(type_, options)
    if value is None or type(value) is wanted:
        return ""
    return f"is no {type_}: it is {_word(value)}; {_way_out(value, type_, wanted, options)}"


def fault(text: bytes, type_: str, options: Mapping[str, Any]) -> str:
    """Return the fault of a field that takes numbers as text, in a predicate, by the value's text."""
    try:
        value = parsed(text)
    except RecursionError:
        return _TOO_DEEP
    except ValueError as broken:
        return f"is no {type_}: {_broken(text.decode(), broken)}"
    if isinstance(value, _Number):
        return f"is no {type_} by its digits: it has an exponent; write the number out, or declare it as double"
    return unlike(value, type_, options) or _odd(value, type_) or f"is no {type_}"


def _member(number: int, members: _Object, fields: Sequence[Field], options: Mapping[str, Any]) -> Misfit | None:
    """Return the first field that is missing, or unlike the declaration."""
    values = dict(members)
    for field in fields:
        if field.name not in values and field.name not in (options.get("optional") or ()):
            return Misfit(number, _missing(field.name, list(values)))
        if field.name in (options.get("numbers_as_text") or ()) and isinstance(values.get(field.name), _Number):
            continue
        if reason := unlike(values.get(field.name), field.type, options) or _odd(values.get(field.name), field.type):
            return Misfit(number, reason, field.name, _text(values[field.name]))
    halved = next((text for pair in members for text in pair if isinstance(text, str) and _half(text)), None)
    if halved is None:
        return None
    return Misfit(number, f"has half a character, as \\ud800 is one: {describe_value(halved)}", kind=BadText)


def _missing(name: str, found: list[str]) -> str:
    other = next((each for each in found if each.lower().strip() == name.lower()), None)
    if other is not None:
        return f"has no {describe_value(name)}, but {describe_value(other)}; write both alike"
    has = ", ".join(map(describe_value, found[:5])) + ("..." if len(found) > 5 else "")
    return f"has no {describe_value(name)}, it has {has or 'nothing'}; say optional={describe_value(name)} if records may lack it"


def _broken(text: str, error: ValueError) -> str:
    at, reason = getattr(error, "pos", 0), getattr(error, "msg", str(error))
    if text.startswith("\ufeff"):
        return "begins with a mark of byte order; files were joined, take it out"
    if reason.startswith("Unterminated"):
        return f"ends within a text; {_ONE_LINE}, line ends in texts as \\n"
    if at >= len(text) or text[:1] in "]},":
        return f"does not hold a whole value; {_ONE_LINE} (jq -c . does that)"
    where = f", at {describe_value(text[at:])}" if isinstance(error, json.JSONDecodeError) else ""
    return f"is no JSON: {reason[:1].lower()}{reason[1:].removesuffix(' at')}{where}"


def _odd(value: Any, type_: str) -> str:
    """Return the fault of a value of the right kind."""
    if isinstance(value, str) and _half(value):
        return "has half a character, as \\ud800 is one; mend the source"
    if isinstance(value, _Number) and type_ in INTEGER_TYPES:
        if not value.lstrip("-").isdigit():
            return f"is no {type_}: it has a point or an exponent; declare it as decimal(precision,scale) or double"
        return "" if _within(value, type_) else f"is no {type_}: it is out of range; declare a larger type"
    if isinstance(value, _Number) and type_ in FLOATING_TYPES and float(value) in (float("inf"), float("-inf")):
        return f"is no {type_}: {beyond(type_)}"
    return "is no binary: it is not written in base64" if type_ == "binary" and not _is_base64(value) else ""


def _within(value: str, type_: str) -> bool:
    bound = {"smallint": 1 << 15, "int": 1 << 31, "bigint": 1 << 63}[type_]
    return len(value) < 21 and -bound <= int(value) < bound


def _is_base64(value: str | None) -> bool:
    try:
        return value is None or base64.b64decode(value, validate=True) is not None
    except ValueError:
        return False


def _wanted(type_: str, options: Mapping[str, Any]) -> type:
    if type_ == "boolean":
        return bool
    if type_ in INTEGER_TYPES | FLOATING_TYPES or decimal_scale(type_) is not None:
        return _Number
    return _Number if type_ == "timestamp" and options.get("unit") else str


def _way_out(value: Any, type_: str, wanted: type, options: Mapping[str, Any]) -> str:
    if isinstance(value, _Object | list):
        return _FLATTEN
    if wanted is _Number and type(value) is str:
        return (
            "write null, or a number"
            if options.get("quoted_numbers")
            else "say quoted_numbers=True if numbers may stand in quotes"
        )
    if type_ == "timestamp" and isinstance(value, _Number):
        return 'if it counts from 1970, say unit="s", "ms" or "us"'
    if type_ == "string" and isinstance(value, _Number):
        return "declare the type of the written value, or say numbers_as_text= with the field if its digits are meant"
    return f"declare the type of the written value instead of {type_}"


def _word(value: Any) -> str:
    return "null" if value is None else _WORDS[type(value)]


def _text(value: Any) -> str:
    """Return a value in JSON, texts unchanged."""
    if isinstance(value, str):
        return value
    if isinstance(value, _Object):
        return "{" + ", ".join(f'"{name}": ...' for name, _ in value) + "}"
    return "[...]" if isinstance(value, list) else json.dumps(value)


def _half(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _decoder() -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=_Object, parse_float=_Number, parse_int=_Number, parse_constant=_no_constant
    )


def _no_constant(word: str) -> Any:
    raise ValueError(f"there is no {word} in it")
