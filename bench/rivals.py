"""Two more ways to get a batch into a table: Spark's JDBC writer with an SQL merge, and dlt."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from bench import batches, extras
from bench.database import Server
from bench.measure import LeftOut, Stopwatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bench.case import Case

MERGE = (
    "MERGE INTO state.counts s USING staged b ON s.key = b.key "
    "WHEN MATCHED THEN UPDATE SET count = s.count + b.count, txid = 2 "
    "WHEN NOT MATCHED THEN INSERT (key, count, txid) VALUES (b.key, b.count, 2)"
)


@contextmanager
def warm_spark() -> Iterator[SparkSession | LeftOut]:
    """A session with PostgreSQL's JDBC driver, which has done a job; or why there is none."""
    try:
        jar = extras.jdbc_jar()
    except LeftOut as error:
        yield error
        return
    os.environ.update(extras.spark_environment())
    from pyspark.sql import SparkSession

    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    builder = SparkSession.builder.master("local[*]").config(map={**quiet, "spark.driver.extraClassPath": str(jar)})
    with builder.getOrCreate() as spark:
        spark.range(1000).selectExpr("id % 7 AS key").groupBy("key").count().collect()
        yield spark


def jdbc_merge(case: Case, template: str, spark: SparkSession | LeftOut, watch: Stopwatch) -> None:
    """Spark's JDBC writer into an unlogged table, then MERGE. Spark runs already: its start is not timed."""
    if isinstance(spark, LeftOut):
        raise spark
    staged = _parquet(case)
    with case.server.copy_of(template) as database:
        case.server.run("CREATE UNLOGGED TABLE staged (key text, count bigint)", database=database)
        connection = case.server.connect(database)
        with watch.timed():
            jdbc_writer(spark, staged.as_uri(), case.server, database)
            with connection, connection.cursor() as cursor:
                cursor.execute("ANALYZE staged")
                cursor.execute(MERGE)
                assert cursor.rowcount == case.rows
        connection.close()


def jdbc_writer(spark: SparkSession, parquet: str, server: Server, database: str) -> None:
    """The rows into the table `staged`, by the settings that its documentation and PostgreSQL's driver advise."""
    where = server.tcp_of(database)
    url = f"jdbc:postgresql://{where['host']}:{where['port']}/{database}?reWriteBatchedInserts=true"
    properties = {"user": where["user"], "password": where["password"], "driver": "org.postgresql.Driver"}
    spark.read.parquet(parquet).write.jdbc(url, "staged", "append", {**properties, "batchsize": "10000"})


def dlt_merge(case: Case, watch: Stopwatch) -> None:
    """dlt's merge: it can overwrite a value, not add to it, so that it does less than the others."""
    python, template = extras.python(), f"keys_{case.keys}_dlt"
    pipelines = case.server.home / "pipelines"
    if not pipelines.exists():
        case.server.run(f"CREATE DATABASE {template}")
        prefilled = case.server.home / "prefilled.parquet"
        pq.write_table(batches.table(range(case.keys)), prefilled)
        _dlt(python, case.server, template, prefilled, pipelines)
        case.server.run("VACUUM (FREEZE, ANALYZE)", database=template)
    own = case.server.home / "pipelines.own"
    shutil.copytree(pipelines, own)
    try:
        with case.server.copy_of(template) as database:
            watch.seconds = _dlt(python, case.server, database, _parquet(case), own)
            connection = case.server.connect(database)
            with connection, connection.cursor() as cursor:
                cursor.execute("SELECT count(*) FROM state.counts")
                (found,) = cursor.fetchone() or (0,)
            connection.close()
            assert found == case.keys + case.rows * (1 - case.updates), found
    finally:
        shutil.rmtree(own)


def _dlt(python: Path, server: Server, database: str, parquet: Path, pipelines: Path) -> float:
    program = [str(python), str(extras.PROGRAMS / "dlt_merge.py"), str(parquet), str(pipelines)]
    environment = {
        "RUNTIME__DLTHUB_TELEMETRY": "false",
        "DLT_DATA_DIR": str(server.home / "dlt"),
        **server.told(database),
    }
    done = subprocess.run(program, env={**os.environ, **environment}, check=True, stdout=subprocess.PIPE, text=True)
    return float(json.loads(done.stdout.splitlines()[-1])["seconds"])


def _parquet(case: Case) -> Path:
    """The batch as a file, made once."""
    path = case.server.home / "batch.parquet"
    if not path.exists():
        pq.write_table(case.partials, path)
    return path
