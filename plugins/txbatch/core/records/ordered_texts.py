"""Ordered texts: the bytes of the texts are in the order of the values, in Spark SQL and in Python alike.

The first character is the kind of the value; null is the empty text, below all others. `decode` returns the value for JSON.
PostgreSQL reads ordered texts by `report.ordered_value`.

>>> sorted(map(ordered_text, (10, Decimal("9.5"), -1, None)))
['', 'n0988~', 'n1019.5', 'n10210']
>>> [decode(ordered_text(each)) for each in (Decimal("9.50"), float("inf"), "a", date(2024, 1, 31))]
[9.5, 'Infinity', 'a', '2024-01-31']
"""

from __future__ import annotations

import struct
from datetime import date, datetime, timedelta
from decimal import Decimal
from math import isfinite, isnan
from typing import Any

from txbatch.core.records.fields import (
    EXACT,
    FLOATING_TYPES,
    INTEGER_TYPES,
    TIME_RANGES,
    YEAR_MAX,
    Field,
    decimal_scale,
)
from txbatch.core.records.sql import spark_name, spark_text
from txbatch.core.records.time_buckets import micros_of, time_of

# Between two texts; it is below all characters, which texts have escaped.
BETWEEN = "\x01"
BETWEEN_SQL = "char(1)"
_EPOCH = date(1970, 1, 1)
_DECIMAL, _HEX = ("0123456789", "9876543210"), ("0123456789abcdef", "fedcba9876543210")
# Behind the digits of a negative number, where the longer one of two that begin alike is less.
_END = "~"
_ESCAPED = (("\x02", "\x02\x04"), ("\x01", "\x02\x03"))


def ordered_text(value: Any) -> str:
    """Return the ordered text of a value. Numbers have no scale: 1.50 is 1.5."""
    match value:
        case None:
            return ""
        case bool():
            return f"b{value:d}"
        case float():
            return f"f{_ordered_double(value + 0.0)}"
        case int() | Decimal():
            return f"n{_ordered_number(value)}"
        case bytes() | bytearray() | memoryview():
            return f"x{bytes(value).hex()}"
        case datetime():
            return f"t{_ordered_number(micros_of(value))}"
        case date():
            return f"d{_ordered_number((value - _EPOCH).days)}"
        case _:
            text = str(value)
            for plain, escaped in _ESCAPED:
                text = text.replace(plain, escaped)
            return f"s{text}"


def ordered_text_sql(field: Field) -> str:
    """Return Spark SQL for the ordered text of a field's value."""
    name = spark_name(field.name)
    match field.type:
        case "boolean":
            text = f"concat('b', cast(cast({name} as int) as string))"
        case "string":
            escaped = f"replace({name}, char(2), concat(char(2), char(4)))"
            text = f"concat('s', replace({escaped}, char(1), concat(char(2), char(3))))"
        case "binary":
            text = f"concat('x', lower(hex({name})))"
        case "date" | "timestamp":
            text = f"concat('{field.type[0]}', {_ordered_number_sql(_time_sql(field))})"
        case type_ if type_ in FLOATING_TYPES:
            # A float by its digits, as everybody writes it: 0.1, of which a cast makes 0.10000000149011612.
            double = name if type_ == "double" else f"cast(cast({name} as string) as double)"
            text = f"concat('f', {_ordered_double_sql(f'({double} + 0.0D)')})"
        case type_ if type_ in INTEGER_TYPES or not decimal_scale(type_):
            text = f"concat('n', {_ordered_number_sql(f'cast({name} as string)')})"
        case _:
            digits = f"trim(trailing '.' from trim(trailing '0' from cast({name} as string)))"
            text = f"concat('n', {_ordered_number_sql(digits)})"
    return f"if({name} is null, '', {text})"


def _time_sql(field: Field) -> str:
    """Return Spark SQL for a time's days or microseconds since 1970, in digits; an error outside the years 1 to `YEAR_MAX`."""
    name, (unit, first, last) = spark_name(field.name), TIME_RANGES[field.type]
    told = f"concat({spark_text(f'field {field.name!r} is ')}, {name}, ', outside the years 1 to {YEAR_MAX}')"
    return f"if({unit}({name}) between {first} and {last}, cast({unit}({name}) as string), raise_error({told}))"


