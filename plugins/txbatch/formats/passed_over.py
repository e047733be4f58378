"""Names the columns of CSV files that are no fields, and are passed over by `extra="ignore"`: for `txbatch plan`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from txbatch.core.batch.planned_files import Entry, planned_size, planned_time
from txbatch.core.errors import TxbatchError
from txbatch.formats.csv_lines import listed
from txbatch.formats.scan import Format, Range


def passed_over(folder: Path, files: Mapping[str, Entry], format_: Format) -> str | None:
    """Return the newest file with the columns that are no fields, in words; None if there are none, or the file cannot be read.

    The other files are not looked at.
    """
    name = max(files, key=lambda each: planned_time(files[each]) or 0, default=None)
    if name is None or format_.options.get("extra") != "ignore":
        return None
    try:
        columns = format_.header(Range(folder / name, 0, None, planned_size(files[name])))
    except TxbatchError:
        return None
    fields = {field.name for field in format_.fields}
    others = [column for column in columns or () if column not in fields]
    return f"{name} has {listed(others)}" if others else None
