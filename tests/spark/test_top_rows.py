"""What Spark makes of values for TopNBy is what the twin makes of them, and what is too long is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ordered_values import VALUES
from pyspark.sql import SparkSession

from txbatch import FixedBatchSpout, OpaqueState, TopNBy, Topology
from txbatch.core.aggregates.top_n_by import ROW_BYTES_MAX
from txbatch.core.errors import BadRecord
from txbatch.core.records.fields import Field
from txbatch.core.records.ordered_texts import ordered_text, ordered_text_sql


@pytest.mark.rule("R24")
def test_texts_are_those_of_the_twin(spark: SparkSession, emit: Callable[..., Any]) -> None:
    for type_, values in VALUES.items():
        frame = spark.createDataFrame([(value,) for value in [*values, None]], f"v {type_}")
        found = [row[0] for row in frame.selectExpr(ordered_text_sql(Field("v", type_))).collect()]
        assert found == [ordered_text(value) for value in [*values, None]], type_
    topology = Topology("notes")
    stream = topology.new_stream("in", FixedBatchSpout("note string", 1, ("x" * ROW_BYTES_MAX,)))
    stream.persistent_aggregate(OpaqueState("long"), top=TopNBy(2, "note", by="note"))
    with pytest.raises(BadRecord, match=r"the fields 'note' of a record have 65537 bytes together"):
        emit(topology)
    for field in (Field("v", "date"), Field("v", "timestamp")):
        before = spark.sql(f"SELECT CAST('-0044-03-15' AS {field.type}) v").selectExpr(ordered_text_sql(field))
        with pytest.raises(Exception, match=r"field 'v' is -0044-03-15.*, outside the years 1 to 32767"):
            before.collect()
