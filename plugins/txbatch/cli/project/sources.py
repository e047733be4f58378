"""Check for `txbatch doctor` that each source of each job answers, and may be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from txbatch.core.errors import SourceUnfit, TxbatchError
from txbatch.core.protocol.ledger import Offsets
from txbatch.core.topology.topology import Topology
from txbatch.launch.job_file import Job, load_job
from txbatch.local.example_sources import absent


def check_sources(root: Path, counted: Callable[[Topology], Offsets]) -> str:
    """Describe what the jobs of a project may read, after what is counted. Raise SourceUnfit with all failures and reasons.

    A job that does not load is left out: another check names the job.
    """
    told, wrong = list[str](), list[str]()
    for job in _jobs(root):
        offsets = counted(job.topology)
        for stream in job.topology.streams.values():
            try:
                reach = stream.spout.reach(offsets.get(stream.name, {}))
            except TxbatchError as error:
                if made_by := absent(getattr(stream.spout, "source", None)):
                    told.append(f"jobs/{job.path.name} is an example of {made_by}, and is left out")
                    continue
                wrong.append(f"jobs/{job.path.name}, stream {stream.name!r}: {error.text}")
            else:
                told += [] if reach is None else [reach]
    if wrong:
        raise SourceUnfit("; ".join(wrong))
    return "; ".join(dict.fromkeys(told)) or "no job reads a source with credentials"


def _jobs(root: Path) -> Iterator[Job]:
    for file in sorted((root.resolve() / "jobs").glob("*.py")):
        try:
            yield load_job(str(file))
        except TxbatchError:
            continue
