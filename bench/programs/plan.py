"""One warm session: a topology's batch and the same by hand, in turns. Prints a line of JSON for each run.

Arguments: the folder of the text, the names of its files, the folder to write to. Run by spark-submit with txbatch on its path.
"""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from bench.programs.turns import in_turns
from pyspark.sql import SparkSession

from txbatch import Count, FileSpout, OpaqueState, Topology
from txbatch.core.batch.transaction import Assignment, TransactionAttempt
from txbatch.spark.aggregate import BatchAggregator
from txbatch.spark.process.session import configured
from txbatch.spark.reader import BatchReader


def main(folder: str, names: str, target: str) -> None:
    """All in turns."""
    spark = configured(SparkSession.builder.appName("plan").getOrCreate())
    root, files = Path(folder), names.split(",")
    topology = Topology("words")
    counted = topology.new_stream("lines", FileSpout(root)).flat_map("split(line, ' ')", "word string").group_by("word")
    counted.persistent_aggregate(OpaqueState("words"), count=Count())
    sizes = {name: {"start": 0, "end": (root / name).stat().st_size} for name in files}
    metadata = {"format": 1, "streams": {"lines": {"partitions": sizes}}}
    assignment = Assignment("words", TransactionAttempt(1, 1), "token", metadata, "0" * 64)
    stream = topology.streams["lines"]
    reader = BatchReader(spark, stream, assignment, stream.spout.emitter())
    ours = BatchAggregator(topology.aggregates[0], {"lines": reader}).partials
    paths = [str(root / name) for name in files]

    def by_hand() -> None:
        words = spark.read.text(paths).selectExpr("explode(split(value, ' ')) as word")
        words.groupBy("word").count().write.parquet(f"{target}/by-hand")

    contestants: dict[str, Callable[[], object]] = {
        "by hand": by_hand,
        "plan": lambda: ours().write.parquet(f"{target}/plan"),
        "audit": reader.audit,
    }
    if os.environ.get("PLANS"):
        ours().explain("formatted")
    in_turns(contestants, lambda: shutil.rmtree(target, ignore_errors=True))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
