"""Parquet files as declared fields, without Spark: what is read, and what is refused before."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import refusals
from read_files import read_parquet

from txbatch import IntervalSpout
from txbatch.core.errors import BadRecord
from txbatch.core.records.fields import parse_fields
from txbatch.formats.parquet_schema import WAY_OUT, check

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def write(path: Path, column: pa.Array, name: str = "x", **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({name: column}), path, **options)
    return path


def values(path: Path, declared: str, folder: Path | None = None) -> list[Any]:
    return list(read_parquet(path, parse_fields(declared), folder).column(0).to_pylist())


@pytest.mark.parametrize(
    ("column", "declared", "spark"),
    [
        (pa.array(["a", None, "ü"]), "string", True),
        (pa.array(["a", "a"]).dictionary_encode(), "string", True),
        (pa.array(["a"], pa.large_string()), "string", True),
        (pa.array([b"\xff"]), "binary", True),
        (pa.array([b"ab"], pa.binary(2)), "binary", False),
        (pa.array([1, -1, None], pa.int64()), "bigint", True),
        (pa.array([1, -1], pa.int8()), "bigint", False),
        (pa.array([2**32 - 1], pa.uint32()), "bigint", False),
        (pa.array([2**63 - 1], pa.uint64()), "bigint", False),
        (pa.array([255], pa.uint8()), "smallint", False),
        (pa.array([255], pa.uint8()), "int", False),
        (pa.array([1], pa.int32()), "int", True),
        (pa.array([True, None]), "boolean", True),
        (pa.array([1.5]), "double", True),
        (pa.array([1.5], pa.float32()), "double", False),
        (pa.array([2**31 - 1], pa.int32()), "double", False),
        (pa.array([7], pa.int16()), "float", False),
        (pa.array([Decimal("1.50")], pa.decimal128(10, 2)), "decimal(10,2)", True),
        (pa.array([Decimal("1.50")], pa.decimal128(9, 2)), "decimal(12,4)", False),
        (pa.array([7], pa.int32()), "decimal(12,2)", False),
        (pa.array([date(2026, 1, 1)]), "date", True),
        (pa.array([NOON], pa.timestamp("us", "UTC")), "timestamp", True),
        (pa.array([NOON], pa.timestamp("ms", "America/New_York")), "timestamp", True),
        (pa.array([NOON], pa.timestamp("ns", "UTC")), "timestamp", False),
        (pa.array([NOON.replace(tzinfo=None)], pa.timestamp("us")), "timestamp", True),
        (pa.array([NOON.replace(tzinfo=None)], pa.timestamp("ns")), "timestamp", False),
        (pa.nulls(2), "decimal(10,2)", False),
    ],
)
def test_what_is_read_exactly(tmp_path: Path, column: pa.Array, declared: str, spark: bool) -> None:
    path = write(tmp_path / "a.parquet", column)
    expected = [NOON if declared == "timestamp" else each for each in column.to_pylist()]
    assert values(path, f"x {declared}") == expected
    assert check(tmp_path, "a.parquet", parse_fields(f"x {declared}")) == spark


@pytest.mark.parametrize(
    ("column", "declared", "complaint"),
    [
        (pa.array([1.0]), "decimal(10,2)", "column 'x' is double in the file, declared as decimal(10,2)"),
        (pa.array(["1"]), "int", "column 'x' is string in the file, declared as int"),
        (pa.array([1]), "string", "column 'x' is int64 in the file, declared as string"),
        (pa.array([1]), "int", "column 'x' is int64 in the file, declared as int"),
        (pa.array([1]), "double", "column 'x' is int64 in the file, declared as double"),
        (pa.array([1], pa.uint32()), "int", "column 'x' is uint32 in the file, declared as int"),
        (pa.array([1]), "timestamp", "column 'x' is int64 in the file, declared as timestamp"),
        (pa.array([NOON]), "date", "declared as date"),
        (pa.array([date(2026, 1, 1)]), "timestamp", "column 'x' is date32[day] in the file, declared as timestamp"),
        (pa.array([Decimal("1.500")]), "decimal(10,2)", "is decimal128(4, 3) in the file, declared as decimal(10,2)"),
        (pa.array([Decimal("100.50")]), "decimal(4,2)", "declared as decimal(4,2)"),
        (pa.array([1]), "decimal(10,2)", "declared as decimal(10,2)"),
        (pa.array([[1]]), "int", "is list<element: int64> in the file"),
        (pa.array([{"a": 1}]), "string", "is struct<a: int64> in the file"),
        (pa.array([timedelta(1)]), "bigint", "declared as bigint"),
        (pa.array([True]), "int", "is bool in the file"),
    ],
)
def test_another_type_is_refused_with_both(tmp_path: Path, column: pa.Array, declared: str, complaint: str) -> None:
    path = write(tmp_path / "a.parquet", column)
    with pytest.raises(BadRecord) as refused:
        values(path, f"x {declared}")
    assert f"{path}: " in str(refused.value)
    assert complaint in str(refused.value)
    assert WAY_OUT in str(refused.value)


@pytest.mark.parametrize(
    ("column", "declared"),
    [
        (pa.array([1_767_268_800_000_000_001], pa.timestamp("ns")), "timestamp"),
        (pa.array([2**63], pa.uint64()), "bigint"),
    ],
)
def test_a_value_that_would_be_cut_is_refused(tmp_path: Path, column: pa.Array, declared: str) -> None:
    path = write(tmp_path / "a.parquet", column)
    with pytest.raises(BadRecord, match=f"a.parquet: a value of the column 'x' is no {declared} "):
        values(path, f"x {declared}")


def test_times_of_int96(tmp_path: Path) -> None:
    times = [datetime(2026, 1, 1, 12, 0, 0, 7, tzinfo=UTC), None]
    column = pa.array(times, pa.timestamp("us", "UTC"))
    path = write(tmp_path / "a.parquet", column, use_deprecated_int96_timestamps=True)
    assert values(path, "x timestamp") == times
    assert not check(tmp_path, path.name, parse_fields("x timestamp")), "Spark cuts what is below a microsecond"
    odd = pa.array([1_767_268_800_000_000_001], pa.timestamp("ns"))
    path = write(tmp_path / "b.parquet", odd, use_deprecated_int96_timestamps=True)
    with refusals.refused("TX301", "b.parquet", "column", "'x'", "timestamp"):
        values(path, "x timestamp")
    far = pa.array([datetime(9999, 12, 31, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    path = write(tmp_path / "c.parquet", far, use_deprecated_int96_timestamps=True)
    with pytest.raises(BadRecord, match=r"c.parquet: .*column 'x' (is no timestamp|holds times before 1678)"):
        values(path, "x timestamp")


def test_a_column_that_is_missing_or_has_another_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", pa.array([1]), "unit_price")
    with refusals.refused("TX303", "a.parquet", "column", "'price'", "'unit_price'"):
        values(path, "price bigint")
    path = write(tmp_path / "b.parquet", pa.array([1]), "Price")
    with refusals.refused("TX303", "b.parquet", "column", "'price'", "'Price'"):
        values(path, "price bigint")


@pytest.mark.parametrize(
    ("folder", "declared", "expected"),
    [
        ("day=2024-01-01", "day date", date(2024, 1, 1)),
        ("day=2024-01-01", "day string", "2024-01-01"),
        ("a/hour=07/b", "hour int", 7),
        ("k=a%20b%2Fc", "k string", "a b/c"),
        ("k=__HIVE_DEFAULT_PARTITION__", "k string", None),
    ],
)
def test_a_folder_column_is_read(tmp_path: Path, folder: str, declared: str, expected: Any) -> None:
    path = write(tmp_path / folder / "a.parquet", pa.array([1, 2]))
    assert values(path, declared + ", x bigint", tmp_path) == [expected, expected]


@pytest.mark.parametrize(
    ("folder", "declared"),
    [
        ("day=20240101", "day date"),
        ("hour=7h", "hour int"),
        ("k=1.5", "k double"),
        ("k=1", "k timestamp"),
        ("k=", "k int"),
    ],
)
def test_a_folder_column_that_is_not_read(tmp_path: Path, folder: str, declared: str) -> None:
    path = write(tmp_path / folder / "a.parquet", pa.array([1, 2]))
    with refusals.refused("TX303", "a.parquet"):
        values(path, declared + ", x bigint", tmp_path)


@pytest.mark.parametrize(
    "damage", [lambda _: b"", lambda _: b"# Readme\n", lambda all_: all_[:-7], lambda all_: all_[40:]]
)
def test_what_is_no_parquet_file(tmp_path: Path, damage: Any) -> None:
    path = write(tmp_path / "README.txt", pa.array([1]))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(BadRecord, match=r"README.txt (is no Parquet file, or is cut off|cannot be read) \("):
        values(path, "x bigint")


def test_damaged_pages_and_odd_codecs(tmp_path: Path) -> None:
    column = pa.array(range(10_000))
    path = write(tmp_path / "a.parquet", column, compression="snappy")
    content = path.read_bytes()
    path.write_bytes(content[:100] + b"\xff" * 1_000 + content[1_100:])
    with refusals.refused("TX302", "a.parquet"):
        values(path, "x bigint")
    for codec in ("brotli", "lz4"):
        path = write(tmp_path / f"{codec}.parquet", column, compression=codec)
        assert values(path, "x bigint") == column.to_pylist()
        assert not check(tmp_path, path.name, parse_fields("x bigint"))


CHECK_ALL = """
import sys
from pathlib import Path
from txbatch.core.records.fields import parse_fields
from txbatch.formats.parquet_schema import check

