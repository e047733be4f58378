"""The golden files, read without Spark: each becomes its rows, or is refused for its reason."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from file_cases import FILES, FORMATS, Case, cases, told
from read_files import read_parquet, read_text
from refusals import refused

from txbatch import IntervalSpout
from txbatch.core.records.fields import parse_fields
from txbatch.formats import options, text_lines
from txbatch.formats.scan import Format, Times

EPOCH, FAR = datetime(1971, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)


def read(case: Case) -> list[list[Any]]:
    """The rows of a file, by the decoder that Spark's tasks call."""
    if case.format == "text":
        return [[line] for line in text_lines.lines(case.path, **case.options)]
    fields = parse_fields(case.fields)
    given = options.check_options(case.format, case.options)
    if case.format == "parquet":
        found = read_parquet(case.path, fields, FILES / case.format, given, fields[0].name)
        return [[told(value) for value in row.values()] for row in found.to_pylist()]
    IntervalSpout(case.path, case.fields, time=fields[0].name, format=case.format, options=dict(case.options))
    times = Times(fields[0].name, EPOCH, FAR, EPOCH, FAR)
    found = read_text(case.path, Format(case.format, fields, given, times, FILES / case.format))
    return [[told(value) for value in row.values()] for row in found.to_pylist()]


@pytest.mark.parametrize("case", cases(), ids=str)
def test_a_file_is_read_as_it_is_written_or_refused(case: Case) -> None:
    if case.rows is not None:
        assert read(case) == case.rows
    else:
        with refused(str(case.code), case.file, *case.names):
            read(case)


def test_every_file_is_a_case_and_every_case_a_file() -> None:
    for format_ in FORMATS:
        folder = FILES / format_
        there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {"cases.json"}
        assert {case.file for case in cases(format_)} == there


def test_no_two_cases_are_the_same() -> None:
    assert len({str(case) for case in cases()}) == len(cases())
