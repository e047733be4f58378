"""FixedBatchSpout: given records in batches of a given size, for examples and tests (Trident's name)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from txbatch.core.batch.transaction import Metadata, TransactionAttempt
from txbatch.core.errors import InvalidOption
from txbatch.core.records.declared import fields_ddl, given_values
from txbatch.core.records.fields import parse_fields
from txbatch.core.records.sql import spark_name
from txbatch.core.sources.batch_spout import PlainSpout
from txbatch.core.stored_json import digest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txbatch.core.records.declared import Fields


class FixedBatchSpout(PlainSpout):
    """Emits `records`, at most `max_batch_size` a batch, then nothing more: tuples or lists, mappings, dataclasses, or bare
    values of a single field.

    With `cycle` the records begin again at the end. Transactional: a txid always has the same records.
    """

    def __init__(self, fields: Fields, max_batch_size: int, *records: Any, cycle: bool = False) -> None:
        self.fields = fields_ddl(fields)
        names = [field.name for field in parse_fields(self.fields)]
        if max_batch_size < 1 or not records:
            raise InvalidOption("FixedBatchSpout needs a max_batch_size of at least 1 and at least one record")
        self.records = list[tuple[Any, ...]]()
        for record in records:
            if (values := given_values(record, names)) is None:
                raise InvalidOption(
                    f"FixedBatchSpout: record {record!r} has not the {len(names)} fields of {self.fields!r}"
                )
            self.records.append(values)
        self.max_batch_size, self.cycle = max_batch_size, cycle

    @property
    def identity(self) -> Metadata:
        return {
            "spout": "FixedBatchSpout",
            "records": digest([[str(value) for value in each] for each in self.records]),
        }

    def planned_bytes(self, metadata: Metadata) -> int:
        """Return 0: nothing is read."""
        return 0

    def initialize_transaction(
        self, txid: int, prev_metadata: Metadata | None, curr_metadata: Metadata | None
    ) -> Metadata | None:
        """Return the next `start` and `end` in the records, or None after the last."""
        start = prev_metadata["end"] if prev_metadata else 0
        if start == len(self.records) and self.cycle:
            start = 0
        end = min(start + self.max_batch_size, len(self.records))
        return {"start": start, "end": end} if start < end else None

    def emit_batch(self, spark: SparkSession, attempt: TransactionAttempt, metadata: Metadata) -> DataFrame:
        """Return the records from `start` to `end`."""
        import pyarrow as pa

        fields = parse_fields(self.fields)
        columns = [list(column) for column in zip(*self.batch(metadata), strict=True)]
        table = pa.table(columns, names=[field.name for field in fields])
        # As an Arrow table, for a list of tuples would go through Python workers.
        return spark.createDataFrame(table, ", ".join(f"{spark_name(field.name)} {field.type}" for field in fields))

    def batch(self, metadata: Metadata) -> Sequence[tuple[Any, ...]]:
        """Return the same records as tuples, for the in-memory twin."""
        return self.records[metadata["start"] : metadata["end"]]
