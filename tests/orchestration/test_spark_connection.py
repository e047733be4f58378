"""Which Spark master a task has, and that only `ensure_spark_connection` names one where there is none."""

from __future__ import annotations

import os
from unittest.mock import Mock

import pytest
from airflow.providers.common.compat.sdk import AirflowNotFoundException

from txbatch.launch.submission import Submission
from txbatch.orchestration.airflow import ensure_spark_connection, spark_master
from txbatch.orchestration.operators import EmitBatchOperator

NAME = "AIRFLOW_CONN_SPARK_OF_THIS_TEST"
CONN_ID = "spark_of_this_test"
CLUSTER = '{"conn_type": "spark", "host": "spark://there", "port": 7077}'


@pytest.fixture(autouse=True)
def no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, "")  # so that it is put back, whatever is set here
    del os.environ[NAME]


def test_to_ask_for_a_master_changes_nothing() -> None:
    with pytest.raises(AirflowNotFoundException):
        spark_master(CONN_ID)
    assert NAME not in os.environ


def test_without_a_connection_spark_runs_on_this_machine() -> None:
    ensure_spark_connection(CONN_ID)
    assert spark_master(CONN_ID) == "local[*]"


def test_a_connection_that_there_is_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, CLUSTER)
    ensure_spark_connection(CONN_ID)
    assert spark_master(CONN_ID) == "spark://there:7077"
    assert os.environ[NAME] == CLUSTER


@pytest.mark.parametrize(("given", "told"), [({}, "false"), ({"spark.ui.enabled": "true"}, "true")])
def test_what_the_operator_is_given_counts_more_than_what_is_submitted(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], told: str
) -> None:
    monkeypatch.setenv(NAME, CLUSTER)
    job = Mock(path="job.py")
    job.topology.name = "words"
    task = EmitBatchOperator(task_id="emit_batch", job=job, conn_id=CONN_ID, conf=given)
    what = Submission("name", "job.py", (), {"spark.ui.enabled": "false"}, "txbatch.zip", {})
    command = task._launch(what).hook._build_spark_submit_command("job.py")
    assert [each for each in command if "spark.ui.enabled" in each] == [f"spark.ui.enabled={told}"]
