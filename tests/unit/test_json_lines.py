"""JSON lines: what the golden files do not show, for they are read whole."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import refusals

from txbatch import IntervalSpout
from txbatch.core.errors import DefinitionError
from txbatch.core.records.fields import parse_fields
from txbatch.formats import json_lines, options
from txbatch.formats.misfit import BadValue, Misfit

FIELDS = parse_fields("at timestamp, name string, amount decimal(10,2)")


def lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def sale(day: int, amount: Any = 1, **more: Any) -> dict[str, Any]:
    return {"at": f"2026-01-0{day}T12:00:00Z", "name": "a", "amount": amount, **more}


def second_day(times: pa.Array) -> pa.Array:
    start, end = (pa.scalar(datetime(2026, 1, day, tzinfo=UTC), times.type) for day in (2, 3))
    return pc.and_(pc.greater_equal(times, start), pc.less(times, end))


def decoded(data: bytes, keep: json_lines.Keep | None = None, **given: Any) -> list[tuple[Any, ...]]:
    found = json_lines.decode(data, FIELDS, options.check_options("json", given), keep)
    assert found.schema.names == ["at", "name", "amount"]
    return [tuple(row.values()) for row in found.to_pylist()]


def test_records_are_chosen_by_their_time() -> None:
    data = lines(sale(1), sale(2, 2), sale(3), sale(2, 4))
    noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
    assert decoded(data, ("at", second_day)) == [(noon, "a", Decimal("2.00")), (noon, "a", Decimal("4.00"))]
    assert decoded(lines(sale(1)), ("at", second_day)) == []
    assert decoded(b"", ("at", second_day)) == []


def test_a_misfit_has_the_line_it_stands_on_among_blank_ones_and_those_not_chosen() -> None:
    data = lines(sale(1)) + b"\n \r\n" + lines(sale(2), sale(3), sale(2, 1.005))
    with pytest.raises(Misfit) as refused:
        decoded(data, ("at", second_day))
    assert (refused.value.line, refused.value.field, refused.value.value) == (5, "amount", "1.005")


def test_a_time_that_is_not_right_has_the_line_it_stands_on() -> None:
    def nothing_is_right(times: pa.Array) -> pa.Array:
        raise BadValue(1, "is not right")

    with pytest.raises(Misfit) as refused:
        decoded(b"\n" + lines(sale(1), sale(2)), ("at", nothing_is_right))
    assert (refused.value.line, refused.value.field, refused.value.value) == (2, "at", "2026-01-02T12:00:00Z")


@pytest.mark.parametrize("blank", ["", " ", "\t", "\r", " \t\r "])
def test_a_field_that_is_there_twice_is_found_however_it_is_spaced_and_whatever_makes_up_for_it(blank: str) -> None:
    """One colon less to count in the first record, one more in the second."""
    twice = json.dumps(sale(2)).replace("}", f', "amount"{blank}: 2}}')
    spaced = json.dumps(sale(1)).replace('"name":', f'"name"{blank}:')
    for data in (f"{spaced}\n{twice}\n", f"{spaced}\n{twice}\n{json.dumps(sale(3, more=1))}\n"):
        with pytest.raises(Misfit, match="has 'amount' twice") as refused:
            decoded(data.encode())
        assert refused.value.line == 1
        with pytest.raises(Misfit, match="has 'amount' twice"):
            decoded(data.encode(), optional=["amount", "name"])


@pytest.mark.parametrize("key", [r"n\u0061me", r"\u006e\u0061\u006D\u0065"])
def test_a_field_that_is_there_twice_is_found_where_another_record_escapes_its_name(key: str) -> None:
    """The name is found as often in the block as there are records."""
    twice = json.dumps(sale(1)).replace('"name": "a"', '"name": "a", "name": "b"')
    escaped = json.dumps(sale(2)).replace('"name"', f'"{key}"')
    assert decoded(f"{escaped}\n".encode())[0][1] == "a"
    for data, line in ((f"{twice}\n{escaped}\n", 0), (f"{escaped}\n{twice}\n", 1)):
        with pytest.raises(Misfit, match="has 'name' twice") as refused:
            decoded(data.encode())
        assert refused.value.line == line


@pytest.mark.parametrize(
    ("name", "written"),
    [("a", "A"), ("a", r"\u0041"), ("ab", r"\u0061B"), ("a/b", r"A\/b"), ("ü", "Ü"), ("ü", r"\u00dc")],
)
def test_an_optional_field_in_other_capitals_is_not_null_however_it_is_written(name: str, written: str) -> None:
    fields = parse_fields(f"at timestamp, `{name}` string")
    given = options.check_options("json", {"optional": [name]})
    right = f'{{"at": "2026-01-01", "{name}": "1"}}\n{{"at": "2026-01-01", "more": "\\u0041"}}\n'.encode()
    assert json_lines.decode(right, fields, given)[name].to_pylist() == ["1", None]
    other = f'{{"at": "2026-01-01", "{written}": "1"}}\n'.encode()
    with pytest.raises(Misfit, match=r"has no .*, but .*; write both alike") as refused:
        json_lines.decode(right + other, fields, given)
    assert refused.value.line == 2


@pytest.mark.parametrize("text", [r"\u4e2d" * 200_000, r"\"\/" * 200_000, r"\\u" * 200_000])
def test_long_escaped_texts_are_looked_at_once(text: str) -> None:
    line = json.dumps(sale(1)).replace("}", f', "more": "{text}"}}')
    assert len(decoded(f"{line}\n".encode(), optional=["name"])) == 1


def test_members_that_no_field_names_may_hold_anything() -> None:
    odd = {"amount": [1, {"amount": 2}], "Amount": "amount", ':"': '":", "amount": 3', "nested": {"at": None}}
    assert decoded(lines(sale(1), sale(2, more=odd))) == decoded(lines(sale(1), sale(2)))


def test_the_names_of_fields_may_be_odd_but_for_what_json_escapes() -> None:
    fields = parse_fields("at timestamp, `ü x.y` string")
    data = '{"at": "2026-01-01", "ü x.y": "1"}'.encode()
    assert json_lines.decode(data, fields, options.check_options("json", {})).to_pylist()[0]["ü x.y"] == "1"
    with pytest.raises(DefinitionError, match="rename the field"):
        json_lines.decode(data, parse_fields('at timestamp, `a"b` string'), options.check_options("json", {}))


def test_an_optional_field_is_one_of_the_fields() -> None:
    with refusals.refused("TX208", "optional='amuont'"):
        IntervalSpout("/in", "at timestamp, amount int", time="at", format="json", options={"optional": ["amuont"]})
