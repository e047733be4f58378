"""One warm session: an aggregate of five values and a join, as operations of a topology and by hand, in turns.

Argument: a folder for the records. Run by spark-submit with txbatch on its path.
"""

import sys
from collections.abc import Callable
from functools import partial

from bench.programs.turns import in_turns
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from txbatch import Avg, Count, FixedBatchSpout, Max, Min, Sum, Topology
from txbatch.core.topology.nodes import Source
from txbatch.spark.operations import run_operations
from txbatch.spark.process.session import configured

RECORDS, KEYS = 8_000_000, 100_000
RECORD = ["id % {keys} as k", "cast(id * 7919 % 1000 as int) as n", "cast(id % 977 / 100 as decimal(10,2)) as {price}"]


def main(folder: str) -> None:
    """Both read the same Parquet and write nowhere."""
    spark = configured(SparkSession.builder.appName("language").getOrCreate())
    topology, frames = Topology("language"), dict[str, DataFrame]()
    for name, records, price in (("sales", RECORDS, "price"), ("returns", RECORDS // 4, "refund")):
        made = [each.format(keys=KEYS if price == "price" else RECORDS, price=price) for each in RECORD]
        spark.range(records).selectExpr(*made).write.parquet(f"{folder}/{name}")
        frames[name] = spark.read.parquet(f"{folder}/{name}")
        nothing = FixedBatchSpout(f"k bigint, n int, {price} decimal(10,2)", 1, (None, None, None))
        topology.new_stream(name, nothing)
    sales, returns = topology.streams["sales"], topology.streams["returns"]
    values = {"c": Count(), "s": Sum("n"), "m": Avg("price"), "least": Min("n"), "best": Max("price")}
    grouped = sales.group_by("k").aggregate(**values)
    joined = topology.join(sales.project("k", "price"), returns.project("k", "refund"), on="k", how="left", name="both")

    def read(source: Source, /, *, parted: bool = False) -> DataFrame:
        return frames[source.name]

    def aggregate_by_hand() -> DataFrame:
        mean = (F.sum("price").cast("decimal(38,6)") / F.count("price")).alias("m")
        total = F.sum(F.col("n").cast("bigint")).alias("s")
        return frames["sales"].groupBy("k").agg(F.count("*").alias("c"), total, mean, F.min("n"), F.max("price"))

    def join_by_hand() -> DataFrame:
        return frames["sales"].select("k", "price").join(frames["returns"].select("k", "refund"), "k", "left")

    contestants: dict[str, Callable[[], DataFrame]] = {
        "aggregate by hand": aggregate_by_hand,
        "aggregate": lambda: run_operations(grouped.node, read),
        "join by hand": join_by_hand,
        "join": lambda: run_operations(joined.node, read),
    }
    in_turns({name: partial(written, made) for name, made in contestants.items()}, lambda: None)
    spark.stop()


def written(made: Callable[[], DataFrame]) -> None:
    """Make a frame and compute all of it."""
    made().write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    main(*sys.argv[1:])
