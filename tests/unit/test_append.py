"""AppendState: what can be kept as rows, and what is told where it cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from refusals import refused

from txbatch import AppendState, Count, FixedBatchSpout, OpaqueState, ParquetFiles, SpoutKind, Stream, Topology
from txbatch.core.batch.transaction import Assignment, TransactionAttempt
from txbatch.core.definition.stored import columns
from txbatch.core.errors import DefinitionError, NotExactlyOnce
from txbatch.core.topology.guarantee import guarantees
from txbatch.memory.runner import run
from txbatch.testing import FeederBatchSpout, submit_topology


def stream(fields: str = "word string") -> Stream:
    rest = (None,) * fields.count(",")
    return Topology("t").new_stream("in", FixedBatchSpout(fields, 2, ("a", *rest), ("a", *rest), (None, *rest)))


def test_every_record_is_one_row_by_its_batch() -> None:
    words = stream()
    words.persist(AppendState("kept"))
    rows = run(words.topology).rows("kept")
    assert sorted((batch, copy, *row.value) for (batch, _, copy), row in rows.items()) == [
        (1, 1, "a"),
        (1, 2, "a"),
        (2, 1, None),
    ]
    assert len({record for _, record, _ in rows}) == 2


def test_a_state_takes_records_or_aggregates() -> None:
    with refused("TX105", "AppendState"):
        stream().persist(OpaqueState("kept"))
    with refused("TX107", "'kept'", "AppendState"):
        stream().group_by("word").persistent_aggregate(AppendState("kept"), count=Count())


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ("batch bigint", ("TX102", "column", "'batch'", "twice")),
        ("Copy bigint", ("TX102", "column", "'Copy'", "'copy'")),
        ("txid bigint", ("TX102", "column", "'txid'", "'kept'")),
        ("a string, prev_a string", ("TX102", "column", "'prev_a'", "twice")),
    ],
)
def test_fields_that_are_columns_already_are_named(fields: str, told: tuple[str, ...]) -> None:
    with refused(*told):
        stream(fields).persist(AppendState("kept"))


def test_what_is_exactly_once() -> None:
    words = stream()
    words.persist(AppendState("kept"))
    (row,) = guarantees(words.topology)
    assert (row["guarantee"], row["state_kind"], row["counts"]) == ("exactly once", "opaque, rows", None)
    once = stream()
    once.spout.kind = SpoutKind.NON_TRANSACTIONAL
    with pytest.raises(NotExactlyOnce):
        once.persist(AppendState("kept"))
    assert once.persist(AppendState("kept"), guarantee="at_least_once").keys


def test_fields_are_part_of_what_a_state_is() -> None:
    kept = stream("word string, n bigint").persist(AppendState("kept"))
    assert columns(kept)["rows"] == [["word", "string"], ["n", "bigint"]]
    counted = stream().group_by("word").persistent_aggregate(OpaqueState("counted"), count=Count())
    assert "rows" not in columns(counted)


def test_an_assignment_says_a_position_where_it_is_not_its_txid() -> None:
    ordinary = Assignment("t", TransactionAttempt(4, 1), "token", {"streams": {}}, "code")
    restate = Assignment("t", TransactionAttempt(4, 1), "token", {"streams": {}}, "code", 2)
    assert "position" not in ordinary.to_json()
    assert [Assignment.from_json(each.to_json()).position for each in (ordinary, restate)] == [4, 2]


@pytest.mark.parametrize("point", ["commit.before_commit", "commit.committed", "success.cleaned"])
def test_wherever_a_batch_dies_it_is_one_file(point: str, tmp_path: Path) -> None:
    topology, words = Topology("t"), FeederBatchSpout("word string")
    topology.new_stream("in", words).persist(AppendState("kept", files=ParquetFiles(tmp_path / "lake")))
    local = submit_topology(topology)
    words.feed("the", "cat", "the")
    local.run(dies_at=point)
    there = ["batch-000000000001.parquet"] if point == "success.cleaned" else []
    assert [file.name for file in tmp_path.glob("lake/*.parquet")] == there
    words.feed("dog")
    local.run()
    files = [pq.read_table(file).to_pydict() for file in sorted(tmp_path.glob("lake/*.parquet"))]
    assert [sorted(file["word"]) for file in files] == [["cat", "the", "the"], ["dog"]]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"files": "/lake/kept"}, ("TX105", "'/lake/kept'", "ParquetFiles")),
        ({"database": "warehouse"}, ("TX504", "'warehouse'")),
        ({"prune": True}, ("TX107", "rows")),
        ({"contributions": False}, ("TX107", "rows")),
    ],
)
def test_files_are_of_rows_that_stay(options: dict[str, Any], told: tuple[str, ...]) -> None:
    with refused(*told):
        AppendState("kept", **{"files": ParquetFiles("/lake/kept"), **options})


def test_a_folder_is_one_states() -> None:
    with pytest.raises(DefinitionError, match="give the absolute path of a folder"):
        ParquetFiles("s3://lake/kept")
    words = stream()
    for name in ("one", "two"):
        words.persist(AppendState(name, files=ParquetFiles("/lake")))
    with refused("TX102", "'one'", "'two'", "/lake"):
        words.topology.check()
