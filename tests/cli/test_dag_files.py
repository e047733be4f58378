"""`txbatch doctor` loads DAG and job files, as Airflow and a run would."""

from __future__ import annotations

from pathlib import Path

import pytest

from txbatch.cli.project.dag_files import check_files
from txbatch.core.errors import DefinitionError, TerminalError
from txbatch.launch.job_file import Job

DAG = '"""An Airflow DAG."""\nfrom txbatch.orchestration import topology_dag\ndag = topology_dag("jobs/{}", {})\n'
JOB = """
from txbatch import *
topology = Topology("{name}")
stream = topology.new_stream("in", FixedBatchSpout("word string", 1, ("a",)))
stream.group_by("word").persistent_aggregate(OpaqueState("{name}"), count=Count())
"""
MAIN = 'if __name__ == "__main__":\n    raise SystemExit(emit(topology))\n'


def write(root: Path, name: str, job: str, dag: str = "") -> None:
    for folder in ("jobs", "dags"):
        (root / folder).mkdir(exist_ok=True)
    (root / "jobs" / f"{name}.py").write_text(job)
    (root / "dags" / f"{name}.py").write_text(dag or DAG.format(f"{name}.py", ""))


def test_files_that_do_not_load_are_named_with_the_next_step(tmp_path: Path) -> None:
    write(tmp_path, "good", JOB.format(name="good") + MAIN)
    write(tmp_path, "copied", JOB.format(name="copied") + MAIN, DAG.format("copied.py", "start_date=..."))
    write(tmp_path, "lost", JOB.format(name="lost"))
    write(tmp_path, "broken", "import nosuch\n", DAG.format("elsewhere.py", ""))
    with pytest.raises(DefinitionError) as refused:
        check_files(tmp_path)
    said = str(refused.value).split("; ")
    assert said[0].startswith(
        "TX115 (no retry helps): dags/broken.py, line 3: no job file 'jobs/elsewhere.py' beside or above broken.py"
    )
    copied = "dags/copied.py, line 3: topology_dag: start_date=... stands for a value"
    assert copied in said
    assert any(each.startswith("write one: datetime(2026, 1, 1, tzinfo=UTC)") for each in said)
    assert (
        "jobs/broken.py: job file broken.py cannot be loaded: ModuleNotFoundError: No module named 'nosuch' (line 1)"
        in said
    )
    assert "jobs/lost.py: job file lost.py emits nothing when Spark runs it" in said


def test_what_is_wrong_in_a_job_is_said_once_with_the_line_of_the_job(tmp_path: Path) -> None:
    job = JOB.format(name="shop").replace('group_by("word")', 'group_by("wrod")') + MAIN
    write(tmp_path, "shop", "# a line\n" * 20 + job)
    write(tmp_path, "comma", JOB.format(name="comma") + "x = (1,\n")
    with pytest.raises(DefinitionError) as refused:
        check_files(tmp_path)
    said = str(refused.value)
    assert said.count("comma.py:") + said.count("comma.py,") <= 2
    assert "dags/" not in said
    assert "jobs/shop.py, line 25: " in said
    assert said.count("wrod") == 1


def test_what_is_wrong_alike_in_several_files_is_said_once_with_their_names(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write(tmp_path, name, JOB.format(name=name) + MAIN)

    def refuse(job: Job) -> None:
        raise TerminalError("no right; get one" if job.topology.name != "b" else "another reason")

    with pytest.raises(DefinitionError) as refused:
        check_files(tmp_path, refuse)
    said = str(refused.value)
    assert "jobs/a.py and jobs/c.py: no right; get one" in said
    assert said.count("no right") == 1
    assert "; jobs/b.py: another reason" in said


def test_a_schedule_whose_runs_have_no_interval_is_refused_where_a_topology_reads_by_time(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    job = JOB.format(name="days").replace(
        'FixedBatchSpout("word string", 1, ("a",))',
        f'IntervalSpout("{tmp_path}/in", "word string, at timestamp", time="at")',
    )
    write(tmp_path, "days", job + MAIN, DAG.format("days.py", 'schedule="@daily"'))
    write(tmp_path, "words", JOB.format(name="words") + MAIN, DAG.format("words.py", 'schedule="@daily"'))
    write(tmp_path, "asked", job.replace('"days"', '"asked"') + MAIN)
    with pytest.raises(DefinitionError) as refused:
        check_files(tmp_path)
    assert str(refused.value).startswith(
        "TX115 (no retry helps): dags/days.py, line 3: topology_dag: days reads by time, and the runs of schedule='@daily' have "
        "no interval; write Cron"
    )
    assert str(refused.value).count("dags/") == 1