def decode(text: str) -> Any:
    """Return the value of an ordered text in the form of JSON, read by Python: a number is a number, a time is in UTC."""
    kind, rest = text[:1], text[1:]
    match kind:
        case "":
            return None
        case "b":
            return rest == "1"
        case "f":
            value = _double(rest)
            return _number(Decimal(repr(value))) if isfinite(value) else _not_finite(value)
        case "n":
            return _number(_digits(rest))
        case "x":
            return f"\\x{rest}"
        case "t":
            return time_of(int(_digits(rest))).isoformat(timespec="microseconds")
        case "d":
            return (_EPOCH + timedelta(int(_digits(rest)))).isoformat()
        case _:
            for plain, escaped in reversed(_ESCAPED):
                rest = rest.replace(escaped, plain)
            return rest


def _ordered_number(value: Decimal | int) -> str:
    """Return the number of digits before the point, then all digits. If the number is negative, nine minus each digit."""
    number = EXACT.add(EXACT.normalize(Decimal(value)), Decimal())
    digits = f"{number.copy_abs():f}"
    text = f"{len(digits.partition('.')[0]):02}{digits}"
    return f"0{text.translate(str.maketrans(*_DECIMAL))}{_END}" if number < 0 else f"1{text}"


def _ordered_number_sql(digits: str) -> str:
    """Return Spark SQL for the ordered text of a number, given by its digits without zeros at the end."""
    before = "lpad(cast(length(split_part(u, '.', 1)) as string), 2, '0')"
    negative = f"concat('0', translate(concat({before}, u), '{_DECIMAL[0]}', '{_DECIMAL[1]}'), '{_END}')"
    ordered = _let("u", "replace(t, '-', '')", f"if(startswith(t, '-'), {negative}, concat('1', {before}, u))")
    return _let("t", digits, ordered)


def _digits(text: str) -> Decimal:
    if text[0] == "1":
        return Decimal(text[3:])
    return Decimal(text[3:].removesuffix(_END).translate(str.maketrans(*_DECIMAL))).copy_negate()


def _ordered_double(value: float) -> str:
    """Return the bits of a number's amount, all bits inverted if the number is negative. NaN is above infinity."""
    bits = struct.pack(">d", abs(value) if value == value else float("nan")).hex()
    return f"0{bits.translate(str.maketrans(*_HEX))}" if value < 0 else f"1{bits}"


def _ordered_double_sql(value: str) -> str:
    """Return Spark SQL for the ordered text of a double. Spark gives no bits of a double, but its digits: 0x1.8p1 is 3."""
    exponent = "try_cast(split_part(h, 'p', 2) as int)"
    biased = f"if(substring(h, 3, 1) = '1', {exponent} + 1023, 0)"
    fraction = "rpad(split_part(split_part(h, 'p', 1), '.', 2), 13, '0')"
    finite = _let("h", "format_string('%a', abs(v))", f"concat(lpad(lower(hex({biased})), 3, '0'), {fraction})")
    bits = (
        "case when isnan(v) then '7ff8000000000000' when abs(v) = double('infinity') then '7ff0000000000000' "
        f"else {finite} end"
    )
    turned = f"concat('0', translate(b, '{_HEX[0]}', '{_HEX[1]}'))"
    return _let("v", value, _let("b", bits, f"if(v < 0, {turned}, concat('1', b))"))


def _double(text: str) -> float:
    bits = text[1:] if text[0] == "1" else text[1:].translate(str.maketrans(*_HEX))
    value: float = struct.unpack(">d", bytes.fromhex(bits))[0]
    return value if text[0] == "1" else -value


def _let(name: str, value: str, then: str) -> str:
    """Return Spark SQL that computes a value once and uses the value by name."""
    return f"element_at(transform(array({value}), {name} -> {then}), 1)"


def _number(number: Decimal) -> int | float:
    """Return a number like json reads a number of PostgreSQL: an int if the number is whole, a float if not."""
    return int(number) if number == number.to_integral_value() else float(number)


def _not_finite(value: float) -> str:
    if isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
