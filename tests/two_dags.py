"""Two DAGs with jobs, `words` counts a log of a, b, a, a record a batch; `days` counts the words of a file by day."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli_support import DAYS
from forks import told_with_airflow

from txbatch.launch.job_file import LAST_LINES
from txbatch.spouts.partitioned_log import PartitionedLog

WORDS = """
from txbatch import *
topology = Topology("words")
stream = topology.new_stream("in", PartitionedLogSpout({root!r}, max_records=1))
stream.group_by("line").persistent_aggregate(OpaqueState("words"), count=Count())
"""
DAG = '''
"""An Airflow DAG."""
from airflow.timetables.interval import CronDataIntervalTimetable
from txbatch.orchestration import topology_dag
dag = topology_dag("jobs/{name}.py", schedule={schedule})
'''
DAILY = 'CronDataIntervalTimetable("0 0 * * *", timezone="UTC")'
# What `days` may read: five days with a record each.
FIVE_DAYS = " ".join(f"2024-01-0{day}T10:00Z,{word}" for day, word in enumerate("abcab", 1))


@dataclass(frozen=True)
class TwoDags:
    """The folder they are in."""

    folder: Path

    @classmethod
    def written(cls, folder: Path, words_schedule: str, source: str) -> TwoDags:
        """Write the jobs, the DAGs, the log and the file with this content."""
        dags = cls(folder)
        dags.log.append("0", ["a", "b", "a"])
        for each in ("jobs", "dags", "in"):
            (folder / each).mkdir()
        dags.source.write_text(source)
        for name, job, root, schedule in (
            ("words", WORDS, folder / "log", words_schedule),
            ("days", f"from txbatch import *\n{DAYS}", folder / "in", DAILY),
        ):
            dags.job(name).write_text(job.format(root=str(root)) + LAST_LINES + "\n")
            (folder / "dags" / f"{name}.py").write_text(DAG.format(name=name, schedule=schedule))
        return dags

    @property
    def log(self) -> PartitionedLog:
        """What `words` reads."""
        return PartitionedLog(self.folder / "log")

    @property
    def source(self) -> Path:
        """What `days` reads."""
        return self.folder / "in" / "one"

    def job(self, name: str) -> Path:
        """The file of this DAG's job."""
        return self.folder / "jobs" / f"{name}.py"

    def told(self, program: str, database_url: str, *more: str) -> dict[str, Any]:
        """What this program, which has `dag_tasks` at hand, prints as JSON in its last line, in a process of its own.

        `more` are further arguments of it, behind the DAGs and the source.
        """
        given = {"TXBATCH_DATABASE_URL": database_url, "TXBATCH_HOME": str(self.folder / "home")}
        dags = [str(self.folder / "dags" / f"{name}.py") for name in ("words", "days")]
        told = told_with_airflow(program, *dags, str(self.source), *more, folder=self.folder, **given)
        return dict(told)
