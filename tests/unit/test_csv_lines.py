"""Whole files of CSV, from their bytes to records, or to an error that names the line."""

from __future__ import annotations

import gzip
import tracemalloc
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import refusals
from read_files import read_text

from txbatch.core.errors import BadRecord, BadText, DefinitionError, WrongColumns
from txbatch.core.records.fields import parse_fields
from txbatch.formats import contents, options, scan
from txbatch.formats.scan import Format, Range, Times, tasks_of

FIELDS = parse_fields("at timestamp, name string, price decimal(10,2)")
DAY = datetime(2026, 1, 1, tzinfo=UTC)
AT = "2026-01-01T00:00:00Z"
HEADER = {"header": True}


def rows(folder: Path, content: str | bytes, fields: Any = FIELDS, **given: Any) -> list[tuple[Any, ...]]:
    """The records of a file of this content, less their times."""
    file = folder / "a b,ü%#:.csv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    read = read_text(file, Format("csv", fields, options.check_options("csv", given)))
    return [tuple(map(str, row.values()))[1:] for row in read.to_pylist()]


def refusal(folder: Path, content: str | bytes, fields: Any = FIELDS, **given: Any) -> str:
    """What is said of it, less the file."""
    with pytest.raises(BadRecord) as refused:
        rows(folder, content, fields, **given)
    path = f"{folder}/a b,ü%#:.csv"
    assert refused.value.text.startswith(path)
    return refused.value.text.removeprefix(path).removeprefix(", ")


@pytest.mark.parametrize(
    ("content", "given", "expected"),
    [
        ("", {}, []),
        ("", HEADER, []),
        ("at,name,price\n", HEADER, []),
        ("at,name,price", HEADER, []),
        (f"{AT},a,1", {}, [("a", "1.00")]),
        (f"{AT},a,1\r\n{AT},b,2\r\n", {}, [("a", "1.00"), ("b", "2.00")]),
        (f"\n{AT},a,1\n\n\r\n{AT},b,2\n\n", {}, [("a", "1.00"), ("b", "2.00")]),
        (f"\ufeff{AT},a,1\n", {}, [("a", "1.00")]),
        (f"\ufeffat,name,price\r\n{AT},a,1\r\n", HEADER, [("a", "1.00")]),
        (f'price,"name",at\n1,a,{AT}\n', HEADER, [("a", "1.00")]),
        (f'{AT},"6"" pipe",1\n', {}, [('6" pipe', "1.00")]),
        (f'{AT},"a ""b"", c","1.5"\n', {}, [('a "b", c', "1.50")]),
        (f'"{AT}","""",1\r\n{AT},"",1\n', {}, [('"', "1.00"), ("", "1.00")]),
        (f'{AT},a"b,1\n', {"quote": ""}, [('a"b', "1.00")]),
        (f"{AT};'a;b';1,5\n", {"sep": ";", "quote": "'", "decimal": ","}, [("a;b", "1.50")]),
        (f"{AT}\ta\t1\n", {"sep": "\\t"}, [("a", "1.00")]),
        (f"{AT},,1\n", {}, [("", "1.00")]),
        (f"{AT}, a ,1\n", {}, [(" a ", "1.00")]),
        (f'{AT},NA,NA\n{AT},"NA",1\n', {"nullValue": "NA"}, [("None", "None"), ("NA", "1.00")]),
        (f'{AT},,""\n{AT},"",1\n', {"null_value": ""}, [("None", "None"), ("", "1.00")]),
        (f"{AT},-,NA\n", {"null_value": ["NA", "-"]}, [("None", "None")]),
        (f"{AT},Müller,1\n".encode("latin-1"), {"encoding": "ISO-8859-1"}, [("Müller", "1.00")]),
        (f"{AT},日本,1\n".encode("shift_jis"), {"encoding": "shift_jis"}, [("日本", "1.00")]),
        (f'{AT},"a\nb",1\n{AT},c,2\n', {"multiline": True}, [("a\nb", "1.00"), ("c", "2.00")]),
        (f'{AT},"a\r\nb\rc",1\r\n', {"multiLine": "true"}, [("a\r\nb\rc", "1.00")]),
        (f'"na\nme",at,price\nx,{AT},1\n', HEADER | {"multiline": True, "null_value": "x"}, None),
    ],
)
def test_it_is_read_as_it_is_written(tmp_path: Path, content: str | bytes, given: Any, expected: Any) -> None:
    if expected is None:
        fields = parse_fields("at timestamp, `na\nme` string, price decimal(10,2)")
        assert rows(tmp_path, content, fields, **given) == [("None", "1.00")]
    else:
        assert rows(tmp_path, content, **given) == expected


