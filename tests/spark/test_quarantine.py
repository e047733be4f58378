"""Quarantine by Spark: the same records count and the same rows are kept as in memory; the limit; the file of a record."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from txbatch import AppendState, Count, FileSpout, FixedBatchSpout, OpaqueState, Stream, Topology
from txbatch.core.errors import QuarantineFull, TransientError
from txbatch.direct.emitter import partials_of
from txbatch.direct.operations import records

Emit = Callable[..., Any]
FIELDS = "line string, price decimal(9,2), day date, at timestamp, raw binary, ratio double"
MORE = (Decimal("1.50"), date(2024, 2, 29), datetime(2024, 2, 29, 12, tzinfo=UTC), b"\xff", float("nan"))
LINES = ["1", "2", "x", "x", "", "3 4", "\0", "ü文\u200b", None, "7" * 30]


def number(record: Any) -> int:
    return int(record["line"])


def chained(stream: Stream) -> Stream:
    """Each operation fails for some: one raises, one returns what does not fit, one fails behind a result of the batch."""
    numbers = stream.filter(lambda r: r["line"].strip() is not None).each(
        lambda r: [int(each) for each in r["line"].split() or ["none"]], "n bigint"
    )
    few = numbers.map(lambda r: (r["line"], "no" if r["n"] == 2 else r["n"]), "line string, n bigint")
    return few.group_by("line").aggregate(sum=Count()).peek(lambda r: 1 // (r["line"] != "1"))


def test_what_fails_and_what_counts_is_as_in_the_twin(emit: Emit) -> None:
    found = [(line, *MORE) for line in LINES]
    topology = Topology("t", quarantine=20)
    one = topology.new_stream("one", FixedBatchSpout(FIELDS, 20, *found))
    other = topology.new_stream("other", FixedBatchSpout(FIELDS, 20, ("5", *MORE), ("y", *MORE)))
    chained(one).persist(AppendState("kept"))
    merged = topology.merge(one, other, name="both").map(number, "n bigint")
    merged.persistent_aggregate(OpaqueState("n"), n=Count())
    emitted = emit(topology)
    names = [field.name for field in one.fields]
    read = {
        "one": {"": [dict(zip(names, each, strict=True)) for each in found]},
        "other": {"": [dict(zip(names, (line, *MORE), strict=True)) for line in ("5", "y")]},
    }
    for aggregate in topology.aggregates:
        expected = dict(partials_of(aggregate, records(aggregate.stream, read), 1))
        assert emitted.partials[aggregate.state.name] == expected
    failed = emitted.partials["t_quarantine"].values()
    assert {(stream, operation) for stream, _, operation, *_ in failed} == {
        ("one", "1. filter <lambda>"),
        ("one", "2. each <lambda>"),
        ("one", "3. map <lambda>"),
        ("one", "5. peek <lambda>"),
        ("one", "1. map number"),
        ("other", "1. map number"),
    }


def files(root: Path, **options: Any) -> Topology:
    for n in range(4):
        (root / f"{n}.txt").write_text("x\n1\n" if n == 2 else f"{n}\n")
    topology = Topology("t", **options)
    stream = topology.new_stream("in", FileSpout(root, "*.txt")).each(number, "n bigint")
    stream.persistent_aggregate(OpaqueState("n"), n=Count())
    return topology


def test_the_file_of_a_record_is_kept(emit: Emit, tmp_path: Path) -> None:
    emitted = emit(files(tmp_path, quarantine=1))
    assert list(emitted.partials["n"].values()) == [(4,)]
    told = "ValueError: invalid literal for int() with base 10: 'x'"
    rows = list(emitted.partials["t_quarantine"].values())
    assert rows == [("in", "2.txt", "1. each number", told, '{"line": "x"}')]
    assert emitted.manifest.states["t_quarantine"].kept == 1


def test_beyond_the_limit_the_batch_fails_and_one_record_is_told(emit: Emit, tmp_path: Path) -> None:
    topology = files(tmp_path, quarantine=1)
    (tmp_path / "3.txt").write_text("x\n" * 50)
    told = r"t 1:1: functions fail for more than 1 records .*: 1. each number, ValueError.*, for the record {\"line\": \"x\"}"
    with pytest.raises(QuarantineFull, match=told):
        emit(topology)


def test_what_is_no_records_fault_fails_the_attempt(emit: Emit, tmp_path: Path) -> None:
    topology = files(tmp_path, quarantine=9)

    def away(record: Any) -> bool:
        raise ConnectionError("no answer")

    topology.streams["in"].filter(away).persist(AppendState("kept"))
    with pytest.raises(TransientError, match="raised ConnectionError: no answer"):
        emit(topology)
