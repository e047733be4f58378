"""One warm session: counts by tumbling windows, as a topology groups by them and with date_trunc by hand, in turns.

Argument: a folder for the records. Run by spark-submit with txbatch on its path.
"""

import sys
from collections.abc import Callable
from functools import partial

from bench.programs.language import written
from bench.programs.turns import in_turns
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from txbatch import Count, FixedBatchSpout, Sum, Topology, window
from txbatch.core.topology.nodes import Source
from txbatch.spark.operations import run_operations
from txbatch.spark.process.session import configured

RECORDS, SHOPS, DAYS = 16_000_000, 100, 30
ZONE = "America/New_York"
RECORD = [
    f"timestamp_micros(1767225600000000 + id * 7919 % {DAYS * 86_400} * 1000000 + id % 1000000) as at",
    f"id % {SHOPS} as shop",
    "cast(id * 31 % 1000 as int) as n",
]


def main(folder: str) -> None:
    """Both read the same Parquet and write nowhere."""
    spark = configured(SparkSession.builder.appName("windows").getOrCreate())
    spark.range(RECORDS).selectExpr(*RECORD).write.parquet(f"{folder}/visits")
    frame = spark.read.parquet(f"{folder}/visits")
    stream = Topology("windows").new_stream(
        "visits", FixedBatchSpout("at timestamp, shop bigint, n int", 1, (None, None, None))
    )
    values = {"c": Count(), "s": Sum("n")}
    hours = stream.group_by(window("at", "1 hour"), "shop").aggregate(**values)
    days = stream.group_by(window("at", "1 day", timezone=ZONE), "shop").aggregate(**values)

    def read(source: Source, /, *, parted: bool = False) -> DataFrame:
        return frame

    def by_hand(start: str) -> DataFrame:
        total = F.sum(F.col("n").cast("bigint")).alias("s")
        return frame.groupBy(F.expr(start).alias("window_start"), "shop").agg(F.count("*").alias("c"), total)

    of_zone = f"to_utc_timestamp(date_trunc('day', from_utc_timestamp(at, '{ZONE}')), '{ZONE}')"
    contestants: dict[str, Callable[[], DataFrame]] = {
        "hours by hand": lambda: by_hand("date_trunc('hour', at)"),
        "hours": lambda: run_operations(hours.node, read),
        "days of a zone by hand": lambda: by_hand(of_zone),
        "days of a zone": lambda: run_operations(days.node, read),
    }
    in_turns({name: partial(written, made) for name, made in contestants.items()}, lambda: None)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
