"""`txbatch gc`: the values stay, and what is folded is said to be (R22)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_support import refused, rows
from click.testing import Result
from contract.conftest import Postgres
from contract.test_keep_windows import four_hours

from txbatch.postgres.database.engine import connect
from txbatch.spouts.partitioned_log import PartitionedLog

pytestmark = pytest.mark.rule("R22")
JOB = """
topology = Topology("hosts"{keep})
stream = topology.new_stream("log", PartitionedLogSpout({root!r}, max_records=1))
stream.group_by("line").persistent_aggregate(OpaqueState("hosts"), count=Count())
"""


def test_the_past_is_folded_and_values_stay(
    txbatch: Callable[..., Result], write_job: Callable[[str, str], str], tmp_path: Path
) -> None:
    PartitionedLog(tmp_path / "log").append("a", ["x", "y", "x", "x"])
    job = write_job("hosts.py", JOB.format(root=str(tmp_path / "log"), keep=""))
    rows(txbatch("run", job, "--until-idle", "--json"))
    asked = ("gc", "hosts", "--keep-txids", "2", "--json")
    folded = {
        "topology": "hosts",
        "keep": "the last 2 txids",
        "horizon_before": 0,
        "horizon": 2,
        "versions": 2,
        "rows": 2,
    }
    folded |= {"attempts": 0, "quarantined": 0, "windows": 0, "folders": 0, "left": [], "waits_for": None}
    assert rows(txbatch(*asked, "--dry-run")) == [folded]
    assert rows(txbatch(*asked)) == [folded]
    assert rows(txbatch(*asked)) == [folded | {"horizon_before": 2, "versions": 0, "rows": 0}]
    assert [row["count"] for row in rows(txbatch("query", "hosts", "x", "y", "--json"))] == [3, 1]
    assert [row["count"] for row in rows(txbatch("as-of", "hosts", "3", "--json"))] == [2, 1]
    refused(txbatch("as-of", "hosts", "1"), "retention has folded")
    refused(txbatch("restate", "hosts", "1", "--why", "late"), "is folded")
    assert rows(txbatch("restate", "hosts", "4", "--why", "late", "--json"))[0]["txid"] == 5
    assert [row["count"] for row in rows(txbatch("query", "hosts", "x", "--json"))] == [3]


def test_the_job_says_what_is_kept(
    txbatch: Callable[..., Result], write_job: Callable[[str, str], str], tmp_path: Path, home: Path
) -> None:
    """A changed policy is no changed definition: the next run takes it over, and `plan` tells it before."""
    log = PartitionedLog(tmp_path / "log")
    log.append("a", ["x", "y", "x", "x"])
    job = write_job("hosts.py", JOB.format(root=str(tmp_path / "log"), keep=""))
    rows(txbatch("run", job, "--until-idle", "--json"))
    told = {"topology": "hosts", "keep": "for ever", "horizon_before": 0, "horizon": 0}
    assert rows(txbatch("gc", "--json")) == [told]
    refused(txbatch("gc", "hosts"), "kept for ever by its job: say what stays")
    job = write_job("hosts.py", JOB.format(root=str(tmp_path / "log"), keep=", keep=Keep(txids=2)"))
    changes = "kept, once gc is called: the last 2 txids; it was for ever, and changes with the next run"
    assert changes in txbatch("plan", job).output
    assert rows(txbatch("gc", "--json")) == [told]
    log.append("a", ["y"])
    rows(txbatch("run", job, "--until-idle", "--json"))
    assert "kept, once gc is called: the last 2 txids\n" in txbatch("plan", job).output
    told = {
        "topology": "hosts",
        "keep": "the last 2 txids",
        "horizon_before": 0,
        "horizon": 3,
        "versions": 3,
        "rows": 3,
    }
    told |= {"attempts": 0, "quarantined": 0, "windows": 0, "folders": 1, "left": [], "waits_for": None}
    (home / "staging" / "hosts" / "1" / "1-0123abcd").mkdir(parents=True)
    assert rows(txbatch("gc", "--dry-run", "--json")) == [told]
    assert rows(txbatch("gc", "hosts", "--keep-txids", "4", "--json"))[0]["horizon"] == 1
    left = told | {"horizon_before": 1, "folders": 0, "versions": 2, "rows": 2}
    assert rows(txbatch("gc", "hosts", "--dry-run", "--json")) == [left]
    assert rows(txbatch("gc", "--json")) == [left]
    assert "hosts: kept is the last 2 txids; up to txid 3 the past is folded" in txbatch("status").output


WINDOWS = """
from datetime import UTC, datetime
topology = Topology("visits", keep=Keep(txids=1))
read = topology.new_stream("visits", FixedBatchSpout("at timestamp", 1, datetime(2026, 1, 5, tzinfo=UTC)))
state = OpaqueState("visits", keep_windows="5 days")
late = read.with_watermark("at", "1 hour", late="drop")
late.group_by(window("at", "1 day")).persistent_aggregate(state, visits=Count())
"""


@pytest.mark.rule("R30")
def test_windows_leave_and_it_says_so(txbatch: Callable[..., Result], postgres_url: str) -> None:
    visits = four_hours(Postgres(connect(postgres_url), {}), keep="2 hours")
    assert "windows of state 'visits' stay for 2 hours once they have ended; none" in txbatch("status").output
    which = "that begin before 2026-01-05 02:00 UTC"
    told = f"visits: state 'visits': its windows {which}"
    assert f"{told} would leave, that is 2 (4 records)\n" in txbatch("gc", "--dry-run").output
    assert len(visits.starts()) == 5
    assert f"{told} have left, 2 of them now (4 records)\n" in txbatch("gc").output
    assert len(visits.starts()) == 3
    (row,) = rows(txbatch("gc", "visits", "--json"))
    left = {
        "state": "visits",
        "keep": "2 hours",
        "left_before": "2026-01-05 02:00 UTC",
        "which": which,
        "waits_for": None,
    }
    assert (row["windows"], row["left"]) == (0, [{**left, "windows": 0, "records": 0}])
    assert "those that begin before 2026-01-05 02:00:00 have left: 2, of 4 records" in txbatch("status").output
    assert "told without" not in txbatch("as-of", "visits", "5").output
    gone = f"the windows of state 'visits' {which} have left it by retention"
    assert f"as of txid 4 these windows are missing: {gone}" in txbatch("as-of", "visits", "4").output
    key = "2026-01-05 01:00:00+00"
    refused(txbatch("why", "visits", f"{key},x"), f"has no key '{key},x' any more, if it ever had: {gone}")


@pytest.mark.rule("R30")
def test_how_long_windows_stay_is_told_before_it_is_so(
    txbatch: Callable[..., Result], write_job: Callable[[str, str], str]
) -> None:
    job = write_job("visits.py", WINDOWS)
    kept = "the last txid; windows of state 'visits' for 5 days"
    assert f"kept, once gc is called: {kept}\n" in txbatch("plan", job).output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--keep-days", "1"), "are of one topology: name it"),
        (("hosts",), "no topology 'hosts' is known"),
        (("hosts", "--keep-txids", "1", "--keep-days", "1"), "say what stays"),
        (("hosts", "--keep-txids", "0"), "0 is not in the range"),
        (("nobody", "--keep-days", "1"), "no topology 'nobody' is known"),
    ],
)
def test_what_is_no_policy_is_refused(txbatch: Callable[..., Result], arguments: tuple[str, ...], told: str) -> None:
    result = txbatch("gc", *arguments)
    assert result.exit_code in (1, 2)
    assert told in result.output


OWN = """
class Span(CombinerAggregator):
    partial, result = "low string, high string", "string"

    def init(self, value):
        return None if value is None else (value, value)

    def combine(self, left, right):
        return min(left[0], right[0]), max(left[1], right[1])

    def finish(self, partial):
        return "-".join(partial)


