"""`txbatch doctor` loads DAG and job files, as Airflow and a run would."""

from __future__ import annotations

from pathlib import Path

import pytest

from txbatch.cli.dag_files import check_files
from txbatch.core.errors import DefinitionError

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


def test_files_that_load_are_counted_and_all_others_are_named_with_the_next_step(tmp_path: Path) -> None:
    write(tmp_path, "good", JOB.format(name="good") + MAIN)
    assert check_files(tmp_path) == "1 DAGs in dags/ and 1 jobs in jobs/ load"
    write(tmp_path, "copied", JOB.format(name="copied") + MAIN, DAG.format("copied.py", "start_date=..."))
    write(tmp_path, "lost", JOB.format(name="lost"))
    write(tmp_path, "broken", "import nosuch\n", DAG.format("elsewhere.py", ""))
    with pytest.raises(DefinitionError) as refused:
        check_files(tmp_path)
    said = str(refused.value).split("; ")
    assert said[0].startswith("dags/broken.py, line 3: no job file 'jobs/elsewhere.py' beside or above broken.py")
    copied = "dags/copied.py, line 3: topology_dag: start_date=... stands for a value"
    assert copied in said
    assert any(each.startswith("write one: datetime(2026, 1, 1, tzinfo=UTC)") for each in said)
    assert "jobs/broken.py: job file broken.py cannot be loaded: ModuleNotFoundError: No module named 'nosuch'" in said
    assert "jobs/lost.py: job file lost.py emits nothing when Spark runs it" in said