@pytest.mark.parametrize(
    ("content", "given", "says"),
    [
        (f"{AT},a,1\n{AT},b\n", {}, f"line 2: 2 cells instead of 3: '{AT},b'"),
        (f"{AT},a,1\n\n{AT},b,1,\n", {}, "line 3: 4 cells instead of 3"),
        (f"{AT},a,1\n \n", {}, "line 2: 1 cell instead of 3"),
        (f"\n{AT},a,1\n\n{AT},a,5.001\n", {}, "line 4, field 'price': '5.001' is no decimal(10,2): it has 3 digits"),
        (f"{AT},a,\n", {}, "line 1, field 'price': '' is no decimal(10,2): it is empty; say null_value=''"),
        (f'{AT},a,"NA"\n', {}, "line 1, field 'price': 'NA' is no decimal(10,2)"),
        ("at,name,price\n", {}, "line 1, field 'at': 'at' is no timestamp"),
        (f'{AT},a"b,1\n', {}, "line 1: a quote stands within a cell; quote the cell and double it"),
        (f'{AT}, "b",1\n', {}, "line 1: a quote stands within a cell"),
        (f'{AT},"b" ,1\n', {}, "line 1: a quote stands within a cell"),
        (f'{AT},"a\\"b",1\n', {}, "line 1: a quote stands within a cell"),
        (f'{AT},a,1\n{AT},"b,1\n', {}, "line 2: it ends within quotes; say multiline=True"),
        (f'{AT},"b\nc",1\n', {}, "line 1: it ends within quotes"),
        (f'{AT},"b,1', {}, "line 1: a quote is not closed"),
        (f'{AT},a,1\n{AT},"b,1\n', {"multiline": True}, "line 2: a quote is not closed"),
        (f'{AT},"a\nb",1\n{AT},"c\nd",x\n', {"multiline": True}, "line 3, field 'price': 'x' is no"),
        (f"{AT},a,1\r{AT},b,2\r", {}, "line 1: a carriage return stands alone; end lines with \\n"),
        (f"{AT},a\rb,1\n", {}, "line 1: a carriage return stands alone"),
        (f'{AT},"a\nb",1\r{AT},c,1\n', {"multiline": True}, "line 2: a carriage return stands alone"),
        (f"{AT},a,1\n\ufeff{AT},b,1\n", {}, "line 2: a mark of byte order begins it; files were joined"),
        (
            f"{AT},a,1\n{AT},M\u00fcller,1\n".encode("latin-1"),
            {},
            r"line 2: cell 2: b'M\xfcller' is not UTF-8; say encoding=",
        ),
        ("name,\u00e4t\n".encode("latin-1"), HEADER, r"line 1: cell 2: b'\xe4t' is not UTF-8"),
        (
            f"{AT},a,1\n{AT},\x81,1\n".encode("latin-1"),
            {"encoding": "cp1252"},
            "line 2: the byte 0x81 is not cp1252",
        ),
        (
            f"\ufeff{AT},a,1\n".encode(),
            {"encoding": "latin-1"},
            " begins with the mark of UTF-8, and encoding='latin-1'",
        ),
        (f"{AT},a,1\n".encode("utf-16-le"), HEADER, "line 1: U+0000 stands in it, as UTF-16 has it; write"),
        (f"{AT},a,1\n".encode("utf-16"), {}, "line 1: U+0000 stands in it, as UTF-16 has it; write"),
        ("at,name\n", HEADER, "line 1: the header lacks 'price'; `fields` names every column, or say optional='price'"),
        ("at,Name,price,x\n", HEADER, "line 1: the header lacks 'name' and has 'Name', 'x', which is no field"),
        (
            "at,name,name,price\n",
            HEADER,
            "line 1: the header names 'name' twice; mend the file, then run again; only if the length of a file has changed, ",
        ),
        (" at,name,price\n", HEADER, "line 1: the header lacks 'at' and has ' at'"),
        ("sep=;\nat;name;price\n", HEADER, "line 1: the header lacks 'at', 'name', 'price' and has 'sep=;'"),
        ("\nat,name,price\n", HEADER, "line 1: it is blank where the header should be"),
        (f"price,name,at\n1,a,{AT}\nx,a,{AT}\n", HEADER, "line 3, field 'price': 'x' is no"),
    ],
)
def test_what_is_not_right_is_named(tmp_path: Path, content: str | bytes, given: Any, says: str) -> None:
    assert refusal(tmp_path, content, **given).startswith(says)