topology = Topology("spans")
stream = topology.new_stream("log", PartitionedLogSpout({root!r}, max_records=1))
stream.persistent_aggregate(OpaqueState("spans"), span=Span("line"))
"""
READER = """
topology = Topology("reader")
topology.new_stream("changes", StateSpout("spans", "span_after string")).persist(AppendState("read"))
"""


def test_what_python_of_a_job_merges_is_told_read_and_folded_with_its_file(
    txbatch: Callable[..., Result], write_job: Callable[[str, str], str], tmp_path: Path
) -> None:
    PartitionedLog(tmp_path / "log").append("a", ["x2", "x1", "x4", "x3"])
    job, reader = write_job("spans.py", OWN.format(root=str(tmp_path / "log"))), write_job("reader.py", READER)
    rows(txbatch("run", job, "--until-idle", "--json"))
    assert [row["span"] for n in "123" for row in rows(txbatch("as-of", "spans", n, "--json"))] == [
        "x2-x2",
        "x1-x2",
        "x1-x4",
    ]
    assert rows(txbatch("plan", reader, "--json"))[0]["next"]
    away = Path(job).rename(tmp_path / "away.py")
    told = f"the job file of spans, {job}, is neither here nor in a folder above; go to the project's folder"
    refused(txbatch("as-of", "spans", "2"), f"Python of its job, and the job cannot be loaded: {told}")
    refused(txbatch("plan", reader), told)
    asked = ("gc", "spans", "--keep-txids", "1", "--json")
    refused(txbatch(*asked[:-1]), f"by which gc folds with that job alone: {told}")
    away.rename(job)
    assert rows(txbatch(*asked))[0]["horizon"] == 3
    assert rows(txbatch("as-of", "spans", "3", "--json"))[0]["span"] == "x1-x4"
