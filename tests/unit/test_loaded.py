"""A job is the same one in Spark as where it was checked: what differs between two loads of it is told by its operation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from refusals import refused

from txbatch.core.batch.heartbeat import Heartbeat
from txbatch.core.batch.loaded import Loaded, check_same
from txbatch.core.batch.transaction import Assignment, TransactionAttempt
from txbatch.core.errors import TransientError
from txbatch.core.topology.digests import loaded
from txbatch.launch.driver import Driver
from txbatch.launch.job_file import load_job
from txbatch.storage.staging import AttemptFolder

JOB = """
import functools, os, threading
from datetime import timedelta
from decimal import Decimal
from txbatch import *

only = os.environ.get("BOARDING_PASS", "all")
unit = os.environ.get("AIRFLOW_VAR_UNIT", "1")
words = {{"b", "a", "c", "d", "e"}}
lock = threading.Lock()

@functools.cache
def label(kind):
    return f"{{kind}} {{Decimal('1.5')}}"

class Longest(CombinerAggregator):
    partial = "longest int"
    def init(self, record):
        return (len(record["word"]),)
    def combine(self, one, other):
        return (max(one[0], other[0]),)
    def zero(self):
        return (0,)

def kept(record):
    def inner(word):
        return word in words or {kept}
    return inner(record["word"])

topology = Topology("t", quarantine=5)
stream = topology.new_stream("in", FixedBatchSpout("word string, n int", 1, ("dog", 1)))
stream = stream.filter(kept).each({each}, "label string").filter("word <> 'x'")
stream.group_by("label").persistent_aggregate(OpaqueState("s"), count={count}, longest=Longest())
if __name__ == "__main__":
    raise SystemExit(emit(topology))
"""
PLAIN = {"kept": "True", "each": "lambda record: (label(record['word']),)", "count": "Count()"}
AS_MAIN = """
import json, runpy, sys
from txbatch.core.topology.digests import loaded
import txbatch
txbatch.emit = lambda topology: print(json.dumps(loaded(topology, sys.argv[2]).to_json()))
sys.argv[0] = sys.argv[1]
try:
    runpy.run_path(sys.argv[1], run_name="__main__")
except SystemExit:
    pass
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def job(name: str = "job.py", **parts: str) -> Path:
        path = tmp_path / name
        path.write_text(JOB.format(**{**PLAIN, **parts}))
        return path

    return job


def as_main(path: Path, **environment: str) -> Loaded:
    """Return the job as another process loads it, as its `__main__`."""
    command = [sys.executable, "-c", AS_MAIN, str(path), str(path.parent)]
    environment = {**os.environ, "PYTHONPATH": "plugins", "PYTHONHASHSEED": "7", **environment}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    return Loaded.from_json(json.loads(done.stdout))


def test_another_process_loads_the_same_job_as_its_main_module(write: Callable[..., Path]) -> None:
    here = load_job(str(write())).loaded()
    assert here.differs_from(as_main(write())) is None
    assert [name for name, _ in here.parts] == [
        "stream 'in'",
        "stream 'in': 1. filter kept",
        "stream 'in': 2. each <lambda>",
        "stream 'in': 3. filter \"word <> 'x'\"",
        "state 's'",
        "its quarantine",
    ]


@pytest.mark.parametrize(
    ("parts", "differs"),
    [
        ({"kept": "False"}, "stream 'in': 1. filter kept"),
        ({"each": "lambda record: (label(record['word']) + only,)"}, None),
        ({"each": "lambda record: (only,)"}, "stream 'in': 2. each <lambda>"),
        ({"each": "'concat(word, 1)'"}, "stream 'in': 2. each <lambda>, which is"),
        ({"count": "Sum('n')"}, "state 's'"),
        ({"count": "Count(where='n > 1')"}, "state 's'"),
    ],
)
def test_what_differs_is_named(write: Callable[..., Path], parts: dict[str, str], differs: str | None) -> None:
    one, other = load_job(str(write())).loaded(), load_job(str(write("other.py", **parts))).loaded()
    found = one.differs_from(other)
    assert found is not None
    assert found.startswith(differs or "stream 'in': 2. each <lambda>")


def test_a_variable_that_spark_is_not_given_is_named(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planned with it, the job would be counted without."""
    path = write(each="lambda record: (only,)")
    monkeypatch.setenv("BOARDING_PASS", "paid")
    asked = load_job(str(path)).loaded()
    assert "BOARDING_PASS" in asked.variables
    here = as_main(path, BOARDING_PASS="all")
    with refused("TX116", "1:1", "2", "lambda", "BOARDING_PASS"):
        check_same(asked, here, {"HOME"}, "t 1:1")
    with refused("TX117", "emit again"):
        check_same(asked, here, set(asked.variables), "t 1:1")
    check_same(asked, as_main(path, BOARDING_PASS="paid"), set(), "t 1:1")


def test_a_unit_by_a_variable_is_another_expression(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(each="f'n * {unit}'")
    before = load_job(str(path)).loaded()
    monkeypatch.setenv("AIRFLOW_VAR_UNIT", "100")
    assert (
        before.differs_from(load_job(str(path)).loaded())
        == "stream 'in': 2. each 'n * 1', which is stream 'in': 2. each 'n * 100' there"
    )


def test_the_driver_refuses_another_job_of_the_same_file(
    write: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(count="Count() if __name__ != '__main__' else Sum('n')")
    here = as_main(path)
    job = load_job(str(path))
    folder = AttemptFolder((tmp_path / "attempt").as_uri())

    def said(asked: Loaded | None) -> str:
        assignment = Assignment(
            "t", TransactionAttempt(1, 1), "x", {"format": 2, "streams": {}}, job.code, loaded=asked
        )
        folder.write_assignment(assignment)
        folder.write_heartbeat(Heartbeat(3600))
        assert folder.read_assignment() == assignment
        with ExitStack() as ending:
            driver = Driver(job.topology, job.path, ending)
            monkeypatch.setattr(driver, "_spark", lambda *_: (_ for _ in ()).throw(TransientError("far enough")))
            driver.emit(folder)
        error = folder.read_error()
        assert error is not None
        return error["message"]

    assert "state 's', differs" in said(here)
    assert said(job.loaded()) == "TX002 (try again): far enough"
    assert said(None) == "TX002 (try again): far enough", "an assignment of an older version has nothing to compare"
    capsys.readouterr()
    assert said(Loaded("3.9", here.parts, [])) == "TX002 (try again): far enough"
    assert "not compared: Spark's driver has Python" in capsys.readouterr().out


def test_a_lookup_table_of_a_function_costs_nothing(write: Callable[..., Path]) -> None:
    """It is no part of the job's code, and telling it would take longer than the batch."""
    path = write(each="lambda record: (table.get(record['word'], ''),)")
    path.write_text(
        path.read_text().replace("words = {", "table = dict.fromkeys(map(str, range(10**6)), '')\nwords = {")
    )
    topology = load_job(str(path)).topology
    import time

    begun = time.process_time()
    loaded(topology, str(path.parent))
    assert time.process_time() - begun < 0.1
