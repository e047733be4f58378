"""Spouts: Trident's sources of batches. Planning selects records without Spark; reading returns exactly the planned records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from txbatch.core.errors import PartitionUnreadable
from txbatch.core.sources.emitter import Emitter as Emitter
from txbatch.core.sources.emitter import PartitionedEmitter
from txbatch.core.sources.partition_checks import check_range, checked_names, missing_of
from txbatch.core.sources.spout_options import SpoutOptions
from txbatch.core.stored_json import METADATA_BYTES_MAX, copy_of
from txbatch.core.stored_json import Metadata as Metadata

if TYPE_CHECKING:
    from txbatch.core.batch.transaction import TransactionAttempt


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
        """Return the plan of a txid: any JSON value (R3); None for "nothing new".

        `prev_metadata` is the last plan of this stream, from whichever txid before; None before the first plan, and always None
        for a partitioned spout. `curr_metadata` is what the run
        asks for: `{"interval": [start, end]}` if the spout reads by time, `{"parameters": {...}}` if the spout declares
        parameters, None for any other spout. A planned txid keeps its plan through retries and clears, and is not planned
        again. If another run was faster and the plan was not stored, the txid is planned again.
        """

    def one_look(self) -> AbstractContextManager[object]:
        """Context manager. Several txids are planned in the block, one by one: a single look at the source may do for all."""
        return nullcontext()

    def success(self, txid: int) -> None:
        """Hear that the txid is committed for good. Called twice, late or never (R8)."""

    def close(self) -> None:
        """Release what the coordinator holds. Called once for each coordinator, also if planning failed."""


class Spout(SpoutOptions, ABC):
    """A source of batches (Trident's ITridentSpout): a coordinator and an emitter.

    `fields` is the DDL of the records. `identity` names the source in JSON: stored with txid 1, another identity is refused
    (R2). `by_interval` spouts read by time: their coordinator gets the run's interval in `curr_metadata`, under "interval".
    `parameters` names the run's parameters that choose data; the parameters given to a run come under "parameters". A plan has
    at most `metadata_bytes_max` bytes of JSON. `SpoutOptions` has further hooks, all with defaults.
    """

    kind: SpoutKind = SpoutKind.TRANSACTIONAL
    fields: str
    by_interval: bool = False
    parameters: tuple[str, ...] = ()
    metadata_bytes_max: int = METADATA_BYTES_MAX

    @property
    @abstractmethod
    def identity(self) -> Metadata:
        """Which source the spout reads, for people and for R2: its class and root, no secrets.

        A mapping of strings to JSON, without `kind` and `reads`: the ledger keeps `kind` and `reads` of every spout.
        """

    def check_plan(self, metadata: Metadata) -> None:
        """Raise TransientError if a plan cannot be read any more as planned, and the spout sees so without Spark.

        Called before an attempt starts Spark. The emitter refuses what is not seen here, and decides what may be left out.
        """

    @abstractmethod
    def coordinator(self) -> BatchCoordinator:
        """The planning side."""

    @abstractmethod
    def emitter(self) -> Emitter:
        """The reading side."""


class PartitionedSpout(PartitionedEmitter, Spout):
    """A spout for a source with partitions; the framework carries their offsets (Trident's IPartitionedTridentSpout).

    Per partition the metadata is JSON with `start` and `end`: the next batch starts at the end of the last planned range, of
    batches that are committed or in flight. A partition that yields nothing keeps its place; a new partition starts at its
    beginning, once (R14).

    A range may have its number of records, `{"start": a, "end": b, "records": n}`. If another number was read, the range is
    refused (R7): if the source was cut off in between, no records are lost in silence. Plan `records` wherever the number is
    known.

    If the source no longer keeps the next records, plan `{"start": a, "end": b, "gone": "<why>"}`. Gone ranges get a txid of
    their own that cannot be emitted: `txbatch abort --skip` gives the records up.
    """

    max_partitions: int | None = None
    # What if a partition that has an offset is listed no more: `tell` says so in the plan and in reports, `refuse` plans
    # nothing until the partition is there again, `normal` finds nothing strange, for partitions that are read once.
    vanish: Literal["tell", "refuse", "normal"] = "tell"

    @abstractmethod
    def partitions(self) -> Sequence[str]:
        """Return the partitions that exist now, in the order of planning."""

    def partitions_to_ask(self, known: Mapping[str, Metadata]) -> Sequence[str]:
        """Return the partitions that may have something new, in order; `known` has the last ranges of partitions with an
        offset.

        Override if a partition is read once: then a look costs only as much as the new partitions.
        """
        return self.partitions()

    @abstractmethod
    def emit_partition_batch_new(
        self, attempt: TransactionAttempt, partition: str, last_metadata: Metadata | None
    ) -> Metadata | None:
        """Plan the partition's next range after `last_metadata` (None: from its beginning); None for nothing new."""

    @property
    def leaves_out(self) -> bool:
        """True if a batch may leave out partitions that cannot be read: the spout is opaque."""
        return self.kind is SpoutKind.OPAQUE

    def one_look(self) -> AbstractContextManager[object]:
        """Context manager. Ranges of several txids are planned in the block: ask for the newest ends of the source once."""
        return nullcontext()

    def coordinator(self) -> BatchCoordinator:
        return PartitionedCoordinator(self)


class OpaquePartitionedSpout(PartitionedSpout):
    """A partitioned spout that may leave out an unreadable partition (Trident's IOpaquePartitionedTridentSpout).

    The plan is an upper bound. `emit_partition_batch` raises PartitionUnreadable, before it returns, to declare a hole: the
    batch commits without the partition, and the partition's offset does not move (R13). `emit_partition_batch_new` may raise
    PartitionUnreadable, too.
    """

    kind = SpoutKind.OPAQUE


def _is_new(range_: Metadata) -> bool:
    """True if a range has records, or had records before the source lost the records."""
    return range_["start"] != range_["end"] or "gone" in range_


class PartitionedCoordinator(BatchCoordinator):
    """Plans a partitioned spout: for each partition the range after its last range.

    At most `max_partitions` ranges have records. An empty range takes no place: the partitions behind have their turn.
    """

    # True while several txids are planned in `one_look`.
    _looking = False
    # While looking: the partitions that may have something new, each with the reason if the partition is unreadable, or None if
    # the spout is to be asked. None before the listing; empty if no partition has anything new.
    _listed: dict[str, str | None] | None = None

    def __init__(self, spout: PartitionedSpout) -> None:
        from txbatch.core.batch.transaction import TransactionAttempt  # no definition needs it

        self.spout, self._attempt = spout, TransactionAttempt
        self.offsets: Mapping[str, Metadata] = {}
        self._missing: list[str] = []  # the partitions with an offset that the last listing lacks

    @contextmanager
    def one_look(self) -> Iterator[None]:
        """Context manager. Plans in the block use one listing; a partition with nothing new, or unreadable, is asked once."""
        self._looking = True
        try:
            with self.spout.one_look():
                yield
        finally:
            self._looking, self._listed = False, None

    def initialize_transaction(
        self, txid: int, prev_metadata: Metadata | None, curr_metadata: Metadata | None
    ) -> Metadata | None:
        """Return the ranges by partition, the partitions that continue an earlier range, the unreadable partitions, and the
        partitions that are listed no more.

        None if every range is empty: an empty plan would use a txid for nothing, and again in the next run (R4). If any range
        is gone, only gone ranges are planned, and a skip gives up nothing else.
        """
        planned: dict[str, Metadata] = {}
        new = 0  # how many of these ranges are not empty
        unreadable, nothing_new = dict[str, str](), list[str]()
        left = self._to_ask()  # while looking, the very `_listed`: changes here last until the look ends
        for partition, why in left.items():
            try:
                range_ = None if why is not None else self._next_range(txid, partition)
            except PartitionUnreadable as error:
                if not self.spout.leaves_out:
                    raise
                why = left[partition] = error.text
            if why is not None:  # a reason may be empty
                unreadable[partition] = why
                continue
            if range_ is None:
                nothing_new.append(partition)
                continue
            planned[partition] = range_
            new += _is_new(range_)
            if new == self.spout.max_partitions:
                break
        for partition in nothing_new:
            del left[partition]
        if not new:
            return None
        planned = {name: range_ for name, range_ in planned.items() if "gone" in range_} or planned
        continues = [name for name in planned if name in self.offsets]
        more = {"continues": continues, "unreadable": unreadable, "missing": self._missing}
        return {"partitions": planned, **{name: value for name, value in more.items() if value}}

    def _to_ask(self) -> dict[str, str | None]:
        """Return the partitions that may have something new, in order, each with the reason if it was found unreadable."""
        if self._listed is not None:
            return self._listed
        of = type(self.spout).__name__
        names = checked_names(of, self.spout.partitions_to_ask(self.offsets))
        self._missing = missing_of(of, self.spout.vanish, self.offsets, self._all(names))
        found: dict[str, str | None] = dict.fromkeys(names)
        if self._looking:
            self._listed = found
        return found

    def _all(self, asked: Sequence[str]) -> Sequence[str]:
        """Return all partitions that are listed; all with an offset, if the spout lists only new ones and refuses nothing."""
        if type(self.spout).partitions_to_ask is PartitionedSpout.partitions_to_ask:
            return asked
        return self.spout.partitions() if self.spout.vanish == "refuse" else list(self.offsets)

    def ask(self, txid: int, partition: str, last: Metadata | None) -> Metadata | None:
        """Ask the spout for the range after a partition's last range; None for nothing new."""
        return self.spout.emit_partition_batch_new(self._attempt(txid, 0), partition, last)

    def _next_range(self, txid: int, partition: str) -> Metadata | None:
        """Plan one partition's next range; None for nothing new. Raises the errors of `check_range`."""
        last = self.offsets.get(partition)
        range_ = self.ask(txid, partition, copy_of(last))
        if range_ is not None:
            check_range(f"{type(self.spout).__name__}: partition {partition!r}", range_, last)
        return range_
