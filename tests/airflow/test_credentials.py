"""Spark is told nothing of the database, and the password of Airflow's connection is nowhere to be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from airflow_support import PASSWORD, Stack

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def probed(stack: Stack) -> str:
    run_id = stack.api.trigger("probe", "probed")
    assert stack.end("probe", run_id)[0] == "success"
    return run_id


def test_sparks_processes_know_nothing_of_the_database(stack: Stack, probed: str, probe_folder: Path) -> None:
    ((names,),) = stack.sql("SELECT names FROM report.probe")
    told = {"python worker": names.split()}
    for process in ("driver", "java"):
        environ = (probe_folder / f"{process}.environ").read_bytes().decode().split("\0")
        told[process] = [each.split("=")[0] for each in environ if each]
        assert PASSWORD not in "".join(environ) + (probe_folder / f"{process}.cmdline").read_bytes().decode()
    for process, variables in told.items():
        assert {"JAVA_HOME", "PROBE_GIVEN"} <= set(variables), process
        forbidden = ("AIRFLOW_CONN_", "AIRFLOW__", "TXBATCH_DATABASE", "PG")
        assert [name for name in variables if name.startswith(forbidden)] == [], process


def test_the_password_is_in_no_log_field_or_file(stack: Stack, probed: str) -> None:
    tasks = stack.api.task_instances("probe", probed)
    assert PASSWORD not in json.dumps([stack.api.rendered_fields("probe", probed, task["task_id"]) for task in tasks])
    files = [file for folder in ("logs", "airflow/logs", "staging") for file in (stack.home / folder).rglob("*")]
    texts = [file for file in files if file.is_file()]
    assert any("task_id=emit_batch" in str(file) for file in texts)
    assert [file for file in texts if PASSWORD.encode() in file.read_bytes()] == []
