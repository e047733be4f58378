"""The first record number of a batch, in the plan and at the commit (R29)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Batch, Metadata
from txbatch.core.errors import BrokenChain, CannotRestate

if TYPE_CHECKING:
    from txbatch.core.batch.manifest import Manifest
    from txbatch.core.protocol.restate import PositionVersion

# By stream the number of the next record.
Bases = Mapping[str, int]


def pin_record_numbers(metadata: Metadata, streams: Iterable[str], bases: Bases) -> Metadata:
    """Return a new plan with the first record number of each stream."""
    base = {stream: bases.get(stream, 0) for stream in sorted(streams)}
    return replace(BatchPlan.from_json(metadata), base=base).to_json()


def check_base(batch: Batch, streams: Collection[str], bases: Bases) -> None:
    """Raise BrokenChain if the batch would use record numbers twice, or leave numbers out."""
    for stream, number in batch.plan.base.items():
        if stream in streams and number != (now := bases.get(stream, 0)):
            raise BrokenChain(
                f"{batch.topology}: txid {batch.txid} numbers records of stream {stream!r} from {number} on, and {now} are "
                "committed: it is aborted and planned anew"
            )


def check_same_number(version: PositionVersion, streams: Collection[str], manifest: Manifest) -> None:
    """Raise TerminalError if a position is counted again with more or fewer records than numbers."""
    for stream in sorted(version.first.plan.base.keys() & set(streams)):
        was = sum(each.records for each in version.first_read.get(stream, {}).values() if each)
        now = sum(each.records for each in manifest.streams.get(stream, {}).values())
        if was != now:
            raise CannotRestate(
                f"{version.first.topology}: txid {version.first.txid} had {was:,} records of stream {stream!r}, and has {now:,} "
                "now: they are numbered, and all behind them would have other numbers. Let the source have as many again; or "
                "count what it has now by a topology of another name"
            )
