"""A record that fails its attempt: the error names the partition and the record; that is given up, and the rest flows.

By the driver in the session of these tests.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from in_this_process import InThisProcess
from pyspark.sql import SparkSession
from sqlalchemy import Engine, text

from txbatch.cli.main import main
from txbatch.postgres.reading.ledger_reader import LedgerReader
from txbatch.spouts.partitioned_log import PartitionedLog

pytestmark = [pytest.mark.timeout(300), pytest.mark.rule("R16")]
JOB = """
from txbatch import *
def amount(record):
    return int(record["line"])
topology = Topology("amounts")
stream = topology.new_stream("in", PartitionedLogSpout({root!r}, max_records=2))
stream.each(amount, "amount bigint").group_by("amount").persistent_aggregate(OpaqueState("amounts"), count=Count())
if __name__ == "__main__":
    raise SystemExit(emit(topology))
"""


def test_a_poison_record_is_named_and_the_rest_flows_once_it_is_given_up(
    spark: SparkSession, postgres_url: str, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TXBATCH_DATABASE_URL", postgres_url)
    monkeypatch.setenv("TXBATCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(InThisProcess, "session", spark, raising=False)
    monkeypatch.setattr("txbatch.wiring.Application", InThisProcess)
    log = PartitionedLog(tmp_path / "log")
    log.append("north", ["1", "2", "5"])
    log.append("south", ["3", "four", "6"])
    job = tmp_path / "amounts.py"
    job.write_text(JOB.format(root=str(log.root)))

    def txbatch(*arguments: str) -> tuple[int, str, str]:
        done = CliRunner().invoke(main, list(arguments))
        return done.exit_code, done.stdout, done.stderr

    told = (
        "amounts 1:1, stream 'in', state 'amounts': 1. each amount raised ValueError: invalid literal for int() with base 10: "
        "'four' (amounts.py, line 4, in amount), for the record {'record_offset': 1, 'line': 'four'} (in south)"
    )
    code, _, err = txbatch("run", str(job))
    assert (code, told in err) == (1, True), err
    assert told in txbatch("status")[1]
    code, out, err = txbatch("abort", "amounts", "1", "--skip", "--partition", "south", "--why", "'four'", "--json")
    assert (code, json.loads(out)[0]["given up by txid"]) == (0, 2), err
    assert txbatch("run", str(job), "--until-idle")[0] == 0
    with engine.connect() as connection:
        counted = connection.execute(text("SELECT amount, count FROM report.amounts")).tuples().all()
        skipped = connection.execute(
            text("SELECT partition, reason FROM report.partitions WHERE status = 'skipped'")
        ).all()
    assert dict(counted) == {1: 1, 2: 1, 5: 1, 6: 1}
    assert skipped == [("south", "'four'")]
    assert [row["status"] for row in LedgerReader(engine).batches("amounts")] == [*["committed"] * 3, "aborted"]
