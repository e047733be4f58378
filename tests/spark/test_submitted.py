"""A real spark-submit: functions travel by value, txbatch as .zip; what is printed, and what is told when it fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from txbatch import settings
from txbatch.core.batch.heartbeat import Heartbeat
from txbatch.core.batch.transaction import Assignment, Run, TransactionAttempt
from txbatch.core.errors import TransientError
from txbatch.core.protocol import planning
from txbatch.core.protocol.ledger import Head
from txbatch.launch.job_file import Job, code_digest, load_job
from txbatch.launch.submission import LOCAL_MASTER, SparkSubmit, submission
from txbatch.storage.staging import AttemptFolder

pytestmark = pytest.mark.timeout(300)
# Java's own warnings, and what Spark logs of its workers, when it ends them and how.
NOISE = ("incubator", " ERROR ", " WARN ")
Rows = dict[tuple[object, ...], tuple[object, ...]]
HELPER = """
import txbatch

class Loud:
    def __init__(self, mark):
        self.mark = mark
    def shout(self, record):
        return record["word"].upper() + self.mark

def words(record):
    return [word for word in record["line"].split() if word]

def where(record):
    return txbatch.__file__
"""
JOB = """
import os
from pathlib import Path
from a_helper import helper
from helper_beside_this_job import Loud, where, words
from txbatch import Count, FileSpout, OpaqueState, Topology, emit

loud = Loud("!")
def kept(record):
    return helper.LENGTH_MIN <= len(record["word"])

topology = Topology("helped")
stream = topology.new_stream("in", FileSpout(Path(__file__).parent / "in")).flat_map(words, "word string")
shouted = stream.filter(kept).each(loud.shout, "loud string").map(lambda r: r["loud"].strip(), "word string")
shouted.group_by("word").persistent_aggregate(OpaqueState("helped"), count=Count())
stream.map(where, "file string").group_by("file").persistent_aggregate(OpaqueState("places"), count=Count())
if __name__ == "__main__":
    raise SystemExit(emit(topology))
"""
# Expressions that an unpinned Spark would compute otherwise, or refuse, by the settings below.
OF_SITE = """
from pathlib import Path
from txbatch import Count, FileSpout, OpaqueState, Topology, emit

topology = Topology("site")
lines = topology.new_stream("in", FileSpout(Path(__file__).parent / "in")).filter("LINE like 'how%'")
lines = lines.each("unix_seconds(cast('2024-07-01 12:00:00' as timestamp))", "seconds bigint")
lines = lines.each("coalesce(cast(try_to_timestamp('2024-7-1 1:2', 'yyyy-MM-dd HH:mm') as string), 'none')", "strict string")
lines = lines.each("coalesce(size(cast(null as array<int>)), 0)", "sized int")
lines.group_by("seconds", "strict", "sized").persistent_aggregate(OpaqueState("site"), count=Count())
if __name__ == "__main__":
    raise SystemExit(emit(topology))
"""
HOSTILE = """
spark.sql.session.timeZone Asia/Tokyo
spark.sql.legacy.timeParserPolicy LEGACY
spark.sql.caseSensitive true
spark.sql.ansi.enabled false
"""


@pytest.mark.parametrize("job", [OF_SITE], indirect=True)
def test_a_sites_spark_defaults_change_no_number(
    submitted: Callable[[str], AttemptFolder],
    read_partials: Callable[[AttemptFolder, int, int], Rows],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(HOSTILE)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    assert read_partials(submitted(LOCAL_MASTER), 0, 3) == {(1719835200, "none", 0): (1,)}
    said = capfd.readouterr().err
    assert "spark.sql.legacy.timeParserPolicy" in said, said  # so the site's file was read


def test_a_call_that_goes_on_for_good_starts_no_thread_for_each_query(spark: SparkSession) -> None:
    """Its memory would grow by them."""
    for _ in range(20):
        spark.range(10).selectExpr("id % 3 AS n").groupBy("n").count().collect()
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    names = [each.getName() for each in jvm.java.lang.Thread.getAllStackTraces().keySet()]
    for pool in ("shuffle-exchange", "ResultQueryStageExecution"):
        assert 0 < sum(name.startswith(pool) for name in names) <= 16


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Job:
    """In a folder whose name has a blank, with helpers beside it and in a package."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("LC_ALL", "POSIX")
    folder = tmp_path / "my jobs"
    (folder / "a_helper").mkdir(parents=True)
    (folder / "a_helper" / "__init__.py").touch()
    (folder / "a_helper" / "helper.py").write_text("LENGTH_MIN = 3\n")
    (folder / "helper_beside_this_job.py").write_text(HELPER)
    (folder / "in").mkdir()
    (folder / "in" / "Ü 1.txt").write_text("how are you\n")
    (folder / "in" / "2.txt").write_text("you do as you are\n")
    (folder / "job.py").write_text(getattr(request, "param", JOB))
    return load_job(str(folder / "job.py"))


