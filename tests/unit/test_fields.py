from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from txbatch.core.errors import DefinitionError
from txbatch.core.records.fields import SIMPLE_TYPES, Field, checked_name, checked_type, decimal_scale, parse_fields


@pytest.mark.parametrize(
    ("ddl", "fields"),
    [
        ("word string", [("word", "string")]),
        ("a string,b bigint", [("a", "string"), ("b", "bigint")]),
        (" a  STRING ,\n b  Decimal ( 10 , 2 ) ", [("a", "string"), ("b", "decimal(10,2)")]),
        ("`unit price` double, `a``b` int, `x,y` date", [("unit price", "double"), ("a`b", "int"), ("x,y", "date")]),
        (
            'Ünïcode string, select string, a"b string, a:b string',
            [("Ünïcode", "string"), ("select", "string"), ('a"b', "string"), ("a:b", "string")],
        ),
    ],
)
def test_fields_are_read(ddl: str, fields: list[tuple[str, str]]) -> None:
    assert parse_fields(ddl) == tuple(Field(*each) for each in fields)


@pytest.mark.parametrize(
    ("ddl", "says"),
    [
        ("", "no fields given; write 'name type, name type'"),
        ("word", r"cannot read 'word'; write 'name type, name type', such as 'word string, price decimal\(10,2\)'"),
        ("a string b string", "cannot read"),
        ("a string, b", "cannot read 'b'"),
        ("a string, a bigint", "field 'a' is given twice; rename one of them"),
        ("a text", "type 'text' is not one of bigint, binary, .*decimal"),
        ("a decimal(39,0)", "type 'decimal.39,0.' is not one of .* with a precision of at most 38"),
        ("a decimal(5,6)", "is not one of"),
        ("a decimal(0,0)", "is not one of"),
        ("a decimal", "type 'decimal' is not one of"),
        ("a array<string>", "array<string> is a nested type, which no field can have"),
        (
            "a string, `o o` struct<x: int, y: map<int,int>>, b int",
            "struct<x: int, y: map<int,int>>, b int is a nested type",
        ),
        ("m MAP <string, int>", "MAP <string, int> is a nested type"),
    ],
)
def test_fields_that_cannot_be_read(ddl: str, says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        parse_fields(ddl)


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1),
            st.sampled_from(sorted(SIMPLE_TYPES)),
        ),
        min_size=1,
        unique_by=lambda each: each[0].lower(),
    )
)
def test_any_name_can_be_written_in_backticks(fields: list[tuple[str, str]]) -> None:
    ddl = ", ".join(f"`{name.replace('`', '``')}` {type_}" for name, type_ in fields)
    assert parse_fields(ddl) == tuple(Field(*each) for each in fields)


def test_types_have_one_spelling() -> None:
    assert checked_type("DECIMAL( 10, 2 )") == "decimal(10,2)"
    assert decimal_scale("decimal(10,2)") == 2
    assert decimal_scale("bigint") is None


@pytest.mark.parametrize("name", ["x" * 63, "ü" * 31, "日" * 21, " ", 'a"b'])
def test_names_postgresql_keeps_whole(name: str) -> None:
    assert checked_name(name, "key") == name


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", ("TX101", "key", "''")),
        ("a\0b", ("TX101", "U+0000")),
        ("x" * 64, ("TX101", "64", "PostgreSQL", "63")),
        ("ü" * 32, ("TX101", "64")),
        ("日" * 22, ("TX101", "66")),
    ],
)
def test_names_it_would_not(name: str, says: tuple[str, ...]) -> None:
    with refused(*says):
        checked_name(name, "key")
