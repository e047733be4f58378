"""A DAG run that counts batches again, task by task: in a process of its own, without a running Airflow or Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cli_support import DAYS
from without_spark import WithoutSpark

from txbatch import settings
from txbatch.core.transaction import Interval
from txbatch.launch.job_file import LAST_LINES, load_job
from txbatch.spouts.partitioned_log import PartitionedLog
from txbatch.wiring import open_runner

ROOT = settings.project_root()
DAY = Interval(datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC))
JOB = """
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
PROGRAM = """
import json, pathlib, runpy, sys
from types import SimpleNamespace
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from without_spark import emit_without_spark
from txbatch.orchestration.operators import EmitBatchOperator

dag, days = (runpy.run_path(file)["dag"] for file in sys.argv[1:3])
source = pathlib.Path(sys.argv[3])
EmitBatchOperator.submit = lambda self, folder, assignment: emit_without_spark(self.job, folder, assignment)
TASKS = ("initialize_transaction", "emit_batch", "commit", "success")

def done(run_id, restate, why, tasks=TASKS, dag=dag):
    left, extra, told = {}, {}, []
    ti = SimpleNamespace(try_number=1, xcom_push=lambda key, value: left.update({key: value}),
                         xcom_pull=lambda task_ids: left.get(task_ids))
    params = {name: param.value for name, param in dag.params.items()} | {"restate": restate, "why": why}
    events = {asset: SimpleNamespace(extra=extra) for asset in dag.get_task("success").outlets}
    dag_run = SimpleNamespace(dag_id=dag.dag_id, run_id=run_id, triggering_user_name="anna")
    context = {"ti": ti, "dag": dag, "dag_run": dag_run, "params": params, "outlet_events": events}
    for task in tasks:
        try:
            left[task] = dag.get_task(task).execute(context)
        except (AirflowSkipException, AirflowFailException) as error:
            told.append(str(error))
            break
    return {"note": left.get("txbatch"), "extra": extra, "told": told}

def goes_on():
    done("r", "1", "wrong", TASKS[:1], days)
    source.write_text(source.read_text() + " 2024-01-02T11:00Z,b")
    return [done("r", "1", "wrong", dag=days) for _ in range(2)]

print(json.dumps({
    "left_out": done("r", "3, 1 2", "wrong", TASKS[:2]),
    "retried": done("r", "3, 1 2", "wrong"),
    "success_alone": done("r", "3, 1 2", "wrong", ["commit", "success"]),
    "cleared": done("r", "3, 1 2", "wrong"),
    "by_its_restate": done("s", "4", "wrong"),
    "wrong": [done("t", *each)["told"] for each in
              (("9", "x"), ("1", " "), ("soon", "x"), ("1", None), ("2013-01-03/2013-01-05", "x"), ("2013-01-03/", "x"))],
    "ordinary": done("u", " ", None),
    "goes_on": goes_on(),
    "params": {name: param.description for name, param in dag.params.items()}, "page": dag.doc_md,
}))
"""


@pytest.fixture
def made(tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the tasks of some runs said; three batches were committed before."""
    log = PartitionedLog(tmp_path / "log")
    log.append("0", ["a", "b", "a"])
    source = tmp_path / "in" / "one"
    for folder in ("jobs", "dags", "in"):
        (tmp_path / folder).mkdir()
    source.write_text("2024-01-01T10:00Z,a")
    daily = 'CronDataIntervalTimetable("0 0 * * *", timezone="UTC")'
    for name, job, root, schedule in (
        ("words", JOB, tmp_path / "log", '"@daily"'),
        ("days", f"from txbatch import *\n{DAYS}", source.parent, daily),
    ):
        (tmp_path / "jobs" / f"{name}.py").write_text(job.format(root=str(root)) + LAST_LINES + "\n")
        (tmp_path / "dags" / f"{name}.py").write_text(DAG.format(name=name, schedule=schedule))
    monkeypatch.setenv("TXBATCH_DATABASE_URL", postgres_url)
    monkeypatch.setenv("TXBATCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("txbatch.wiring.Application", WithoutSpark)
    with open_runner(load_job(str(tmp_path / "jobs" / "words.py")), settings.resolve()) as runner:
        assert len(list(runner.run(until_idle=True))) == 3
    with open_runner(load_job(str(tmp_path / "jobs" / "days.py")), settings.resolve()) as runner:
        assert len(list(runner.run_each([DAY]))) == 1
    log.append("0", ["c"])
    path = f"{ROOT / 'plugins'}:{ROOT / 'tests'}"
    environment = os.environ | {"AIRFLOW_HOME": str(tmp_path / "airflow"), "PYTHONPATH": path}
    dags = [str(tmp_path / "dags" / f"{name}.py") for name in ("words", "days")]
    command = [sys.executable, "-c", PROGRAM, *dags, str(source)]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    return dict(json.loads(told.stdout.splitlines()[-1]))


def test_a_run_counts_each_position_again_once_and_says_so(made: dict[str, Any]) -> None:
    lines = [f"txid {txid} restates txid {position}: 1 record, 1 key" for txid, position in ((4, 1), (5, 2), (6, 3))]
    note = "; ".join(lines)
    assert made["left_out"]["note"] is None
    event = {"topology": "words", "txid": 4, "txids": [4, 5, 6], "restates": [1, 2, 3]}
    assert made["retried"] == {"note": note, "extra": event, "told": []}
    already = "already committed as txid 4; nothing is changed"
    assert made["success_alone"]["told"] == [already]
    assert made["cleared"]["told"] == [already]
    assert made["cleared"]["note"] == f"already committed: {note}; nothing is changed"
    assert made["by_its_restate"]["note"] == "txid 7 restates txid 1: 1 record, 1 key"
    assert made["ordinary"]["note"] == "txid 8: 1 record, 1 key, 1 attempt", "the next one goes on"
    for told, why in zip(
        made["wrong"],
        (
            "topology 'words' has no txid 9",
            "say why it is counted again",
            "restate 'soon' names nothing that could be counted again",
            "say why it is counted again",
            "words does not read by time: name txids",
            "restate '2013-01-03/' names nothing that could be counted again",
        ),
        strict=True,
    ):
        assert told[0].startswith(why)
    assert "these committed batches are counted again" in made["params"]["restate"]
    assert "To count a committed batch again" in made["page"]
    grown = "; of its source differs since: one (grown from 19 to 39 bytes); "
    grown += 'to count it again: txbatch restate days 1 --why "..."'
    counted = "txid 2 restates txid 1: 1 record, 1 key"
    went_on, cleared = (each["note"] for each in made["goes_on"])
    assert went_on == f"{counted}{grown}"
    assert cleared == f"already committed: {counted}; nothing is changed{grown}"
