"""ParquetFiles: each committed batch is one file, whoever writes it and whenever that dies, in both ledgers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
from contract.test_restate import restate_of
from contract.test_rows import Rows
from refusals import refused
from support import code, manifest_of, run

from txbatch import ParquetFiles
from txbatch.core.batch.transaction import Assignment, TransactionAttempt
from txbatch.core.corrections.rebuild import Swapped
from txbatch.core.errors import TerminalError, TransientError
from txbatch.direct.emitter import partials_of
from txbatch.storage.parquet_files import MARK, WRITING

pytestmark = pytest.mark.rule("R10")
Read = dict[int, list[str | None]]


class Lake(Rows):
    """A topology whose words are files of a folder as well."""

    def __init__(self, backing: Any, folder: Path) -> None:
        self.folder = folder
        super().__init__(backing, files=ParquetFiles(folder))

    def write(self) -> None:
        (aggregate,) = self.topology.aggregates
        assert aggregate.state.files
        aggregate.state.files.write(aggregate, self.ledger.upstream)

    def read(self) -> Read:
        """The words of each batch, as somebody finds them who knows the folder alone."""
        found: Read = {}
        for file in sorted(self.folder.glob("*.parquet")):
            table = pq.read_table(file)
            assert table.column_names == ["batch", "word"]
            number = int(file.stem.partition("-")[2])
            assert set(table["batch"].to_pylist()) <= {number}
            found[number] = sorted(table["word"].to_pylist(), key=lambda word: word or "")
        return found


@pytest.fixture
def lake(backing: Any, tmp_path: Path) -> Lake:
    return Lake(backing, tmp_path / "lake")


def at_rename(monkeypatch: pytest.MonkeyPatch, call: Callable[[], None]) -> None:
    """Before the next rename of a file, and only then, something happens."""
    rename = Path.replace

    def first(self: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "replace", rename)
        call()
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", first)


def test_each_committed_batch_is_one_file(lake: Lake) -> None:
    lake.counts(run("1"), "dog", "dog", None)
    of = run("2")
    lake.emits(lake.planned(of), of, ["cat"])
    lake.write()
    assert lake.read() == {1: [None, "dog", "dog"]}, "txid 2 is not committed"
    lake.counts(of, "cat")
    lake.counts(run("3"))
    for _ in range(2):
        lake.write()
        assert lake.read() == {1: [None, "dog", "dog"], 2: ["cat"], 3: []}


@pytest.mark.rule("R17")
def test_a_restate_takes_the_place_of_a_file(lake: Lake) -> None:
    lake.counts(run("1"), "dog")
    lake.counts(run("2"), "cat")
    lake.write()
    lake.counts(restate_of(1), "emu", "emu")
    assert lake.read() == {1: ["dog"], 2: ["cat"]}, "as it was, until it is written"
    lake.write()
    assert lake.read() == {1: ["emu", "emu"], 2: ["cat"]}


@pytest.mark.parametrize("renames", range(5))
def test_who_dies_leaves_nothing_half_done(lake: Lake, renames: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each rename: that of the empty mark, of two files, and of the mark behind each."""
    lake.counts(run("1"), "dog")
    lake.counts(run("2"), "cat")
    left, rename = [renames], Path.replace

    def dies(self: Path, target: Path) -> Path:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", dies)
        with pytest.raises(KeyboardInterrupt):
            lake.write()
    assert lake.read() == dict(list({1: ["dog"], 2: ["cat"]}.items())[: renames // 2])
    lake.write()
    assert lake.read() == {1: ["dog"], 2: ["cat"]}


@pytest.mark.rule("R5", "R17")
def test_who_wakes_up_late_writes_nothing_old(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has read the old version, and stands before its rename, when the restate is committed and written."""
    lake.counts(run("1"), "dog")
    lake.write()
    lake.counts(run("2"), "cat")

    def meanwhile() -> None:
        lake.counts(restate_of(2), "emu")
        lake.write()
        assert lake.read() == {1: ["dog"], 2: ["emu"]}

    at_rename(monkeypatch, meanwhile)
    lake.write()
    assert lake.read() == {1: ["dog"], 2: ["emu"]}


def test_two_at_once_give_up_when_it_does_not_end(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.counts(run("1"), "dog")
    rename = Path.replace

    def taken_away(self: Path, target: Path) -> Path:
        if target.suffix == ".parquet":
            self.unlink()
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", taken_away)
    with pytest.raises(TransientError, match="others write the same batches"):
        lake.write()


@pytest.mark.parametrize("asked", ["known", "read_text"])
def test_what_others_write_meanwhile_is_no_folder_of_others(
    lake: Lake, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the ledger was asked, or the folder was found empty, just before somebody else wrote the next batch."""
    lake.counts(run("1"), "dog")
    if asked == "known":
        lake.write()
    of = type(lake.ledger.upstream) if asked == "known" else Path
    call = getattr(of, asked)

    def late(self: Any, *arguments: Any) -> Any:
        monkeypatch.setattr(of, asked, call)
        try:
            return call(self, *arguments)
        finally:
            lake.counts(run("2"), "cat")
            lake.write()

    monkeypatch.setattr(of, asked, late)
    lake.write()
    assert lake.read() == {1: ["dog"], 2: ["cat"]}


@pytest.mark.rule("R23")
def test_a_rebuild_is_written_anew(lake: Lake) -> None:
    for number in (1, 2):
        lake.counts(run(f"{number}"), "dog")
    lake.write()
    (aggregate,), rebuilds = lake.topology.aggregates, lake.backing.rebuilds
    rebuild = rebuilds.begin(lake.topology, "jobs/job.py", code("new"), "other words", "ann")
    for words in (["emu"], ["fox", "fox"]):
        version = rebuilds.next(rebuild)
        attempt = TransactionAttempt(version.txid, 0)
        assignment = Assignment("kept", attempt, uuid4().hex, version.metadata, code("new"))
        partials = {"kept": partials_of(aggregate, [{"word": word} for word in words], version.txid)}
        manifest = manifest_of(lake.topology, assignment, partials)
        given = lake.backing.as_partials(lake.topology, partials)
        assert rebuilds.count(rebuild, lake.topology, assignment, manifest, given)
    assert isinstance(rebuilds.swap(rebuild, lake.topology), Swapped)
    assert lake.read() == {1: ["dog"], 2: ["dog"]}, "as it was, until it is written"
    lake.write()
    assert lake.read() == {1: ["emu"], 2: ["fox", "fox"]}


def test_a_folder_of_others_is_left_alone(lake: Lake) -> None:
    lake.counts(run("1"), "dog")
    lake.folder.mkdir()
    (lake.folder / "mine.parquet").touch()
    with refused("TX503", str(lake.folder), MARK):
        lake.write()
    (lake.folder / "mine.parquet").unlink()
    lake.write()
    mark = json.loads((lake.folder / MARK).read_text())
    for change, told in (
        ({"state": "sold"}, "of state 'sold'"),
        ({"made": "2020-01-01"}, "of a topology made 2020-01-01"),
        ({"txid": 9}, "txid 9, the ledger, which was set back, at txid 1"),
        ({"more": 1}, "cannot be read"),
    ):
        (lake.folder / MARK).write_text(json.dumps(mark | change))
        with pytest.raises(TerminalError, match=told):
            lake.write()
    assert lake.read() == {1: ["dog"]}


def test_a_folder_that_cannot_be_written_is_tried_again(lake: Lake) -> None:
    lake.counts(run("1"), "dog")
    lake.folder.write_text("a file")
    with pytest.raises(TransientError, match="cannot be written"):
        lake.write()
    lake.folder.unlink()
    lake.write()
    assert lake.read() == {1: ["dog"]}
    assert list((lake.folder / WRITING).iterdir()) == []
