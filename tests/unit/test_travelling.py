"""What a function of a job refers to either travels to executors or is named before Spark is started."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from txbatch import settings
from txbatch.core.errors import DefinitionError
from txbatch.launch import travelling
from txbatch.launch.job_file import check_emission, load_job
from txbatch.spark.process.shipped import ship_by_value

JOB = """
import functools, sys, threading
sys.path.append({above!r})
from txbatch import *
{imports}
lock = threading.Lock()

@functools.lru_cache(maxsize=7)
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

@functools.cache
def label(kind):
    return f"{{kind}} {{fibonacci(30)}}"

def locked(record):
    with lock:
        return record["word"]

topology = Topology("t")
stream = topology.new_stream("in", FixedBatchSpout("word string", 1, "dog")).map({function}, "label string")
stream.group_by("label").persistent_aggregate(OpaqueState("s"), count=Count(where={where}))
if __name__ == "__main__":
    raise SystemExit(emit(topology))
"""
LOADED = """
import pickle, sys
{more}
function = pickle.loads(bytes.fromhex(sys.argv[1]))
print(function({{"word": "dog"}}))
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """A job in a folder of its own, a package beside it, and one beside that folder."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    name = f"beside_{tmp_path.name}"
    for folder, package in (("jobs", f"{name}_lib"), ("", f"{name}_tools")):
        (tmp_path / folder / package).mkdir(parents=True)
        (tmp_path / folder / package / "__init__.py").touch()
        (tmp_path / folder / package / "prices.py").write_text(
            "import functools\n@functools.lru_cache\ndef price(word):\n    return word + ' 5'\n"
            "class Price:\n    def __call__(self, record):\n        return price(record['word'])\n"
        )

    def job(function: str, imports: str = "", where: str = "None") -> Path:
        path = tmp_path / "jobs" / "job.py"
        imports = imports.replace("lib.", f"{name}_lib.").replace("tools.", f"{name}_tools.")
        path.write_text(JOB.format(function=function, imports=imports, where=where, above=str(tmp_path)))
        return path

    return job


def called_elsewhere(path: Path) -> str:
    """Return what the job's function returns in a process that has none of its folders, as an executor has none."""
    job = load_job(str(path))
    pickler = travelling._cloudpickle()
    ship_by_value(pickler, job.path)
    ((_, function),) = travelling._functions(job.topology)
    more = f"import importlib.util as u; s = u.spec_from_file_location('txbatch_cloudpickle', {pickler.__file__!r}); "
    more += "m = u.module_from_spec(s); sys.modules[s.name] = m; s.loader.exec_module(m)"
    command = [sys.executable, "-c", LOADED.format(more=more), pickler.dumps(function).hex()]
    where = {"PYTHONPATH": str(settings.project_root() / "plugins")}
    done = subprocess.run(command, env=where, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("function", "imports", "returns"),
    [
        ("lambda record: label(record['word'])", "", "dog 832040"),
        ("lambda record: price(record['word'])", "from lib.prices import price", "dog 5"),
        ("lambda record: price(record['word'])", "from tools.prices import price", "dog 5"),
        ("lambda record: prices.price(record['word'])", "import tools.prices as prices", "dog 5"),
        ("Price()", "from tools.prices import Price", "dog 5"),
    ],
)
def test_caches_and_packages_beside_the_job_travel(
    write: Callable[..., Path], function: str, imports: str, returns: str
) -> None:
    path = write(function, imports)
    check_emission(load_job(str(path)))
    assert called_elsewhere(path) == returns


@pytest.mark.parametrize(
    ("function", "where", "says"),
    [
        (
            "locked",
            "None",
            r"stream 'in': 1\. map locked cannot be sent .*: it names 'lock', and that cannot be pickled .*lock",
        ),
        (
            "lambda record: open(__file__) and lock and '1'",
            "None",
            r"1\. map <lambda> cannot be sent .* it names 'lock'",
        ),
        (
            "'word'",
            "locked",
            r"state 's': value 'count', where locked cannot be sent to Spark's executors: it names 'lock'",
        ),
    ],
)
def test_what_cannot_travel_is_named_before_spark_is_started(
    write: Callable[..., Path], function: str, where: str, says: str
) -> None:
    with pytest.raises(DefinitionError, match=f"{says}.*; make it within the function"):
        check_emission(load_job(str(write(function, where=where))))


def test_what_lies_beside_a_job_travels_also_where_its_folder_is_reached_by_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a checkout is renewed by a link that is turned to the next one."""
    (tmp_path / "checkout").mkdir()
    (tmp_path / "jobs").symlink_to(tmp_path / "checkout")
    name = f"by_a_link_{tmp_path.name}"
    (tmp_path / "checkout" / f"{name}.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "jobs")
    importlib.import_module(name)
    pickler = travelling._cloudpickle()
    assert ship_by_value(pickler, tmp_path / "jobs" / "job.py") == [name]
