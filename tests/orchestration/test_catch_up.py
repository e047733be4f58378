"""A DAG run that catches up, task by task: in a process of its own, without a running Airflow or Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_support import DAYS
from conftest import TEMPLATE
from databases import Pool, in_database

from txbatch import settings
from txbatch.launch.job_file import LAST_LINES
from txbatch.spouts.partitioned_log import PartitionedLog

ROOT = settings.project_root()
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
from airflow.providers.common.compat.sdk import TaskDeferred
from without_spark import WithoutSpark
from txbatch.core.errors import TxbatchError
from txbatch.orchestration import intervals
from txbatch.orchestration.operators import EmitBatchOperator

words, days = (runpy.run_path(file)["dag"] for file in sys.argv[1:3])
source = pathlib.Path(sys.argv[3])
EmitBatchOperator._application = lambda self: WithoutSpark(self.job)
WithoutSpark.close = lambda self: None
TASKS = ("initialize_transaction", "emit_batch", "commit", "success")

def done(run_id, catch_up, tasks=TASKS, dag=days, **more):
    left, extra, told = {}, {}, []
    ti = SimpleNamespace(try_number=1, xcom_push=lambda key, value: left.update({key: value}),
                         xcom_pull=lambda task_ids: left.get(task_ids))
    params = {name: param.value for name, param in dag.params.items()} | {"catch_up": catch_up} | more
    events = {asset: SimpleNamespace(extra=extra) for asset in dag.get_task("success").outlets}
    dag_run = SimpleNamespace(dag_id=dag.dag_id, run_id=run_id, triggering_user_name="anna")
    context = {"ti": ti, "dag": dag, "dag_run": dag_run, "params": params, "outlet_events": events}
    for task in tasks:
        try:
            left[task] = dag.get_task(task).execute(context)
        except (AirflowSkipException, AirflowFailException, TaskDeferred) as error:
            told.append(f"{type(error).__name__}: {error}" if isinstance(error, TaskDeferred) else str(error))
            break
        except TxbatchError as error:
            told.append(str(error))
            break
    return {"note": left.get("txbatch"), "extra": extra, "told": told, "emit_batch": left.get("emit_batch")}

WHOLE = "2024-01-01/2024-01-06"
told = {
    "first_two": done("a", "2024-01-01/2024-01-03"),
    "emitted": done("b", WHOLE, TASKS[:2]),
    "retried": done("b", WHOLE),
    "again": done("c", WHOLE),
    "wrong": [done("w", each)["told"] for each in
              ("soon", "2024-01-01", "2024-01-01/2024-01-01", "2024-01-01T12:00/2024-01-03", "2024-01-01/2024-01-01T05:00",
               "2024-01-01/2124-01-01")],
    "both": done("x", WHOLE, restate="1")["told"],
    "ordinary": done("y", " ", TASKS[:1])["told"],
    "until_idle": done("u", True, dag=words),
    "idle": done("v", True, dag=words),
    "not_idle": done("i", False, TASKS[:1], dag=words)["told"],
    "params": {name: param.description for name, param in days.params.items()}, "page": days.doc_md,
}
intervals.INTERVALS_MAX = 4
told["many"] = done("m", WHOLE, TASKS[:1])["told"]
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, pools: Callable[[str], Pool]) -> Iterator[dict[str, Any]]:
    """What the tasks of some runs said, in this order: five days, of which two were caught up first; and a log of three."""
    pool = pools(TEMPLATE)
    name = pool.take()
    yield told(tmp_path_factory.mktemp("catch_up"), in_database(pool.server, name))
    pool.give_back(name)


def told(tmp_path: Path, postgres_url: str) -> dict[str, Any]:
    log = PartitionedLog(tmp_path / "log")
    log.append("0", ["a", "b", "a"])
    source = tmp_path / "in" / "one"
    for folder in ("jobs", "dags", "in"):
        (tmp_path / folder).mkdir()
    source.write_text(" ".join(f"2024-01-0{day}T10:00Z,{word}" for day, word in enumerate("abcab", 1)))
    daily = 'CronDataIntervalTimetable("0 0 * * *", timezone="UTC")'
    for name, job, root, schedule in (
        ("words", JOB, tmp_path / "log", "None"),
        ("days", f"from txbatch import *\n{DAYS}", source.parent, daily),
    ):
        (tmp_path / "jobs" / f"{name}.py").write_text(job.format(root=str(root)) + LAST_LINES + "\n")
        (tmp_path / "dags" / f"{name}.py").write_text(DAG.format(name=name, schedule=schedule))
    environment = os.environ | {
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "PYTHONPATH": f"{ROOT / 'plugins'}:{ROOT / 'tests'}",
        "TXBATCH_DATABASE_URL": postgres_url,
        "TXBATCH_HOME": str(tmp_path / "home"),
    }
    dags = [str(tmp_path / "dags" / f"{name}.py") for name in ("words", "days")]
    command = [sys.executable, "-c", PROGRAM, *dags, str(source)]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    return dict(json.loads(said.stdout.splitlines()[-1]))


def test_each_interval_of_a_range_is_counted_once_by_one_run(made: dict[str, Any]) -> None:
    note = "txids 1 to 2, 2024-01-01 00:00 to 2024-01-03 00:00 (UTC): 2 batches, 2 records"
    event = {"topology": "days", "txid": 2, "txids": [1, 2]}
    assert made["first_two"] == {
        "note": note,
        "extra": event,
        "told": [],
        "emit_batch": {"topology": "days", "txids": [1, 2]},
    }


def test_a_retried_run_goes_on_where_it_was(made: dict[str, Any]) -> None:
    assert (
        made["emitted"]["emit_batch"] == made["retried"]["emit_batch"] == {"topology": "days", "txids": [1, 2, 3, 4, 5]}
    )
    assert made["retried"]["extra"] == {"topology": "days", "txid": 5, "txids": [3, 4, 5]}
    assert made["retried"]["note"] == "txids 3 to 5, 2024-01-03 00:00 to 2024-01-06 00:00 (UTC): 3 batches, 3 records"


def test_what_is_committed_is_found_again_and_not_announced_twice(made: dict[str, Any]) -> None:
    assert made["again"]["told"] == ["already committed, all of it; nothing is changed"]
    assert made["again"]["extra"] == {}


def test_a_form_that_cannot_be_meant_is_refused_at_once(made: dict[str, Any]) -> None:
    soon, day, empty, parts, none, future = ["".join(each) for each in made["wrong"]]
    assert "give start before end" in empty
    for each in (soon, day):
        assert "is no interval; write one, whose end is not part of it: 2013-01-03/2013-01-05" in each
    assert "those in it are 2024-01-02T00:00:00+00:00/2024-01-03T00:00:00+00:00" in parts
    assert "has no interval in 2024-01-01T00:00:00+00:00/2024-01-01T05:00:00+00:00" in none
    assert "is not over yet" in future
    assert "has more than 4 intervals" in "".join(made["many"])
    assert "either catches up or counts again" in "".join(made["both"])


def test_a_topology_without_intervals_goes_on_until_nothing_is_new(made: dict[str, Any]) -> None:
    assert made["until_idle"]["note"] == "txids 1 to 3: 3 batches, 3 records"
    assert made["until_idle"]["extra"]["txids"] == [1, 2, 3]
    assert made["idle"]["told"] == made["not_idle"] == ["nothing new"]


def test_the_form_and_the_page_explain_it(made: dict[str, Any]) -> None:
    assert "each interval of the schedule in it" in made["params"]["catch_up"]
    assert "**To catch up**" in made["page"]
