"""`txbatch gc`: the values stay, and what is folded is said to be (R22)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_support import refused, rows
from click.testing import Result

from txbatch.spouts.partitioned_log import PartitionedLog

pytestmark = pytest.mark.rule("R22")
JOB = """
topology = Topology("hosts")
stream = topology.new_stream("log", PartitionedLogSpout({root!r}, max_records=1))
stream.group_by("line").persistent_aggregate(OpaqueState("hosts"), count=Count())
"""


def test_the_past_is_folded_and_values_stay(
    txbatch: Callable[..., Result], write_job: Callable[[str, str], str], tmp_path: Path
) -> None:
    PartitionedLog(tmp_path / "log").append("a", ["x", "y", "x", "x"])
    job = write_job("hosts.py", JOB.format(root=str(tmp_path / "log")))
    rows(txbatch("run", job, "--until-idle", "--json"))
    asked = ("gc", "hosts", "--keep-txids", "2", "--json")
    assert rows(txbatch(*asked, "--dry-run")) == [{"topology": "hosts", "horizon_before": 0, "horizon": 2}]
    folded = {"topology": "hosts", "horizon_before": 0, "horizon": 2, "versions": 2, "rows": 2}
    assert rows(txbatch(*asked)) == [folded]
    assert rows(txbatch(*asked)) == [folded | {"horizon_before": 2, "versions": 0, "rows": 0}]
    assert [row["count"] for row in rows(txbatch("query", "hosts", "x", "y", "--json"))] == [3, 1]
    assert [row["count"] for row in rows(txbatch("as-of", "hosts", "3", "--json"))] == [2, 1]
    refused(txbatch("as-of", "hosts", "1"), "retention has folded")
    refused(txbatch("restate", "hosts", "1", "--why", "late"), "is folded")
    assert rows(txbatch("restate", "hosts", "4", "--why", "late", "--json"))[0]["txid"] == 5
    assert [row["count"] for row in rows(txbatch("query", "hosts", "x", "--json"))] == [3]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("hosts",), "say what stays"),
        (("hosts", "--keep-txids", "1", "--keep-days", "1"), "say what stays"),
        (("hosts", "--keep-txids", "0"), "0 is not in the range"),
        (("nobody", "--keep-days", "1"), "no topology 'nobody' is known"),
    ],
)
def test_what_is_no_policy_is_refused(txbatch: Callable[..., Result], arguments: tuple[str, ...], told: str) -> None:
    result = txbatch("gc", *arguments)
    assert result.exit_code in (1, 2)
    assert told in result.output
