"""IntervalSpout's reading: whose records they are, and what fails an attempt."""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from txbatch import Count, Interval, IntervalSpout, Sum, Topology, TransactionalState
from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Metadata, Run, TransactionAttempt
from txbatch.core.errors import BadRecord, DefinitionError, PartitionUnreadable, TransientError
from txbatch.core.protocol import planning
from txbatch.core.protocol.ledger import Head
from txbatch.spark.failures import in_our_words
from txbatch.spouts import interval as interval_spout

FIELDS = "sale timestamp, shop string, price int"
HEADER = "sale,shop,price\n"
FIRST = Interval(datetime(2026, 1, 1, 5, tzinfo=UTC), datetime(2026, 1, 2, 5, tzinfo=UTC))
SALES = {"header": True, "nullValue": "NA"}
Emit = Callable[..., Any]


def sales(root: Path, **arguments: Any) -> Topology:
    topology = Topology("sales")
    arguments = {"options": SALES, **arguments}
    (
        topology.new_stream("in", IntervalSpout(root, FIELDS, time="sale", **arguments))
        .group_by("shop")
        .persistent_aggregate(TransactionalState("sales"), sales=Count(), turnover=Sum("price"))
    )
    return topology


def planned(topology: Topology, interval: Interval = FIRST) -> Metadata:
    metadata = planning.plan_batch(topology, Head("sales", 1, None, (), None, {}), Run("test", interval=interval))
    assert metadata is not None
    return metadata


@pytest.mark.rule("R2")
def test_an_interval_is_half_open_and_utc_whatever_the_zone_in_the_file(emit: Emit, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        HEADER
        + "2026-01-01T04:59:59.999999Z,early,1\n2026-01-01T05:00:00Z,in,2\n2026-01-01T00:00:00-05:00,in,NA\n"
        + "2026-01-02 04:59:59.999999,in,4\n2026-01-02T05:00:00Z,late,8\n"
    )
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b [1] x.csv").write_text(HEADER + "2026-01-01T12:00:00Z,other,16\n")
    (tmp_path / "_written.csv").write_text(HEADER + "2026-01-01T12:00:00Z,hidden,32\n")
    topology = sales(tmp_path)
    emitted = emit(topology, planned(topology))
    assert emitted.partials["sales"] == {("in",): (3, 6), ("other",): (1, 16)}
    assert emitted.read() == {"": 4}


@pytest.mark.rule("R4")
def test_an_interval_without_records_is_an_empty_batch(emit: Emit, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(HEADER + "2020-01-01T00:00:00Z,old,1\n")
    (tmp_path / "b.csv").touch()
    topology = sales(tmp_path)
    emitted = emit(topology, planned(topology))
    assert (emitted.read(), emitted.partials["sales"]) == ({"": 0}, {})


def test_one_file_and_other_formats(emit: Emit, spark: SparkSession, tmp_path: Path) -> None:
    row = (FIRST.start, "shop", 7)
    for format_ in ("json", "parquet"):
        folder = tmp_path / format_
        spark.createDataFrame([row], FIELDS).coalesce(1).write.format(format_).save(str(folder))
        (file,) = folder.glob("part-*")
        for root in (folder, file):
            topology = sales(root, format=format_, options={})
            assert emit(topology, planned(topology)).partials["sales"] == {("shop",): (1, 7)}


def bad_record(emit: Emit, topology: Topology) -> str:
    """The message of the BadRecord that emitting ends in."""
    with pytest.raises(Exception) as failed:  # noqa: PT011 (Spark's own, which one of ours stands for)
        emit(topology, planned(topology))
    problem = in_our_words(failed.value)
    assert isinstance(problem, BadRecord)
    return str(problem)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("2026-01-01T12:00:00Z,shop,seven", r"/a b\.csv, line 3, field 'price': 'seven' is no int: "),
        (
            "2026-01-01T12:00:00Z,shop",
            r"/a b\.csv, line 3: 2 cells instead of 3: '2026-01-01T12:00:00Z,shop'; mend the file",
        ),
        ("yesterday,shop,7", r"/a b\.csv, line 3, field 'sale': 'yesterday' is no timestamp"),
        ("NA,shop,7", r"/a b\.csv, line 3, field 'sale': null is no time, so the record is in no interval"),
        (
            "0026-01-01,shop,7",
            r"line 3, field 'sale': '0026-01-01' is not between 1971-01-01 and 2100-01-01; .* plausible=",
        ),
    ],
)
def test_a_record_that_does_not_fit_fails_the_attempt(emit: Emit, tmp_path: Path, line: str, complaint: str) -> None:
    (tmp_path / "a b.csv").write_text(f"{HEADER}2026-01-01T12:00:00Z,shop,7\n{line}\n")
    assert re.search(complaint, bad_record(emit, sales(tmp_path)))


