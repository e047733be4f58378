"""The ranges named by a batch's plan, a row each, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from txbatch.core.batch.plan import BatchPlan, Ranges
from txbatch.core.batch.transaction import Metadata

COLUMNS = frozenset({"stream", "partition", "start", "end", "note", "gone"})


def read(metadata: Metadata) -> dict[str, Any]:
    """Return the `ranges` of a batch, and its `metadata` in the stored format."""
    return {"ranges": list(_ranges(metadata)), "metadata": metadata}


def _ranges(metadata: Metadata) -> Iterator[dict[str, Any]]:
    """Yield a row for each range in a batch's metadata. `note` names unreadable, gone or missing ones.

    Of a long list, only the length is given.
    """
    for stream, planned in BatchPlan.from_json(metadata).streams.items():
        for partition, range_ in planned.ranges.items():
            told = range_ if isinstance(range_, Mapping) else {"plan": range_}
            rest = {
                name: f"{len(value):,}" if isinstance(value, Mapping) else value
                for name, value in told.items()
                if name not in COLUMNS
            }
            note = f"gone: {told['gone']}" if isinstance(planned, Ranges) and "gone" in told else None
            row = {"stream": stream, "partition": partition or None, "start": told.get("start"), "end": told.get("end")}
            yield {**row, **rest, "note": note}
        for partition, why in planned.unreadable.items():
            yield {"stream": stream, "partition": partition, "start": None, "end": None, "note": f"unreadable: {why}"}
        for partition in planned.missing:
            yield {"stream": stream, "partition": partition, "start": None, "end": None, "note": "listed no more"}
