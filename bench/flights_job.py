"""jobs/flights.py on Parquet, for the year of flights that is measured here and counted by tests/flights."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from txbatch import settings
from txbatch.core.records.fields import parse_fields
from txbatch.launch.job_file import load_job

_CSV_FORMAT = 'format="csv",\n            options={"header": True, "null_value": "NA"},'


def parquet_job(flights: pd.DataFrame, folder: Path) -> Path:
    """jobs/flights.py as it is but for the format, written to `folder`, where `source/` has the flights as Parquet.

    They are sorted by time, in row groups of 2,000: of the CSV file Spark would read the whole year for each day. The job
    reads from what FLIGHTS_FOLDER names.
    """
    written = (settings.project_root() / "jobs" / "flights.py").read_text()
    if _CSV_FORMAT not in written:
        raise RuntimeError(f"jobs/flights.py does not read CSV as it did: {_CSV_FORMAT} is not in it")
    path, source = folder / "flights.py", folder / "source"
    path.write_text(written.replace(_CSV_FORMAT, 'format="parquet",'))
    types = {"int": pa.int32(), "string": pa.string(), "timestamp": pa.timestamp("us", "UTC")}
    fields = parse_fields(load_job(str(path)).topology.streams["flights"].spout.fields)
    schema = pa.schema([(field.name, types[field.type]) for field in fields])
    source.mkdir()
    table = pa.Table.from_pandas(flights.sort_values("time_hour"), schema, preserve_index=False)
    pq.write_table(table, source / "flights.parquet", row_group_size=2_000)
    return path
