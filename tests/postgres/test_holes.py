"""What a run's note and `txbatch status` say of holes: left out (R13), filled, missing (R14), given up (R16)."""

from __future__ import annotations

from typing import Any

import pytest
from postgres_bench import Bench, words
from sqlalchemy import Engine
from support import LogSpout, word_count

from txbatch import SpoutKind
from txbatch.core.batch.holes import describe_hole, describe_holes
from txbatch.core.batch.manifest import ReadPartition
from txbatch.core.batch.transaction import Batch
from txbatch.postgres.reading.ledger_reader import LedgerReader

SINCE_2 = "of stream words, partition b is left out since txid 2: a later batch reads all of it"


class Story:
    """A topology over an opaque log, some of whose partitions are away."""

    def __init__(self, engine: Engine, lengths: dict[str, int]) -> None:
        self.spout = LogSpout(lengths, kind=SpoutKind.OPAQUE)
        self.bench, self.reader = Bench(engine, word_count(self.spout)), LedgerReader(engine)

    def count(self, run: str, *away: str) -> Batch:
        """One batch, without the partitions that are away."""
        planned = self.bench.planned(run).plan.streams["words"].ranges
        read = {name: ReadPartition(of["end"] - of["start"], "1") for name, of in planned.items() if name not in away}
        holes = {name: "broker down" for name in planned if name in away}
        changes = {"streams": {"words": read}, "unreadable": {"words": holes} if holes else {}}
        batch = self.bench.emitted(words(dog=1), run, **changes)
        assert self.bench.commit(batch, words(dog=1))
        return batch

    def note(self, *txids: int) -> str:
        return describe_holes(self.reader.holes_of("word_count", txids))

    def status(self) -> list[str]:
        (row,) = self.reader.status("word_count")
        return [describe_hole(each) for each in (*row["left_out"], *row["given_up"])]

    def unreadable(self) -> list[tuple[Any, ...]]:
        listed = "SELECT partition, unreadable_since_txid FROM report.completeness WHERE unreadable_since_txid > 0"
        return self.bench.rows(f"{listed} ORDER BY 1")


@pytest.mark.rule("R13")
def test_a_hole_is_named_by_each_note_and_by_status_until_a_batch_fills_the_hole(engine: Engine) -> None:
    story = Story(engine, {"a": 100, "b": 100})
    story.count("1")
    assert (story.note(1), story.status()) == ("", [])
    for txid in (2, 3):
        story.count(str(txid), "b")
        assert (story.note(txid), story.status()) == (f"; {SINCE_2}", [SINCE_2])
        assert story.unreadable() == [("b", 2)]
    story.count("4")
    filled = "; of stream words, partition b is read again, with all that was left out since txid 2"
    assert (story.note(4), story.status(), story.unreadable()) == (filled, [], [])
    story.count("5")
    assert story.note(5) == ""
    assert story.note(2) == f"; {SINCE_2}"  # a task that is cleared tells as at first
    assert story.note(1, 2, 3) == f"; {SINCE_2}"
    assert story.note(1, 2, 3, 4, 5) == filled


@pytest.mark.rule("R13")
def test_a_second_hole_of_a_partition_is_told_since_its_own_txid(engine: Engine) -> None:
    story = Story(engine, {"a": 100, "b": 100})
    for txid, away in enumerate(["b", "", "b", "b"], start=1):
        story.count(str(txid), *away)
    assert story.status() == [SINCE_2.replace("txid 2", "txid 3")]
    assert story.note(4) == f"; {SINCE_2.replace('txid 2', 'txid 3')}"
    assert "since txid 1" in story.note(2)


@pytest.mark.rule("R13")
def test_of_many_partitions_the_first_are_named_with_how_many_there_are(engine: Engine) -> None:
    names = [f"{number:04}" for number in range(2_000)]
    story = Story(engine, dict.fromkeys(names, 100))
    story.count("1", *names[1:])
    told = (
        "of stream words, 1,999 partitions (0001, 0002, 0003, 0004, 0005, ...) are left out since txid 1: a later batch reads "
        "all of them"
    )
    assert (story.note(1), story.status()) == (f"; {told}", [told])


@pytest.mark.rule("R14")
def test_the_first_note_names_a_partition_that_is_listed_no_more(engine: Engine) -> None:
    story = Story(engine, {"a": 100, "b": 10, "c": 10})
    story.count("1")
    del story.spout.lengths["b"], story.spout.lengths["c"]
    story.count("2")
    assert story.note(2) == "; of stream words, 2 partitions (b, c) are listed no more"
    story.count("3")
    assert story.note(3) == ""
    assert story.note(1, 2, 3) == "; of stream words, 2 partitions (b, c) are listed no more"


@pytest.mark.rule("R16")
def test_records_given_up_are_named_by_status_and_by_the_batch_behind_them(engine: Engine) -> None:
    story = Story(engine, {"a": 100, "b": 100})
    story.count("1")
    gave_up = story.bench.ledger.skip("word_count", story.bench.planned("2").txid, "retention took them").txid
    told = f"of stream words, records of 2 partitions (a, b) were given up by txid {gave_up}"
    assert story.status() == [told]
    assert story.note(story.count("3").txid) == f"; {told}"
    assert story.status() == [told]
    assert story.note(story.count("4").txid) == ""


@pytest.mark.rule("R13")
def test_what_an_aborted_batch_was_to_read_is_no_hole(engine: Engine) -> None:
    story = Story(engine, {"a": 100, "b": 100})
    story.count("1")
    aborted = story.bench.planned("2")
    story.bench.ledger.abort("word_count", aborted.txid, "a test")
    assert story.status() == []
