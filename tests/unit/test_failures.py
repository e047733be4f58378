"""Whose line a worker's traceback is told by: the job's own, wherever it and txbatch happen to lie."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

import txbatch
from txbatch.spark.failures import in_our_words

FRAME = '  File "{}", line {}, in {}\n'


class Raised(Exception):
    """What Spark raises for a Python function."""

    def getSqlState(self) -> str:
        return "38000"


def told(*frames: tuple[str, int, str]) -> str:
    traceback = "".join(FRAME.format(*frame) for frame in frames)
    return str(in_our_words(Raised(f"Traceback (most recent call last):\n{traceback}    boom\nValueError: no\n")))


@pytest.mark.parametrize("folder", ["/x/txbatch", "/x/pyspark/txbatch", "/x/a b ü/txb", "/x/site-packages"])
def test_the_line_of_the_job_is_told_in_a_folder_of_any_name(monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    job = f"{folder}/jobs/helper_of_a_job.py"
    module = ModuleType("helper_of_a_job")
    module.__file__ = job
    monkeypatch.setitem(sys.modules, "helper_of_a_job", module)
    ours = ("/x/dist/txbatch-0123.zip/txbatch/spark/operations.py", 151, "_told")
    assert told(ours, (job, 7, "clean")) == "a function raised ValueError: no (helper_of_a_job.py, line 7, in clean)"
    theirs = ("/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", 9, "main")
    assert "(helper_of_a_job.py, line 7, in clean)" in told(theirs, ours, (job, 7, "clean"), theirs)


def test_no_line_is_told_where_none_is_the_jobs() -> None:
    ours = (str(txbatch.__file__), 3, "f")
    unknown = ("/opt/elsewhere/numpy/core.py", 3, "f")
    installed = (str(pytest.__file__), 3, "f")
    assert told(ours, unknown, installed) == "a function raised ValueError: no"
