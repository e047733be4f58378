"""What verify_dag makes of a job file, and how its task ends: in a process of its own, without a running Airflow or Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
stream.group_by("line").persistent_aggregate(OpaqueState("words"), count=Count())
"""
DAG = '''
"""An Airflow DAG."""
from txbatch.orchestration import verify_dag
dag = verify_dag("jobs/words.py", sample=2, schedule="@daily", emit_batch={"pool": "spark"})
'''
PROGRAM = """
import json, runpy, sys
from types import SimpleNamespace
from airflow.sdk.exceptions import AirflowFailException
from sqlalchemy import text
from without_spark import WithoutSpark
from txbatch.core.errors import DefinitionError
from txbatch.orchestration import verify_dag
from txbatch.orchestration.airflow import open_steps
from txbatch.orchestration.verify import VerifyOperator

dag = runpy.run_path(sys.argv[1])["dag"]
task = dag.get_task("verify")
VerifyOperator._application = lambda self: WithoutSpark(self.job)

def verified(run_id):
    pushed = {}
    ti = SimpleNamespace(xcom_push=lambda key, value: pushed.update({key: value}))
    try:
        pushed["returned"] = task.execute({"ti": ti, "dag_run": SimpleNamespace(run_id=run_id)})
    except AirflowFailException as error:
        pushed["failed"] = str(error)
    return pushed

well = [verified(run_id) for run_id in ("monday", "monday")]
with open_steps(task.job).ledger.engine.begin() as connection:
    connection.execute(text("UPDATE state.words SET count = 7 WHERE line = 'b'"))
try:
    verify_dag("jobs/words.py", sample=0)
except DefinitionError as error:
    refused = str(error)
made = [dag.dag_id, dag.catchup, task.pool, task.sample, sorted(dag.tags), dag.doc_md]
print(json.dumps({"dag": made, "well": well, "wrong": verified("tuesday"), "refused": refused}))
"""


@pytest.fixture
def project(tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three batches are committed."""
    PartitionedLog(tmp_path / "log").append("0", ["a", "b", "a"])
    for folder, content in (("jobs", JOB.format(root=str(tmp_path / "log")) + LAST_LINES), ("dags", DAG)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "words.py").write_text(content + "\n")
    monkeypatch.setenv("TXBATCH_DATABASE_URL", postgres_url)
    monkeypatch.setenv("TXBATCH_HOME", str(tmp_path / "home"))
    from without_spark import WithoutSpark

    monkeypatch.setattr("txbatch.wiring.Application", WithoutSpark)
    with open_runner(load_job(str(tmp_path / "jobs" / "words.py")), settings.resolve()) as runner:
        assert len(list(runner.run(until_idle=True))) == 3
    return tmp_path


def test_its_task_tells_what_it_found_and_fails_for_what_is_wrong(project: Path) -> None:
    made: dict[str, Any] = told_with_airflow(PROGRAM, str(project / "dags" / "words.py"), folder=project)
    assert made["dag"][:5] == ["words.verify", False, "spark", 2, ["txbatch"]]
    assert "2 batches, chosen by chance, are read again" in made["dag"][5]
    line = "verified txids: 2; 3 EQUAL; 4 keys compared"
    assert made["well"] == [{"txbatch": line, "findings": [], "returned": {"EQUAL": 3}}] * 2
    wrong = made["wrong"]
    line = "verified txids: 2; 2 EQUAL, 1 DIFFERENT (state words); 4 keys compared, 1 differs"
    assert (wrong["txbatch"], wrong["failed"]) == (line, f"words: {line}; see `txbatch verify`")
    (found,) = wrong["findings"]
    assert (found["what"], found["outcome"], found["keys"]) == ("state words", "DIFFERENT", "b")
    assert (
        made["refused"]
        == "TX105 (no retry helps): verify_dag: sample=0 is no number of batches; leave it out to verify all"
    )
