"""Looks up fields in a state, in the version fixed by the batch's plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from txbatch.core.records.sql import spark_name
from txbatch.core.topology.look_up import KEY_CHARACTERS, LiveState, StateQuery, StaticState, Versioned
from txbatch.spark.frames import ddl, of_rows
from txbatch.spark.kept_records import SharedJoins

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Stands for a key that is not known yet.
_KEY = "{key}"


@dataclass(frozen=True, slots=True)
class Tables:
    """The states for an attempt's look-ups. `static` are the versions fixed by the plan; other states are read as of now.

    `live` has the places of exported rows of live states, `planned_at` the time of the batch's planning, and `base` the
    numbers of the batch's records, if in the plan. `joins` are made once for all states.
    """

    static: Mapping[str, Any] = field(default_factory=dict)
    live: Mapping[LiveState, str] = field(default_factory=dict)
    planned_at: int | None = None
    base: Mapping[str, int] = field(default_factory=dict)
    joins: SharedJoins = field(default_factory=SharedJoins)

    def rows(self, spark: SparkSession, state: StaticState | LiveState) -> DataFrame:
        """Return the state's rows, with the state's fields."""
        if isinstance(state, LiveState):
            return spark.read.schema(ddl(state.fields)).parquet(self.live[state])
        reader = state.reader
        if isinstance(reader, Versioned):
            version = self.static[state.name] if state.name in self.static else reader.version()
            return _cast(reader.read(spark, version), state)
        if callable(reader):
            return _cast(reader(spark), state)
        return of_rows(spark, state.fields, reader, f"{state} has")

    def check_unchanged(self, states: Iterable[StaticState]) -> None:
        """Raise TransientError if a state is no longer in the version read."""
        for state in states:
            if isinstance(state.reader, Versioned) and state.name in self.static:
                state.reader.check(self.static[state.name])


def state_query(frame: DataFrame, query: StateQuery, tables: Tables, *, show: bool = True) -> DataFrame:
    """Return each record with the values of the record's key: null, or left out, if missing. The state's columns go by
    number.
    """
    from pyspark.sql import functions as F

    columns = [F.col(spark_name(name)) for name in frame.columns]
    rows = _many(query, tables.rows(frame.sparkSession, query.state))
    rows = rows if query.many else _single(query, rows, show=show)
    same = [F.col(spark_name(key.name)) == F.col(f"_txbatch_key_{n}") for n, key in enumerate(query.keys)]
    found = [F.col(f"_txbatch_value_{n}").alias(value.name) for n, value in enumerate(query.values)]
    return frame.join(rows, same, query.how.value).select(*columns, *found)


def _many(query: StateQuery, rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    keys = [F.col(spark_name(key.name)).alias(f"_txbatch_key_{n}") for n, key in enumerate(query.keys)]
    values = [F.col(spark_name(value.name)).alias(f"_txbatch_value_{n}") for n, value in enumerate(query.values)]
    return rows.select(*keys, *values)


def _single(query: StateQuery, rows: DataFrame, *, show: bool) -> DataFrame:
    """Return a row for each key; in place of a key with several rows an error, with the key if `show` is true."""
    from pyspark.sql import functions as F

    keys = [f"_txbatch_key_{n}" for n in range(len(query.keys))]
    told = (
        [F.left(F.concat_ws(", ", *(F.col(key).cast("string") for key in keys)), F.lit(KEY_CHARACTERS))] if show else []
    )
    before, _, after = str(query.twice(_KEY)).rpartition(_KEY) if show else (str(query.twice()), "", "")
    twice = F.raise_error(F.concat(F.lit(before), *told, F.lit(after)))
    values = [_one(twice, f"_txbatch_value_{n}").alias(f"_txbatch_value_{n}") for n in range(len(query.values))]
    return rows.groupBy(*keys).agg(F.lit(True).alias("_txbatch_found"), *values)


def _one(twice: Column, name: str) -> Column:
    from pyspark.sql import functions as F

    return F.when(F.count(F.lit(1)) > 1, twice).otherwise(F.any_value(F.col(name)))


def _cast(rows: DataFrame, state: StaticState) -> DataFrame:
    names = [spark_name(each.name) for each in state.fields]
    return rows.selectExpr(
        *(f"cast({name} as {each.type}) as {name}" for name, each in zip(names, state.fields, strict=True))
    )