for path in map(Path, sys.argv[1:]):
    try:
        print(check(path.parent, path.name, parse_fields("x bigint")))
    except Exception as error:
        print(type(error).__name__, error)
"""


def test_a_damaged_codec_is_named_and_ends_no_process(tmp_path: Path) -> None:
    """In a process of its own, which Arrow would end."""
    at, codecs = (
        b"\x18\x01x\x15",
        {0x56: "Unsupported compression codec", 0x01: "Unsupported", 0x06: "LZO", 0x0C: "ZSTD"},
    )
    files = [
        write(tmp_path / f"{n}.parquet", pa.array([1, 2], pa.int64()), compression="snappy", store_schema=False)
        for n in range(len(codecs))
    ]
    files.append(write(tmp_path / "none.parquet", pa.array([], pa.int64()), compression="snappy", store_schema=False))
    for file, codec in zip(files, [*codecs, 0x56], strict=True):
        content = file.read_bytes()
        assert content.count(at + b"\x02") == 1  # the end of the column's path, and its codec
        file.write_bytes(content.replace(at + b"\x02", at + bytes([codec])))
    told = subprocess.run([sys.executable, "-c", CHECK_ALL, *files], capture_output=True, text=True, check=True).stdout
    for line, file, says in zip(told.splitlines(), files, [*codecs.values(), "Unsupported"], strict=True):
        assert re.fullmatch(
            rf"DamagedFile TX302 \(no retry helps\): {file} cannot be read \(.*{says}.*\); write it again", line
        )


@pytest.mark.parametrize("name", ["x", "y"])
def test_a_name_of_a_column_that_is_not_utf8_is_a_damaged_file(tmp_path: Path, name: str) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x1": [1], "y1": [1]}), file, store_schema=False)
    file.write_bytes(file.read_bytes().replace(f"{name}1".encode(), f"{name}\xff".encode("latin-1")))
    with refusals.refused("TX302", "a.parquet", "Parquet", "'utf-8'"):
        values(file, "x1 bigint")


def of_bytes(*texts: bytes | None, type_: pa.DataType = pa.string()) -> pa.Array:  # noqa: B008 (types of Arrow never change)
    """Texts that nobody has looked at."""
    raw = pa.array(texts, pa.large_binary() if type_ == pa.large_string() else pa.binary())
    return raw.view(type_)


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string()])
def test_a_text_that_is_no_utf8_is_named_by_file_column_and_row(tmp_path: Path, type_: pa.DataType) -> None:
    days = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
    table = pa.table(
        {"at": pa.array(days, pa.timestamp("us", "UTC")), "name": of_bytes(b"\xff", None, b"caf\xe9", type_=type_)}
    )
    pq.write_table(table, tmp_path / "a.parquet")
    spout = IntervalSpout(tmp_path, "at timestamp, name string", time="at", format="parquet")

    def plan(*interval: int) -> Any:
        return {"interval": [days[0].replace(day=day).isoformat() for day in interval], "files": {"a.parquet": 1}}

    spout.check_texts(plan(2, 3))
    with refusals.refused("TX304", "a.parquet", "column", "'name'", "UTF-8", "3"):
        spout.check_texts(plan(2, 4))


def test_a_text_of_a_day_is_named_as_well(tmp_path: Path) -> None:
    days = pa.array([date(2026, 1, 1), date(2026, 1, 2)])
    pq.write_table(pa.table({"day": days, "name": of_bytes(b"a", b"\xc3")}), tmp_path / "a.parquet")
    spout = IntervalSpout(tmp_path, "day date, name string", time="day", format="parquet")
    plan = {"interval": ["2026-01-01T00:00:00+00:00", "2026-01-03T00:00:00+00:00"], "files": {"a.parquet": 1}}
    with refusals.refused("TX304", "column", "'name'", "UTF-8", "2"):
        spout.check_texts(plan)
