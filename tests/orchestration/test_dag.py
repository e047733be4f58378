"""What topology_dag makes of a job file, and how its tasks wait: in a process of its own, without a running Airflow."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from forks import told_with_airflow

from txbatch.orchestration.result import committed, interval

# Airflow stores this address with each task that waits: a task that an older version deferred comes back to it.
TRIGGERS = "txbatch.orchestration.trigger"
JOB = """
'''What is chosen, per word.

And more.'''
from txbatch import *

class Chosen(FixedBatchSpout):
    by_interval = True
    parameters = ("country", "level")

    def __init__(self, kind):
        super().__init__("word string", 1, "word")
        self.kind = kind

topology = Topology("chosen", max_pending=3)
exact = topology.new_stream("exact", Chosen(SpoutKind.TRANSACTIONAL))
exact.group_by("word").persistent_aggregate(OpaqueState("once"), count=Count())
loose = topology.new_stream("loose", Chosen(SpoutKind.OPAQUE))
some = loose.group_by("word")
some.persistent_aggregate(TransactionalState("some|times"), guarantee="at_least_once", count=Count())
both = topology.merge(exact, loose, name="both").group_by("word")
both.persistent_aggregate(OpaqueState("far", database="warehouse"), count=Count())
topology.new_static_state(StaticState("names", lambda spark: None, "word string, name string"))
"""
DAG = '''
"""An Airflow DAG."""
from datetime import timedelta
from airflow.sdk import Param
from txbatch.orchestration import topology_dag
level = Param(3, type="integer", description="How deep.")
dag = topology_dag(
    "jobs/chosen.py", tags=["own"], params={"level": level}, ready_timeout=timedelta(hours=2), ask_again=timedelta(seconds=5),
    emit_batch={"conn_id": "cluster", "pool": "spark"},
)
'''
PROGRAM = """
import json, runpy, sys
from datetime import UTC, datetime
from importlib import import_module
from types import SimpleNamespace
from airflow.sdk import CronDataIntervalTimetable
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred
from txbatch.core.batch.transaction import Batch, BatchStatus
from airflow.sdk import Connection
from txbatch import Count, FixedBatchSpout, OpaqueState, window
from txbatch.core.errors import DefinitionError
from txbatch.orchestration.airflow import url_of, run_of
from airflow.timetables.interval import CronDataIntervalTimetable as OfAirflow
from txbatch.orchestration.doc import page
from txbatch.orchestration.operators import EmitBatchOperator
from txbatch.orchestration.result import zone_of
from txbatch.orchestration.waiting import Waiting

dag = runpy.run_path(sys.argv[1])["dag"]
JOB, __file__ = "jobs/chosen.py", sys.argv[1]
topology = dag.get_task("commit").job.topology
params = {name: param.value for name, param in dag.params.items()} | {"country": None}
first, last = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
dag_run = SimpleNamespace(dag_id="chosen", run_id="r", data_interval_start=first, data_interval_end=last)
noted = []
ti = SimpleNamespace(xcom_push=lambda key, value: noted.append(value))
context = {"dag_run": dag_run, "params": params, "ti": ti}
run = run_of(topology, context)
other = Batch("chosen", 7, BatchStatus.PLANNED, {}, "run:other", lease_run="airflow:chosen:other")
own = Batch("chosen", 8, BatchStatus.EMITTED, {}, run.key, lease_run=run.name)

def within():
    different = topology.streams["exact"].distinct().group_by("word")
    different.persistent_aggregate(OpaqueState("different"), count=Count())
    dated = FixedBatchSpout("at timestamp", 1, (first,))
    dated.by_interval = True
    hours = topology.new_stream("dated", dated).with_watermark("at", "10 minutes").group_by(window("at", "1 hour"))
    hours.persistent_aggregate(OpaqueState("hours"), count=Count())
    return page(dag.get_task("commit").job, {})

def waits(deadlines, what):
    try:
        what(Waiting(topology, run, context, deadlines))
    except TaskDeferred as deferred:
        path, arguments = deferred.trigger.serialize()
        module, _, name = path.rpartition(".")
        again = getattr(import_module(module), name)(**arguments)
        assert again.serialize() == deferred.trigger.serialize()
        return {"trigger": path, "arguments": arguments, "kwargs": deferred.kwargs,
                "method": deferred.method_name, "timeout": deferred.timeout.total_seconds()}
    except AirflowFailException as error:
        return str(error)

