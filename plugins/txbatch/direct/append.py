"""Makes rows of a state that keeps records, from the records of a batch in memory."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from txbatch.core.records.fields import Field
from txbatch.core.records.texts import text_of
from txbatch.core.state.append import BATCH, COPY, RECORD, RECORD_CHARACTERS
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.direct.batch_operations import Record


def appended(records: Iterable[Record], aggregate: PersistentAggregate, position: int) -> Iterator[Record]:
    """Yield each record with the key of its row."""
    copies: Counter[str] = Counter()
    for record in records:
        told = "".join(_told(field, record[field.name]) for field in aggregate.rows_of)
        digest = hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:RECORD_CHARACTERS]
        copies[digest] += 1
        yield {BATCH.name: position, RECORD.name: digest, COPY.name: copies[digest], **record}


def _told(field: Field, value: Any) -> str:
    """Return a value's text behind the text's length, equal to Spark's. Different values of a field have different texts."""
    if value is None:
        return "-"
    text = text_of(field, value)
    return f"{len(text.encode('utf-8', 'surrogatepass'))}:{text}"
