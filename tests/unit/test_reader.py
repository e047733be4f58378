"""The reader of a stream: its emitter is opened once and closed on every path; a partition is built once."""

from __future__ import annotations

import re
from typing import Any

import pytest

from txbatch import OpaquePartitionedSpout, PartitionUnreadable, PlainSpout, Topology
from txbatch.core.batch.transaction import Assignment, TransactionAttempt
from txbatch.core.errors import BadRecord, TransientError
from txbatch.core.sources.spout import Emitter
from txbatch.spark.reader import BatchReader, open_reader

PLANNED = {name: {"start": 0, "end": 1} for name in "abc"}


class Frame:
    """What stands for a DataFrame: the partitions that are in it."""

    def __init__(self, *partitions: str) -> None:
        self.partitions = partitions

    def selectExpr(self, *_: str) -> Frame:
        return self

    def unionByName(self, other: Frame) -> Frame:
        return Frame(*self.partitions, *other.partitions)


class Partitions(OpaquePartitionedSpout):
    fields = "n bigint"

    @property
    def identity(self) -> Any:
        return {"spout": "Partitions"}

    def __init__(self, *away: str) -> None:
        self.away, self.asked, self.closed = away, list[str](), 0

    def partitions(self) -> Any:
        return list(PLANNED)

    def emit_partition_batch_new(self, *_: Any) -> Any:
        return None

    def emit_partition_batch(self, spark: Any, attempt: Any, partition: str, metadata: Any) -> Any:
        self.asked.append(partition)
        if partition in self.away:
            raise PartitionUnreadable(f"{partition} is away")
        return Frame(partition)

    def close(self) -> None:
        self.closed += 1
        if "close" in self.away:
            raise OSError("cannot be closed")


class OneScan(Partitions):
    def emit_batch(self, spark: Any, attempt: Any, metadata: Any) -> Any:
        return Frame("scan of", *metadata["partitions"])


class AnotherEmitter(Emitter):
    """Reads in another way than the spout."""

    def emit_batch(self, spark: Any, attempt: Any, metadata: Any) -> Any:
        return Frame("its own", *metadata["partitions"])


class ReadByAnother(Partitions):
    def emitter(self) -> Emitter:
        return AnotherEmitter()


def reading(spout: Partitions, **more: Any) -> Any:
    metadata = {"format": 2, "streams": {"in": {"partitions": PLANNED}}, **more}
    assignment = Assignment("t", TransactionAttempt(1, 1), "token", metadata, "code")
    return open_reader("spark", Topology("t").new_stream("in", spout), assignment)  # type: ignore[arg-type]


def partitions(reader: BatchReader, *names: str) -> Any:
    return reader.records(names or None).partitions  # type: ignore[attr-defined]


def test_each_partition_of_an_opaque_spout_is_built_once_and_holes_are_left_out() -> None:
    spout = Partitions("b")
    with reading(spout) as reader:
        assert reader.leave_out_unreadable() == {"b": "b is away"}
        assert partitions(reader) == partitions(reader) == ("a", "c")
        assert partitions(reader, "c") == ("c",)
    assert spout.asked == ["a", "b", "c"]


def test_what_is_to_be_read_whole_leaves_no_partition_out() -> None:
    says = (
        r"^TX201 \(try again\): t 1:1, stream 'in': b is away; "
        "a restate counts whole or not at all: try again when partition 'b' can be read"
    )
    with pytest.raises(PartitionUnreadable, match=says), reading(Partitions("b"), format=3, whole=True) as reader:
        reader.leave_out_unreadable()
    with reading(Partitions(), format=3, whole=True) as reader:
        assert reader.leave_out_unreadable() == {}


def test_a_spout_that_reads_all_partitions_in_one_scan_is_asked_for_that_scan() -> None:
    with reading(OneScan("b")) as reader:
        reader.leave_out_unreadable()
        assert partitions(reader) == ("scan of", "a", "c")


class AtOnce(OneScan):
    """Says at once which partitions are away."""

    looks = 0

    def unreadable(self, metadata: Any) -> Any:
        self.looks += 1
        return {name: f"{name} is away" for name in (*self.away, "another") if name in PLANNED or name == "another"}