def long(minutes):
    waiting = Waiting(topology, run, context | {"params": params | {"turn_timeout_minutes": minutes}}, {})
    try:
        waiting.for_batch(other, own)
    except TaskDeferred as deferred:
        return deferred.timeout.total_seconds() / 86400
    except AirflowFailException as error:
        return str(error)

def described():
    from txbatch.orchestration import gc_dag, rebuild_dag, verify_dag

    return [made.description for made in (verify_dag(JOB), rebuild_dag(JOB), gc_dag(), gc_dag("chosen"))]

def url_for(**fields):
    try:
        return url_of(Connection(conn_id="txbatch", conn_type="postgres", **fields))
    except DefinitionError as error:
        return str(error)

def emitting(conf):
    try:
        return EmitBatchOperator(task_id="emit", job=dag.get_task("commit").job, conf=conf).conf
    except DefinitionError as error:
        return str(error)

again = {"turn_timeout_minutes": "2026-01-01T00:00:00+00:00", "ready_timeout_minutes": "2026-01-01T00:00:00+00:00"}
turn = waits({}, lambda waiting: waiting.for_batch(other, own))
print(json.dumps({
    "page": dag.doc_md, "description": dag.description, "tags": sorted(dag.tags), "described": described(),
    "new york of airflow": zone_of(OfAirflow("0 0 * * *", "America/New_York")),
    "new york": page(dag.get_task("commit").job, {}, schedule=CronDataIntervalTimetable("0 0 * * *", "America/New_York")),
    "params": params, "parameters": dict(run.parameters),
    "turn": turn, "second": waits(dict(turn["kwargs"]["deadlines"]), lambda waiting: waiting.for_batch(other, own)),
    "own": waits({}, lambda waiting: waiting.for_batch(own, own)),
    "emission": waits({}, lambda waiting: waiting.for_emission(own)),
    "emission over": waits(dict(again), lambda waiting: waiting.for_emission(own)),
    "coalesced": page(dag.get_task("commit").job, {}, coalesce=True),
    "first tries": [Waiting(topology, run, context | {"ti": SimpleNamespace(try_number=number)}, deadlines).first_try
                    for number, deadlines in ((1, {}), (2, {}), (2, again))],
    "source": waits({}, lambda waiting: waiting.for_source()),
    "turn over": waits(dict(again), lambda waiting: waiting.for_batch(other, own)),
    "source over": waits(dict(again), lambda waiting: waiting.for_source()),
    "noted": noted,
    "most": {name: param.schema.get("maximum") for name, param in dag.params.items()},
    "long": [long(minutes) for minutes in (1e10, 1e300, float("inf"), 1e7, "x", None)],
    "urls": [url_for(**each) for each in ({"login": "me"}, {"host": ""}, {"host": "h"}, {"extra": '{"service": "s"}'})],
    "spark": [[dag.get_task(task)._conn_id, dag.get_task(task).pool] for task in ("emit_batch", "commit")],
    "conf": [emitting({"spark.sql.extensions": value}) for value in ("org.example.Lake", "")],
    "within": within(),
}))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    project = tmp_path_factory.mktemp("project")
    for folder, text in (("jobs", JOB), ("dags", DAG)):
        (project / folder).mkdir()
        (project / folder / "chosen.py").write_text(text)
    found: dict[str, Any] = told_with_airflow(PROGRAM, str(project / "dags" / "chosen.py"), folder=project)
    return found


def test_the_page_says_what_is_counted_per_interval(made: dict[str, Any]) -> None:
    told = "**different** counts per interval: distinct. The results of one interval are counted exactly once,"
    assert told in made["within"]
    assert "per interval" not in made["page"]


def test_the_page_says_by_which_windows_a_state_counts(made: dict[str, Any]) -> None:
    told = "**hours** counts by windows of 1 hour by at. Its watermark is 10 minutes behind at, late='merge'."
    assert told in made["within"]
    assert "windows" not in made["page"]


