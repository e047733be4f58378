"""The identity of a stream's source, stored in the ledger with the first plan (R2)."""

from __future__ import annotations

from collections.abc import Mapping

from txbatch.core.errors import InvalidOption
from txbatch.core.sources.spout import PartitionedSpout, Spout

# What the ledger keeps of a source beside its identity.
RESERVED_IDENTITY = ("kind", "reads")


def check_identity(stream: str, spout: Spout) -> None:
    """DefinitionError if the identity of a stream's spout is no mapping of names, or has a name reserved by txbatch."""
    identity, of = spout.identity, f"stream {stream!r}: the identity of {type(spout).__name__}"
    if not isinstance(identity, Mapping):
        raise InvalidOption(f"{of} is {identity!r}; give a mapping, such as {{'root': '/data'}}")
    for key in identity:
        if not isinstance(key, str):
            raise InvalidOption(f"{of} has the key {key!r}, no string; name it '{key}'")
        if key in RESERVED_IDENTITY:
            raise InvalidOption(f"{of} has the key {key!r}, which is reserved; leave it out or rename it")


def how_it_reads(spout: Spout) -> str:
    """Return how a spout's plans go on: by the offsets of partitions, by interval, or from the last plan as a whole."""
    if isinstance(spout, PartitionedSpout):
        return "partitions"
    return "interval" if spout.by_interval else "whole"
