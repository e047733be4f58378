"""Text to values, strictly: refuses a text not written in the type's form. Never null, rounded, cut or guessed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txbatch.arrow import arrow_type
from txbatch.core.records.fields import FLOATING_TYPES, INTEGER_TYPES, decimal_scale
from txbatch.formats import times
from txbatch.formats.misfit import BadValue

BLANKS = " \t"
_BITS = {"smallint": 16, "int": 32, "bigint": 64}
_INTEGER = r"^-?[0-9]+$"
_FLOATING = r"^(-?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|NaN|-?Inf(inity)?)$"


def cast(strings: pa.Array, type_: str, options: Mapping[str, Any]) -> pa.Array:
    """Return the values of a column of texts; null stays null. BadValue names the first text that does not fit the type."""
    if type_ == "string":
        return strings
    text = _without_null_values(_trimmed(strings, options), options)
    if type_ in ("timestamp", "date"):
        return times.parse(text, type_, options)
    if type_ == "binary":
        return text.cast(arrow_type(type_))
    if type_ == "boolean":
        return _booleans(text)
    return _numbers(text, type_, options)


def agreeing(values: pa.Array, given: Any) -> pa.Array:
    """Return the values, if each is the one that the folder has. BadValue names the first other one."""
    same = pc.is_null(values) if given is None else pc.fill_null(pc.equal(values, pa.scalar(given, values.type)), False)
    if pc.all(same).as_py() is False:
        said = "null" if given is None else repr(str(given))
        raise BadValue(
            pc.index(same, False).as_py(),
            f"contradicts the name of the file's folder, which has {said}; mend one of the two",
        )
    return values


def _trimmed(strings: pa.Array, options: Mapping[str, Any]) -> pa.Array:
    return pc.utf8_trim(strings, BLANKS) if options.get("trim") else strings


def _without_null_values(strings: pa.Array, options: Mapping[str, Any]) -> pa.Array:
    if not (null_values := options.get("null_value")):
        return strings
    stands_for_null = pc.is_in(strings, pa.array(null_values, pa.string()))
    return pc.if_else(stands_for_null, pa.scalar(None, pa.string()), strings)


def _booleans(text: pa.Array) -> pa.Array:
    lower = pc.utf8_lower(text)
    true = pc.equal(lower, "true")
    _require(text, pc.or_(true, pc.equal(lower, "false")), _unlike_boolean)
    return true


def _unlike_boolean(value: str) -> str:
    return f"is no boolean: {_odd(value) or 'it is neither true nor false'}"


def _numbers(text: pa.Array, type_: str, options: Mapping[str, Any]) -> pa.Array:
    def reason(value: str) -> str:
        return f"is no {type_}: {_unlike_number(value, type_, options)}"

    plain = _plain(text, options, reason)
    if type_ in INTEGER_TYPES:
        if not _digits_alone(plain):
            _require(text, pc.match_substring_regex(plain, _INTEGER), reason)
        try:
            return plain.cast(arrow_type(type_))
        except pa.ArrowInvalid:
            _refuse_first(text, lambda value: not _is_integer(_plain_one(value, options), type_), reason)
    if type_ in FLOATING_TYPES:
        _require(text, pc.match_substring_regex(plain, _FLOATING), reason)
        values = plain.cast(arrow_type(type_))
        _require(text, pc.or_(pc.is_finite(values), pc.match_substring_regex(plain, "[NI]")), reason)
        return values
    _require(text, pc.match_substring_regex(plain, _decimal_pattern(type_)), reason)
    return plain.cast(arrow_type(type_))


def _decimal_pattern(type_: str) -> str:
    """Return a pattern for exactly the texts of a decimal type: Arrow itself changes a number of 39 digits."""
    precision, scale = map(int, re.findall(r"\d+", type_))
    whole = f"0*[0-9]{{1,{precision - scale}}}" if precision > scale else "0+"
    alone = f"|\\.[0-9]{{1,{scale}}}" if scale else ""
    return f"^-?({whole}(\\.[0-9]{{0,{scale}}})?{alone})$"


def _digits_alone(text: pa.Array) -> bool:
    """Return whether all bytes are digits or '-': Arrow then reads only decimal integers."""
    _, offsets, data = text.buffers()
    if data is None or not len(text):
        return True
    ends = np.frombuffer(offsets, np.int32)[[text.offset, text.offset + len(text)]]
    used = np.frombuffer(data, np.uint8)[slice(*ends)]
    return bool(((used - np.uint8(48) <= 9) | (used == 45)).all())


def _plain(text: pa.Array, options: Mapping[str, Any], reason: Callable[[str], str]) -> pa.Array:
    """Return numbers with '.' as the point and without grouping."""
    point, thousands = options.get("decimal") or ".", options.get("thousands")
    if point == "." and not thousands:
        return text
    _require(text, pc.match_substring_regex(text, _shape(point, thousands)), reason)
    if thousands:
        text = pc.replace_substring(text, thousands, "")
    return pc.replace_substring(text, point, ".") if point != "." else text


def _plain_one(value: str, options: Mapping[str, Any]) -> str:
    return value.replace(options.get("thousands") or "\0", "").replace(options.get("decimal") or ".", ".")


def _shape(point: str, thousands: str | None) -> str:
    """Return a pattern for numbers with the given signs, or words without signs."""
    grouped = f"|[0-9]{{1,3}}({re.escape(thousands)}[0-9]{{3}})+" if thousands else ""
    return f"^(-?([0-9]*{grouped})({re.escape(point)}[0-9]*)?([eE][+-]?[0-9]+)?|-?[A-Za-z]+)$"


def _require(text: pa.Array, fits: pa.Array, reason: Callable[[str], str]) -> None:
    """Raise BadValue for the first misfit."""
    if pc.all(fits).as_py() is False:
        index = pc.index(fits, False).as_py()
        raise BadValue(index, reason(text[index].as_py()))


def _refuse_first(text: pa.Array, bad: Callable[[str], bool], reason: Callable[[str], str]) -> None:
    for index, value in enumerate(text.to_pylist()):
        if value is not None and bad(value):
            raise BadValue(index, reason(value))


def _is_integer(value: str, type_: str) -> bool:
    bound = 2 ** (_BITS[type_] - 1)
    return re.fullmatch(_INTEGER, value) is not None and -bound <= int(value) < bound


def _odd(value: str) -> str | None:
    """Return the fault of a text, for any type but string."""
    if not value:
        return "it is empty; say null_value='' if that means null"
    if value.strip() != value:
        return "it has blanks around it; say trim=True to take them off"
    return None


def _unlike_number(value: str, type_: str, options: Mapping[str, Any]) -> str:
    """Return why a text is refused as a number of the type, and the way out."""
    point, thousands = options.get("decimal") or ".", options.get("thousands")
    if odd := _odd(value):
        return odd
    if not re.fullmatch(_shape(point, thousands), value) or not re.search(r"\d", value):
        return _odd_sign(value, point, thousands)
    if re.search("[eE]", value) and type_ not in FLOATING_TYPES:
        return "it has an exponent; declare the field as double, or write the number out"
    if type_ in FLOATING_TYPES:
        return beyond(type_)
    whole, _, fraction = _plain_one(value, options).lstrip("-").partition(".")
    scale = decimal_scale(type_)
    if scale is None and fraction and type_ in INTEGER_TYPES:
        return "it has digits after the point; declare the field as decimal(precision,scale)"
    if scale is not None and len(fraction) > scale:
        return f"it has {len(fraction)} digits after the point; declare a larger scale, nothing is rounded"
    return f"it is out of range, with {len(whole.lstrip('0'))} digits before the point; declare a larger type"


def beyond(type_: str) -> str:
    """Return why a number beyond a floating type is refused, and the way out."""
    larger = "declare the field as double" if type_ == "float" else "mend the source, or declare the field a string"
    return f"it is out of range of {type_}; {larger}"


def _odd_sign(value: str, point: str, thousands: str | None) -> str:
    if "," in value and point != "," and thousands != ",":
        return "it has a comma; say decimal=',' or thousands=',', whichever it is"
    if "." in value and point != "." and thousands != ".":
        return "it has a point; say thousands='.' if that groups digits"
    if thousands and thousands in value:
        return f"{thousands!r} does not group it by three digits"
    if value.startswith("+"):
        return "it has a '+'; mend the source"
    return "it is not written as a decimal number; say null_value if it means null"