def test_the_page_says_what_is_guaranteed_and_what_a_run_may_be_told(made: dict[str, Any]) -> None:
    page = made["page"]
    assert "| once, opaque | exactly once | exact: Chosen, transactional |" in page
    assert "| some\\|times, transactional | at least once | loose: Chosen, opaque |" in page
    assert "| far, opaque, in `warehouse` | exactly once | both: Chosen, Chosen, opaque |" in page
    assert "| names, static | its reader's, read only | |" in page
    assert "Up to 3 batches are emitted in parallel" in page
    assert "A batch is found again by its data interval." in page
    assert "| `level` | How deep. Chooses data. |" in page
    assert "| `country` | Chooses the data of this run: stored with its batch" in page
    for name in ("turn_timeout_minutes", "ready_timeout_minutes", "ask_again_seconds", "ledger_timeout_minutes"):
        (line,) = (line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        assert "It chooses no data." in line


def test_the_page_says_which_dates_mean_which_days_and_what_an_empty_form_does(made: dict[str, Any]) -> None:
    page = made["page"]
    assert "cut in the zone UTC. Runs are named after the interval's *end*" in page
    assert "its dates choose the intervals that *begin* between them, both included" in page
    assert "that is a run without tasks, which is green and counts nothing" in page
    assert "its note has the txid and the counted records" in page
    assert "cut in the zone America/New_York" in made["new york"]
    assert made["new york of airflow"] == "America/New_York", "of Airflow's own class, which dags/flights.py has"
    assert made["description"] == "What is chosen, per word."


def test_lists_of_dags_show_what_each_is_for(made: dict[str, Any]) -> None:
    assert made["tags"] == ["own", "txbatch"]
    assert made["described"] == [
        "Read batches of chosen again, and compare with the stored numbers",
        "Count all batches of chosen again, by the present job",
        "Fold old contributions of all topologies by policy",
        "Fold old contributions of chosen by policy",
    ]


def test_what_a_run_counted_is_told_in_a_line() -> None:
    start, end = datetime(2013, 1, 4, 5, tzinfo=UTC), datetime(2013, 1, 5, 5, tzinfo=UTC)
    row = {
        "txid": 7,
        "interval_start": start,
        "interval_end": end,
        "records": 1914,
        "keys": {"flights": 12},
        "attempts": 2,
    }
    told = "txid 7, 2013-01-04 (America/New_York): 1,914 records, 12 keys, 2 attempts"
    assert committed(row, "America/New_York") == told
    assert committed(row, "UTC").startswith("txid 7, 2013-01-04 05:00 to 2013-01-05 05:00 (UTC): ")
    several = {"interval_start": None, "records": None, "keys": {"a": 1, "b": 2}, "attempts": 1}
    assert committed(row | several, "UTC") == "txid 7: 0 records, 1 key of a, 2 keys of b, 1 attempt"
    spring = datetime(2013, 3, 10, 5, tzinfo=UTC), datetime(2013, 3, 11, 4, tzinfo=UTC)
    assert interval(*spring, "America/New_York") == "2013-03-10 (America/New_York)"
    assert interval(start, start + timedelta(hours=1), "UTC") == "2013-01-04 05:00 to 06:00 (UTC)"


def test_a_run_has_those_of_its_params_that_choose_data(made: dict[str, Any]) -> None:
    assert made["params"] == {
        "country": None,
        "level": 3,
        "catch_up": None,
        "restate": None,
        "accept_missing": False,
        "plan_only": False,
        "abort": None,
        "abort_skip": False,
        "abort_partition": None,
        "why": None,
        "ledger_timeout_minutes": 360,
        "turn_timeout_minutes": 360,
        "ready_timeout_minutes": 120,
        "ask_again_seconds": 5,
    }
    assert made["parameters"] == {"level": 3}


def test_a_wait_for_a_turn_keeps_its_own_batch_and_its_deadline(made: dict[str, Any]) -> None:
    turn, second = made["turn"], made["second"]
    assert (turn["trigger"], turn["method"]) == (f"{TRIGGERS}.TurnTrigger", "execute")
    named = {name: turn["arguments"][name] for name in ("topology", "txid", "run", "own")}
    assert named == {"topology": "chosen", "txid": 7, "run": "airflow:chosen:r", "own": 8}
    deadline = datetime.fromisoformat(turn["kwargs"]["deadlines"]["turn_timeout_minutes"])
    assert timedelta(hours=5) < deadline - datetime.now(deadline.tzinfo) <= timedelta(hours=6)
    assert second["kwargs"] == turn["kwargs"]
    assert second["arguments"]["seconds"] < turn["arguments"]["seconds"] <= 6 * 3600 < turn["timeout"]
    assert made["own"]["arguments"]["own"] is None, "another run works on it: its lease is not ours"
    assert made["turn over"] == (
        "chosen: waited 6:00:00: txid 7 of airflow:chosen:other is planned still; see `txbatch status`"
    )


def test_a_wait_for_the_application_that_is_at_work(made: dict[str, Any]) -> None:
    """It keeps its batch, has the deadline of a turn, and what it comes back to is still the first try."""
    emission = made["emission"]
    assert (emission["trigger"], emission["method"]) == (f"{TRIGGERS}.EmissionTrigger", "execute")
    named = {name: emission["arguments"][name] for name in ("topology", "txid", "run", "own")}
    assert named == {"topology": "chosen", "txid": 8, "run": "airflow:chosen:r", "own": 8}
    assert list(emission["kwargs"]["deadlines"]) == ["turn_timeout_minutes"]
    assert made["emission over"] == (
        "chosen: waited 6:00:00: another run's application is at work still, txid 8 not emitted"
    )
    assert made["first tries"] == [True, False, True]
    assert "Up to 3 batches are emitted by one Spark application; they are committed in" in made["coalesced"]


def test_a_wait_for_a_source_asks_again_until_its_deadline(made: dict[str, Any]) -> None:
    source = made["source"]
    assert (source["trigger"], source["method"]) == (f"{TRIGGERS}.AskAgainTrigger", "execute")
    assert source["arguments"] == {"seconds": 5}
    assert list(source["kwargs"]["deadlines"]) == ["ready_timeout_minutes"]
    assert made["source over"].startswith(
        "chosen: waited 2:00:00: the source is not ready for 2026-01-01T00:00:00+00:00/"
    )
    over = [made[each].removeprefix("chosen: ") for each in ("emission over", "turn over", "source over")]
    assert made["noted"] == [f"failed: {each}" for each in over]


def test_commit_submits_as_emit_batch_does(made: dict[str, Any]) -> None:
    assert made["spark"] == [["cluster", "spark"]] * 2


def test_a_setting_of_spark_that_cannot_be_pinned_is_refused_when_the_dag_is_parsed(made: dict[str, Any]) -> None:
    refused, taken = made["conf"]
    assert refused.startswith(
        "TX807 (no retry helps): Spark's setting spark.sql.extensions is org.example.Lake here: it can change what is counted"
    )
    assert taken == {"spark.sql.extensions": ""}


def test_a_form_cannot_ask_for_a_wait_without_end(made: dict[str, Any]) -> None:
    ten_years = 3650 * 24 * 60
    assert made["most"] == {
        "country": None,
        "level": None,
        "catch_up": None,
        "restate": None,
        "accept_missing": None,
        "plan_only": None,
        "abort": 2**63 - 1,
        "abort_skip": None,
        "abort_partition": None,
        "why": None,
        "ledger_timeout_minutes": ten_years,
        "turn_timeout_minutes": ten_years,
        "ready_timeout_minutes": ten_years,
        "ask_again_seconds": ten_years * 60,
    }
    *limited, text, nothing = made["long"]
    assert [round(days) for days in limited] == [3650] * 4
    assert (text, nothing) == ("'x' is no number of minutes to wait", "None is no number of minutes to wait")


def test_a_connection_that_names_no_host_is_no_default(made: dict[str, Any]) -> None:
    *without, host, service = made["urls"]
    assert without == ["TX806 (no retry helps): the Airflow connection 'txbatch' names no host: give it one"] * 2
    assert (host, service) == ("postgresql+psycopg2://h", "postgresql+psycopg2://?service=s")