def test_a_record_of_another_interval_is_held_to_its_shape_and_time_alone(emit: Emit, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(f"{HEADER}2026-01-01T12:00:00Z,shop,7\n2026-02-01T12:00:00Z,shop,seven\n")
    topology = sales(tmp_path)
    assert emit(topology, planned(topology)).partials["sales"] == {("shop",): (1, 7)}
    with file.open("a") as more:
        more.write("2026-02-01T12:00:00Z,shop\n")
    assert "line 4: 2 cells instead of 3" in bad_record(emit, sales(tmp_path))


def sold_on(root: Path, day: int, format_: str, *shops: str, of: int | None = None) -> Path:
    """Write the file of a day's folder: a sale at noon, or at noon of another day, in each shop."""
    file = root / f"day=2026-01-0{day}" / f"sales.{format_}"
    file.parent.mkdir(exist_ok=True)
    noon = datetime(2026, 1, of or day, 12, tzinfo=UTC)
    if format_ == "csv":
        file.write_text(HEADER + "".join(f"{noon.isoformat()},{shop},1\n" for shop in shops))
        return file
    times = pa.array([noon] * len(shops), pa.timestamp("us", "UTC"))
    prices = pa.array([1] * len(shops), pa.int32())
    pq.write_table(pa.table({"sale": times, "shop": list(shops), "price": prices}), file)
    return file


@pytest.mark.parametrize("format_", ["csv", "parquet"])
def test_a_broken_file_fails_the_intervals_of_its_folder_alone(emit: Emit, tmp_path: Path, format_: str) -> None:
    def day(number: int) -> Interval:
        return Interval(datetime(2026, 1, number, tzinfo=UTC), datetime(2026, 1, number + 1, tzinfo=UTC))

    given = {"folder_time": "day"} | ({"header": True} if format_ == "csv" else {})
    root = tmp_path / "in"
    root.mkdir()
    topology = sales(root, format=format_, options=given)
    sold_on(root, 1, format_, "a", "b", "a")
    sold_on(root, 2, format_, "a").write_bytes(b"oops\n")
    assert emit(topology, planned(topology, day(1))).partials["sales"] == {("a",): (2, 2), ("b",): (1, 1)}
    assert emit(topology, planned(topology, day(4))).read() == {"": 0}
    with pytest.raises(Exception) as failed:  # noqa: PT011 (Spark's own, which one of ours stands for)
        emit(topology, planned(topology, day(2)))
    assert "day=2026-01-02" in str(in_our_words(failed.value))
    sold_on(root, 2, format_, "a", of=3)
    with pytest.raises(Exception) as failed:  # noqa: PT011 (Spark's own, which one of ours stands for)
        emit(topology, planned(topology, day(2)))
    problem = in_our_words(failed.value)
    assert isinstance(problem, BadRecord)
    assert "folder day=2026-01-02" in str(problem)


def test_a_header_names_the_columns_in_any_order(emit: Emit, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("shop,price,sale\nshop,7,2026-01-01T12:00:00Z\n")
    (tmp_path / "b.csv").write_text(f"{HEADER}2026-01-01T12:00:00Z,shop,8\n")
    topology = sales(tmp_path, pattern="*.csv")
    assert emit(topology, planned(topology)).partials["sales"] == {("shop",): (2, 15)}
    (tmp_path / "c.csv").write_text("shop,sale,prize\n")
    assert "c.csv, line 1: the header lacks 'price' and has 'prize'" in bad_record(emit, topology)


@pytest.mark.rule("R7")
def test_of_parquet_nothing_is_kept_and_a_file_must_stay_as_it_was_first_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The later scans read what they need alone; another file of the same length would be other records than were audited."""
    table = pa.table({"sale": [FIRST.start] * 2, "shop": ["a", "b"], "price": pa.array([7, 8], pa.int32())})
    file = tmp_path / "a.parquet"
    pq.write_table(table, file)
    topology = sales(tmp_path, format="parquet", options={})
    spout, plan = topology.streams["in"].spout, BatchPlan.from_json(planned(topology)).streams["in"].plan
    assert isinstance(spout, IntervalSpout)
    records = spout.emit_batch(spark, TransactionAttempt(1, 1), plan)
    assert not records.storageLevel.useMemory
    assert records.count() == 2
    assert spout.emit_batch(spark, TransactionAttempt(1, 1), plan) is records
    os.utime(file, ns=(0, 0))
    with pytest.raises(TransientError, match=r"a.parquet was changed while it was read; emit again"):
        spout.emit_batch(spark, TransactionAttempt(1, 1), plan)
    assert spout.emit_batch(spark, TransactionAttempt(1, 2), plan).count() == 2


def test_much_text_is_scanned_once_for_an_attempt(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interval_spout, "KEPT_BYTES", 1)
    file = tmp_path / "a.csv"
    file.write_text(f"{HEADER}2026-01-01T12:00:00Z,shop,7\n")
    topology = sales(tmp_path)
    spout, plan = topology.streams["in"].spout, BatchPlan.from_json(planned(topology)).streams["in"].plan
    assert isinstance(spout, IntervalSpout)
    attempt, next_attempt = TransactionAttempt(1, 1), TransactionAttempt(1, 2)
    assert spout.emit_batch(spark, attempt, plan).count() == 1
    file.write_text(f"{HEADER}2026-01-01T12:00:00Z,shop,8\n")
    assert [row["price"] for row in spout.emit_batch(spark, attempt, plan).collect()] == [7]
    assert [row["price"] for row in spout.emit_batch(spark, next_attempt, plan).collect()] == [8]
    spark.catalog.clearCache()
    file.write_text(f"{HEADER}2026-01-01T12:00:00Z,shop,9\n")
    assert [row["price"] for row in spout.emit_batch(spark, next_attempt, plan).collect()] == [9]
    assert pickle.loads(pickle.dumps(spout)).identity == spout.identity


def test_little_text_is_scanned_each_time_and_may_be_appended_to(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(f"{HEADER}2026-01-01T12:00:00Z,shop,7\n")
    topology = sales(tmp_path)
    spout, plan = topology.streams["in"].spout, BatchPlan.from_json(planned(topology)).streams["in"].plan
    assert isinstance(spout, IntervalSpout)
    attempt = TransactionAttempt(1, 1)
    assert spout.emit_batch(spark, attempt, plan).count() == 1
    with file.open("a") as more:
        more.write("2026-01-01T12:00:00Z,shop,8\n")
    records = spout.emit_batch(spark, attempt, plan)
    assert not records.storageLevel.useMemory
    assert [row["price"] for row in records.collect()] == [7]
    file.write_text(f"{HEADER}2026-01-01T12:00:00Z,shop,9\n")
    with pytest.raises(TransientError, match=r"a.csv was changed while it was read; emit again"):
        spout.emit_batch(spark, attempt, plan)


def test_a_file_that_is_not_as_it_was_planned(emit: Emit, tmp_path: Path) -> None:
    """What was appended belongs to a later interval; what is gone fails the attempt."""
    file = tmp_path / "a.csv"
    file.write_text(HEADER)
    topology = sales(tmp_path)
    plan = planned(topology)
    file.write_text(HEADER + "2026-01-01T12:00:00Z,late,7\n")
    assert emit(topology, plan).read() == {"": 0}
    file.write_text("sale\n")
    with pytest.raises(PythonException) as failed:
        emit(topology, plan)
    assert isinstance(shrunk := in_our_words(failed.value), TransientError)
    assert "had 16 bytes when it was planned, now 5; restore it" in str(shrunk)
    file.unlink()
    with pytest.raises(PythonException) as failed:
        emit(topology, plan)
    assert isinstance(gone := in_our_words(failed.value), PartitionUnreadable)
    assert "a.csv cannot be read: No such file" in str(gone)


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_parquet_as_spark_and_as_arrow_reads_it(emit: Emit, tmp_path: Path, unit: str) -> None:
    """Both in one batch; other widths, nanoseconds and folder columns are Arrow's."""
    times = [FIRST.start, FIRST.end - timedelta(microseconds=1), FIRST.end]
    for name, type_ in (("a.parquet", pa.int32()), ("day=2026-01-01/b.parquet", pa.int16())):
        table = pa.table(
            {
                "sale": pa.array([each.replace(tzinfo=None) for each in times], pa.timestamp(unit)),
                "price": pa.array([1, 2, 4], type_),
                "extra": [1, 2, 3],
                "shop": ["here"] * 3,
            }
        )
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(table, tmp_path / name)
    topology = sales(tmp_path, format="parquet", options={})
    assert emit(topology, planned(topology)).partials["sales"] == {("here",): (4, 6)}


def test_a_date_serves_as_time(emit: Emit, tmp_path: Path) -> None:
    root = tmp_path / "in"
    (root / "day=2026-01-01").mkdir(parents=True)
    table = pa.table(
        {"sale": [date(2026, 1, 1), date(2026, 1, 2), date(2026, 1, 3)], "price": pa.array([1, 2, 4], pa.int32())}
    )
    pq.write_table(table, root / "day=2026-01-01" / "a.parquet")
    for fields, time in (("sale date, price int", "sale"), ("day date, price int", "day")):
        topology = Topology("sales")
        stream = topology.new_stream("in", IntervalSpout(root, fields, time=time, format="parquet"))
        stream.group_by(time).persistent_aggregate(TransactionalState("sales"), turnover=Sum("price"))
        days = Interval(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC))
        expected = (
            {(date(2026, 1, 1),): (1,), (date(2026, 1, 2),): (2,)} if time == "sale" else {(date(2026, 1, 1),): (7,)}
        )
        assert emit(topology, planned(topology, days)).partials["sales"] == expected
        with pytest.raises(
            DefinitionError, match=rf"'{time}' is a date, which lies in an interval of whole days in UTC alone"
        ):
            planned(topology, FIRST)


def test_parquet_that_does_not_fit_is_refused(emit: Emit, tmp_path: Path) -> None:
    table = pa.table({"sale": pa.array([FIRST.start]), "shop": ["a"], "price": pa.array([1], pa.int32())})
    pq.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "README.txt").write_text("how to read this")
    topology = sales(tmp_path, format="parquet", options={})
    with pytest.raises(BadRecord, match=r"README.txt is no Parquet file"):
        emit(topology, planned(topology))
    topology = sales(tmp_path, format="parquet", options={}, pattern="*.parquet")
    plan = planned(topology)
    pq.write_table(table.rename_columns(["sale", "shop", "unit_price"]), tmp_path / "b.parquet")
    with pytest.raises(BadRecord, match=r"b.parquet: it has no column 'price'"):
        emit(topology, planned(topology))
    pq.write_table(table.set_column(0, "sale", pa.array([datetime(2226, 1, 1, tzinfo=UTC)])), tmp_path / "b.parquet")
    assert "2226-01-01 00:00:00 is the sale of a record, not between 1971-01-01 and 2100-01-01" in bad_record(
        emit, topology
    )
    with (tmp_path / "a.parquet").open("ab") as file:
        file.write(b"more")
    with pytest.raises(TransientError, match=r"a.parquet had .* bytes when it was planned"):
        emit(topology, plan)


def test_a_damaged_page_of_parquet_is_refused_by_name(emit: Emit, tmp_path: Path) -> None:
    """One bit of a number: without its checksum the page is read as any other."""
    table = pa.table({"sale": [FIRST.start] * 9, "shop": ["a"] * 9, "price": pa.array([0x5A5A5A5A] * 9, pa.int32())})
    options: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    pq.write_table(table, tmp_path / "a b.parquet", **options)
    content = (tmp_path / "a b.parquet").read_bytes()
    (tmp_path / "a b.parquet").write_bytes(content.replace(b"ZZZZ" * 9, b"ZZZZ" * 4 + b"ZZ[Z" + b"ZZZZ" * 4, 1))
    told = bad_record(emit, sales(tmp_path, format="parquet", options={}))
    assert re.search(r"/a b.parquet cannot be read \(.*(CRC|checksum)", told)
