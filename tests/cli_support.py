"""Jobs and answers of the command `txbatch`."""

from __future__ import annotations

from click.testing import Result

COUNT = 'stream.group_by("word").persistent_aggregate(OpaqueState({state!r}), count=Count())\n'
TOPOLOGY = (
    'topology = Topology({name!r})\nstream = topology.new_stream("in", FixedBatchSpout("{fields}", 1, ("a"), ("b")))\n'
)


def job_of(name: str, state: str, fields: str = "word string") -> str:
    return TOPOLOGY.format(name=name, fields=fields) + COUNT.format(state=state)


def refused(result: Result, told: str) -> None:
    """Exit code 1, nothing on stdout, one line that says why."""
    assert (result.exit_code, result.stdout) == (1, "")
    assert told in result.stderr
    assert "Traceback" not in result.stderr
    errors = [line for line in result.stderr.splitlines() if line.startswith("txbatch: ")]
    assert len(errors) == 1