@pytest.mark.parametrize(
    ("content", "given", "kind"),
    [
        (f"{AT},a\n", {}, BadRecord),
        ("at,name\n", HEADER, WrongColumns),
        (f"{AT},M\u00fcller,1\n".encode("latin-1"), {}, BadText),
        (f"{AT},\0,1\n", {}, BadText),
    ],
)
def test_a_refusal_is_of_its_situation(tmp_path: Path, content: str | bytes, given: Any, kind: type[BadRecord]) -> None:
    with pytest.raises(BadRecord) as refused:
        rows(tmp_path, content, **given)
    assert type(refused.value) is kind


@pytest.mark.parametrize("header", ["," * 400_000, ",".join(map(str, range(400_000)))])
def test_a_header_of_very_many_columns_is_refused_at_once(tmp_path: Path, header: str) -> None:
    assert refusal(tmp_path, f"at,name,price,{header}\n", **HEADER).startswith("line 1: the header ")


def test_a_file_of_one_field_may_have_an_empty_cell_but_no_blank_line_is_passed_over(tmp_path: Path) -> None:
    fields = parse_fields("at timestamp")
    assert rows(tmp_path, f"{AT}\n{AT}\n", fields) == [(), ()]
    told, _, ways = refusal(tmp_path, f"{AT}\n\n", fields).partition("; or ")
    assert told == "line 2, field 'at': '' is no timestamp: it is empty"
    assert "; or mend the file, then run again" in ways


def test_a_refused_cell_names_all_ways_on_and_only_those_that_are_there(tmp_path: Path) -> None:
    told = refusal(tmp_path, f'{AT},a,"12,50"\n')
    assert "; or declare the field a string and quarantine it; or mend" in told
    assert told.endswith("mend the file, then run again; only if the length of a file has changed, abort the batch")
    times = Times("at", datetime(1971, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC), DAY, DAY.replace(day=2))
    (tmp_path / "a.csv").write_text("yesterday,a,1\n")
    with refusals.refused("TX301", "'at'") as refused:
        read_text(tmp_path / "a.csv", Format("csv", FIELDS, options.check_options("csv", {}), times))
    assert "quarantine" not in str(refused.value)


def test_only_the_wanted_records_are_looked_at_whole(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(f"{AT},a,1\n2026-02-01,b,x\n2026-01-01T23:59:59.999999Z,c,2\n2026-01-02,d,y\n2026-01-01,e,z\n")
    times = Times("at", datetime(1971, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC), DAY, DAY.replace(day=2))
    format_ = Format("csv", FIELDS, options.check_options("csv", {}), times)
    with refusals.refused("TX301", "line 5", "'price'", "'z'", "decimal"):
        read_text(file, format_)
    file.write_text(file.read_text().replace("z", "4"))
    assert read_text(file, format_).column("name").to_pylist() == ["a", "c", "e"]
    file.write_text(f"{AT},a,1\n1969-12-31T23:59:59Z,b,1\n")
    with refusals.refused("TX301", "line 2", "'at'", "1971-01-01", "2100-01-01", "plausible="):
        read_text(file, format_)


@pytest.mark.parametrize("multiline", [False, True])
@pytest.mark.parametrize("chunk", [7, 64, 1000])
def test_where_blocks_and_ranges_end_makes_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, multiline: bool
) -> None:
    monkeypatch.setattr(contents, "CHUNK_BYTES", chunk)
    end = "\r\n" if multiline else " "
    lines = ["name,at,price"] + [f'"ü{end}""{n}, ",{AT},{n}.5' for n in range(40)]
    file = tmp_path / "a.csv"
    file.write_bytes("\r\n".join(lines).encode())
    format_ = Format("csv", FIELDS, options.check_options("csv", HEADER | {"multiline": multiline}))
    names = [f'ü{end}"{n}, ' for n in range(40)]
    assert read_text(file, format_).column("name").to_pylist() == names
    size = file.stat().st_size
    if not multiline:
        cuts = [0, 1, 20, 300, 301, 302, size - 1, size]
        ranges = [Range(file, start, stop, size) for start, stop in pairwise(cuts)]
        found = [batch for range_ in ranges for batch in format_.read(range_)]
        assert [name for batch in found for name in batch.column("name").to_pylist()] == names
    file.write_bytes(file.read_bytes().replace(b"39.5", b"39,5"))
    line = 80 if multiline else 41
    with pytest.raises(BadRecord, match=f"line {line}: 4 cells instead of 3"):
        read_text(file, format_)
    if not multiline:
        with refusals.refused("TX301", "line 41"):
            list(format_.read(Range(file, 1000, size, size)))


