"""Counted words into the state by COPY and one upsert, without any guarantee; or DuckDB counts them first.

Arguments: a folder of Parquet files, or `duckdb` and the text's files. BENCH_DATABASE is the database as JSON.
"""

import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg2
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

UPSERT = (
    "INSERT INTO state.words AS s (word, count, txid) SELECT word, count, 2 FROM staged ORDER BY word "
    "ON CONFLICT (word) DO UPDATE SET count = s.count + EXCLUDED.count, txid = EXCLUDED.txid"
)
COUNT = (
    "SELECT word, count(*) AS count FROM (SELECT unnest(string_split(line, ' ')) AS word FROM read_csv(?, "
    "columns = {'line': 'VARCHAR'}, header = false, delim = '\\t', quote = '', escape = '', auto_detect = false)) "
    "GROUP BY word"
)


def main(*source: str) -> None:
    """Load."""
    told = json.loads(os.environ["BENCH_DATABASE"])
    connection = psycopg2.connect(**{("dbname" if name == "database" else name): value for name, value in told.items()})
    tables = (
        by_duckdb(source[1]) if source[0] == "duckdb" else map(pq.read_table, sorted(Path(source[0]).glob("*.parquet")))
    )
    with connection, connection.cursor() as cursor:
        cursor.execute('CREATE TEMP TABLE staged (word text COLLATE "C", count bigint) ON COMMIT DROP')
        for table in tables:
            cursor.copy_expert("COPY staged FROM STDIN (FORMAT csv)", as_csv(table), size=1 << 20)
        cursor.execute(UPSERT)
    connection.close()


def by_duckdb(text: str) -> Iterator[pa.Table]:
    """The words of the files, counted."""
    import duckdb

    counted: Any = duckdb.execute(COUNT, [text])
    yield counted.to_arrow_table() if hasattr(counted, "to_arrow_table") else counted.arrow()


def as_csv(table: pa.Table) -> io.BytesIO:
    """For COPY."""
    sink = io.BytesIO()
    csv.write_csv(table, sink, csv.WriteOptions(include_header=False))
    sink.seek(0)
    return sink


if __name__ == "__main__":
    main(*sys.argv[1:])
