"""Records that Spark rejects: an operator has the error alone, and the command that it prints puts the fault right.

The other faults, which need no Spark, are in tests/cli/test_staged_faults.py.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_support import Told, told
from click.testing import CliRunner, Result
from in_this_process import InThisProcess
from pyspark.sql import SparkSession
from sqlalchemy import Engine, text

from txbatch.cli.main import main
from txbatch.launch.job_file import LAST_LINES

JOB = """
def doubled(record):
    return 2 * int(record["amount"])
FIELDS = "at timestamp, shop string, amount bigint"
topology = Topology("sales")
stream = topology.new_stream("in", IntervalSpout({root!r}, FIELDS, time="at", options={{"header": True}}))
stream.each(doubled, "doubled bigint").group_by("shop").persistent_aggregate(OpaqueState("sales"), amount=Sum("doubled"))
"""
RUN = ("run", "sales.py", "--interval", "2026-03-01T00:00Z", "2026-03-02T00:00Z")
FAILED = "No: the attempt failed, and nothing of its batch is committed."
Txbatch = Callable[..., Result]


@pytest.fixture
def sales(spark: SparkSession, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Txbatch:
    """Calls a command; the job sales.py reads the folder `in`."""
    monkeypatch.setenv("TXBATCH_DATABASE_URL", postgres_url)
    monkeypatch.setenv("TXBATCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(InThisProcess, "session", spark, raising=False)
    monkeypatch.setattr("txbatch.wiring.Application", InThisProcess)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "sales.py").write_text(
        f"from txbatch import *\n{JOB.format(root=str(tmp_path / 'in'))}\n{LAST_LINES}\n"
    )
    return lambda *arguments: CliRunner().invoke(main, arguments, prog_name="txbatch")


def total(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT sum(amount) FROM report.sales")).scalar_one())


RIGHT = b"at,shop,amount\n2026-03-01T10:00:00Z,a,10\n"


@pytest.mark.parametrize(
    ("name", "wrong", "code"),
    [
        ("day.csv", b"at,shop,amount\n2026-03-01T10:00:00Z,a,ten\n", "TX301"),
        ("day.csv.gz", gzip.compress(RIGHT * 1_000)[:-20], "TX302"),
        ("day.csv", b"at,shop,price\n2026-03-01T10:00:00Z,a,10\n", "TX303"),
    ],
    ids=["bad record", "damaged file", "wrong columns"],
)
def test_a_file_of_another_length_is_mended_and_then_its_batch_is_freed(
    sales: Txbatch, engine: Engine, tmp_path: Path, name: str, wrong: bytes, code: str
) -> None:
    """The first advice is to mend and to run again; the retry says that the plan does not hold, and how to abort."""
    file = tmp_path / "in" / name
    file.write_bytes(wrong)
    error = told(sales(*RUN))
    assert error == Told(code, FAILED, [*RUN])
    file.write_bytes(gzip.compress(RIGHT) if name.endswith(".gz") else RIGHT)
    changed = told(sales(*error.command))
    assert changed == Told("TX204", FAILED, ["abort", "sales", "1", "--why", "..."])
    freed = sales(*changed.command)
    assert freed.exit_code == 0, freed.output
    assert sales(*RUN).exit_code == 0
    assert total(engine) == 20


def test_a_file_of_the_same_length_is_mended_and_no_batch_is_aborted(
    sales: Txbatch, engine: Engine, tmp_path: Path
) -> None:
    file = tmp_path / "in" / "day.csv"
    file.write_bytes(RIGHT.replace(b",10", b",1O"))
    error = told(sales(*RUN))
    assert error == Told("TX301", FAILED, [*RUN])
    file.write_bytes(RIGHT)
    mended = sales(*error.command)
    assert mended.exit_code == 0, mended.output
    assert total(engine) == 20


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_file_that_is_gone_is_restored_or_its_batch_is_freed(
    sales: Txbatch, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_back: bool
) -> None:
    for name in ("one.csv", "two.csv"):
        (tmp_path / "in" / name).write_bytes(RIGHT)
    with monkeypatch.context() as patch:
        patch.setenv("TXBATCH_FAILPOINTS", "emit.attempt_started=raise")
        assert sales(*RUN).exit_code == 1
    (tmp_path / "in" / "two.csv").unlink()
    error = told(sales(*RUN))
    assert (error.code, error.numbers) == ("TX201", FAILED)
    assert error.command[:3] == ["abort", "sales", "1"]
    if comes_back:
        (tmp_path / "in" / "two.csv").write_bytes(RIGHT)
    else:
        assert sales(*error.command).exit_code == 0
    assert sales(*RUN).exit_code == 0
    assert total(engine) == (40 if comes_back else 20)


def test_a_function_that_is_mended(sales: Txbatch, engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "in" / "day.csv").write_text("at,shop,amount\n2026-03-01T10:00:00Z,a,10\n")
    job = tmp_path / "sales.py"
    right = job.read_text()
    job.write_text(right.replace('record["amount"]', 'record["shop"]'))
    error = told(sales(*RUN))
    assert error == Told("TX307", "No: nothing of the batch is committed.", [*RUN])
    job.write_text(right)
    mended = sales(*error.command)
    assert mended.exit_code == 0, mended.output
    assert total(engine) == 20
