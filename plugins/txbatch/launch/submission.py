"""How a job is submitted: the input of spark-submit, and the command for `txbatch run`.

In Airflow, Airflow's own hook makes the command from the same input: `orchestration.submit_hook`.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from uuid import uuid4

from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Assignment
from txbatch.core.errors import EmissionFailed, PackageMissing
from txbatch.core.protocol import bulk
from txbatch.embedded import java
from txbatch.fit import check_fit
from txbatch.launch.job_file import Job
from txbatch.places import install
from txbatch.settings import SOURCE, variables_of

SHORT_JOB_BYTES = 80_000_000
# More than 32 files are looked at by a job of Spark: in so many tasks, where it would be a task for each file.
LISTING_TASKS = 64
LOCAL_MASTER = "local[*]"
# What a call that follows would grow by: what is over, kept for pages that are not shown; garbage, for half an hour; and threads,
# of which Spark starts another one for each query, up to these many.
_STAYS_SMALL = {
    **dict.fromkeys(("spark.ui.retainedJobs", "spark.ui.retainedStages"), "20"),
    **dict.fromkeys(("spark.ui.retainedTasks", "spark.sql.ui.retainedExecutions"), "20"),
    **{f"spark.sql.{name}.maxThreadThreshold": "16" for name in ("shuffleExchange", "resultQueryStage")},
    "spark.cleaner.periodicGC.interval": "30s",
}
SPARK_ENVIRONMENT = "TXBATCH_SPARK_ENVIRONMENT"
_NEVER = (
    "AIRFLOW_CONN_",
    "AIRFLOW_VAR_",
    "AIRFLOW__",
    "_AIRFLOW",
    "TXBATCH_DATABASE",
    SOURCE,
    "PGPASS",
    "PGSERVICE",
    "PGOPTIONS",
)
# Settings of Spark and of the stores that it reads itself, credentials among them.
_SPARKS_OWN = ("SPARK_", "_SPARK_", "PYSPARK_", "HADOOP_", "AWS_", "AZURE_", "GOOGLE_", "KRB5")
_SECRET_NAME = re.compile(
    r"PASS(WORD|WD|PHRASE)?S?(_|$)|PWD(_|$)|SECRETS?(_|$)|(^|_)(TOKENS?|CREDENTIALS?|DSN|DATABASE_URL|PAT|AUTH|BEARER|JWT)(_|$)"
    r"|(API|ACCESS|PRIVATE|FERNET|SECRET|ENCRYPTION|SIGNING|MASTER)_?KEYS?(_|$)"
)
_URL_WITH_PASSWORD = re.compile(r"\w://[^/\s:@]*:[^\s@]+@|[?&;](password|passwd|pwd)=", re.IGNORECASE)
_STDERR = 2
# So long the last lines of a program are waited for: a process that the program left may hold the pipe for longer.
_LAST_LINES_SECONDS = 2
_PACKAGE = Path(__file__).parents[1]
_SPARK = _PACKAGE / "spark"
_LOG4J = _SPARK / "log4j2.properties"
_PARENT = _SPARK / "process" / "parent.py"


@dataclass(frozen=True, slots=True)
class Submission:
    """The input of spark-submit."""

    name: str
    application: str
    arguments: tuple[str, ...]
    conf: Mapping[str, str]
    py_files: str
    environment: Mapping[str, str]


def submission(job: Job, assignment: Assignment, attempt_folder: str, home: Path, *, local: bool) -> Submission:
    """Return the input of spark-submit for an emit attempt. `local`: Spark runs on the local machine alone."""
    name = f"txbatch {assignment.topology} {assignment.attempt}"
    return application(job, name, [attempt_folder], home, local=local, short=is_short(job, assignment.plan))


def application(
    job: Job, name: str, attempt_folders: Sequence[str], home: Path, *, local: bool, short: bool
) -> Submission:
    """Return the input of spark-submit for an application, which emits several attempts first, or starts without attempts.

    `short`: the first attempts are too small to be worth an optimising compiler.
    """
    java_home = java.java_home(home)
    conf = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(_cores() if local else LISTING_TASKS),
        "spark.ui.enabled": "false",  # it shows a job to whoever reaches its port, and ends it for them
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.catalogImplementation": "in-memory",
        # Kept records are read a few times: to look for a shorter form takes longer than to write and read them, which Spark
        # compresses anyway. Room for so many values of a column is taken at once, and a table may have 1,600 columns.
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        "spark.sql.inMemoryColumnarStorage.batchSize": "2000",
    }
    environment = {
        "JAVA_HOME": str(java_home),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_HOME": str(_spark_home()),
        "PYTHONUNBUFFERED": "1",
        "LC_ALL": "C.UTF-8",  # else Java cannot open a file whose name is not ASCII
        **variables_of(name for stream in job.topology.streams.values() for name in stream.spout.variables),
    }
    options = [shlex.quote(f"-Dlog4j2.configurationFile={_LOG4J}")]
    if local:
        conf |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(_cores()),
            **_STAYS_SMALL,
        }
        environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        environment |= {"MALLOC_ARENA_MAX": "2"}  # else what threads of Java have freed is kept for each of them
        options.append(java.spark_submit_java_options(home, java_home, short_job=short))
    conf["spark.driver.extraJavaOptions"] = " ".join(options)
    arguments = ("--attempt-folder", *attempt_folders)
    return Submission(name, str(job.path), arguments, conf, str(package_zip(home)), environment)


def is_short(job: Job, *plans: BatchPlan) -> bool:
    """Return whether attempts emitted together, and longer trains behind, are too small to be worth an optimising compiler."""
    size = bulk.planned_bytes(job.topology, plans)
    if size is None:
        return False
    if len(plans) >= bulk.BATCHES_FIRST:
        size += sum(bulk.adds_bytes(job.topology, plan) for plan in plans) * (bulk.BATCHES_MAX // len(plans) - 1)
    return size < SHORT_JOB_BYTES


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _spark_home() -> Path:
    """Return the folder of the installed pyspark: spark-submit cannot find the folder below a path with blanks."""
    spec = find_spec("pyspark")
    check_fit("spark")
    if spec is None or spec.origin is None:
        raise PackageMissing(f"pyspark is damaged: it cannot be imported; {install('spark')}")
    return Path(spec.origin).parent


def package_zip(home: Path) -> Path:
    """The package as a .zip for `--py-files`, made once per content."""
    package = _PACKAGE
    files = sorted(path for kind in ("*.py", "*.tsv") for path in package.rglob(kind))
    digest = hashlib.sha256()
    for file in files:
        digest.update(str(file.relative_to(package)).encode() + b"\0" + file.read_bytes())
    target = home / "dist" / f"txbatch-{digest.hexdigest()[:16]}.zip"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_suffix(f".{uuid4().hex}")
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in files:
                archive.write(file, Path("txbatch") / file.relative_to(package))
        temporary.replace(target)
    return target


class SparkSubmit:
    """spark-submit on the local machine: ends with the calling process, or the running thread, and prints to stderr."""

    def __init__(self, what: Submission, master: str = LOCAL_MASTER) -> None:
        self.what, self.master = what, master
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Run to the end. Raise TransientError if spark-submit fails."""
        environment = {**spark_environment(), **self.what.environment}
        command = self.command()
        with (
            _output() as output,
            subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            ) as self._process,
        ):
            code = self._process.wait()
        if code:
            raise ended(code)

    def command(self) -> list[str]:
        """Return the spark-submit command, behind a program that ends spark-submit with the calling process."""
        what = self.what
        conf = [part for key, value in what.conf.items() for part in ("--conf", f"{key}={value}")]
        program = [sys.executable, "-S", str(_PARENT), str(Path(sys.executable).with_name("spark-submit"))]
        options = ["--master", self.master, "--name", what.name, *conf, "--py-files", what.py_files]
        return [*program, *options, what.application, *what.arguments]

    def kill(self) -> None:
        """End a running spark-submit at once."""
        if self._process is not None:
            self._process.kill()


