"""A topology that looks up in the state of another one, and in files, through the command line and Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import Result

from txbatch.spouts.partitioned_log import PartitionedLog

Process = Callable[..., Any]
Txbatch = Callable[..., Result]
WriteJob = Callable[[str, str], str]
VISITS = """
topology = Topology("visits")
visits = topology.new_stream("log", PartitionedLogSpout({root!r}))
visits.group_by("line").persistent_aggregate(OpaqueState("visits"), visits=Count(), mean=Avg("record_offset"))
"""
SEEN = """
topology = Topology("seen")
seen = topology.new_stream("log", PartitionedLogSpout({root!r}))
known = seen.state_query(LiveState("visits", "line string, visits bigint"), "line")
known.project("record_offset", "line").group_by("line").persistent_aggregate(OpaqueState("seen"), seen=Count())
"""


def test_a_batch_says_what_it_looked_up(txbatch: Txbatch, write_job: WriteJob, tmp_path: Path) -> None:
    """A restate too, which looks up as of then."""
    log = PartitionedLog(tmp_path / "log")
    log.append("0", ["ann", "bob"])
    visits = write_job("visits.py", VISITS.format(root=str(log.root)).replace(', mean=Avg("record_offset")', ""))
    job = write_job("seen.py", SEEN.format(root=str(log.root)))
    for each in (visits, job):
        assert txbatch("run", each).exit_code == 0
    log.append("0", ["ann"])
    for each in (visits, job):
        assert txbatch("run", each).exit_code == 0
    done = txbatch("restate", "seen", "1", "--why", "ann was eve")
    assert done.exit_code == 0, done.output
    (told,) = json.loads(txbatch("why", "seen", "ann", "--json").stdout)
    assert [(each["txid"], each["reads"][-1]) for each in told["versions"]] == [
        (1, "visits as of txid 1"),
        (3, "visits as of txid 1"),
        (2, "visits as of txid 2"),
    ]
