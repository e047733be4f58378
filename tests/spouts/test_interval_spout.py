"""IntervalSpout's definition and planning, without Spark."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from gzip import compress
from pathlib import Path
from typing import Any, cast
from zlib import crc32

import pytest
import refusals

from txbatch import Count, Interval, IntervalSpout, Topology, TransactionalState
from txbatch.core.batch.transaction import Metadata, Run, TransactionAttempt
from txbatch.core.definition.checks import check_definition
from txbatch.core.definition.stored import StoredTopology, state_definition, stream_definitions, stream_fields
from txbatch.core.errors import SchemaMismatch, TransientError
from txbatch.core.protocol.ledger import Head
from txbatch.core.protocol.planning import plan_batch
from txbatch.formats.changes import check_not_replaced

FIELDS = "sale timestamp, shop string"
DAY = Interval(datetime(2026, 1, 1, 5, tzinfo=UTC), datetime(2026, 1, 2, 5, tzinfo=UTC))


def plan(root: Path, interval: Interval | None = DAY) -> Metadata | None:
    topology = Topology("sales")
    stream = topology.new_stream("in", IntervalSpout(root, FIELDS, time="sale", pattern="*.csv"))
    stream.group_by("shop").persistent_aggregate(TransactionalState("sales"), sales=Count())
    metadata = plan_batch(topology, Head("sales", 1, None, (), None, {}), Run("run", interval=interval))
    return metadata and metadata["streams"]["in"]["plan"]


def test_the_plan_is_the_interval_and_the_files_with_their_sizes(tmp_path: Path) -> None:
    for name in ("b.csv", "deep/a.csv", "_half.csv", ".tmp/c.csv", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    interval = ["2026-01-01T05:00:00+00:00", "2026-01-02T05:00:00+00:00"]
    files = {
        name: [len(name), (tmp_path / name).stat().st_mtime_ns, crc32(name.encode())]
        for name in ("b.csv", "deep/a.csv")
    }
    assert plan(tmp_path) == {"interval": interval, "files": files}
    assert plan(tmp_path / "b.csv") == {"interval": interval, "files": {"b.csv": files["b.csv"]}}


def test_a_folder_of_three_years_of_hours_is_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"year={hour // 8_760}/part-{hour:06}-0123456789abcdef.csv" for hour in range(28_800)]
    stat = tmp_path.stat()
    monkeypatch.setattr("txbatch.spouts.interval.files_below", lambda *_, **__: names)
    monkeypatch.setattr(Path, "stat", lambda *_, **__: stat)
    planned = plan(tmp_path)
    assert planned is not None
    assert list(planned["files"]) == names


def test_plans_of_one_look_name_the_same_files(tmp_path: Path) -> None:
    spout, asked = (
        IntervalSpout(tmp_path, FIELDS, time="sale"),
        {"interval": [DAY.start.isoformat(), DAY.end.isoformat()]},
    )
    (tmp_path / "a.csv").touch()
    with spout.one_look():
        first = spout.initialize_transaction(1, None, asked)
        (tmp_path / "b.csv").touch()
        assert spout.initialize_transaction(2, None, asked) == first
    assert [list(each["files"]) for each in (first, spout.initialize_transaction(2, None, asked)) if each] == [
        ["a.csv"],
        ["a.csv", "b.csv"],
    ]


@pytest.mark.parametrize("name", ["", "_half.csv"])
def test_a_root_without_a_file_is_no_empty_day(tmp_path: Path, name: str) -> None:
    (tmp_path / "_half.csv").touch()
    with refusals.refused("TX202", "'*.csv'"):
        plan(tmp_path / name)


def test_a_run_without_an_interval_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch()
    with refusals.refused("TX415", "'run'", "interval"):
        plan(tmp_path, None)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"time": "shop"}, ("TX208", "time='shop'", "timestamp")),
        ({"time": "missing"}, ("TX208", "time='missing'", "timestamp")),
        ({"format": "xml"}, ("TX208", "'xml'")),
        ({"options": ["header"]}, ("TX208", "options=", "'header'")),
        (
            {"options": {"Mode": "PERMISSIVE"}},
            ("TX208", "'Mode'"),
        ),
        (
            {"options": {"modifiedAfter": "2026-01-01"}},
            ("TX208", "'modifiedAfter'"),
        ),
        ({"options": {"header": True, "optional": "shpo"}}, ("TX208", "optional='shpo'", "shop")),
        ({"options": {"header": True, "optional": ["shop", "sale"]}}, ("TX208", "optional='sale'", "time")),
        ({"options": {"optional": "shop"}}, ("TX208", "optional=", "header=True")),
        ({"options": {"extra": "ignore"}}, ("TX208", "extra='ignore'", "header=True")),
        ({"options": {"header": True, "extra": "keep"}}, ("TX208", "extra='keep'", "'refuse'", "'ignore'")),
        ({"format": "json", "options": {"extra": "ignore"}}, ("TX208", "'extra'", "json")),
        ({"format": "parquet", "options": {"optional": "sale"}}, ("TX208", "optional='sale'", "time")),
        ({"format": "json", "options": {"numbers_as_text": "sale"}}, ("TX208", "numbers_as_text='sale'", "timestamp")),
        ({"format": "json", "options": {"numbers_as_text": ["shop", "id"]}}, ("TX208", "numbers_as_text='id'", "shop")),
        ({"options": {"numbers_as_text": "shop"}}, ("TX208", "'numbers_as_text'", "csv")),
        ({"format": "parquet", "options": {"header": True}}, ("TX208", "'header'", "parquet", "optional")),
    ],
)
def test_what_is_refused_when_it_is_defined(arguments: dict[str, Any], complaint: tuple[str, ...]) -> None:
    with refusals.refused(*complaint):
        IntervalSpout("/sales", FIELDS, **{"time": "sale", **arguments})


def test_its_identity_is_its_files_and_time() -> None:
    spout = IntervalSpout("/sales", FIELDS, time="sale")
    of = {"root": "/sales", "pattern": "*", "time": "sale", "times": {}}
    assert spout.identity == {"spout": "IntervalSpout", **of}
    assert spout.by_interval


def sold(pattern: str = "*", root: str = "/sales", **options: Any) -> Topology:
    topology = Topology("sales")
    spout = IntervalSpout(root, FIELDS, time="sale", pattern=pattern, options=options)
    stream = topology.new_stream("in", spout)
    stream.group_by("shop").persistent_aggregate(TransactionalState("sales"), count=Count())
    return topology


def known(topology: Topology, *unknown: str, **other: str) -> StoredTopology:
    """What a ledger knows of it after its first batch; `unknown` entries of the sources were not kept by earlier versions."""
    source = {
        stream: {name: value for name, value in identity.items() if name not in unknown} | other
        for stream, identity in topology.source.items()
    }
    states = {each.state.name: state_definition(each) for each in topology.aggregates}
    return StoredTopology(
        "sales.py", True, stream_definitions(source, stream_fields(topology)), states, {}, 1, (1, ["sales"])
    )


@pytest.mark.parametrize(
    "options",
    [{"timezone": "Europe/Berlin"}, {"ambiguous": "latest"}, {"unit": "s"}, {"timestamp_format": "%d/%m/%Y"}],
    ids=str,
)
def test_which_moment_a_time_is_stays_once_there_is_history(options: dict[str, Any]) -> None:
    """Else records near the ends of intervals would be counted twice, or never."""
    name, value = next(iter(options.items()))
    for before, now in (({}, options), (options, {})):
        with refusals.refused("TX601", "'in'") as refused:
            check_definition(sold(**now), "sales.py", known(sold(**before)))
        assert f'"{name}":"{value}"' in str(refused.value)
    check_definition(sold(**options), "sales.py", known(sold(**options)))
    check_definition(sold(**options), "sales.py", known(sold(), "times"))  # kept by an earlier version
    check_definition(sold(decimal=",", header=True, timezone="UTC"), "sales.py", known(sold()))


def test_columns_may_come_and_go_once_there_is_history() -> None:
    """R23: options by which files may lack columns, or have others, join and go without another count."""
    asked = {"header": True, "optional": "shop", "extra": "ignore"}
    for before, now in ((asked, {"header": True}), ({"header": True}, asked)):
        check_definition(sold(**now), "sales.py", known(sold(**before)))


def test_the_newest_file_tells_which_columns_are_passed_over(tmp_path: Path) -> None:
    def passed_over(**options: Any) -> str | None:
        spout = IntervalSpout(tmp_path, FIELDS, time="sale", options=options)
        found = spout.initialize_transaction(1, None, {"interval": [DAY.start.isoformat(), DAY.end.isoformat()]})
        assert found is not None
        return spout.passed_over(found)

    for number, header in enumerate(("shop,note,sale", "sale,shop", f"sale,{','.join('abcdefg')},,shop")):
        (tmp_path / f"{number}.csv").write_text(f"{header}\n")
        os.utime(tmp_path / f"{number}.csv", (number, number))
    assert passed_over(header=True, extra="ignore") == "2.csv has 'a', 'b', 'c', 'd', 'e' and 3 more"
    assert passed_over(header=True) is None
    os.utime(tmp_path / "1.csv", (9, 9))
    assert passed_over(header=True, extra="ignore") is None
    (tmp_path / "3.csv").write_bytes(b"sale,\xff,shop\n")
    assert passed_over(header=True, extra="ignore") is None


def test_which_files_are_read_stays_once_there_is_history() -> None:
    """Else files that are no longer read are left out of all further intervals."""
    with refusals.refused("TX601", '"pattern"', '"b*"', '"*"'):
        check_definition(sold("b*"), "sales.py", known(sold()))
    check_definition(sold("b*"), "sales.py", known(sold(), "pattern"))  # kept by an earlier version


@pytest.mark.parametrize("root", ["data/sales", "sales", "."])
def test_a_root_that_an_earlier_version_kept_relative_is_the_same_written_whole(root: str) -> None:
    check_definition(sold(root="/data/sales"), "sales.py", known(sold(), root=root))


@pytest.mark.parametrize("root", ["/data/sales", "/sales", "shops", "big/data/sales"])
def test_another_root_is_refused_once_there_is_history(root: str) -> None:
    with pytest.raises(SchemaMismatch, match=f'but its batches were read from {{"root":"{root}"}}'):
        check_definition(sold(root="/other/sales"), "sales.py", known(sold(), root=root))


def test_a_longer_file_in_the_place_of_the_planned_one_is_refused(tmp_path: Path) -> None:
    """Read up to the planned size it would be neither the old one nor the new one."""
    file = tmp_path / "latest.csv"
    file.write_text("2026-01-01T06:00:00Z,Berlin\n")
    metadata = plan(tmp_path)
    assert metadata is not None
    file.write_text("2026-01-01T06:00:00Z,Hamburg\n2026-01-01T07:00:00Z,Berlin\n")
    spout, spark = IntervalSpout(tmp_path, FIELDS, time="sale"), cast(Any, None)
    with refusals.refused("TX204", "latest.csv", "planned"):
        spout.emit_batch(spark, TransactionAttempt(1, 1), metadata)


def test_a_file_that_grew_is_still_the_same(tmp_path: Path) -> None:
    file = tmp_path / "live.csv"
    file.write_bytes(b"x" * 10_000)
    size = file.stat().st_size
    metadata = plan(tmp_path)
    assert metadata is not None
    entry = metadata["files"]["live.csv"]
    file.write_bytes(b"x" * 10_000 + b"more")
    check_not_replaced(file, entry)
    check_not_replaced(file, [size, entry[1]])  # of a plan that knew no ending
    check_not_replaced(file, size)
    file.write_bytes(b"x" * 9_999 + b"yy")
    with pytest.raises(
        TransientError, match=r"is another file .*; restore it, and .*, abort the batch \(.* and run again"
    ):
        check_not_replaced(file, entry)


def test_a_plan_of_files_of_other_sizes_is_refused_before_they_are_read(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("2026-01-01T06:00:00Z,Berlin\n")
    metadata = plan(tmp_path)
    assert metadata is not None
    spout = IntervalSpout(tmp_path, FIELDS, time="sale")
    spout.check_plan(metadata)
    with file.open("a") as more:
        more.write("2026-01-01T07:00:00Z,Berlin\n")
    spout.check_plan(metadata)
    grown = r"a\.csv had 28 bytes when it was planned, now 56; restore it, and the retry reads it; or, if"
    with pytest.raises(TransientError, match=grown):
        IntervalSpout(tmp_path, FIELDS, time="sale", format="parquet").check_plan(metadata)
    file.write_text("short\n")
    with refusals.refused("TX204", "a.csv", "28", "planned", "6"):
        spout.check_plan(metadata)
    file.write_text("2026-01-01T06:00:00Z,Hamburg\n" * 2)
    with refusals.refused("TX204", "a.csv", "planned"):
        spout.check_plan(metadata)
    file.unlink()
    spout.check_plan(metadata)  # whether it may be left out, its reader says


def test_a_compressed_file_that_grew_is_refused_before_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(compress(b"2026-01-01T06:00:00Z,Berlin\n"))
    spout = IntervalSpout(tmp_path, FIELDS, time="sale")
    interval = [DAY.start.isoformat(), DAY.end.isoformat()]
    metadata = spout.initialize_transaction(1, None, {"interval": interval})
    assert metadata is not None
    with (tmp_path / "a.csv.gz").open("ab") as more:
        more.write(compress(b"2026-01-01T07:00:00Z,Berlin\n"))
    with refusals.refused("TX204", "a.csv.gz", "planned"):
        spout.check_plan(metadata)