@pytest.fixture
def submitted(job: Job, tmp_path: Path) -> Callable[[str], AttemptFolder]:
    home = tmp_path / "home"
    home.mkdir()
    (home / "java").symlink_to(settings.project_root() / ".txbatch" / "java")

    def run(master: str) -> AttemptFolder:
        head = Head(job.topology.name, 1, None, (), None, {})
        metadata = planning.plan_batch(job.topology, head, Run("test"))
        assert metadata is not None
        assignment = Assignment(job.topology.name, TransactionAttempt(1, 1), "token", metadata, code_digest(job.path))
        folder = AttemptFolder((tmp_path / "attempt 1").as_uri())
        folder.write_assignment(assignment)
        folder.write_heartbeat(Heartbeat(3600))
        SparkSubmit(submission(job, assignment, folder.uri, home, local=True), master).run()
        return folder

    return run


@pytest.mark.parametrize("master", [LOCAL_MASTER, pytest.param("local-cluster[2,1,1024]", marks=pytest.mark.whole)])
def test_helpers_beside_the_job_travel(
    submitted: Callable[[str], AttemptFolder],
    read_partials: Callable[[AttemptFolder, int, int], Rows],
    capfd: pytest.CaptureFixture[str],
    master: str,
) -> None:
    folder = submitted(master)
    assert read_partials(folder, 0, 1) == {("HOW!",): (1,), ("ARE!",): (2,), ("YOU!",): (3,)}
    ((place, (count,)),) = read_partials(folder, 1, 1).items()
    assert ".zip" in str(place)
    assert count == 8
    out, err = capfd.readouterr()
    assert out == ""
    said = [line for line in err.splitlines() if "incubator" not in line]
    last = "txbatch helped 1:1: read 2 records, staged 3 keys for helped, 1 key for places"
    assert said == [last] if master == LOCAL_MASTER else last in said


def test_a_failure_is_written_for_the_process_that_submitted_and_is_not_printed(
    job: Job, submitted: Callable[[str], AttemptFolder], capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    failing = 'record["word"] == "do" and 1 / 0\n    return helper.LENGTH_MIN'
    job.path.write_text(job.path.read_text().replace("return helper.LENGTH_MIN", failing))
    with pytest.raises(TransientError, match="spark-submit ended with 1; its output above says why"):
        submitted(LOCAL_MASTER)
    said = AttemptFolder((tmp_path / "attempt 1").as_uri()).read_error()
    assert said is not None
    assert said["kind"] == "terminal"
    raised = "2. filter kept raised ZeroDivisionError: division by zero (job.py, line "
    assert said["message"].startswith("TX307 (no retry helps): helped 1:1, stream 'in', state 'helped': " + raised)
    assert said["message"].endswith(
        ", in kept), for the record {'word': 'do'} (in 2.txt); tried again it failed again: mend the source or the function, or "
        "abort the batch"
    )
    lines = [line for line in capfd.readouterr().err.splitlines() if not any(word in line for word in NOISE)]
    assert lines == [], "the process that submitted prints it"