def test_columns_that_are_passed_over_in_any_block_and_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "CHUNK_BYTES", 64)
    lines = ["note,at,,name,note"] + [f'"ü ""{n}, ",{AT},,n{n},x' for n in range(40)]
    file = tmp_path / "a.csv"
    file.write_bytes("\n".join(lines).encode())
    given = HEADER | {"extra": "ignore", "optional": "price"}
    format_ = Format("csv", FIELDS, options.check_options("csv", given))
    size = file.stat().st_size
    cuts = [0, 1, 300, 301, 302, size - 1, size]
    found = [batch for start, stop in pairwise(cuts) for batch in format_.read(Range(file, start, stop, size))]
    assert [row for batch in found for row in batch.select(["name", "price"]).to_pylist()] == [
        {"name": f"n{n}", "price": None} for n in range(40)
    ]
    file.write_bytes(file.read_bytes().replace(b"n39,x", b"n39.x"))
    with refusals.refused("TX301", "line 41", "4 cells", "5"):
        list(format_.read(Range(file, 1000, size, size)))


def test_one_wanted_column_of_a_file_that_has_one_or_two(tmp_path: Path) -> None:
    """A blank line is a record where the file has one column, and none where the file has two."""
    fields = parse_fields("name string")
    assert rows(tmp_path, "name\n\na\n", parse_fields("at string, name string"), optional="at", **HEADER) == [
        ("",),
        ("a",),
    ]
    file = tmp_path / "a.csv"
    file.write_text("name,note\n\na,x\n\nb,\n")
    format_ = Format("csv", fields, options.check_options("csv", HEADER | {"extra": "ignore"}))
    assert read_text(file, format_).to_pylist() == [{"name": "a"}, {"name": "b"}]


def test_compressed_files_and_a_line_of_ten_megabytes(tmp_path: Path) -> None:
    file = tmp_path / "a.csv.gz"
    long = "x" * 10_000_000
    file.write_bytes(gzip.compress(f"at,name,price\n{AT},{long},1\n{AT},b,x\n".encode(), 1))
    format_ = Format("csv", FIELDS, options.check_options("csv", HEADER))
    with refusals.refused("TX301", "line 3", "'price'", "'x'", "decimal"):
        read_text(file, format_)
    file.write_bytes(gzip.compress(f"at,name,price\n{AT},{long},1\n".encode(), 1))
    assert len(read_text(file, format_).column("name")[0].as_py()) == 10_000_000
    file.write_bytes(gzip.compress(f"at,name,price\n{AT},a,{long}\n".encode(), 1))
    with refusals.refused("TX301", "line 2", "'price'", "decimal") as refused:
        read_text(file, format_)
    assert len(str(refused.value)) < 1000


def test_a_quote_that_is_never_closed_does_not_take_the_rest_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "RECORD_BYTES_MAX", 1000)
    monkeypatch.setattr(contents, "CHUNK_BYTES", 100)
    says = refusal(tmp_path, f'{AT},"a,1\n' + f"{AT},b,1\n" * 100, multiline=True)
    assert says.startswith("line 1: a quote is not closed within")


