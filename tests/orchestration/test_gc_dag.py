"""What gc_dag makes, and what its task comes to: in a process of its own, without a running Airflow or Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from forks import told_with_airflow
from postgres_bench import Bench, words
from sqlalchemy import Engine
from support import LogSpout, word_count

from txbatch import Keep, OpaqueState, Topology

DAG = '''
"""An Airflow DAG."""
from txbatch.orchestration import gc_dag
every = gc_dag()
one = gc_dag("word_count", schedule=None, tags=["nightly"])
other = gc_dag("kept")
'''
PROGRAM = """
import json, runpy, sys
from types import SimpleNamespace
from airflow.sdk.exceptions import AirflowFailException
from txbatch.core.errors import DefinitionError
from txbatch.orchestration import gc_dag
from txbatch.orchestration.retention import summary

made = runpy.run_path(sys.argv[1])

def done(dag):
    pushed = {}
    ti = SimpleNamespace(xcom_push=lambda key, value: pushed.update({key: value}))
    try:
        pushed["returned"] = dag.get_task("gc").execute({"ti": ti})
    except AirflowFailException as error:
        pushed["failed"] = str(error)
    return pushed

try:
    gc_dag("no name")
except DefinitionError as error:
    refused = str(error)
dags = [[dag.dag_id, dag.schedule, dag.catchup, dag.max_active_runs, sorted(dag.tags)] for dag in (made["every"], made["one"])]
told = summary([{"topology": "own", "keep": "the last txid", "horizon_before": 0, "horizon": 0, "waits_for": "a merge"}])
gone = summary([{"topology": "own", "horizon": 4, "versions": 4, "quarantined": 400}])
ended = {name: done(made[name]) for name in ("every", "one", "other")}
print(json.dumps({"dags": dags, "told": told, "gone": gone, "refused": refused, **ended}))
"""


def test_its_task_folds_by_the_policy_of_each_topology(engine: Engine, postgres_url: str, tmp_path: Path) -> None:
    topology = word_count(LogSpout({"a": 1_000_000}))
    topology.keep = Keep(txids=2)
    bench = Bench(engine, topology)
    for number in range(5):
        bench.whole(words(dog=1), f"run {number}")
    kept = Topology("kept")
    stream = kept.new_stream("words", LogSpout({"a": 1})).group_by("word")
    stream.persistent_aggregate(OpaqueState("kept"), count=topology.aggregates[0].aggregates["count"])
    bench.ledger.register(kept, "jobs/kept.py")
    (tmp_path / "gc.py").write_text(DAG)
    given = {"TXBATCH_DATABASE_URL": postgres_url, "TXBATCH_HOME": str(tmp_path / "home")}
    found: dict[str, Any] = told_with_airflow(PROGRAM, str(tmp_path / "gc.py"), folder=tmp_path, **given)
    assert found["dags"] == [
        ["txbatch.gc", "@daily", False, 1, ["txbatch"]],
        ["word_count.gc", None, False, 1, ["nightly"]],
    ]
    assert found["every"]["txbatch"] == "kept: kept for ever; word_count: folded up to txid 3, 3 batches"
    assert [row["topology"] for row in found["every"]["returned"]] == ["kept", "word_count"]
    assert found["one"]["txbatch"] == "word_count: folded up to txid 3, 0 batches"
    assert "kept for ever by its job" in found["other"]["failed"]
    assert "no name" in found["refused"]
    assert found["told"] == "own: kept the last txid, waits for a merge"
    assert found["gone"] == "own: folded up to txid 4, 4 batches, 400 records left the quarantine"
