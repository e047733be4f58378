"""Damaged files: what is read of them is what an independent reading finds, or they are refused. Nothing in between.

The oracle is Python's own json and csv with decimals and datetimes; it takes what docs/files.md says is read.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from read_files import read_text

from txbatch.core.errors import TxbatchError
from txbatch.core.records.fields import Field, parse_fields
from txbatch.formats import options
from txbatch.formats.scan import Format, Times

FIELDS = parse_fields(
    "at timestamp, name string, amount decimal(10,2), n int, big bigint, x double, ok boolean, day date"
)
NAMES = [field.name for field in FIELDS]
WANTED, OPTIONAL = parse_fields("big bigint, at timestamp, amount decimal(10,2)"), "amount"
FIRST, LAST = datetime(1971, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
RECORDS = [
    ["2026-01-01T12:00:00Z", "Müller", "1.50", "7", "9007199254740993", "0.1", "true", "2026-01-31"],
    ["2026-01-01 13:30:00.25+01:00", 'a "b", c', "-0.05", "-1", "-9223372036854775808", "1e-3", "false", "2024-02-29"],
    ["2026-01-02", "", "12345678.91", "2147483647", "0", "-2.5", "true", "2026-12-01"],
    ["2026-01-03T23:59:59.999999Z", "東京 😀", "0", "0", "1", "3", "false", "1999-01-01"],
]
QUOTED = {"at", "name", "day"}
INSERTED = [
    b'"',
    b",",
    b"\n",
    b"\r",
    b"\0",
    b"{",
    b"}",
    b":",
    b"\\",
    b"\xff",
    b"\xc3",
    b"0",
    b"-",
    b"e",
    b".",
    b" ",
    b"\t",
    b"\\u",
    b"null",
    b"''",
]
INSTANT = re.compile(
    "([0-9]{4}-[0-9]{2}-[0-9]{2})"
    "(?:[T ]([0-9]{2}:[0-9]{2})(:[0-9]{2})?(?:[.,]([0-9]+))?(?: ?(Z|UTC|[+-][0-9]{2}(?::?[0-9]{2})?))?)?"
)
Rows = list[tuple[Any, ...]]


class Refused(Exception):
    """The oracle takes it for no record."""


def as_json() -> bytes:
    def written(name: str, text: str) -> str:
        return json.dumps(text, ensure_ascii=False) if name in QUOTED else text

    lines = [",".join(f'"{n}":{written(n, t)}' for n, t in zip(NAMES, record, strict=True)) for record in RECORDS]
    return "".join(f"{{{line}}}\n" for line in lines).encode()


def as_csv() -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([NAMES, *RECORDS])
    return text.getvalue().encode()


def damaged(data: bytes, random: Random) -> bytes:
    """One to three damages."""
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        at, other = sorted((random.randrange(len(data) + 1), random.randrange(len(data) + 1)))
        data = random.choice(DAMAGES)(data, at, other, random)
    return data


def swapped(data: bytes, at: int, other: int, random: Random) -> bytes:
    """One separator becomes another."""
    places = [match.start() for match in re.finditer(rb'[",:{}\n.TZ-]', data)]
    place = random.choice(places) if places else 0
    return data[:place] + random.choice([b'"', b",", b";", b":", b"{", b"}", b"\n", b"\r\n", b" "]) + data[place + 1 :]


DAMAGES: list[Callable[[bytes, int, int, Random], bytes]] = [
    lambda data, at, other, random: data[:at] + bytes([(data + b"\n")[at] ^ 1 << random.randrange(8)]) + data[at + 1 :],
    lambda data, at, other, random: data[:at],
    lambda data, at, other, random: data[:at] + random.choice(INSERTED) + data[at:],
    lambda data, at, other, random: data[:at] + data[min(other, at + 12) :],
    lambda data, at, other, random: data[:at] + data[at:other][:40] + data[at:],
    lambda data, at, other, random: data[:at] + str(random.randrange(10)).encode() + data[at + 1 :],
    swapped,
]


def cell(type_: str, text: str) -> Any:
    """The value of a text; Refused when it is none of the type."""
    if type_ == "string":
        return text
    if type_ == "boolean" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if type_ in ("int", "bigint") and re.fullmatch("-?[0-9]+", text):
        bound = 2 ** (31 if type_ == "int" else 63)
        if -bound <= int(text) < bound:
            return int(text)
    double = type_ == "double" and re.fullmatch(r"-?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", text)
    if double and abs(float(text)) != float("inf"):
        return float(text)
    decimal = type_.startswith("decimal") and re.fullmatch(r"-?([0-9]+(\.[0-9]{0,2})?|\.[0-9]{1,2})", text)
    if decimal and abs(Decimal(text)) < 10**8:
        return Decimal(text)
    if type_ == "date" and re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return moment(lambda: date.fromisoformat(text))
    if type_ == "timestamp":
        return instant(text)
    raise Refused(f"{text!r} is no {type_}")


def instant(text: str) -> datetime:
    if not (match := INSTANT.fullmatch(text)):
        raise Refused(text)
    day, minute, second, fraction, zone = match.groups(default="")
    if len(fraction.rstrip("0")) > 6:
        raise Refused(text)
    local = moment(lambda: datetime.fromisoformat(f"{day}T{minute or '00:00'}{second}"))
    offset = timedelta()
    if zone not in ("", "Z", "UTC"):
        digits = zone[1:].replace(":", "").ljust(4, "0")
        if int(digits[:2]) > 23 or int(digits[2:]) > 59:
            raise Refused(text)
        offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:])) * (-1 if zone[0] == "-" else 1)
    exact = local.replace(microsecond=int(fraction[:6].ljust(6, "0") or 0), tzinfo=timezone(offset))
    if not FIRST <= exact < LAST:
        raise Refused(text)
    return exact.astimezone(UTC)


def moment(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except ValueError as error:
        raise Refused(str(error)) from None


def json_oracle(data: bytes) -> Rows:
    lines = moment(lambda: data.decode()).removeprefix("\ufeff").split("\n")
    return [json_record(line.strip(" \t\r")) for line in lines if line.strip(" \t\r")]


def json_record(line: str) -> tuple[Any, ...]:
    class Number(str):
        pass

    def constant(word: str) -> None:
        raise ValueError(word)

    def pairs(found: list[tuple[str, Any]]) -> Any:
        return dict(found) if len(dict(found)) == len(found) else {"twice": True}

    # Whitespace of JSON alone: the line is stripped of it, and json takes no other.
    members = moment(
        lambda: json.loads(line, object_pairs_hook=pairs, parse_float=Number, parse_int=Number, parse_constant=constant)
    )
    if not isinstance(members, dict) or not set(NAMES) <= set(members):
        raise Refused(line)
    row = []
    for field in FIELDS:
        value = members[field.name]
        kind = str if field.name in QUOTED else bool if field.type == "boolean" else Number
        if value is not None and type(value) is not kind:
            raise Refused(line)
        row.append(None if value is None else value if kind is bool else cell(field.type, value))
    if row[0] is None or any("\ud800" <= c <= "\udfff" for c in json.dumps(members, ensure_ascii=False)):
        raise Refused(line)
    return tuple(row)


def csv_oracle(data: bytes) -> Rows:
    """Records of one line each; quotes where RFC 4180 has them."""
    header, records = csv_records(data)
    if header and sorted(header) != sorted(NAMES):
        raise Refused(str(header))
    cells = [dict(zip(header, record, strict=True)) for record in records]
    return [tuple(cell(field.type, of[field.name]) for field in FIELDS) for of in cells]


def wanted_oracle(data: bytes) -> Rows:
    """Of the columns those that are wanted, of which files may lack one."""
    header, records = csv_records(data)
    there = [name for name in header if name in {field.name for field in WANTED}]
    lacks = {field.name for field in WANTED} - {*there}
    misspelt = any(name.strip().lower() in lacks for name in header)
    if header and (len(there) > len({*there}) or not lacks <= {OPTIONAL} or misspelt):
        raise Refused(str(header))
    places = {name: place for place, name in enumerate(header) if name in there}
    return [
        tuple(cell(field.type, record[places[field.name]]) if field.name in places else None for field in WANTED)
        for record in records
    ]


def csv_records(data: bytes) -> tuple[list[str], list[list[str]]]:
    """The header, and the records, which have as many cells; of an empty file neither."""
    lines = moment(lambda: data.decode()).removeprefix("\ufeff").split("\n")
    if lines[-1] == "":
        lines.pop()
    lines = [line.removesuffix("\r") for line in lines]
    if any("\r" in line for line in lines):
        raise Refused("a carriage return alone")
    if not lines:
        return [], []
    header, *records = [csv_record(line) for line in lines if line or line is lines[0]]
    if not header or any(len(record) != len(header) for record in records):
        raise Refused(str(records))
    return header, records


def csv_record(line: str) -> list[str]:
    quoted, plain = r'"((?:[^"]|"")*)"', r'([^",]*)'
    if not re.fullmatch(f"(?:{quoted}|{plain})(?:,(?:{quoted}|{plain}))*", line):
        raise Refused(line)
    return next(csv.reader([line], strict=True), [])


class Base(NamedTuple):
    """A file that is right, how it is read, and what says so without us."""

    data: bytes
    oracle: Callable[[bytes], Rows]
    options: dict[str, Any]
    format: str = "csv"
    fields: Sequence[Field] = FIELDS


BASES = {
    "json": Base(as_json(), json_oracle, {}, "json"),
    "csv": Base(as_csv(), csv_oracle, {"header": True}),
    "wanted": Base(as_csv(), wanted_oracle, {"header": True, "extra": "ignore", "optional": OPTIONAL}, fields=WANTED),
}


def outcome(path: Path, format_: str) -> Rows | None:
    """What is read, None where it is refused; any other exception is a failure."""
    base = BASES[format_]
    given = options.check_options(base.format, base.options)
    try:
        found = read_text(path, Format(base.format, base.fields, given, Times("at", FIRST, LAST, FIRST, LAST)))
    except TxbatchError:
        return None
    return [tuple(row.values()) for row in found.to_pylist()]


def expected(format_: str, data: bytes) -> Rows | None:
    try:
        return BASES[format_].oracle(data)
    except Refused:
        return None


@pytest.mark.parametrize("format_", sorted(BASES))
def test_undamaged_they_are_read(format_: str, tmp_path: Path) -> None:
    data = BASES[format_].data
    (tmp_path / "file").write_bytes(data)
    rows = outcome(tmp_path / "file", format_)
    assert rows is not None
    assert len(rows) == len(RECORDS)
    assert rows == expected(format_, data)


@pytest.mark.parametrize("format_", sorted(BASES))
@pytest.mark.parametrize("hundred", range(6))
def test_a_damaged_file_is_read_as_it_is_or_refused(format_: str, hundred: int, tmp_path: Path) -> None:
    path, read = tmp_path / "file", 0
    for seed in range(hundred * 100, hundred * 100 + 100):
        data = damaged(BASES[format_].data, Random(f"{format_} {seed}"))
        path.write_bytes(data)
        rows = outcome(path, format_)
        assert rows is None or rows == expected(format_, data), (seed, data)
        read += rows is not None
    assert 0 < read < 80, "some damage changes a value only, most of it is seen"