@contextmanager
def _output() -> Iterator[int]:
    """Context manager. Yield the output of a program: stderr, or on a terminal a pipe, because a line of progress may be shown.

    `sys.stderr` prints each line of the pipe: above the line of progress.
    """
    if not sys.stderr.isatty():
        yield _STDERR
        return
    reading, writing = os.pipe()
    printer = threading.Thread(target=_print_lines, args=(reading,), name="printer", daemon=True)
    printer.start()
    try:
        yield writing
    finally:
        os.close(writing)
        printer.join(_LAST_LINES_SECONDS)


def _print_lines(reading: int) -> None:
    with open(reading, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            with suppress(OSError, ValueError):  # a terminal that is gone: the program goes on
                sys.stderr.write(f"{line.rstrip()}\n")


def ended(code: int) -> EmissionFailed:
    """Return the error for spark-submit's exit code: spark-submit's own signal, or, above 128, the driver's."""
    number = -code if code < 0 else code - 128
    if number not in {each.value for each in signal.Signals}:
        return EmissionFailed(f"spark-submit ended with {code}; its output above says why")
    name = signal.Signals(number).name
    if number == signal.SIGKILL:
        return EmissionFailed(
            f"Spark was killed ({name}, out of memory?); try again, with more memory if it happens again"
        )
    return EmissionFailed(f"Spark was ended ({name}); try again")


def spark_environment() -> dict[str, str]:
    """Return the process's environment, without possible secrets that Spark does not need.

    TXBATCH_SPARK_ENVIRONMENT names, with commas in between, secret variables needed by a job.
    """
    needed = {name.strip() for name in os.environ.get(SPARK_ENVIRONMENT, "").split(",")}
    return {name: value for name, value in os.environ.items() if name in needed or not secret(name, value)}


def secret(name: str, value: str = "") -> bool:
    """Return whether a variable may hold credentials of a database, of Airflow, or of anything but Spark's sources."""
    upper = name.upper()
    if upper.startswith(_NEVER):
        return True
    if upper in ("PWD", "OLDPWD") or upper.startswith(_SPARKS_OWN) or upper.endswith("_PROXY"):
        return False
    return bool(_SECRET_NAME.search(upper) or _URL_WITH_PASSWORD.search(value))
