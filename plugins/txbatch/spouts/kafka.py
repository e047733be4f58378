"""KafkaSpout and OpaqueKafkaSpout: the messages of a topic, each once, by offsets that are in the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from txbatch import settings
from txbatch.core.batch.transaction import Metadata, TransactionAttempt
from txbatch.core.errors import InvalidOption, OtherHistory, PartitionUnreadable, RecordsGone, SourceUnfit
from txbatch.core.records.declared import fields_ddl
from txbatch.core.records.fields import Field, parse_fields
from txbatch.core.sources.emitter import PARTITION_COLUMN
from txbatch.core.sources.labels import labelled, partitions_of
from txbatch.core.sources.spout import (
    BatchCoordinator,
    OpaquePartitionedSpout,
    PartitionedCoordinator,
    PartitionedSpout,
)
from txbatch.formats.options import check_options, mapping
from txbatch.spouts.topics import client, lag, look
from txbatch.spouts.topics.fields import check_fields
from txbatch.spouts.topics.look import Bounds, Look, name_of, parsed, place_of
from txbatch.spouts.topics.messages import Range, TopicReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txbatch.core.records.declared import Fields

EARLIEST, LATEST = "earliest", "latest"


class KafkaSpout(PartitionedSpout):
    """Reads a topic of Kafka: at most `max_records` offsets of each partition a batch.

    `source` is the name of the cluster: its brokers are in TXBATCH_SOURCE_<NAME>, or in the Airflow connection
    txbatch_source_<name>. `fields` are any of key, value (binary or string), timestamp, partition, offset and headers; with
    `format="json"` they are the members of the JSON object in the value, read by the `options` of JSON lines.

    `start` says where a partition begins that was not read: "earliest"; at a datetime, the first message of that time or
    later; "latest", the end when the stream is planned first. Later runs go on by the ledger's offsets. `accept` is what an
    error about another cluster asks to accept. With `uncommitted=True` messages of open and aborted transactions count, too.
    A range in which nothing comes for `silence` seconds is tried again.

    Transactional: while a partition is away, the batch fails and is retried (R12). A compacted topic is refused: another
    attempt would read other messages.
    """

    remote = True
    _look: Look | None = None  # while something is planned: what the brokers said, and
    _begins: Mapping[int, int | None] | None = None  # where partitions begin that were not read, by a time
    _policy: str | None = None

    def __init__(
        self,
        topic: str,
        fields: Fields,
        *,
        source: str,
        format: str | None = None,
        options: Mapping[str, Any] | None = None,
        max_records: int = 1_000_000,
        start: str | datetime = EARLIEST,
        uncommitted: bool = False,
        silence: float = 20.0,
        accept: str | Sequence[str] = (),
    ) -> None:
        name = type(self).__name__
        self.topic, self.fields, self.source, self.format = str(topic), fields_ddl(fields), source, format
        self.max_records, self.start, self.committed, self.silence = max_records, start, not uncommitted, silence
        self.variables = (settings.source_variable(source),)
        self.accept = frozenset([accept] if isinstance(accept, str) else accept)
        if not self.topic or "/" in self.topic or "@" in self.topic:
            raise InvalidOption(f"{name}: {topic!r} is no name of a topic")
        if format not in (None, "json"):
            raise InvalidOption(f"{name}: format={format!r} is no format of messages; leave it out, or say 'json'")
        if options and format is None:
            raise InvalidOption(f"{name}: options={options!r} are of a format; say format='json', or leave them out")
        self.options = check_options("json", mapping(options))
        if self.options["folders"] or self.options["folder_time"]:
            raise InvalidOption(f"{name}: options={options!r} name folders, which messages have not; leave them out")
        if type(max_records) is not int or max_records < 1:
            raise InvalidOption(f"{name}: max_records={max_records!r} is no number of messages; give 1 or more")
        if not (start in (EARLIEST, LATEST) or (isinstance(start, datetime) and start.tzinfo is not None)):
            raise InvalidOption(
                f"{name}: start={start!r} is no beginning; give 'earliest', 'latest', or a datetime with a zone"
            )
        if format is None:
            check_fields(name, self._parsed)
        client.check_installed()

    @property
    def identity(self) -> Metadata:
        return {"spout": "KafkaSpout", "source": self.source, "topic": self.topic}

    def partitions(self) -> Sequence[str]:
        with self.looking() as found:
            return [name_of(self.topic, number, found.topic_id) for number in found.ends]

    def partitions_to_ask(self, known: Mapping[str, Metadata]) -> Sequence[str]:
        """Return the topic's partitions, and those of a topic of this name that is gone with messages that were not read."""
        there = self.partitions()
        return [*there, *(name for name, last in known.items() if name not in there and _unread(last))]

    def coordinator(self) -> BatchCoordinator:
        return _Coordinator(self)

    @contextmanager
    def one_look(self) -> Iterator[None]:
        """Context manager. Plans in the block see what the brokers said first."""
        with self.looking():
            yield

    @contextmanager
    def looking(self) -> Iterator[Look]:
        """Context manager. Yield one look at the topic, which all in the block share."""
        if self._look is not None:
            yield self._look
            return
        self._look = look.look(self.source, self._given, self.topic, committed=self.committed)
        try:
            yield self._look
        finally:
            self._look = self._begins = self._policy = None

    def emit_partition_batch_new(
        self, attempt: TransactionAttempt, partition: str, last_metadata: Metadata | None
    ) -> Metadata | None:
        """Return the next range of offsets. What is no longer kept, or went with a topic that is gone, is marked as gone."""
        number, topic_id = parsed(partition)
        with self.looking() as found:
            if topic_id != found.topic_id:
                return self._gone(last_metadata)
            bounds = found.bounds(number)
            start = last_metadata["end"] if last_metadata else self._begin(number, bounds, found)
        if start is None or (last_metadata is not None and start == bounds.end):
            return None
        if start < bounds.first:
            gone = f"keeps {bounds.first} to {bounds.end}"
            return {"start": start, "end": bounds.first, "kept": bounds.first, "seen": bounds.end, "gone": gone}
        return self.range_of(start, bounds, last_metadata)

    def _begin(self, number: int, bounds: Bounds, found: Look) -> int | None:
        """Return where a partition begins that was not read; None if the partition has nothing as new as the beginning."""
        if not isinstance(self.start, datetime):
            return bounds.first
        if self._begins is None:
            there = [each for each, of in found.ends.items() if not isinstance(of, PartitionUnreadable)]
            milliseconds = int(self.start.timestamp() * 1000)
            self._begins = look.offsets_at(
                self.source, self._given, self.topic, there, milliseconds, committed=self.committed
            )
        at = self._begins.get(number)
        return None if at is None or at >= bounds.end else max(at, bounds.first)

    def unreadable(self, metadata: Metadata) -> Mapping[str, str]:
        """Return why ranges cannot be read: their partition is away. Of an empty range nothing is read."""
        now, away = look.look(self.source, self._given, self.topic, committed=self.committed), dict[str, str]()
        for label, name in partitions_of(metadata).items():
            number, topic_id = parsed(name)
            range_ = metadata["partitions"][label]
            if topic_id != now.topic_id or range_["start"] == range_["end"]:
                continue  # a topic that is gone is refused when it is read
            try:
                now.bounds(number)
            except PartitionUnreadable as error:
                away[label] = error.text
        return away

    def emit_partition_batch(
        self, spark: SparkSession, attempt: TransactionAttempt, partition: str, metadata: Metadata
    ) -> DataFrame:
        """Return the messages of a range."""
        return self.emit_batch(spark, attempt, {"partitions": {partition: metadata}})

    def emit_batch(self, spark: SparkSession, attempt: TransactionAttempt, metadata: Metadata) -> DataFrame:
        """Return the messages of all ranges: a task of Spark reads its ranges one after the other.

        The topic must be the one that was planned. Asked once more at the end, the spout refuses a topic made anew meanwhile.
        """
        named = partitions_of(metadata)
        self._check_topic(named.values())
        # With pyarrow; a job file needs Python alone.
        from txbatch.spouts.topics.columns import Columns
        from txbatch.spouts.topics.task import RANGES, Task

        rows = sorted(
            (parsed(name)[0], *_bounds(of), label)
            for label, name in named.items()
            for of in (metadata["partitions"][label],)
            if of["start"] < of["end"]
        )
        tasks = max(min(len(rows), spark.sparkContext.defaultParallelism), 1)
        each = max(-(-len(rows) // tasks), 1)
        numbered = [(number // each, *row) for number, row in enumerate(rows)]
        planned = spark.createDataFrame(numbered, f"task: int, {RANGES}", verifySchema=False)
        task = Task(self._reader(), Columns(self._of, self._parsed, self.format, self.options))
        return (
            planned.repartitionById(tasks, "task")
            .drop("task")
            .mapInArrow(task, f"{self.fields}, {PARTITION_COLUMN} string")
        )

    @property
    def fusable(self) -> bool:
        """Return True unless a subclass reads batches in another way."""
        return type(self).emit_batch is KafkaSpout.emit_batch

    def fused(self, plans: Sequence[Metadata]) -> Metadata | None:
        """Return all ranges of all batches, also several of a partition."""
        return labelled(plans) if self.fusable else None

    def count_records(self, partition: str, metadata: Metadata) -> int:
        """Read a range without Spark, and return how many messages it has: markers of transactions alone are none."""
        self._check_topic([partition])
        return self._reader().count(parsed(partition)[0], Range(*_bounds(metadata)))

    def plan_again(self, partition: str, metadata: Metadata) -> Metadata:
        """Return the same range. Raise RecordsGone if the topic was made anew, or keeps the range no more."""
        number, topic_id = parsed(partition)
        with self.looking() as found:
            if topic_id != found.topic_id:
                raise RecordsGone(f"{self._of} was made anew since partition {partition!r} was read")
            if found.bounds(number).first > metadata["start"]:
                raise RecordsGone(f"{self._of}, partition {number} keeps no offset {metadata['start']} any more")
            if self.leaves_out and "compact" in self._cleanup():
                raise RecordsGone(
                    f"{self._of} is compacted: partition {number} may have fewer messages now than were counted"
                )
        return metadata

    def check_plan(self, metadata: Metadata) -> None:
        """Refuse a topic that was made anew, and ranges that are no longer kept, in one look."""
        named = partitions_of(metadata)
        with self.looking() as found:
            self._check_id(found.topic_id, named.values())
            for label, name in named.items():
                bounds = found.ends.get(parsed(name)[0])
                start = metadata["partitions"][label]["start"]
                if isinstance(bounds, Bounds) and bounds.first > start:
                    raise RecordsGone(
                        f"{self._of}, partition {parsed(name)[0]}: offset {start} is no longer kept, {bounds.first} is the "
                        "first; abort the batch: the next plan says what is left"
                    )

    def reach(self, offsets: Mapping[str, Metadata]) -> str:
        """Describe how far the topic is, what is kept, and the lag. Raise the errors of planning, before a run does."""
        self.check_cleanup()
        with self.looking() as found:
            return lag.described(self.topic, found, offsets)

    def check_cleanup(self) -> None:
        """Refuse a compacted topic, whose ranges change."""
        if not self.leaves_out and "compact" in (policy := self._cleanup()):
            raise SourceUnfit(
                f"{self._of} is compacted (cleanup.policy={policy}): another attempt would read other messages; read it by "
                "OpaqueKafkaSpout into an OpaqueState"
            )

    def _cleanup(self) -> str:
        """Return how the topic is cleaned up; "" if the user may not ask."""
        with self.looking():
            if self._policy is None:
                self._policy = look.cleanup_policy(self.source, self._given, self.topic) or ""
            return self._policy

    def check_cluster(self, found: Look, last: Metadata | None) -> None:
        """Refuse a topic on another cluster than the last plan's: its messages may be copies of those that were counted."""
        was = (last or {}).get("cluster")
        if was and found.cluster and was != found.cluster and found.cluster not in self.accept:
            raise OtherHistory(
                f"{self._of} is on another cluster than what was counted ({was}, now {found.cluster}), and would be counted from "
                f"its beginning: read it with a new topology; or, if none of its messages was counted, say "
                f"accept={found.cluster!r}"
            )

    def _gone(self, last: Metadata | None) -> Metadata | None:
        """Return what was never read of a topic that is gone, as far as a plan has seen its end."""
        if last is None or not _unread(last):
            return None
        return {
            "start": last["end"],
            "end": last["seen"],
            "gone": f"{self._of} was made anew, or is gone, before these were read",
        }

    def range_of(self, start: int, bounds: Bounds, last: Metadata | None = None) -> Metadata:
        """Return at most `max_records` offsets and the oldest offset that is kept; if there are more, also the end seen.

        With the leader's epoch, by which the next range finds whether the log was cut off; and that of the last range, if
        another.
        """
        stop = min(bounds.end, start + self.max_records)
        range_ = {
            "start": start,
            "end": stop,
            "kept": bounds.first,
            **({"seen": bounds.end} if stop < bounds.end else {}),
        }
        if bounds.epoch >= 0:
            range_["epoch"] = bounds.epoch
        if (was := (last or {}).get("epoch", bounds.epoch)) != bounds.epoch:
            range_["after"] = was
        return range_

    def _check_topic(self, names: Any) -> None:
        self._check_id(look.identity(self.source, self._given, self.topic), names)

    def _check_id(self, topic_id: str, names: Any) -> None:
        if other := [name for name in names if parsed(name)[1] != topic_id]:
            raise RecordsGone(
                f"{self._of} was made anew since {other[0]!r} was planned, and its old messages are gone: abort the batch with "
                "--skip, which gives them up"
            )

    def _reader(self) -> TopicReader:
        options = client.options_of(self.source, self._given)
        return TopicReader(self._of, options, self.topic, self.committed, self.silence)

    @property
    def _of(self) -> str:
        return place_of(self.source, self.topic)

    @property
    def _given(self) -> str:
        return settings.source_url(self.source)

    @property
    def _parsed(self) -> Sequence[Field]:
        return parse_fields(self.fields)


class OpaqueKafkaSpout(KafkaSpout, OpaquePartitionedSpout):
    """The opaque spout of a topic: a partition that is away is left out, and its messages come in a later batch (R13)."""


class _Coordinator(PartitionedCoordinator):
    """Plans a topic by one look, also for several txids; the first plan of a stream may begin elsewhere than at the oldest
    message.
    """

    spout: KafkaSpout

    def initialize_transaction(
        self, txid: int, prev_metadata: Metadata | None, curr_metadata: Metadata | None
    ) -> Metadata | None:
        """Return the ranges, as of one look.

        The first plan of a stream that begins at the end is stored though empty: else each run would begin anew.
        """
        with self.spout.looking() as found:
            self.spout.check_cluster(found, prev_metadata)
            if not self.offsets:
                self.spout.check_cleanup()
                if self.spout.start == LATEST:
                    return {"partitions": self._ends(found), **_known(found)}
            planned = super().initialize_transaction(txid, prev_metadata, curr_metadata)
        return planned and {**planned, **_known(found)}

    def _ends(self, found: Look) -> Mapping[str, Metadata]:
        """Return empty ranges at the ends of all partitions. A partition that is away refuses the plan."""
        ends = {number: found.bounds(number) for number in found.ends}
        return {
            name_of(self.spout.topic, number, found.topic_id): self.spout.range_of(of.end, of)
            for number, of in ends.items()
        }

    def _all(self, asked: Sequence[str]) -> Sequence[str]:
        return self.spout.partitions()


def _unread(last: Metadata) -> bool:
    return bool(last.get("seen", last["end"]) > last["end"])


def _known(found: Look) -> Metadata:
    return {"cluster": found.cluster} if found.cluster else {}


def _bounds(range_: Metadata) -> tuple[int, int, int]:
    """Return where a range begins and ends, and the epoch of the leader up to its beginning; -1 if not known."""
    return range_["start"], range_["end"], range_.get("after", range_.get("epoch", -1))
