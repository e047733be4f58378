"""An attempt reads anew what the one before has read in the same Spark, by the driver in the session of these tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from in_this_process import InThisProcess
from pyspark.sql import SparkSession

from txbatch import settings
from txbatch.core.batch.transaction import Batch, Interval, Run
from txbatch.core.errors import Incomplete
from txbatch.launch.job_file import LAST_LINES, load_job
from txbatch.wiring import open_runner

SALES = """
from txbatch import *
topology = Topology("sales")
spout = IntervalSpout({root!r}, "at timestamp, price int", time="at", options={{"header": True}})
topology.new_stream("in", spout).persistent_aggregate(TransactionalState("sales"), turnover=Sum("price"))
"""


@pytest.mark.rule("R5", "R7")
def test_a_changed_price_is_found_in_a_file_of_the_same_size(
    spark: SparkSession, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a spout persists what it reads."""
    monkeypatch.setenv("TXBATCH_DATABASE_URL", postgres_url)
    monkeypatch.setenv("TXBATCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(InThisProcess, "session", spark, raising=False)
    monkeypatch.setattr("txbatch.wiring.Application", InThisProcess)
    job, file = tmp_path / "sales.py", tmp_path / "sales" / "a.csv"
    job.write_text(SALES.format(root=str(file.parent)) + LAST_LINES + "\n")
    file.parent.mkdir()
    file.write_text("at,price\n2026-01-01T12:00:00Z,1\n")
    day = datetime(2026, 1, 1, tzinfo=UTC)
    run = Run("a-day", interval=Interval(day, day + timedelta(1)))
    with open_runner(load_job(str(job)), settings.resolve()) as sales:
        found = sales.steps.initialize_transaction(run)
        assert isinstance(found, Batch)
        sales.steps.emit_batch(found, run, sales.submit)
        file.write_text("at,price\n2026-01-01T12:00:00Z,7\n")
        told = r"sales 1:2: .* was read differently: attempt 1:1 found .*; the source changed"
        with pytest.raises(Incomplete, match=told):
            sales.steps.emit_batch(found, run, sales.submit)
