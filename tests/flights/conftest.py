"""The flights of 2013, in pandas."""

from __future__ import annotations

import pandas as pd
import pytest
from flights.year_numbers import NEW_YORK

from txbatch.local.flights import FILE, ensure_flights


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """The package's own file, in pandas."""
    folder = ensure_flights(tmp_path_factory.mktemp("package"))
    frame = pd.read_csv(folder / FILE, dtype={"tailnum": "string"})
    frame["time_hour"] = pd.to_datetime(frame["time_hour"])
    frame["date"] = frame["time_hour"].dt.tz_convert(NEW_YORK).dt.date
    return frame
