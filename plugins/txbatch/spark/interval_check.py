"""Refuses records of a stream by time outside the read batches: such records would be counted elsewhere or nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txbatch.core.batch.transaction import Assignment
from txbatch.core.errors import BrokenSpout
from txbatch.core.protocol.bulk import spans, strictly_by_time
from txbatch.core.records.sql import spark_name
from txbatch.core.topology.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def micros(stream: Stream) -> str:
    """Return the SQL of a record's time, in microseconds since 1970."""
    return f"unix_micros(cast({spark_name(getattr(stream.spout, 'time', ''))} as timestamp))"


def outside(stream: Stream, assignment: Assignment) -> str | None:
    """Return the SQL to find records with a time outside the batch; None for a stream with records of any time."""
    found = spans([assignment], stream.name) if strictly_by_time(stream.spout) else []
    of = [f"{micros(stream)} >= {each.start} and {micros(stream)} < {each.end}" for each in found]
    return f"not coalesce({of[0]}, false)" if of else None


def refused(told: str, stream: Stream, records: DataFrame, which: str) -> BrokenSpout:
    """Return the error with the first record outside all batches; `which` is the SQL to find outside records."""
    time, spout = str(getattr(stream.spout, "time", "")), type(stream.spout).__name__
    first = records.filter(which).selectExpr(f"cast(min({spark_name(time)}) as string)").collect()[0][0]
    whose = f"whose {time} is {first if stream.node.show_records else 'not shown'}" if first else f"without {time}"
    why = "outside all requested batches; records of emit_batch() must lie in the intervals of the plan"
    return BrokenSpout(f"{told}: {spout} gave a record {whose}, {why}: mend the spout")