def test_a_spout_that_says_at_once_what_is_away_is_not_asked_partition_by_partition() -> None:
    spout = AtOnce("b")
    with reading(spout) as reader:
        assert reader.leave_out_unreadable() == {"b": "b is away"}
        assert partitions(reader) == ("scan of", "a", "c")
    assert (spout.looks, spout.asked) == (1, [])
    with (
        pytest.raises(PartitionUnreadable, match="b is away; a restate counts whole"),
        reading(AtOnce("b"), format=3, whole=True) as reader,
    ):
        reader.leave_out_unreadable()


def test_an_emitter_that_is_not_the_spout_gives_the_records() -> None:
    with reading(ReadByAnother("b")) as reader:
        assert reader.leave_out_unreadable() == {"b": "b is away"}
        assert partitions(reader) == ("its own", "a", "c")


def test_at_the_end_the_emitter_is_asked_again_so_that_it_may_refuse_a_source_that_changed() -> None:
    spout = Partitions()
    with reading(spout) as reader:
        reader.leave_out_unreadable()
        spout.away = ("a",)
        with pytest.raises(PartitionUnreadable):
            reader.check_unchanged()


def test_an_emitter_is_closed_once_whatever_happens() -> None:
    spout = Partitions()
    with reading(spout):
        assert spout.closed == 0
    assert spout.closed == 1
    with pytest.raises(ValueError, match="first"), reading(spout):
        raise ValueError("first")
    assert spout.closed == 2


def test_the_first_error_is_told_and_one_of_closing_alone_fails_the_attempt() -> None:
    with pytest.raises(ValueError, match="first"), reading(Partitions("close")):
        raise ValueError("first")
    with pytest.raises(TransientError, match="cannot be closed"), reading(Partitions("close")):
        pass


@pytest.mark.parametrize("method", ["emitter", "emit_partition_batch", "emit_batch", "close"])
def test_what_a_spout_raises_names_batch_stream_and_method(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    def failing(*_: Any) -> None:
        raise ValueError("midway")

    spout = OneScan() if method == "emit_batch" else Partitions()
    monkeypatch.setattr(spout, method, failing)
    why = rf"^t 1:1, stream 'in': {method}\(\) of {type(spout).__name__} raised ValueError: midway; mend the spout or what it"

    def read() -> None:
        with reading(spout) as reader:
            reader.leave_out_unreadable()
            reader.records()

    with pytest.raises(TransientError) as failed:
        read()
    assert re.match(why, failed.value.text)


class Plain(PlainSpout):
    """A spout without partitions, which names a text that is none, or cannot."""

    fields = "line string"

    def __init__(self, says: str | None) -> None:
        self.says = says

    @property
    def identity(self) -> Any:
        return {"spout": "Plain"}

    def initialize_transaction(self, txid: int, prev_metadata: Any, curr_metadata: Any) -> Any:
        return {"day": 7}

    def emit_batch(self, spark: Any, attempt: Any, metadata: Any) -> Any:
        raise AssertionError("it is not read again")

    def check_texts(self, metadata: Any) -> None:
        if self.says is not None:
            raise BadRecord(f"{self.says} of day {metadata['day']}")


@pytest.mark.parametrize(
    ("says", "told"),
    [
        ("row 9", "t 1:2, stream 'in': row 9 of day 7"),
        (None, "t 1:2, stream 'in': a text is invalid UTF-8; mend the source, or abort the batch"),
    ],
)
def test_a_text_that_is_none_is_named_by_the_spout_also_without_partitions(says: str | None, told: str) -> None:
    spout = Plain(says)
    stream = Topology("t").new_stream("in", spout)
    metadata = {"format": 2, "streams": {"in": {"plan": {"day": 7}}}}
    reader = BatchReader(None, stream, Assignment("t", TransactionAttempt(1, 2), "token", metadata, "code"), spout)  # type: ignore[arg-type]
    found: Any = {"": {"records": 3, "fingerprint": 1, "invalid": 1}}
    with pytest.raises(BadRecord) as refused:
        reader.audited(found)
    assert refused.value.text == told
