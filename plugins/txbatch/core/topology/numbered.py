"""Numbers of records: how many of the stream came before, in committed batches, and in its own batch by all fields (R29).

A plan says from which number on its records are, its `base`; so they are the same in each attempt and restate of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Batch, Metadata
from txbatch.core.errors import BrokenChain, DefinitionError, TerminalError
from txbatch.core.records.fields import Field, checked_name
from txbatch.core.topology.batch_steps import Numbered
from txbatch.core.topology.nodes import Source
from txbatch.core.topology.operations import Node, Watermarked, on_the_way

if TYPE_CHECKING:
    from txbatch.core.batch.manifest import Manifest
    from txbatch.core.protocol.ledger import Version

# By stream the number of its next record.
Bases = Mapping[str, int]


def numbered(node: Node, name: str) -> Numbered:
    """Return a stream's node whose records have a number, the field `name`.

    DefinitionError for a name that is taken, or is none, and behind any step.
    """
    of = f"stream {node.name!r}: numbered({name!r})"
    checked_name(name, f"{of}: field")
    if not isinstance(node.before if isinstance(node, Watermarked) else node, Source):
        raise DefinitionError(
            f"{of}: it comes first, before any operation but a watermark: it counts records as they are read"
        )
    if name.lower() in {field.name.lower() for field in node.fields}:
        raise DefinitionError(f"{of}: there is a field {name!r} already; give the number another name")
    return Numbered(node.name, (*node.fields, Field(name, "bigint")), node)


def streams_of(topology: str, nodes: Iterable[Node], max_pending: int) -> frozenset[str]:
    """Return the streams whose records have numbers; DefinitionError where batches may be planned before those ahead are read."""
    found = frozenset(each.name for node in nodes for each in on_the_way(node) if isinstance(each, Numbered))
    if found and max_pending > 1:
        raise DefinitionError(
            f"topology {topology!r}: max_pending={max_pending}, and stream {min(found)!r} is numbered: a batch is planned once "
            "all before it are committed, which say from which number on its records are; leave max_pending out"
        )
    return found


def fixed(metadata: Metadata, streams: Iterable[str], bases: Bases) -> Metadata:
    """Return a new plan that says from which number on the records of these streams are."""
    base = {stream: bases.get(stream, 0) for stream in sorted(streams)}
    return replace(BatchPlan.from_json(metadata), base=base).to_json()


def check_base(batch: Batch, streams: Collection[str], bases: Callable[[], Bases]) -> None:
    """BrokenChain for a batch whose records would have the numbers of others, or leave some out."""
    base = {stream: number for stream, number in batch.plan.base.items() if stream in streams}
    if not base:
        return
    known = bases()
    for stream, number in base.items():
        if number != (now := known.get(stream, 0)):
            raise BrokenChain(
                f"{batch.topology}: txid {batch.txid} numbers records of stream {stream!r} from {number} on, and {now} are "
                "committed: it is aborted and planned anew"
            )


def check_same_number(version: Version, streams: Collection[str], manifest: Manifest) -> None:
    """TerminalError where a position is counted again with more or fewer records than have numbers."""
    for stream in sorted(version.first.plan.base.keys() & set(streams)):
        was = sum(each.records for each in version.first_read.get(stream, {}).values() if each)
        now = sum(each.records for each in manifest.streams.get(stream, {}).values())
        if was != now:
            raise TerminalError(
                f"{version.first.topology}: txid {version.first.txid} had {was:,} records of stream {stream!r}, and has {now:,} "
                "now: they are numbered, and all behind them would have other numbers. Let the source have as many again; or "
                "count what it has now by a topology of another name"
            )
