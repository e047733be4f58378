"""One warm session: a count, a sum and a maximum by key, by aggregates that Spark knows and by a user's own combiner, in turns.

Argument: a folder for the records. Run by spark-submit with txbatch on its path.
"""

import sys
from functools import partial

from bench.programs.turns import in_turns
from bench.tally import Tally
from pyspark.sql import SparkSession

from txbatch import Count, FixedBatchSpout, Max, OpaqueState, Sum, Topology
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.spark.aggregate import _aggregated
from txbatch.spark.process.session import configured

RECORDS, KEYS = 1_000_000, 100_000


def main(folder: str) -> None:
    """Both read the same Parquet and write nowhere."""
    spark = configured(SparkSession.builder.appName("own combiners").getOrCreate())
    record = [f"concat('key', cast(id * 7919 % {KEYS} as string)) as key", "id % 1000 as n"]
    spark.range(RECORDS).selectExpr(*record).repartition(2).write.parquet(f"{folder}/numbers")
    frame = spark.read.parquet(f"{folder}/numbers")
    grouped = Topology("own").new_stream("in", FixedBatchSpout("key string, n bigint", 1, ("a", 1))).group_by("key")
    by_sql = grouped.persistent_aggregate(OpaqueState("by_sql"), number=Count(), total=Sum("n"), greatest=Max("n"))
    by_python = grouped.persistent_aggregate(OpaqueState("by_python"), tally=Tally("n"))

    def partials(aggregate: PersistentAggregate) -> None:
        _aggregated(frame, aggregate).write.format("noop").mode("overwrite").save()

    contestants = {"partials by_sql": partial(partials, by_sql), "partials by_python": partial(partials, by_python)}
    in_turns(contestants, lambda: None)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
