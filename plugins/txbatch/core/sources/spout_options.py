"""Hooks of a spout besides planning and reading a batch: for several batches by one job, for restates, for messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from txbatch.core.stored_json import Metadata


class SpoutOptions:
    """Hooks with defaults, right for every spout. A spout overrides a hook to gain speed, restates or better messages."""

    # True of a spout by time that, asked for several intervals at once, also gives the records between them: they are left out.
    reads_gaps: bool = False
    # True of a source that is not on this machine: an attempt takes its records once, and Spark keeps them on its disks.
    remote: bool = False
    # The variables of the environment, credentials among them, by which Spark's driver reads the source.
    variables: tuple[str, ...] = ()
    # True of a source whose records change: a changed record is read again, so that only aggregates count it right for which
    # records may come twice, such as Max.
    repeats: bool = False
    # False of a spout whose texts must not hold U+0000; `check_texts` says where they do.
    nul: bool = True

    def planned_bytes(self, metadata: Metadata) -> int | None:
        """Return how many bytes a plan will read; None if unknown. Small batches run with less start-up."""
        return None

    @property
    def fusable(self) -> bool:
        """True if `fused` may return a plan that reads several batches in one pass."""
        return False

    def fused(self, plans: Sequence[Metadata]) -> Metadata | None:
        """Return a plan by which `emit_batch` reads the records of several plans, of a batch each, in one pass, each record
        once.

        None if the plans do not go together: then each plan is read by itself. If two plans may name the same partition, return
        `labelled(plans)`: its ranges have labels, and the emitter writes labels in place of names. If the spout reads by time,
        its attribute `time` names the field that holds the time of a record, a timestamp or a date.
        """
        return None

    def check_texts(self, metadata: Metadata) -> None:
        """Refuse invalid text: BadRecord names the record. Called if Spark has found invalid text in the records of a plan.

        Does nothing if the spout cannot find the record.
        """

    def plan_again(self, partition: str, metadata: Metadata) -> Metadata:
        """Return the range, or the plan, by which a committed batch is counted again (R17): by default unchanged.

        `metadata` is the range, or the plan, that the batch read. `partition` is '' for a source without partitions. If the
        source is replaced as a whole, for example a file, return the range of the new content. PartitionUnreadable if the
        partition is missing now. Not called for a source read by time: the interval is planned again.
        """
        return metadata

    def gone(self, metadata: Metadata) -> list[str]:
        """Return the missing parts of a plan, if the source is read by time: records may be lost with them."""
        return []

    def lacking(self, before: Metadata, again: Metadata) -> list[str]:
        """Return the parts of a plan that are missing now, or that `again`, a plan of the same interval, was made without."""
        return self.gone(before)

    def check_again(self, before: Metadata) -> None:
        """Raise an error if an interval may not be planned again: its source is another one, or is behind the plan `before`."""

    def reach(self, offsets: Mapping[str, Metadata]) -> str | None:
        """Describe what may be read after the last ranges, for `txbatch doctor`; None for nothing. Raise errors of planning."""
        return None
