"""`txbatch run` killed anywhere and called again finishes the same batch: real processes, a real spark-submit."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import psutil
import pytest
from kills import KILLED, POINTS, WAIT, Start, spark_processes
from sizes import EVERYTHING
from sqlalchemy import Engine, make_url, text
from support import until

from txbatch import failpoints
from txbatch.postgres.reading.ledger_reader import LedgerReader

WriteJob = Callable[[str, str], str]
SENTENCES = """
topology = Topology("sentences")
sentences = FixedBatchSpout("sentence string", 2, "how are you", "nice to meet you", "what a good day")
stream = topology.new_stream("in", sentences).flat_map("split(sentence, ' ')", "word string")
stream.group_by("word").persistent_aggregate(OpaqueState("sentences"), count=Count())
if __name__ == "__main__":
    raise SystemExit(emit(topology))
"""
HELD = WAIT + SENTENCES.replace('.flat_map("split', '.filter(wait).flat_map("split')
FIRST_BATCH = {"how": 1, "are": 1, "you": 2, "nice": 1, "to": 1, "meet": 1}
ALL = {**FIRST_BATCH, "what": 1, "a": 1, "good": 1, "day": 1}
APART = {
    "commit.apart_loaded",
    "commit.apart_committed",
    "abort.apart_committed",
}  # of states in other databases: see test_apart.py
# Where nothing has happened yet: two processes are held there to race, see tests/postgres/test_processes.py.
BEFORE_LOCKS = {f"{step}.before_lock" for step in ("initialize", "attempt", "commit", "abort")}
# Of what is done to committed batches: see test_rebuild.py, and tests/postgres/test_retention.py.
CORRECTIONS = {f"rebuild.{at}" for at in ("begun", "before_commit", "counted", "before_swap", "swapped")}
CORRECTIONS |= {"gc.folded", "gc.before_commit", "gc.windows_left"}
# Where another process commits or aborts between two looks: see tests/postgres/test_processes.py.
BETWEEN_LOOKS = {"gc.versions_read", "commit.times_read"}
pytestmark = pytest.mark.timeout(300)


def finish(started: Popen[str]) -> list[dict[str, object]]:
    out, err = started.communicate()
    assert started.returncode == 0, err
    found: list[dict[str, object]] = json.loads(out)
    return found


def metadata(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.execute(text("SELECT metadata::text FROM txbatch.batch ORDER BY txid")).scalars())


def counts(engine: Engine) -> dict[str, int]:
    with engine.connect() as connection:
        return {row.word: row.count for row in connection.execute(text('SELECT word, "count" FROM report.sentences'))}  # type: ignore[misc]


def wait_for(what: Callable[[], object], seconds: float = 60) -> None:
    until(what, "waited too long", seconds=seconds, every=0.02)


def gone(processes: dict[str, psutil.Process]) -> bool:
    return not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in processes.values())


def test_no_failpoint_is_forgotten() -> None:
    assert set(POINTS) | APART | BEFORE_LOCKS | CORRECTIONS | BETWEEN_LOOKS == failpoints.NAMES


@pytest.mark.rule("R3", "R5", "R10")
def test_killed_at_every_point_in_turn(
    start: Start, write_job: WriteJob, engine: Engine, home: Path, tmp_path: Path
) -> None:
    """One batch meets every failpoint: eight calls are killed; the ninth finishes it and goes on with the next.

    All is below the home, whose path is odd, and nothing beside it.
    """
    (tmp_path / "job").mkdir()
    job = write_job("job/sentences.py", SENTENCES)
    armed = ",".join(f"{point}=kill:{tmp_path / point}" for point in POINTS)
    for point in POINTS:
        killed = start("run", job, TXBATCH_FAILPOINTS=armed)
        _, err = killed.communicate()
        assert killed.returncode == KILLED, err
        assert (tmp_path / point).exists()
        (planned,) = metadata(engine)
        assert json.loads(planned) == {"format": 2, "streams": {"in": {"plan": {"start": 0, "end": 2}}}}
        committed = POINTS.index(point) >= POINTS.index("commit.committed")
        assert counts(engine) == (FIRST_BATCH if committed else {})
    first, second = finish(start("run", job, "--json", TXBATCH_FAILPOINTS=armed))
    assert (first["txid"], first["status"], first["attempts"]) == (1, "committed", 3)
    assert (second["txid"], second["status"], second["attempts"]) == (2, "committed", 1)
    assert counts(engine) == ALL
    statuses = [row["status"] for row in LedgerReader(engine).attempts("sentences")]
    assert statuses == ["committed", "committed", "superseded", "superseded"]
    assert {each.name for each in tmp_path.iterdir()} == {home.name, "job", *POINTS}
    assert (home / "staging").is_dir()


def test_spark_ends_with_whom_it_works_for(
    start: Start, write_job: WriteJob, engine: Engine, tmp_path: Path, postgres_url: str
) -> None:
    """Killed in the middle of Spark: spark-submit's Java alone; `txbatch run` alone. Then it counts once.

    All processes at once, which is what each point above is for Spark, are killed in the whole size only.

    Meanwhile a second `txbatch run` says who is running; Spark is told neither the URL nor a password, nor is the password
    printed.
    """
    job, held, files = write_job("held.py", HELD), tmp_path / "held", iter(range(9))

    def begin(*arguments: str, **environment: str) -> tuple[Popen[str], dict[str, psutil.Process]]:
        nonlocal held  # a file of its own, as a Python worker of the call before may still be there
        held.unlink(missing_ok=True)
        held = tmp_path / f"held{next(files)}"
        begun = start(*arguments, HELD=str(held), **environment)
        wait_for(held.exists)
        return begun, spark_processes(begun)

    if EVERYTHING:
        killed, spark = begin("run", job)
        os.killpg(killed.pid, signal.SIGKILL)
        assert killed.wait() == KILLED
    failed = 2 if EVERYTHING else 1

    begun, spark = begin("run", job)
    before = metadata(engine)
    spark["java"].kill()
    wait_for(lambda: gone(spark), 10)
    _, err = begun.communicate()
    assert begun.returncode == 1
    assert (
        f"txbatch: TX417 (try again): txbatch sentences 1:{failed}: Spark was killed (SIGKILL, out of memory?)" in err
    )

    again, spark = begin("run", job)
    again.kill()
    wait_for(lambda: gone(spark), 10)

    url = make_url(postgres_url).set(password="geheim").render_as_string(hide_password=False)
    secrets = {"TXBATCH_DATABASE_URL": url, "PGPASSWORD": "geheim", "AIRFLOW_CONN_TXBATCH": url}
    last, spark = begin("-v", "run", job, "--json", **secrets)
    told = [first_bytes(each, name) for each in spark.values() for name in ("environ", "cmdline")]
    assert all(told)
    assert not any(b"geheim" in each or b"postgresql" in each for each in told)
    out, err = (second := start("-v", "run", job, **secrets)).communicate()
    assert (second.returncode, out) == (1, "")
    assert "is running; wait until it ends" in err
    assert "geheim" not in err
    held.unlink()
    out, err = last.communicate()
    assert last.returncode == 0, err
    assert "geheim" not in out + err
    assert [(row["txid"], row["attempts"]) for row in json.loads(out)] == [(1, failed + 2), (2, 1)]
    assert metadata(engine)[:1] == before
    assert counts(engine) == ALL


def first_bytes(of: psutil.Process, name: str) -> bytes:
    return Path(f"/proc/{of.pid}/{name}").read_bytes()
