from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txbatch.arrow import arrow_type
from txbatch.formats.cells import cast
from txbatch.formats.misfit import BadValue

PRICE = "decimal(10,2)"
GERMAN = {"decimal": ",", "thousands": "."}


def value(text: str | None, type_: str, **options: Any) -> Any:
    made = cast(pa.array(["", text, "x"], pa.string()).slice(1, 1), type_, options)
    assert made.type == arrow_type(type_)
    return made[0].as_py()


@pytest.mark.parametrize(
    ("text", "type_", "expected"),
    [
        ("7", "int", 7),
        ("-2147483648", "int", -(2**31)),
        ("9223372036854775807", "bigint", 2**63 - 1),
        ("-32768", "smallint", -(2**15)),
        ("007", "int", 7),
        ("5.00", PRICE, Decimal("5.00")),
        ("5", PRICE, Decimal("5.00")),
        ("-.5", PRICE, Decimal("-0.50")),
        ("5.", PRICE, Decimal("5.00")),
        ("00000000000000000000000000000000000000000099999999.99", PRICE, Decimal("99999999.99")),
        ("0.99", "decimal(2,2)", Decimal("0.99")),
        (".99", "decimal(2,2)", Decimal("0.99")),
        ("9" * 38, "decimal(38,0)", Decimal("9" * 38)),
        ("1.5e3", "double", 1500.0),
        ("-Infinity", "double", float("-inf")),
        ("0.1", "double", 0.1),
        ("true", "boolean", True),
        ("FALSE", "boolean", False),
        ("ü", "binary", b"\xc3\xbc"),
        (" as it is ", "string", " as it is "),
        ("", "string", ""),
        ("2013-01-31", "date", date(2013, 1, 31)),
        (None, "int", None),
        (None, PRICE, None),
        (None, "boolean", None),
        (None, "double", None),
    ],
)
def test_what_is_written_as_its_type_is_read_exactly(text: str | None, type_: str, expected: Any) -> None:
    assert value(text, type_) == expected


@pytest.mark.parametrize(
    ("text", "type_", "why"),
    [
        ("", "int", "is no int: it is empty; say null_value=''"),
        (" 7", "int", "blanks around it; say trim=True"),
        ("7\t", "int", "blanks around it"),
        ("+7", "int", "has a '\\+'"),
        ("0x1F", "int", "not written as a decimal number"),
        ("1e3", "int", "has an exponent"),
        ("7.0", "int", "has digits after the point; declare the field as decimal"),
        ("1,000", "int", "has a comma; say decimal=',' or thousands=','"),
        ("1_000", "int", "not written as a decimal number"),
        ("2147483648", "int", "out of range"),
        ("-32769", "smallint", "out of range"),
        ("99999999999999999999", "bigint", "out of range, with 20 digits"),
        ("\N{ARABIC-INDIC DIGIT ONE}", "int", "not written as a decimal number"),
        ("7-", "int", "not written as a decimal number"),
        ("-", "int", "not written as a decimal number"),
        ("NaN", "int", "not written as a decimal number"),
        ("5,00", PRICE, r"is no decimal\(10,2\): it has a comma; say decimal=','"),
        ("1.234,50", PRICE, "has a comma"),
        ("1,000.00", PRICE, "has a comma"),
        ("0.004", PRICE, "has 3 digits after the point; declare a larger scale, nothing is rounded"),
        ("1.000", PRICE, "has 3 digits after the point"),
        ("100000000", PRICE, "out of range, with 9 digits"),
        ("1e2", PRICE, "has an exponent"),
        ("1.1.1", PRICE, "not written as a decimal number"),
        (".", PRICE, "not written as a decimal number"),
        ("1", "decimal(2,2)", "out of range"),
        ("NaN", PRICE, "not written as a decimal number"),
        ("$5", PRICE, "not written as a decimal number"),
        ("9" * 39, "decimal(38,0)", "out of range"),
        ("", PRICE, "it is empty"),
        (
            "1e400",
            "double",
            "^is no double: it is out of range of double; mend the source, or declare the field a string$",
        ),
        ("1e39", "float", "out of range of float; declare the field as double$"),
        ("nan", "double", "not written as a decimal number"),
        ("+1", "double", "has a '\\+'"),
        ("0x1p3", "double", "not written"),
        ("1 ", "double", "blanks around it"),
        ("1", "boolean", "is no boolean: it is neither true nor false"),
        ("yes", "boolean", "neither true nor false"),
        ("", "boolean", "it is empty"),
        ("31.01.2013", "date", "is no date"),
    ],
)
def test_what_is_not_written_as_its_type_is_refused(text: str, type_: str, why: str) -> None:
    good = {"boolean": "true", "date": "2013-01-31"}.get(type_, "0")
    with pytest.raises(BadValue) as refused:
        cast(pa.array([good, None, text, text]), type_, {})
    assert refused.value.index == 2
    assert re.search(why, refused.value.reason)


@pytest.mark.parametrize(
    ("text", "type_", "options", "expected"),
    [
        ("5,00", PRICE, {"decimal": ","}, Decimal("5.00")),
        ("1.234,50", PRICE, GERMAN, Decimal("1234.50")),
        ("1234,5", PRICE, GERMAN, Decimal("1234.50")),
        ("-1,234,567", "int", {"thousands": ","}, -1234567),
        ("1'000.5", "double", {"thousands": "'"}, 1000.5),
        ("1,5", "double", {"decimal": ","}, 1.5),
        ("NA", PRICE, {"null_value": ("NA",)}, None),
        ("-", "int", {"null_value": ("NA", "-")}, None),
        ("", "boolean", {"null_value": ("",)}, None),
        (" 7 ", "int", {"trim": True}, 7),
        (" ", "int", {"trim": True, "null_value": ("",)}, None),
        (" x ", "string", {"trim": True}, " x "),
    ],
)
def test_options_say_how_it_is_written(text: str, type_: str, options: dict[str, Any], expected: Any) -> None:
    assert value(text, type_, **options) == expected


@pytest.mark.parametrize(
    ("text", "type_", "options", "why"),
    [
        ("5.00", PRICE, {"decimal": ","}, "has a point; say thousands='.'"),
        ("1.23", PRICE, GERMAN, "'.' does not group it by three digits"),
        ("1.000.00", PRICE, GERMAN, "does not group"),
        ("1,0000", "int", {"thousands": ","}, "does not group"),
        ("1234.567", "int", GERMAN, "does not group"),
        ("0,005", PRICE, {"decimal": ","}, "has 3 digits after the point"),
        ("2.147.483.648", "int", GERMAN, "out of range"),
        ("NA ", "int", {"null_value": ("NA",)}, "blanks around it"),
    ],
)
def test_options_are_held_strictly_too(text: str, type_: str, options: dict[str, Any], why: str) -> None:
    with pytest.raises(BadValue) as refused:
        value(text, type_, **options)
    assert why in refused.value.reason


@given(st.text("0123456789.,-+eE x", max_size=12), st.sampled_from(["int", "smallint", PRICE, "decimal(3,3)"]))
def test_a_number_is_itself_or_refused(text: str, type_: str) -> None:
    try:
        read = value(text, type_)
    except BadValue:
        return
    assert read == Decimal(text)
