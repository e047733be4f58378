"""What a task of Spark does: reads its ranges of a topic, and gives the messages in batches of Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import pyarrow as pa

from txbatch.core.sources.emitter import PARTITION_COLUMN
from txbatch.spouts.topics.columns import Columns
from txbatch.spouts.topics.messages import Range, TopicReader

# The columns that a task is told its ranges by.
RANGES = "number: int, start: bigint, end: bigint, epoch: int, label: string"
_RANGE = itemgetter("number", "start", "end", "epoch", "label")
Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Task:
    """Reads ranges in the order of their offsets, with a client for each partition."""

    reader: TopicReader
    columns: Columns

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield the messages of the ranges in the batches, with the label of their range as their partition."""
        given = sorted(_RANGE(row) for batch in batches for row in batch.to_pylist())
        for number, ranges in groupby(given, key=itemgetter(0)):
            _, *bounds, labels = zip(*ranges, strict=True)
            for shares, messages in self.reader.read(number, list(map(Range, *bounds))):
                found = self.columns.batch(messages)
                labelled = pa.concat_arrays([pa.repeat(pa.scalar(labels[at]), many) for at, many in shares])
                yield found.append_column(PARTITION_COLUMN, labelled)
