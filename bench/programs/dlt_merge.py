"""dlt's merge of a Parquet file by primary key, upsert strategy, in an environment of its own; prints the seconds.

As its documentation advises for Arrow tables and PostgreSQL: no row leaves Arrow, and the load is COPY of CSV files.
The imports and the connection's settings are not in the seconds; normalising, loading and merging are.
"""

import json
import os
import sys
import time

import dlt  # type: ignore[import-not-found]
import pyarrow.parquet as pq
from dlt.destinations import postgres  # type: ignore[import-not-found]


def main(parquet: str, pipelines: str) -> None:
    """Merge the file into state.counts of the database that BENCH_DATABASE says, {host, port, ...}."""
    told = json.loads(os.environ["BENCH_DATABASE"])
    credentials = {("username" if name == "user" else name): value for name, value in told.items()}
    pipeline = dlt.pipeline("bench", pipelines_dir=pipelines, destination=postgres(credentials), dataset_name="state")
    table = pq.read_table(parquet)
    began = time.perf_counter()
    rows = dlt.resource(
        table, name="counts", primary_key="key", write_disposition={"disposition": "merge", "strategy": "upsert"}
    )
    pipeline.run(rows, loader_file_format="csv").raise_on_failed_jobs()
    print(json.dumps({"seconds": time.perf_counter() - began}))


if __name__ == "__main__":
    main(*sys.argv[1:])
