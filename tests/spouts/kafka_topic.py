"""A topic's spout, its stream's offsets, and messages read without Spark."""

from __future__ import annotations

from contextlib import closing
from itertools import count
from typing import Any

from txbatch import KafkaSpout
from txbatch.core.batch.transaction import Metadata
from txbatch.core.records.fields import parse_fields
from txbatch.spouts.kafka import _bounds
from txbatch.spouts.topics.columns import Columns
from txbatch.spouts.topics.look import parsed
from txbatch.spouts.topics.messages import Range

VARIABLE = "TXBATCH_SOURCE_SHOP"
FIELDS = "partition int, offset bigint, value string"
_numbers = count(1)


class StreamOfTopic:
    """A stream that reads a topic of the source `shop`, and how far the stream has come."""

    def __init__(self) -> None:
        self.name, self.offsets = f"topic-{next(_numbers)}", dict[str, Metadata]()
        self.last: Metadata | None = None

    def spout(self, of: type[KafkaSpout] = KafkaSpout, fields: str = FIELDS, **options: Any) -> KafkaSpout:
        return of(self.name, fields, **{"source": "shop", "silence": 3, **options})

    def plan(self, of: type[KafkaSpout] = KafkaSpout, **options: Any) -> Metadata | None:
        """Plan the next batch, and take it for committed."""
        with closing(self.spout(of, **options).coordinator()) as coordinator:
            coordinator.offsets = self.offsets  # type: ignore[attr-defined]
            plan = coordinator.initialize_transaction(1, self.last, None)
        self.last = plan or self.last
        self.offsets = {**self.offsets, **(plan["partitions"] if plan else {})}
        return plan

    def read(self, plan: Metadata | None, fields: str = FIELDS, **options: Any) -> list[dict[str, Any]]:
        spout = self.spout(fields=fields, **options)
        reader, columns = spout._reader(), Columns(spout._of, parse_fields(fields), spout.format, spout.options)
        found = []
        for name, of in plan["partitions"].items() if plan else ():
            ranges = [Range(*_bounds(of))] if of["start"] < of["end"] else []
            for _, messages in reader.read(parsed(name)[0], ranges):
                found += columns.batch(messages).to_pylist()
        return found

    def values(self, plan: Metadata | None) -> list[str]:
        return sorted(row["value"] for row in self.read(plan))
