"""One warm session: the rows of a table by PostgresSpout and by Spark's JDBC reader; and a topology of one and of three states.

Argument: a folder for the partials. The source is `bench` by its variable; for JDBC, BENCH_DATABASE. Run by spark-submit.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from bench.programs.turns import cpu_of_all, in_turns
from bench.tables import FIELDS, ROWS, TASKS
from pyspark.sql import DataFrame, SparkSession

from txbatch import Count, Max, Min, OpaqueState, PostgresSpout, Sum, Topology
from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Assignment, Metadata, Run, TransactionAttempt
from txbatch.core.protocol import planning
from txbatch.core.protocol.ledger import Head
from txbatch.launch.driver import write_partials
from txbatch.spark.process.session import configured
from txbatch.spark.reader import open_reader
from txbatch.storage.staging import AttemptFolder


def main(folder: str) -> None:
    """All read the same rows; the readers write nowhere."""
    spark = configured(SparkSession.builder.appName("tables").getOrCreate())
    one, three = topology(1), topology(3)
    plan = planned(one)
    contestants: dict[str, Callable[[], object]] = {
        "PostgresSpout": partial(written, partial(by_spout, spark, one, plan)),
        "one state": partial(emitted, spark, one, plan, f"{folder}/one"),
        "three states": partial(emitted, spark, three, planned(three), f"{folder}/three"),
    }
    if "BENCH_JDBC" in os.environ:
        contestants["Spark JDBC"] = partial(written, partial(by_jdbc, spark))
    in_turns(contestants, lambda: shutil.rmtree(folder, ignore_errors=True), cpu_of_all)
    spark.stop()


def topology(states: int) -> Topology:
    """A topology of so many states over the table."""
    made = Topology(f"of_{states}")
    stream = made.new_stream("sales", PostgresSpout("shop.sale", FIELDS, source="bench", max_rows=ROWS, existing=False))
    values: list[dict[str, Any]] = [
        {"sales": Count(), "amount": Sum("amount")},
        {"last": Max("sold_at")},
        {"first": Min("sold_at")},
    ]
    for number in range(states):
        stream.group_by("shop").persistent_aggregate(OpaqueState(f"state_{states}_{number}"), **values[number])
    return made.check()


def planned(of: Topology) -> Metadata:
    """The batch of all rows."""
    metadata = planning.plan_batch(of, Head(of.name, 1, None, (), None, {}), Run("bench"))
    assert metadata is not None
    (range_,) = plan_of(metadata)["partitions"].values()
    assert range_["records"] == ROWS, range_
    return metadata


def by_spout(spark: SparkSession, of: Topology, metadata: Metadata) -> DataFrame:
    """The rows as the spout reads them."""
    return of.streams["sales"].spout.emitter().emit_batch(spark, TransactionAttempt(1, 1), plan_of(metadata))


def plan_of(metadata: Metadata) -> Metadata:
    """The plan of the stream, as its spout made the plan."""
    return BatchPlan.from_json(metadata).streams["sales"].plan


def by_jdbc(spark: SparkSession) -> DataFrame:
    """The rows as Spark's documentation reads them, in as many tasks, by the driver's advised fetch size."""
    where = json.loads(os.environ["BENCH_DATABASE"])
    url = f"jdbc:postgresql://{where['host']}:{where['port']}/{where['database']}"
    options = {
        "user": where["user"],
        "password": where["password"],
        "driver": "org.postgresql.Driver",
        "fetchsize": "10000",
    }
    bounds = {"partitionColumn": "id", "lowerBound": "1", "upperBound": str(ROWS), "numPartitions": str(TASKS)}
    table = "(SELECT id, shop, amount, sold_at, pieces FROM shop.sale) t"
    return spark.read.format("jdbc").options(url=url, dbtable=table, **options, **bounds).load()


def written(made: Callable[[], DataFrame]) -> None:
    """Make a frame and compute all of it."""
    made().write.format("noop").mode("overwrite").save()


def emitted(spark: SparkSession, of: Topology, metadata: Metadata, folder: str) -> None:
    """Emit the batch as the driver does: audit, and the partials of each state."""
    assignment = Assignment(of.name, TransactionAttempt(1, 1), "token", metadata, "0" * 64)
    with ExitStack() as ending:
        readers = {"sales": ending.enter_context(open_reader(spark, of.streams["sales"], assignment))}
        readers["sales"].audit()
        write_partials(of, AttemptFolder(f"file://{folder}"), readers)


if __name__ == "__main__":
    main(*sys.argv[1:])
