"""A topology that is defined otherwise than its history fails in the DAG's first task, for good: in a process of its own."""

from __future__ import annotations

from pathlib import Path

from forks import told_with_airflow
from sqlalchemy import Engine, text

JOB = """
from txbatch import *
topology = Topology("words")
stream = topology.new_stream("in", FixedBatchSpout("word string", 1, "dog", "cat"))
for state in {states}:
    stream.group_by("word").persistent_aggregate(OpaqueState(state), count=Count())
if __name__ == "__main__":
    raise SystemExit(emit(topology))
"""
PROGRAM = """
import json, sys
from types import SimpleNamespace
from airflow.sdk.exceptions import AirflowFailException
from txbatch.launch.job_file import load_job
from txbatch.orchestration.operators import InitializeTransactionOperator

def initialize(job, run_id):
    task = InitializeTransactionOperator(task_id="initialize_transaction", job=load_job(job))
    context = {"dag_run": SimpleNamespace(dag_id="words", run_id=run_id), "params": {}}
    try:
        return task.execute(context)
    except AirflowFailException as error:
        return str(error)

print(json.dumps([initialize(sys.argv[1], "1"), initialize(sys.argv[2], "2"), initialize(sys.argv[1], "1")]))
"""


def test_the_first_task_fails_for_good_and_uses_no_txid(postgres_url: str, engine: Engine, tmp_path: Path) -> None:
    jobs = [tmp_path / "before.py", tmp_path / "after.py"]
    for job, states in zip(jobs, (["a", "b"], ["a", "c"]), strict=True):
        job.write_text(JOB.format(states=states))
    given = {"TXBATCH_DATABASE_URL": postgres_url, "TXBATCH_HOME": str(tmp_path)}
    before, after, again = told_with_airflow(PROGRAM, *map(str, jobs), folder=tmp_path, **given)
    assert before == again == {"topology": "words", "txid": 1}
    assert after.startswith("TX601 (no retry helps): topology 'words' is defined otherwise now: state 'b' is gone; ")
    with engine.connect() as connection:
        assert connection.execute(text("SELECT max(txid) FROM txbatch.batch")).scalar_one() == 1
