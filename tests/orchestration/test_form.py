"""The form of a run: its order, what is left out, and what a filled form asks for or is refused; without a database."""

from __future__ import annotations

from typing import Any

import pytest
from forks import told_with_airflow

JOB = """
from txbatch import *

class Chosen(FixedBatchSpout):
    parameters = ({declared!r},)

topology = Topology({name!r})
stream = topology.new_stream("in", Chosen("word string", 1, "word"))
stream.group_by("word").persistent_aggregate(OpaqueState({name!r}), count=Count())
"""
DAG = '''
"""An Airflow DAG."""
from airflow.sdk import Param
from txbatch.orchestration import topology_dag
own = {{"mine": 1, "turn_timeout_minutes": Param(5, type="number")}}
dag = topology_dag("jobs/{name}.py", params=own | {more})
'''
# By the name of the DAG: a parameter that its spout declares, and further ones of its DAG file.
DAGS = {
    "plain": ("country", {}),
    "of_dag": ("country", {"abort": "of the user", "plan_only": True}),
    "of_spout": ("why", {}),
}
PROGRAM = """
import json, runpy, sys
from types import SimpleNamespace
from txbatch.core.errors import TxbatchError
from txbatch.orchestration.form import fields

dags = {name: runpy.run_path(f"dags/{name}.py")["dag"] for name in sys.argv[1:]}

def asked(dag, **params):
    task = dag.get_task("commit")
    given = {name: param.value for name, param in dag.params.items()} | params
    try:
        return fields.asked(task.job.topology, task.own, {"params": given})
    except TxbatchError as error:
        return str(error)

def refused(**params):
    plain = dict(dags["plain"].params.items())
    told = []
    for name, value in params.items():
        try:
            plain[name].resolve(value)
        except Exception as error:
            told.append(name)
    return told

both = [{"abort": 3, "restate": "3"}, {"abort": 3, "catch_up": True}, {"abort": 3, "plan_only": True, "restate": "3"},
        {"catch_up": True, "plan_only": True, "restate": "3"}, {"catch_up": True, "restate": "3"}]
half = [{"plan_only": True}, {"plan_only": True, "restate": " "}, {"abort_skip": True}, {"abort_partition": "south"},
        {"abort": 3, "abort_partition": "south"}]
well = [{}, {"catch_up": True}, {"restate": "3", "why": "x"}, {"restate": "3", "plan_only": True}, {"abort": 3, "why": "x"},
        {"abort": 3, "abort_skip": True, "abort_partition": "south", "why": "x"}, {"why": "x"}, {"abort_partition": " "}]
print(json.dumps({
    "order": {name: list(dag.params) for name, dag in dags.items()},
    "sections": {name: param.schema.get("section") for name, param in dags["plain"].params.items()},
    "pages": {name: dag.doc_md for name, dag in dags.items()},
    "well": [asked(dags["plain"], **each) for each in well],
    "both": [asked(dags["plain"], **each) for each in both],
    "half": [asked(dags["plain"], **each) for each in half],
    "theirs": [asked(dags["of_dag"]), asked(dags["of_spout"], why="data", abort=3), asked(dags["of_spout"], why="data")],
    "refused": {repr(value): refused(abort=value) for value in (0, -1, 2**63, "1e3", "3", 1.5, True, 3, None)},
    "long": refused(abort_partition="x" * 4001, abort_skip="yes", plan_only=1),
}))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    project = tmp_path_factory.mktemp("project")
    for folder in ("jobs", "dags"):
        (project / folder).mkdir()
    for name, (declared, more) in DAGS.items():
        (project / "jobs" / f"{name}.py").write_text(JOB.format(declared=declared, name=name))
        (project / "dags" / f"{name}.py").write_text(DAG.format(name=name, more=more))
    program = PROGRAM.replace('f"dags/', f'f"{project}/dags/')
    found: dict[str, Any] = told_with_airflow(program, *DAGS, folder=project)
    return found


def test_the_form_begins_with_what_the_day_needs_and_ends_with_the_waits(made: dict[str, Any]) -> None:
    assert made["order"]["plain"] == [
        *("country", "mine", "catch_up"),
        *("restate", "accept_missing", "plan_only"),
        *("abort", "abort_skip", "abort_partition"),
        *("why", "ledger_timeout_minutes", "turn_timeout_minutes"),
    ]
    sections = made["sections"]
    assert [sections[name] for name in ("country", "mine", "catch_up")] == [None] * 3
    assert {sections[name] for name in ("restate", "accept_missing", "plan_only")} == {"Count again"}
    assert {sections[name] for name in ("abort", "abort_skip", "abort_partition")} == {"Give up"}
    assert (sections["why"], sections["ledger_timeout_minutes"]) == ("Why", "Waits")


def test_a_name_of_the_user_is_the_users_and_the_page_says_so(made: dict[str, Any]) -> None:
    of_dag, of_spout = made["order"]["of_dag"], made["order"]["of_spout"]
    assert {"abort", "plan_only", "restate", "why"} <= {*of_dag}
    assert {"abort_skip", "abort_partition"}.isdisjoint(of_dag)
    assert {"abort", "abort_skip", "abort_partition", "restate", "plan_only"}.isdisjoint(of_spout)
    told = "The form cannot give a batch up: `abort` is a parameter of this DAG. `txbatch abort of_dag TXID` does."
    assert told in made["pages"]["of_dag"]
    told = (
        "The form cannot plan first: `plan_only` is a parameter of this DAG. `txbatch restate of_dag TXID --plan` does."
    )
    assert told in made["pages"]["of_dag"]
    assert "The form cannot give a batch up: `why` is a parameter of this DAG." in made["pages"]["of_spout"]
    plain = made["pages"]["plain"]
    assert "The form cannot" not in plain
    assert "**To give up a batch** that is not committed" in plain
    assert "**To see first** what counting again would change" in plain
    assert "**To give up a batch**" not in made["pages"]["of_dag"]
    assert "**To see first**" not in made["pages"]["of_dag"]
    assert made["theirs"] == ["counts new records"] * 3


def test_a_form_asks_for_one_thing(made: dict[str, Any]) -> None:
    assert made["well"] == [
        "counts new records",
        "catches up",
        "counts again",
        "plans first",
        "gives a batch up",
        "gives a batch up",
        "counts new records",
        "counts new records",
    ]
    *told, with_restate = made["both"]
    two = "TX105 (no retry helps): the form asks for two things, and a run does one: it "
    assert told == [
        f"{two}gives a batch up or counts again; trigger a run for each",
        f"{two}gives a batch up or catches up; trigger a run for each",
        f"{two}gives a batch up or plans first; trigger a run for each",
        f"{two}plans first or catches up; trigger a run for each",
    ]
    assert with_restate.startswith("TX105 (no retry helps): a run either catches up or counts again")


def test_a_field_that_means_nothing_alone_is_refused(made: dict[str, Any]) -> None:
    plan = "TX105 (no retry helps): 'plan_only' shows what counting again would change: name txids or an interval in 'restate'"
    assert [each.startswith(plan) for each in made["half"][:2]] == [True, True]
    skip, partition, without_skip = made["half"][2:]
    of_batch = "is about the batch to give up: name the txid in 'abort', too"
    assert skip == f"TX105 (no retry helps): 'abort_skip' {of_batch}"
    assert partition == f"TX105 (no retry helps): 'abort_partition' {of_batch}"
    assert without_skip.startswith(
        "TX105 (no retry helps): 'abort_partition' names the records that 'abort_skip' gives up: trigger a run with both"
    )


def test_what_is_no_txid_is_refused_by_airflow_itself(made: dict[str, Any]) -> None:
    refused = made["refused"]
    assert {value for value, names in refused.items() if names} == {
        "0",
        "-1",
        str(2**63),
        "'1e3'",
        "'3'",
        "1.5",
        "True",
    }
    assert made["long"] == ["abort_partition", "abort_skip", "plan_only"]
