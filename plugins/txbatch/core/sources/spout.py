"""Spouts: Trident's sources of batches. Planning decides which records, without Spark; reading returns exactly those."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from enum import StrEnum
from functools import reduce
from typing import TYPE_CHECKING, Any

from txbatch.core.batch.transaction import METADATA_BYTES_MAX, Metadata, TransactionAttempt, canonical_json
from txbatch.core.errors import (
    InvalidOption,
    InvalidPlan,
    PartitionUnreadable,
    SourceCutBack,
)
from txbatch.core.formats import is_range
from txbatch.core.records.sql import spark_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# The column by which a partitioned spout's DataFrame says which partition a record came from.
PARTITION_COLUMN = "_txbatch_partition"
# With those of its topology and its stream it must fit a row of an index.
PARTITION_BYTES_MAX = 2500
# What the ledger keeps of a source beside its identity.
RESERVED_IDENTITY = ("kind", "reads")


class SpoutKind(StrEnum):
    """What a spout promises about a txid that is emitted again."""

    TRANSACTIONAL = "transactional"
    OPAQUE = "opaque"
    NON_TRANSACTIONAL = "non_transactional"


class BatchCoordinator(ABC):
    """Decides the metadata of a txid. Runs in the coordinator task, without Spark and under no lock."""

    def is_ready(self, txid: int) -> bool:
        """Return True if there is anything to plan; False uses no txid (R4)."""
        return True

    @abstractmethod
    def initialize_transaction(
        self, txid: int, prev_metadata: Metadata | None, curr_metadata: Metadata | None
    ) -> Metadata | None:
        """The plan of a txid: any JSON value (R3); None for "nothing new".

        `prev_metadata` is this spout's plan in the txid before, None before the first. `curr_metadata` is what the run asks for:
        `{"interval": [start, end]}` of a spout that reads by time, `{"parameters": {...}}` of one that declares some, else
        None. A txid that has a plan keeps it and is not asked for again, whatever is retried or cleared; one whose plan was
        not stored, as another run was faster, is.
        """

    def one_look(self) -> AbstractContextManager[object]:
        """Context manager. Several txids are planned in the block, one after the other: one look at the source may do for all."""
        return nullcontext()

    def success(self, txid: int) -> None:
        """The txid is committed for good; called twice, late or never (R8)."""

    def close(self) -> None:
        """Release what the coordinator holds. Called once for each coordinator, also when planning failed."""


class Emitter(ABC):
    """Reads what the metadata names. Runs in the Spark driver."""

    @abstractmethod
    def emit_batch(self, spark: SparkSession, attempt: TransactionAttempt, metadata: Metadata) -> DataFrame:
        """Return exactly the records that the metadata names, as a DataFrame with the spout's fields.

        Called once for the audit, once for each state and once at the end, when it may refuse a source that changed; of a
        non-transactional spout once in an attempt. DataFrames that it persists are unpersisted before the next attempt.
        """

    def close(self) -> None:
        """Release what the emitter holds. Called once in each attempt, when its records are read, also when that failed.

        A spout that is its own emitter is asked again by the next attempt. An emitter does not hear of success: the driver
        ends, or goes on, before the commit. `BatchCoordinator.success` hears of it.
        """


class Spout(ABC):
    """A source of batches (Trident's ITridentSpout): a coordinator and an emitter.

    `fields` is the DDL of its records, `identity` says in JSON which source it is: stored with txid 1, another one is
    refused (R2). `by_interval` spouts read by time: their coordinator gets the run's interval in `curr_metadata`, under
    "interval". `parameters` names the run's parameters that choose data; those that are given come under "parameters".
    A plan has at most `metadata_bytes_max` bytes of JSON.
    """

    kind: SpoutKind = SpoutKind.TRANSACTIONAL
    fields: str
    by_interval: bool = False
    parameters: tuple[str, ...] = ()
    metadata_bytes_max: int = METADATA_BYTES_MAX
    # True of a spout by time that, asked for several intervals at once, also gives the records between them: they are left out.
    reads_gaps: bool = False
    # False of a spout whose texts must not hold U+0000; `check_texts` says where they do.
    nul: bool = True

    @property
    @abstractmethod
    def identity(self) -> Metadata:
        """Which source this is, for people and for R2: its class and root, no secrets.

        A mapping of strings to JSON, without `kind` and `reads`: the ledger keeps those of every spout.
        """

    def planned_bytes(self, metadata: Metadata) -> int | None:
        """How many bytes a plan will read, if that is known: small batches run with less start-up."""
        return None

    @property
    def fusable(self) -> bool:
        """True if `fused` may say how several batches are read in one pass."""
        return False

    def fused(self, plans: Sequence[Metadata]) -> Metadata | None:
        """Return a plan by which `emit_batch` reads in one pass what these plans of several batches name, each record once.

        None where they do not go together: each is read by itself. Of a spout with partitions no two plans may name the same. One
        that reads by time has the name of the field that says when, a timestamp or a date, as its attribute `time`.
        """
        return None

    def check_texts(self, metadata: Metadata) -> None:
        """Refuse a text that is none: BadRecord names the record. Asked where Spark has found one in what a plan names.

        Does nothing where the spout cannot say.
        """

    def plan_again(self, partition: str, metadata: Metadata) -> Metadata:
        """Return the range, or the plan, by which a committed batch that read this one is counted again (R17): as it was.

        `partition` is '' for a source without. One that is replaced as a whole, such as a file, is what is there now.
        PartitionUnreadable for what is not there any more. A source that is read by time is not asked: its interval is planned.
        """
        return metadata

    def gone(self, metadata: Metadata) -> list[str]:
        """Return what a plan names and is not there any more, of a source that is read by time: records may have gone with it."""
        return []

    def check_plan(self, metadata: Metadata) -> None:
        """Refuse a plan that cannot be read any more as it was made, where that can be seen without Spark: TransientError.

        Asked before an attempt starts Spark. What is not seen here the emitter refuses; what may be left out, it decides, too.
        """

    @abstractmethod
    def coordinator(self) -> BatchCoordinator:
        """The planning side."""

    @abstractmethod
    def emitter(self) -> Emitter:
        """The reading side."""


def check_identity(stream: str, spout: Spout) -> None:
    """DefinitionError when the identity of a stream's spout is no mapping of names, or has one of ours."""
    identity, of = spout.identity, f"stream {stream!r}: the identity of {type(spout).__name__}"
    if not isinstance(identity, Mapping):
        raise InvalidOption(f"{of} is {identity!r}; give a mapping, such as {{'root': '/data'}}")
    for key in identity:
        if not isinstance(key, str):
            raise InvalidOption(f"{of} has the key {key!r}, no string; name it '{key}'")
        if key in RESERVED_IDENTITY:
            raise InvalidOption(f"{of} has the key {key!r}, which is reserved; leave it out or rename it")


def how_it_reads(spout: Spout) -> str:
    """How a spout's plans go on: by the offsets of partitions, by interval, or from the last plan as a whole."""
    if isinstance(spout, PartitionedSpout):
        return "partitions"
    return "interval" if spout.by_interval else "whole"


class PartitionedSpout(Emitter, Spout):
    """A spout whose source has partitions, each with offsets; the framework carries them (Trident's IPartitionedTridentSpout).

    Per partition the metadata is JSON with `start` and `end`: the next batch starts where the last committed one ended.
    A partition that yields nothing keeps its place; a new one starts at its beginning, once (R14).

    A range that says how many records it has, `{"start": a, "end": b, "records": n}`, is refused when another number was
    read (R7): a source that was cut off since loses nothing in silence. Say so wherever planning knows it.

    Where the source no longer keeps what was to come next, the plan says so: `{"start": a, "end": b, "gone": "<why>"}`. Such
    ranges get a txid of their own that cannot be emitted: `txbatch abort --skip` gives the records up.
    """

    max_partitions: int | None = None

    @abstractmethod
    def partitions(self) -> Sequence[str]:
        """The partitions that exist now, in the order in which they are planned."""

    def partitions_to_ask(self, known: Mapping[str, Metadata]) -> Sequence[str]:
        """The partitions that may have something new, in order; `known` are those with an offset, and their last ranges.

        Override where a partition is read once: a look then costs by what is new.
        """
        return self.partitions()

    @abstractmethod
    def emit_partition_batch_new(
        self, attempt: TransactionAttempt, partition: str, last_metadata: Metadata | None
    ) -> Metadata | None:
        """Plan the partition's next range after `last_metadata` (None: from its beginning); None for nothing new."""

    @abstractmethod
    def emit_partition_batch(
        self, spark: SparkSession, attempt: TransactionAttempt, partition: str, metadata: Metadata
    ) -> DataFrame:
        """Exactly the records of this range; PartitionUnreadable when the partition cannot be read now."""

    def emit_batch(self, spark: SparkSession, attempt: TransactionAttempt, metadata: Metadata) -> DataFrame:
        """All ranges of the batch, with the partition in `PARTITION_COLUMN`. Override to read many partitions in one scan."""
        ranges: Mapping[str, Metadata] = metadata["partitions"]
        return union({name: self.emit_partition_batch(spark, attempt, name, of) for name, of in ranges.items()})

    @property
    def reads_by_partition(self) -> bool:
        """True if a batch is read partition by partition: `emit_batch` is not overridden."""
        return type(self).emit_batch is PartitionedSpout.emit_batch

    def count_records(self, partition: str, metadata: Metadata) -> int | None:
        """How many records a range has, looked at again without Spark; None where the spout cannot say.

        Asked of a range that gave no records, which is refused unless there are none, and of one with invalid UTF-8: raise
        BadRecord to name the record.
        """
        return None

    def partition_name(self, value: str) -> str:
        """The partition that a value of `PARTITION_COLUMN` stands for, for readers that cannot give the name itself."""
        return value

    def coordinator(self) -> BatchCoordinator:
        return PartitionedCoordinator(self)

    def emitter(self) -> Emitter:
        return self


class OpaquePartitionedSpout(PartitionedSpout):
    """A partitioned spout that may leave out a partition it cannot read (Trident's IOpaquePartitionedTridentSpout).

    The plan is an upper bound. `emit_partition_batch` raises PartitionUnreadable, before it returns, to declare a hole:
    the batch commits without the partition, whose offset does not move (R13). So does `emit_partition_batch_new`.
    """

    kind = SpoutKind.OPAQUE


class PartitionedCoordinator(BatchCoordinator):
    """Plans a partitioned spout: for each partition the range after its last one, at most `max_partitions` of them."""

    # While several txids are planned: the partitions that may have something new.
    _listed: dict[str, None] | None = None

    def __init__(self, spout: PartitionedSpout) -> None:
        self.spout = spout
        self.offsets: Mapping[str, Metadata] = {}

    @contextmanager
    def one_look(self) -> Iterator[None]:
        """Context manager. What is planned in the block is of one listing; who has nothing new is not asked again."""
        self._listed = {}
        try:
            yield
        finally:
            self._listed = None

    def initialize_transaction(
        self, txid: int, prev_metadata: Metadata | None, curr_metadata: Metadata | None
    ) -> Metadata | None:
        """Return the ranges by partition, those that continue an earlier one, and the partitions that raised PartitionUnreadable.

        None when every range is empty: it would use a txid for nothing, and again in the next run (R4).
        If any range is gone, only such ranges are planned, so that a skip gives up nothing else.
        """
        planned: dict[str, Metadata] = {}
        unreadable: dict[str, str] = {}
        left = self._to_ask()
        for partition in list(left):
            try:
                range_ = self._next_range(txid, partition)
            except PartitionUnreadable as error:
                if self.spout.kind is not SpoutKind.OPAQUE:
                    raise
                unreadable[partition] = error.text
                continue
            if range_ is None:
                del left[partition]
                continue
            planned[partition] = range_
            if len(planned) == self.spout.max_partitions:
                break
        if all(range_["start"] == range_["end"] and "gone" not in range_ for range_ in planned.values()):
            return None
        planned = {name: range_ for name, range_ in planned.items() if "gone" in range_} or planned
        more = {"continues": [name for name in planned if name in self.offsets], "unreadable": unreadable}
        return {"partitions": planned, **{name: value for name, value in more.items() if value}}

    def _to_ask(self) -> dict[str, None]:
        """Return the partitions that may have something new, in order."""
        if self._listed:
            return self._listed
        found = dict.fromkeys(self._partitions())
        if self._listed is not None:
            self._listed = found
        return found

    def _partitions(self) -> Sequence[str]:
        """Return the partitions' names. DefinitionError for no list, or a name that is no string, empty, too long or repeated."""
        named = self.spout.partitions_to_ask(self.offsets)
        if isinstance(named, str) or not isinstance(named, Iterable):
            raise InvalidPlan(f"{type(self.spout).__name__}: partitions() is {named!r}; return a list of names")
        names, seen = list(named), set[str]()
        for name in names:
            of = f"{type(self.spout).__name__}: partition {name!r}"
            if not isinstance(name, str):
                raise InvalidPlan(f"{of} is no string; name it '{name}'")
            if not name:
                raise InvalidPlan(f"{of} has no name; give it one, even where it is the only partition")
            if (size := len(name.encode(errors="surrogatepass"))) > PARTITION_BYTES_MAX:
                cut = f"{type(self.spout).__name__}: partition {name[:80]!r}..."
                most = f"the ledger's index takes at most {PARTITION_BYTES_MAX:,}"
                raise InvalidPlan(f"{cut} has a name of {size:,} bytes; {most}")
            if name in seen:
                raise InvalidPlan(f"{of} is named twice; each partition is read once, by its name")
            seen.add(name)
        return names

    def ask(self, txid: int, partition: str, last: Metadata | None) -> Metadata | None:
        """Ask the spout for the range after a partition's last one; None for nothing new."""
        return self.spout.emit_partition_batch_new(TransactionAttempt(txid, 0), partition, last)

    def _next_range(self, txid: int, partition: str) -> Metadata | None:
        """Plan one partition's next range, or return None for nothing new. Raises as `_check_range` does."""
        last = self.offsets.get(partition)
        range_ = self.ask(txid, partition, deepcopy(last))
        if range_ is not None:
            _check_range(f"{type(self.spout).__name__}: partition {partition!r}", range_, last)
        return range_


def _check_range(of: str, range_: Any, last: Metadata | None) -> None:
    """Refuse a range without both ends, with no number of records, or that does not start where the partition's last one ended
    (DefinitionError), and one whose offsets went backwards (TerminalError).
    """
    if not is_range(range_):
        raise InvalidPlan(f"{of} was planned as {range_!r}; a range has 'start' and 'end'")
    start, end = range_["start"], range_["end"]
    if last is not None and start != last["end"] and canonical_json(start) != canonical_json(last["end"]):
        raise InvalidPlan(
            f"{of} was planned from {start}, but {last['end']} is next; records between them would be lost or counted twice"
        )
    if isinstance(start, int | float) and isinstance(end, int | float) and end < start:
        raise SourceCutBack(
            f"{of} went backwards: its records end at {end}, those from {start} are next; the source was cut off or made "
            "anew: restore it, or read it with a new topology"
        )
    records = range_.get("records", 0)
    if type(records) is not int or records < 0:
        raise InvalidPlan(f"{of} was planned with {records!r} records; say how many as an int, or leave 'records' out")


def union(frames: Mapping[str, DataFrame]) -> DataFrame:
    """Return the records of all partitions, with the partition in `PARTITION_COLUMN`."""
    named = [frame.selectExpr("*", f"{spark_text(name)} as {PARTITION_COLUMN}") for name, frame in frames.items()]
    return reduce(lambda left, right: left.unionByName(right), named)
