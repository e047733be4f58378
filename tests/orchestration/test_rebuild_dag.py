"""What rebuild_dag makes of a job file, and what its task does: in a process of its own, without a running Airflow or Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from forks import told_with_airflow

from txbatch import settings
from txbatch.launch.job_file import LAST_LINES, load_job
from txbatch.spouts.partitioned_log import PartitionedLog
from txbatch.wiring import open_runner

JOB = """
from txbatch import *
topology = Topology("words")
stream = topology.new_stream("in", PartitionedLogSpout({root!r}, max_records=1))
stream.group_by("line").persistent_aggregate(OpaqueState("words"), count=Count(){more})
"""
DAG = '''
"""An Airflow DAG."""
from txbatch.orchestration import rebuild_dag
dag = rebuild_dag("jobs/words.py", emit_batch={"pool": "spark"})
'''
PROGRAM = """
import json, runpy, sys
from types import SimpleNamespace
from airflow.sdk.exceptions import AirflowFailException
from sqlalchemy import text
from without_spark import WithoutSpark
from txbatch.orchestration.airflow import open_steps
from txbatch.orchestration.rebuild import RebuildOperator

dag = runpy.run_path(sys.argv[1])["dag"]
task = dag.get_task("rebuild")
RebuildOperator._application = lambda self: WithoutSpark(self.job)

def rebuilt(why):
    told = {}
    ti = SimpleNamespace(xcom_push=lambda key, value: told.update({key: value}))
    run = SimpleNamespace(run_id="manual", triggering_user_name="ann")
    try:
        return {**told, "returned": task.execute({"ti": ti, "dag_run": run, "params": {"why": why}}), **told}
    except AirflowFailException as error:
        return {"failed": str(error)}

refused, first, again = rebuilt(" "), rebuilt("the last, too"), rebuilt("the last, too")
with open_steps(task.job).ledger.engine.begin() as connection:
    shown = [list(row) for row in connection.execute(text("SELECT line, count, last FROM report.words ORDER BY line"))]
    asked = [list(row) for row in connection.execute(text("SELECT why, requested_by FROM report.rebuilds"))]
why = dag.params.get_param("why").schema
made = [dag.dag_id, sorted(dag.tags), task.pool, why["minLength"], why["maxLength"]]
print(json.dumps({"dag": made, "refused": refused, "first": first, "again": again, "shown": shown, "asked": asked}))
"""


@pytest.fixture
def project(tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three batches are committed, and the job has another value since."""
    PartitionedLog(tmp_path / "log").append("0", ["a", "b", "a"])
    jobs = [
        JOB.format(root=str(tmp_path / "log"), more=more) + LAST_LINES for more in ("", ', last=Max("record_offset")')
    ]
    for folder, content in (("jobs", jobs[0]), ("dags", DAG)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "words.py").write_text(content + "\n")
    monkeypatch.setenv("TXBATCH_DATABASE_URL", postgres_url)
    monkeypatch.setenv("TXBATCH_HOME", str(tmp_path / "home"))
    from without_spark import WithoutSpark

    monkeypatch.setattr("txbatch.wiring.Application", WithoutSpark)
    with open_runner(load_job(str(tmp_path / "jobs" / "words.py")), settings.resolve()) as runner:
        assert len(list(runner.run(until_idle=True))) == 3
    (tmp_path / "jobs" / "words.py").write_text(jobs[1] + "\n")
    return tmp_path


def test_its_task_counts_all_again_and_a_second_try_finds_it_done(project: Path) -> None:
    made = told_with_airflow(PROGRAM, str(project / "dags" / "words.py"), folder=project)
    assert made["dag"] == ["words.rebuild", ["txbatch"], "spark", 1, 1_000]
    assert "say why all of it is counted again" in made["refused"]["failed"]
    told = {"txbatch": "rebuild 1 of words counts; up to txid 3 the states before it are kept", "returned": 1}
    assert made["first"] == told
    assert made["again"]["returned"] == 1
    assert "counts already: nothing was counted again. Give another why" in made["again"]["txbatch"]
    assert made["shown"] == [["a", 2, 2], ["b", 1, 1]]
    assert made["asked"] == [["the last, too", "ann"]]
