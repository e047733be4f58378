"""An AppendState through the command line: the records of each batch, exactly once, and all that is asked of a state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from cli_support import MAIN, refused, rows
from click.testing import Result
from sqlalchemy import Engine, text
from without_spark import LikeTheDriver

from txbatch.spouts.partitioned_log import PartitionedLog

Txbatch = Callable[..., Result]
WriteJob = Callable[[str, str], str]
JOB = """
topology = Topology("lines")
stream = topology.new_stream("log", PartitionedLogSpout({root!r}, max_records=3)).project("line"){more}
stream.persist(AppendState("lines"))
"""


@pytest.fixture
def log(tmp_path: Path, txbatch: Txbatch, monkeypatch: pytest.MonkeyPatch) -> PartitionedLog:
    monkeypatch.setattr("txbatch.wiring.Application", LikeTheDriver)
    log = PartitionedLog(tmp_path / "log")
    log.append("0", ["a", "b", "a"])
    log.append("0", ["a", "c"])
    return log


@pytest.fixture
def job(log: PartitionedLog, txbatch: Txbatch, write_job: WriteJob) -> str:
    """Two batches are committed."""
    job = write_job("lines.py", JOB.format(root=str(log.root), more="") + MAIN)
    rows(txbatch("run", job, "--until-idle", "--json"))
    return job


def kept(engine: Engine, relation: str = "report.lines", way: str = "auto") -> list[tuple[Any, ...]]:
    with engine.begin() as connection:
        connection.execute(text(f"SET LOCAL txbatch.far_back = {way}"))
        found = connection.execute(text(f"SELECT batch, line, copy, txid FROM {relation} ORDER BY batch, line, copy"))
        return [tuple(row) for row in found]


def restated(log: PartitionedLog, txbatch: Txbatch) -> None:
    """Count the first batch again, after its source was mended."""
    next((log.root / "0").iterdir()).write_text("a\nz\nb\na\nc\n")
    assert rows(txbatch("restate", "lines", "1", "--why", "mended", "--json"))[0]["txid"] == 3


BEFORE = [(1, "a", 1, 1), (1, "a", 2, 1), (1, "b", 1, 1), (2, "a", 1, 2), (2, "c", 1, 2)]
AFTER = [(1, "a", 1, 3), (1, "b", 1, 3), (1, "z", 1, 3), (2, "a", 1, 2), (2, "c", 1, 2)]


@pytest.mark.rule("R17")
def test_a_restate_replaces_the_rows_of_its_position(
    txbatch: Txbatch, job: str, log: PartitionedLog, engine: Engine
) -> None:
    assert kept(engine) == BEFORE
    restated(log, txbatch)
    assert kept(engine) == AFTER
    assert [kept(engine, "report.as_of_lines(2)", way) for way in ("off", "on")] == [BEFORE] * 2
    assert [kept(engine, "report.corrected_lines(1)", way) for way in ("off", "on")] == [AFTER[:3]] * 2
    with engine.begin() as connection:
        (key,) = connection.execute(text("SELECT record FROM report.lines WHERE line = 'z'")).scalars()
    (why,) = rows(txbatch("why", "lines", f"1,{key},1", "--json"))
    assert [(each["position"], each["txid"]) for each in why["versions"]] == [(1, 3)]
    assert [row["outcome"] for row in rows(txbatch("verify", "lines", "--json"))] == ["EQUAL"] * 3


@pytest.mark.rule("R22")
def test_retention_folds_and_keeps_the_rows(txbatch: Txbatch, job: str, log: PartitionedLog, engine: Engine) -> None:
    (folded,) = rows(txbatch("gc", "lines", "--keep-txids", "1", "--json"))
    assert (folded["horizon"], folded["rows"], kept(engine)) == (1, 3, BEFORE)
    refused(txbatch("restate", "lines", "1", "--why", "late"), "is folded")
    rows(txbatch("restate", "lines", "2", "--why", "late", "--json"))
    assert kept(engine) == [*BEFORE[:3], (2, "a", 1, 3), (2, "c", 1, 3)]


@pytest.mark.rule("R22")
def test_rows_that_are_pruned_go_with_what_is_folded_and_verify_finds_nothing_wrong(
    txbatch: Txbatch, job: str, log: PartitionedLog, engine: Engine
) -> None:
    restated(log, txbatch)
    Path(job).write_text(Path(job).read_text().replace('AppendState("lines")', 'AppendState("lines", prune=True)'))
    (change,) = rows(txbatch("change", job, "--why", "they are many", "--yes", "--json"))
    assert (change["how"], change["what"]) == ("in place", "rows of state 'lines' go now when retention folds them")
    log.append("0", ["d"])
    log.append("0", ["e"])
    rows(txbatch("run", job, "--json"))
    assert (len(kept(engine)), rows(txbatch("gc", "lines", "--keep-txids", "1", "--json"))[0]["horizon"]) == (7, 3)
    assert kept(engine) == [(4, "d", 1, 4), (4, "e", 1, 4)]
    found = {row["what"]: row["outcome"] for row in rows(txbatch("verify", "lines", "--json"))}
    assert found == {"txid 4": "EQUAL", "state lines": "EQUAL", "folded": "SKIPPED"}
    assert [row["line"] for row in rows(txbatch("as-of", "lines", "4", "--json"))] == ["d", "e"]
    assert rows(txbatch("as-of", "lines", "3", "--json")) == []
    rows(txbatch("restate", "lines", "4", "--why", "late", "--json"))
    assert kept(engine) == [(4, "d", 1, 5), (4, "e", 1, 5)]


@pytest.mark.rule("R23")
def test_another_field_needs_a_rebuild_in_which_positions_stay(
    txbatch: Txbatch, job: str, log: PartitionedLog, engine: Engine, write_job: WriteJob
) -> None:
    restated(log, txbatch)
    more = '.each(lambda r: len(r["line"]), "size int")'
    job = write_job("lines.py", JOB.format(root=str(log.root), more=more) + MAIN)
    told = "state 'lines' changes from keeping records of line string to keeping records of line string, size int"
    refused(txbatch("run", job), told)
    rows(txbatch("rebuild", job, "--why", "sizes", "--json"))
    assert [row[:3] for row in kept(engine)] == [row[:3] for row in AFTER]
    with engine.begin() as connection:
        assert connection.execute(text("SELECT sum(size) FROM report.lines")).scalar_one() == len(AFTER)
    assert rows(txbatch("drop", "lines", "--yes", "--json"))


@pytest.mark.rule("R10", "R17")
def test_a_folder_has_all_that_was_committed_also_before_it_was_asked_for(
    txbatch: Txbatch, job: str, log: PartitionedLog, tmp_path: Path
) -> None:
    kept_in = f'AppendState("lines", files=ParquetFiles({str(tmp_path / "lake")!r}))'
    changed = "from txbatch import ParquetFiles\n" + Path(job).read_text().replace('AppendState("lines")', kept_in)
    Path(job).write_text(changed)
    log.append("0", ["d"])
    rows(txbatch("run", job, "--json"))
    assert read(tmp_path / "lake") == [["a", "a", "b"], ["a", "c"], ["d"]]
    next((log.root / "0").iterdir()).write_text("a\nz\nb\na\nc\nd\n")
    rows(txbatch("restate", "lines", "1", "--why", "mended", "--json"))
    assert read(tmp_path / "lake") == [["a", "b", "z"], ["a", "c"], ["d"]]


def read(folder: Path) -> list[list[str]]:
    return [sorted(pq.read_table(file)["line"].to_pylist()) for file in sorted(folder.glob("*.parquet"))]


def test_who_asks_for_rows_without_a_key_is_told_the_select(txbatch: Txbatch, job: str) -> None:
    told = "state 'lines' keeps records, a row for each: read them by SELECT * FROM report.lines ORDER BY batch, such as by"
    refused(txbatch("query", "lines"), told)
