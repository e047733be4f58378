"""A state apart from the ledger, by the command line: real processes, kills between both commits (R21)."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from cli_support import refused
from click.testing import Result
from forks import Fork
from sqlalchemy import Engine, text

from txbatch import settings
from txbatch.core.errors import DefinitionError
from txbatch.postgres.database.engine import connect

pytestmark = [pytest.mark.timeout(300), pytest.mark.rule("R21")]
Databases = Callable[[str], str]
WriteJob = Callable[[str, str], str]
JOB = """
topology = Topology("words")
stream = topology.new_stream("in", FixedBatchSpout("word string", 2, "dog", "man", "dog", "cat"))
grouped = stream.group_by("word")
grouped.persistent_aggregate({kind}("words", database="warehouse"), count=Count())
grouped.persistent_aggregate(OpaqueState("inside"), count=Count())
if __name__ == "__main__":
    raise SystemExit(emit(topology))
"""
OPAQUE, TRANSACTIONAL = JOB.format(kind="OpaqueState"), JOB.format(kind="TransactionalState")
ALL = {"dog": (2, 2), "man": (1, 1), "cat": (1, 2)}


def found(url: str, state: str = "words") -> dict[str, tuple[int, int]]:
    engine = connect(url)
    try:
        with engine.connect() as connection:
            return {word: (n, txid) for word, n, txid in connection.execute(text(f"SELECT * FROM report.{state}"))}
    finally:
        engine.dispose()


@pytest.fixture
def warehouse(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TXBATCH_DATABASE_URL_WAREHOUSE", databases("warehouse"))
    return databases("warehouse")


def test_killed_between_both_commits(
    home: Path,
    postgres_url: str,
    warehouse: str,
    engine: Engine,
    write_job: WriteJob,
    process_without_spark: Callable[..., Fork],
    tmp_path: Path,
) -> None:
    """Both states count once."""
    job = write_job("words.py", OPAQUE)
    points = ["commit.apart_loaded", "commit.apart_committed"]
    armed = ",".join(f"{point}=kill:{tmp_path / point}" for point in points)
    given = {"TXBATCH_DATABASE_URL": postgres_url, "TXBATCH_FAILPOINTS": armed}
    for point in points:
        killed = process_without_spark("run", job, **given)
        _, err = killed.communicate()
        assert killed.returncode == -signal.SIGKILL, err
        assert (tmp_path / point).exists()
        half = point == "commit.apart_committed"
        assert found(warehouse) == ({"dog": (1, 1), "man": (1, 1)} if half else {})
        assert found(postgres_url, "inside") == {}
    out, err = (done := process_without_spark("run", job, "--until-idle", "--json", **given)).communicate()
    assert done.returncode == 0, err
    assert [(row["txid"], row["attempts"]) for row in json.loads(out)] == [(1, 1), (2, 1)]
    assert found(warehouse) == found(postgres_url, "inside") == ALL


def test_a_state_stays_in_its_database(
    txbatch: Callable[..., Result], postgres_url: str, warehouse: str, write_job: WriteJob
) -> None:
    here, there = write_job("here.py", OPAQUE.replace(', database="warehouse"', "")), write_job("there.py", OPAQUE)
    assert txbatch("run", here, "--until-idle").exit_code == 0
    for command in (("run", there), ("change", there, "--why", "it moves", "--yes")):
        refused(txbatch(*command), "or define another topology, with states of other names")
    listed = json.loads(txbatch("change", there, "--json").stdout)
    what = "state 'words' changes from the ledger's database to database 'warehouse', and what is counted stays where it is"
    assert [(row["how"], row["what"], row["applied"]) for row in listed] == [("rebuild", what, False)]
    refused(txbatch("rebuild", there, "--why", "it moves"), "state 'words' is kept apart, and a rebuild swaps states")
    assert txbatch("run", here).exit_code == 0
    assert found(postgres_url) == ALL


def test_commands_know_the_warehouse(
    txbatch: Callable[..., Result], warehouse: str, write_job: WriteJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = write_job("words.py", OPAQUE)
    assert txbatch("run", job, "--until-idle").exit_code == 0
    (asked,) = json.loads(txbatch("query", "words", "dog", "--json").stdout)
    assert (asked["found"], asked["count"], asked["txid"]) == (True, 2, 2)
    checks = {row["check"]: row["detail"] for row in json.loads(txbatch("doctor", "--json").stdout)}
    assert checks["warehouses"] == "1 states in warehouse"
    monkeypatch.delenv("TXBATCH_DATABASE_URL_WAREHOUSE")
    told = "set TXBATCH_DATABASE_URL_WAREHOUSE, or the Airflow connection txbatch_warehouse"
    for command in (("query", "words", "dog"), ("drop", "words", "--yes"), ("run", job)):
        refused(txbatch(*command), told)
    assert txbatch("doctor").exit_code == 1


def test_abort_takes_back_or_is_refused(
    txbatch: Callable[..., Result],
    warehouse: str,
    write_job: WriteJob,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for text_, name in ((OPAQUE, "words"), (TRANSACTIONAL, "more")):
        job = write_job(f"{name}.py", text_.replace('"words"', f'"{name}"').replace("inside", f"in_{name}"))
        with monkeypatch.context() as patch:
            patch.setenv("TXBATCH_FAILPOINTS", "commit.apart_committed=raise")
            assert txbatch("run", job).exit_code == 1
        assert found(warehouse, name) == {"dog": (1, 1), "man": (1, 1)}
        aborted = txbatch("abort", name, "1", "--why", "wrong")
        if name == "words":
            assert aborted.exit_code == 0, aborted.stderr
            assert found(warehouse, name) == {}
        else:
            refused(aborted, "cannot be aborted; commit it (clear the task commit, or `txbatch run`)")
        assert txbatch("run", job, "--until-idle").exit_code == 0
        txid = 3 if name == "words" else 2
        assert {word: n for word, (n, _) in found(warehouse, name).items()} == {"dog": 2, "man": 1, "cat": 1}
        assert found(warehouse, name)["dog"][1] == txid


def test_status_shows_what_is_half_committed_and_the_next_run_repairs_it(
    txbatch: Callable[..., Result], warehouse: str, write_job: WriteJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = write_job("words.py", TRANSACTIONAL)
    with monkeypatch.context() as patch:
        patch.setenv("TXBATCH_FAILPOINTS", "commit.apart_committed=raise")
        assert txbatch("run", job).exit_code == 1
    told = "state words in database warehouse shows txid 1, which is not committed in the ledger yet: the next run"
    assert told in txbatch("status").stdout
    (half,) = json.loads(txbatch("status", "words", "--json").stdout)[0]["half_committed"]
    assert half == {"state": "words", "database": "warehouse", "txid": 1, "attempt": "1:1"}
    assert txbatch("run", job).exit_code == 0
    assert json.loads(txbatch("status", "--json").stdout)[0]["half_committed"] == []
    monkeypatch.delenv("TXBATCH_DATABASE_URL_WAREHOUSE")
    away = txbatch("status")
    assert away.exit_code == 0
    assert "state words in database warehouse is not well: " in away.stdout


def test_drop(txbatch: Callable[..., Result], warehouse: str, write_job: WriteJob, databases: Databases) -> None:
    job = write_job("words.py", OPAQUE)
    assert txbatch("run", job).exit_code == 0
    assert txbatch("drop", "words", "--yes", "--leave-apart").exit_code == 0
    refused(txbatch("run", job), "`txbatch drop words --database warehouse` removes it there")
    unsure = txbatch("drop", "words", "--database", "warehouse")
    assert unsure.exit_code == 2
    assert "this drops 'words' and its states in 'warehouse', words, at txid 1; say --yes" in told(unsure)
    assert txbatch("drop", "words", "--database", "warehouse", "--yes").exit_code == 0
    assert txbatch("run", job, "--until-idle").exit_code == 0
    assert found(warehouse) == ALL
    assert txbatch("drop", "words", "--yes").exit_code == 0
    with pytest.raises(Exception, match="does not exist"):
        found(warehouse)


def test_drop_spares_the_states_of_another_ledger(
    txbatch: Callable[..., Result],
    warehouse: str,
    write_job: WriteJob,
    databases: Databases,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = write_job("words.py", OPAQUE)
    assert txbatch("run", job, "--until-idle").exit_code == 0
    with monkeypatch.context() as other:
        other.setenv("TXBATCH_DATABASE_URL", databases("other"))
        assert txbatch("migrate").exit_code == 0
        refused_ = txbatch("drop", "words", "--database", "warehouse", "--yes")
        assert refused_.exit_code == 2
        ledger = re.search(r"say --ledger (\S+), its last txid is 2", told(refused_))
        assert ledger
        named = ("drop", "words", "--database", "warehouse", "--ledger", ledger[1])
        assert f"words of ledger {ledger[1]}, at txid 2; say --yes" in told(txbatch(*named))
        refused(txbatch(*named[:-1], str(uuid4()), "--yes"), "nothing is in 'warehouse'")
        refused(txbatch("run", job), f"`txbatch drop words --database warehouse --ledger {ledger[1]}`")
        refused(txbatch("drop", "words", "--yes"), "no topology 'words' is known")
        assert found(warehouse) == ALL
        assert txbatch(*named, "--yes").exit_code == 0
    refused(txbatch("query", "words", "a"), "a table or view of a state is gone")


def told(result: Result) -> str:
    return " ".join(result.stderr.replace("│", " ").split())


def test_urls_of_other_databases(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment, else Airflow's connections; else it says what to set, and no password."""
    where: Any = settings.Settings(
        Path(), "postgresql://here", "file:///", connections={"mart": "postgresql://mart"}.get
    )
    monkeypatch.setenv("TXBATCH_DATABASE_URL_WAREHOUSE", "postgresql://there")
    assert where.warehouse_url("warehouse") == "postgresql://there"
    assert where.warehouse_url("mart") == "postgresql://mart"
    with pytest.raises(DefinitionError, match="set TXBATCH_DATABASE_URL_LAKE, or the Airflow connection txbatch_lake"):
        where.warehouse_url("lake")
