"""Finds the ledger's jobs in the project's folder, to fold values by the jobs' Python."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from sqlalchemy import Engine

from txbatch.core.definition.job_rules import Jobs
from txbatch.core.errors import JobNotFound
from txbatch.core.topology.topology import Topology
from txbatch.launch.job_file import Job, load_job
from txbatch.postgres.reading.ledger_reader import LedgerReader


def job_above(folder: Path, topology: str, file: str, or_else: str = "") -> Job:
    """Return the job of a topology. The file is relative to the folder, or to the nearest folder above with the file.

    Raise DefinitionError if the file is missing; `or_else` completes the text with another way.
    """
    root = next((each for each in (folder, *folder.parents) if (each / file).is_file()), None)
    if root is None:
        raise JobNotFound(
            f"the job file of {topology}, {file}, is neither here nor in a folder above; go to the project's folder{or_else}"
        )
    job = load_job(file, root)
    if job.topology.name != topology:
        raise JobNotFound(
            f"job file {job.path} defines topology {job.topology.name} by now; give the file of {topology}"
        )
    return job


def jobs_above(engine: Engine, folder: Path) -> Jobs:
    """Return a loader of the jobs named in the ledger; each job is loaded once."""

    @cache
    def job(topology: str) -> Topology:
        return job_above(folder, topology, LedgerReader(engine).job(topology)).topology

    return job
