"""Counts words by hand, under spark-submit: into Parquet, or by JDBC and MERGE into the state, batch or streaming.

Arguments: parquet, jdbc or stream; the text's files; where to write (Parquet, or the stream's checkpoints). For JDBC
BENCH_DATABASE is the database as JSON.
"""

import json
import os
import sys

import psycopg2
from pyspark.sql import DataFrame, SparkSession

MERGE = (
    "MERGE INTO state.words s USING staged b ON s.word = b.word "
    "WHEN MATCHED THEN UPDATE SET count = s.count + b.count, txid = 2 "
    "WHEN NOT MATCHED THEN INSERT (word, count, txid) VALUES (b.word, b.count, 2)"
)


def main(how: str, text: str, target: str) -> None:
    """Count."""
    spark = SparkSession.builder.appName("words").getOrCreate()
    if how == "parquet":
        counted(spark.read.text(text)).write.parquet(target)
    elif how == "jdbc":
        merge(counted(spark.read.text(text)))
    else:
        stream = spark.readStream.text(text).writeStream.option("checkpointLocation", target)
        stream = stream.foreachBatch(lambda lines, _: merge(counted(lines))).trigger(availableNow=True)
        stream.start().awaitTermination()
    spark.stop()


def counted(lines: DataFrame) -> DataFrame:
    """How often each word is there."""
    return lines.selectExpr("explode(split(value, ' ')) as word").groupBy("word").count()


def merge(partials: DataFrame) -> None:
    """JDBC into an unlogged table, with the settings that are advised, then one MERGE."""
    told = json.loads(os.environ["BENCH_DATABASE"])
    connection = psycopg2.connect(**{("dbname" if name == "database" else name): value for name, value in told.items()})
    with connection, connection.cursor() as cursor:
        cursor.execute("CREATE UNLOGGED TABLE staged (word text, count bigint)")
    url = f"jdbc:postgresql://{told['host']}:{told['port']}/{told['database']}?reWriteBatchedInserts=true"
    properties = {"user": told["user"], "password": told["password"], "driver": "org.postgresql.Driver"}
    partials.write.jdbc(url, "staged", "append", {**properties, "batchsize": "10000"})
    with connection, connection.cursor() as cursor:
        cursor.execute("ANALYZE staged")
        cursor.execute(MERGE)
    connection.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