@pytest.mark.parametrize("filling", [b"\n", b"x\n", b'""'], ids=repr)
@pytest.mark.parametrize("closed", [False, True])
def test_a_record_within_quotes_takes_a_few_times_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filling: bytes, closed: bool
) -> None:
    monkeypatch.setattr(contents, "RECORD_BYTES_MAX", 8_000_000)
    monkeypatch.setattr(contents, "CHUNK_BYTES", 500_000)
    file, many = tmp_path / "a.csv", (7_000_000 if closed else 9_000_000) // len(filling)
    file.write_bytes(f'{AT},"a'.encode() + many * filling + (b'",1\n' if closed else b"\n"))
    format_ = Format("csv", FIELDS, options.check_options("csv", {"multiline": True}))
    tracemalloc.start()
    try:
        if closed:
            assert len(read_text(file, format_)) == 1
        else:
            with pytest.raises(BadRecord, match=r"a.csv, line 1: a quote is not closed within|the line at byte 0 has"):
                read_text(file, format_)
        assert tracemalloc.get_traced_memory()[1] < 80_000_000
    finally:
        tracemalloc.stop()


def test_small_files_share_a_task_and_large_ones_are_cut(tmp_path: Path) -> None:
    small = {tmp_path / f"{n}.csv": 1_000_000 for n in range(10)}
    assert [len(task) for task in tasks_of(small, 2)] == [5, 5]
    large = tmp_path / "large.csv"
    large.write_text("x")
    cut = [range_ for task in tasks_of({large: 20_000_000, **small}, 2) for range_ in task if range_.path == large]
    assert [(range_.start, range_.end) for range_ in cut] == [(0, 10_000_000), (10_000_000, 20_000_000)]
    assert len(tasks_of({large: 20_000_000}, 2, whole=True)) == 1
    assert len(tasks_of({large: 10 * scan.TASK_BYTES_MAX}, 2)) == 10
    assert tasks_of({large: 0}, 2) == [[Range(large, 0, None, 0)]]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"mode": "PERMISSIVE"}, "option 'mode' is not taken: the first record that does not fit always fails"),
        ({"comment": "#"}, "option 'comment' is not taken: it would leave records out"),
        ({"enforceSchema": True}, "'enforceSchema' is not taken: a header is always held against the fields"),
        ({"unescapedQuoteHandling": "SKIP_VALUE"}, "is not taken: a stray quote is always refused"),
        ({"escape": "\\"}, "option escape='\\\\' must be '\"': a quote within quotes is doubled"),
        ({"locale": "de-DE"}, "is not taken: say decimal=','"),
        ({"sepp": ";"}, "option 'sepp' is none of csv: it has header, sep, "),
        ({"sep": ";;"}, "option sep=';;' must be one ASCII character"),
        ({"sep": "\n"}, "must be one ASCII character"),
        ({"delimiter": ";"}, "option 'delimiter' is not taken: here it is 'sep'; say sep="),
        ({"Separator": ";"}, "option 'Separator' is not taken: here it is 'sep'; say sep="),
        ({"charset": "latin-1"}, "option 'charset' is not taken: here it is 'encoding'; say encoding="),
        ({"sep": ",", "SEP": ";"}, "options 'sep' and 'SEP' are the same; give one"),
        ({"sep": '"'}, "options sep and quote are both '\"'"),
        ({"thousands": "."}, "options decimal and thousands are both '.'"),
        ({"header": "yes"}, "option header='yes' must be True or False"),
        ({"encoding": "utf-16"}, "option encoding='utf-16' must be a character set in which ASCII keeps its bytes"),
        (
            {"encoding": "UTF-8-SIG"},
            "option encoding='UTF-8-SIG' is UTF-8 with a mark of byte order, which is passed over",
        ),
        ({"encoding": "cp037"}, "make UTF-8 of the files first"),
        ({"encoding": "latin-one"}, "must be a character set"),
        ({"null_value": 7}, "must be a text, or a list of texts"),
        ({"decimal": ";"}, "must be '.' or ','"),
    ],
)
def test_options_that_are_refused_name_the_way_out(given: dict[str, Any], says: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        options.check_options("csv", given)
    assert says in str(refused.value)


def test_options_have_our_defaults_and_take_sparks_spelling() -> None:
    spelled = options.check_options("csv", {"Header": "true", "nullValue": "NA", "multiLine": False, "SEP": "\t"})
    assert (spelled["header"], spelled["null_value"], spelled["multiline"], spelled["sep"]) == (
        True,
        ("NA",),
        False,
        "\t",
    )
    assert options.check_options("csv", {})["header"] is False
    assert [options.check_options("csv", {"header": text})["header"] for text in ("false", "True", True)] == [
        False,
        True,
        True,
    ]
