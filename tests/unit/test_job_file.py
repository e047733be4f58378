from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from refusals import refused

from txbatch.core.batch.heartbeat import Heartbeat
from txbatch.core.batch.transaction import Assignment, TransactionAttempt
from txbatch.core.errors import DefinitionError
from txbatch.launch.driver import Driver
from txbatch.launch.job_file import code_digest, load_job
from txbatch.storage.staging import AttemptFolder

HEAD = "from txbatch import Count, FixedBatchSpout, OpaqueState, Topology\n"
GOOD = HEAD + (
    "topology = Topology('{name}')\n"
    "topology.new_stream('s', FixedBatchSpout('word string', 1, 'a')).group_by('word')"
    ".persistent_aggregate(OpaqueState('{name}'), count=Count())\n"
)


def job(folder: Path, text: str, name: str = "job.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_job_file_and_its_fingerprint(tmp_path: Path) -> None:
    path = job(tmp_path, GOOD.format(name="t") + "same = topology\n")
    loaded = load_job("job.py", tmp_path)
    assert (loaded.name, loaded.topology.name, loaded.code) == ("job.py", "t", code_digest(path))
    before = loaded.code
    job(tmp_path, GOOD.format(name="t") + "# a word\n")
    assert loaded.code == before
    assert loaded.now().code != before
    assert loaded.now().name == "job.py"
    path.unlink()
    with pytest.raises(DefinitionError, match="does not exist"):
        loaded.now()


def test_what_is_written_to_a_job_file_after_it_was_loaded_is_not_emitted(tmp_path: Path) -> None:
    """Its definition was compared with the ledger's as it was loaded."""
    loaded = load_job(str(job(tmp_path, GOOD.format(name="t"))))
    assignment = Assignment("t", TransactionAttempt(1, 1), "token", {"format": 2, "streams": {}}, loaded.code)
    folder = AttemptFolder((tmp_path / "attempt").as_uri())
    folder.write_assignment(assignment)
    folder.write_heartbeat(Heartbeat(3600))
    job(tmp_path, GOOD.format(name="t").replace("Count()", "Count('word')"))
    with ExitStack() as ending:
        assert not Driver(load_job(str(loaded.path)).topology, loaded.path, ending).emit(folder)
    says = "TX117 (try again): job.py is not what was planned for t 1:1: it changed since; emit again"
    assert folder.read_error() == {"kind": "transient", "message": says}


def test_a_module_beside_it_can_be_imported(tmp_path: Path) -> None:
    job(tmp_path, "NAME = 'helped'\n", "a_helper_of_this_test.py")
    job(tmp_path, "from a_helper_of_this_test import NAME\n" + GOOD.format(name="x").replace("'x'", "NAME"))
    assert load_job("job.py", tmp_path).topology.name == "helped"


def test_two_jobs_of_one_file_name(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        job(tmp_path / folder, GOOD.format(name=folder))
    assert [load_job(f"{folder}/job.py", tmp_path).topology.name for folder in ("a", "b")] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", ("TX114", "job.py")),
        (GOOD.format(name="a") + GOOD.format(name="b").replace("topology", "other"), ("TX114", "defines")),
        (HEAD + "topology = Topology('t')\n", ("TX106", "'t'")),
        ("def f(:\n", ("TX115", "job.py", "SyntaxError")),
        ("x = 1\n\nx / 0\n", ("TX115", "job.py", "ZeroDivisionError", "line 3")),
        (
            "import nothing_of_that_name\n",
            ("TX115", "ModuleNotFoundError", "'nothing_of_that_name'"),
        ),
        (HEAD + "CountDistinct('v')\n", ("TX115", "NameError", "line 2", "ApproxCountDistinct")),
        ("from txbatch import CountDistinct\n", ("TX115", "ImportError", "line 1", "ApproxCountDistinct")),
        (HEAD + "Topology('a b')\n", ("TX101", "'a b'")),
    ],
)
def test_a_job_file_that_is_none(tmp_path: Path, text: str, says: tuple[str, ...]) -> None:
    job(tmp_path, text)
    with refused(*says):
        load_job("job.py", tmp_path)


@pytest.mark.parametrize("name", ["random.py", "queue.py", "pyspark.py"])
def test_a_file_that_would_be_imported_in_the_place_of_a_module_is_refused(tmp_path: Path, name: str) -> None:
    """Spark's Python has the job's folder before all others."""
    job(tmp_path, GOOD.format(name="t"))
    job(tmp_path, GOOD.format(name="t"), name)
    like = "is named like a module of Python or Spark, and would be imported in its place: rename it"
    with pytest.raises(DefinitionError, match=rf"^TX102 \(no retry helps\): {name} {like}"):
        load_job(name, tmp_path)
    with pytest.raises(DefinitionError, match=rf"^TX102 \(no retry helps\): {name} beside job.py {like}"):
        load_job("job.py", tmp_path)


def test_no_such_file(tmp_path: Path) -> None:
    with refused("TX114", "jobs/word_count.py"):
        load_job("jobs/none.py", tmp_path)
    with pytest.raises(DefinitionError, match=r"is a folder; give the path of a job"):
        load_job(".", tmp_path)
    with refused("TX114", "/dev/null", "Python"):
        load_job("/dev/null")
    job(tmp_path, "x = 1\n", "job.txt")
    with refused("TX114", "job.txt", "Python"):
        load_job("job.txt", tmp_path)
