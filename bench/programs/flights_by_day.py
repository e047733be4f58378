"""A year of flights by hand, under spark-submit: one aggregation by day, then COPY of its rows and a sum of them by key.

Arguments: csv or parquet; the files. BENCH_DATABASE is the database as JSON. It counts what jobs/flights.py does, unguarded.
"""

import io
import json
import os
import sys

import psycopg2
import pyarrow as pa
from pyarrow import csv
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

FIELDS = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, sched_arr_time int, "
    "arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, air_time int, distance int, "
    "hour int, minute int, time_hour timestamp"
)
AGGREGATES = (
    "count(*) AS flights",
    "count(dep_time) AS departures",
    "count_if(dep_time IS NULL) AS cancellations",
    "sum(dep_delay) AS dep_delay_total",
    "count(dep_delay) AS delays",
    "max(dep_delay) AS dep_delay_max",
)
VALUES = "flights, departures, cancellations, dep_delay_total, delays, dep_delay_max"
TABLES = (
    'CREATE TABLE daily (day date, carrier text COLLATE "C", origin text COLLATE "C", flights bigint, departures bigint, '
    "cancellations bigint, dep_delay_total bigint, delays bigint, dep_delay_max int, PRIMARY KEY (carrier, origin, day))",
    "CREATE TABLE flights (LIKE daily)",
    "ALTER TABLE flights DROP COLUMN day",
    "ALTER TABLE flights ADD PRIMARY KEY (carrier, origin)",
)
SUM = (
    f"INSERT INTO flights (carrier, origin, {VALUES}) SELECT carrier, origin, sum(flights), sum(departures), sum(cancellations), "
    "sum(dep_delay_total), sum(delays), max(dep_delay_max) FROM daily GROUP BY carrier, origin"
)


def main(form: str, files: str) -> None:
    """Count, load, commit."""
    spark = SparkSession.builder.appName("flights").getOrCreate()
    rows = by_day(spark.read.schema(FIELDS).format(form).options(header=True, nullValue="NA").load(files)).toArrow()
    load(rows)
    spark.stop()


def by_day(flights: DataFrame) -> DataFrame:
    """A row for each day of New York, carrier and airport."""
    day = "to_date(from_utc_timestamp(time_hour, 'America/New_York')) AS day"
    found = flights.selectExpr(day, "carrier", "origin", "dep_time", "dep_delay").groupBy("day", "carrier", "origin")
    return found.agg(*map(expr, AGGREGATES))


def load(rows: pa.Table) -> None:
    """COPY, and one statement."""
    told, sink = json.loads(os.environ["BENCH_DATABASE"]), io.BytesIO()
    csv.write_csv(rows, sink, csv.WriteOptions(include_header=False))
    sink.seek(0)
    connection = psycopg2.connect(**{("dbname" if name == "database" else name): value for name, value in told.items()})
    with connection, connection.cursor() as cursor:
        for statement in TABLES:
            cursor.execute(statement)
        cursor.copy_expert(f"COPY daily (day, carrier, origin, {VALUES}) FROM STDIN (FORMAT csv)", sink)
        cursor.execute(SUM)
    connection.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
