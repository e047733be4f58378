"""Job files: loaded for the topology by all parts but Spark; Spark runs job files."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import sys
import traceback
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from txbatch.core.batch.loaded import Loaded
from txbatch.core.errors import DefinitionError, JobNotFound, JobNotLoaded, MissingPart, NameTaken
from txbatch.core.records.own_code import lies_in
from txbatch.core.text import one_line, text_of
from txbatch.core.topology.digests import loaded
from txbatch.core.topology.topology import Topology
from txbatch.launch.expressions import check_expressions
from txbatch.launch.travelling import check_travelling

# What spark-submit runs of a job file.
LAST_LINES = 'if __name__ == "__main__": raise SystemExit(emit(topology))'
# Spark's Python finds the job's folder before all others: a file of such a name there would be imported in its place.
_TAKEN = sys.stdlib_module_names | {"py4j", "pyarrow", "pyspark", "txbatch"}
# From where on names are alike, of 1, in which they are the same.
ALIKE_MIN = 0.8


@dataclass(frozen=True, slots=True)
class Job:
    """A job file and the file's topology. `name` is the path given by the user, kept in the ledger.

    `code` is the digest of the loaded file: Spark emits only the same code for the job, even if the file is written again.
    """

    name: str
    path: Path
    topology: Topology
    code: str

    def now(self) -> Job:
        """Return the job by the file's present content: the same job, or a job loaded again. Raise like `load_job`."""
        path = _found(str(self.path), None)
        return self if code_digest(path) == self.code else replace(load_job(str(path)), name=self.name)

    def loaded(self) -> Loaded:
        """Return the parts of the job loaded by the process, and the variables named in the job's files."""
        own = (module for module in list(sys.modules.values()) if lies_in(module, str(self.path.parent)))
        files = {self.path, *(Path(str(module.__file__)) for module in own)}
        words = {word for file in files if file.suffix == ".py" for word in _words(file)}
        return loaded(self.topology, str(self.path.parent), sorted(words & os.environ.keys()))


def load_job(name: str, root: Path | None = None) -> Job:
    """Load the job file at `name`, relative to `root`. Raise DefinitionError unless the file defines exactly one topology."""
    path = _found(name, root)
    _check_names(path)
    code = code_digest(path)
    found = vars(_load(path)).values()
    topologies = {id(each): each for each in found if issubclass(type(each), Topology)}  # `__class__` may raise
    if len(topologies) != 1:
        names = ", ".join(sorted(each.name for each in topologies.values())) or "none"
        raise JobNotFound(f"job file {path.name} must define exactly one topology at module level; it defines {names}")
    (topology,) = topologies.values()
    return Job(name, path, topology.check(), code)


def _found(name: str, root: Path | None) -> Path:
    try:
        path = (root / name if root else Path(name)).resolve()
        if path.is_file() and path.suffix == ".py":
            return path
        wrong = "is a folder" if path.is_dir() else "is not a Python file" if path.exists() else "does not exist"
    except (OSError, ValueError, RuntimeError) as error:  # too long, U+0000, a link to itself
        raise JobNotFound(f"job file {name!r} cannot be found: {error}") from None
    raise JobNotFound(f"job file {path} {wrong}; give the path of a job, such as jobs/word_count.py")


def _check_names(job: Path) -> None:
    """Raise DefinitionError if the job, or a module beside the job, would hide a module imported by Python or Spark."""
    for file in sorted(job.parent.glob("*.py"), key=lambda file: file != job):
        if file.stem in _TAKEN:
            beside = "" if file == job else f" beside {job.name}"
            raise NameTaken(
                f"{file.name}{beside} is named like a module of Python or Spark, and would be imported in its place: rename it"
            )


def code_digest(path: Path) -> str:
    """Return the sha256 of a job file. Raise DefinitionError if the file cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise JobNotFound(f"job file {path} cannot be read: {error.strerror}") from error


def _words(file: Path) -> set[str]:
    """Return the words of a file; none if the file cannot be read."""
    try:
        return set(re.findall(r"\w+", file.read_text(errors="replace")))
    except OSError:
        return set()


def check_emission(job: Job) -> None:
    """Raise DefinitionError if an expression reads a missing field, a function cannot be sent to executors, or spark-submit
    would run the file in vain.
    """
    check_expressions(job.topology)
    check_travelling(job.topology, job.path)
    names = {ast.unparse(node) for node in ast.walk(ast.parse(job.path.read_bytes())) if isinstance(node, ast.Compare)}
    if not any("__name__" in name and "__main__" in name for name in names):
        raise emits_nothing(job)


def emits_nothing(job: Job) -> MissingPart:
    """Return the error for a job file that does nothing inside Spark."""
    return MissingPart(f"job file {job.path.name} emits nothing when Spark runs it; let it end with `{LAST_LINES}`")


def check_dag_files(folder: Path) -> str:
    """Return the number of DAG files. Raise DefinitionError with the name of a txbatch file Airflow passes over in silence."""
    files = sorted(folder.rglob("*.py"))
    for file in files:
        text = file.read_bytes().lower()
        if b"txbatch" in text and not (b"airflow" in text and (b"dag" in text or b"asset" in text)):
            raise MissingPart(
                f"{file.relative_to(folder)}: Airflow passes over files without the words airflow and dag, in silence; "
                "begin it with a docstring that says Airflow DAG"
            )
    return f"{len(files)} files in {folder}"


def _load(path: Path) -> ModuleType:
    """Execute the file under a unique name, with the file's folder importable."""
    name = f"txbatch_job_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise JobNotFound(f"job file {path.name} is not a Python file")
    module = module_from_spec(spec)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    try:
        spec.loader.exec_module(module)
    except SystemExit as error:
        raise JobNotLoaded(
            f"job file {path.name} ends the program when it is loaded; call emit(topology) only below "
            '`if __name__ == "__main__":`'
        ) from error
    except (DefinitionError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise JobNotLoaded(
            f"job file {path.name} cannot be loaded: {type(error).__name__}: {one_line(error)}{_line(path, error)}{_meant(error)}"
        ) from error
    return module


def _line(job: Path, error: BaseException) -> str:
    """Return the last line of the job in an error's traceback; "" for a syntax error, because the error names the line."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(job)]
    return f" (line {lines[-1]})" if lines else ""


def _meant(error: BaseException) -> str:
    """Return the name in txbatch closest to a missing name; "" if there is none."""
    found = re.search(r"name '(\w+)'", text_of(error)) if isinstance(error, NameError | ImportError) else None
    like = get_close_matches(found[1], sys.modules["txbatch"].__all__, 1, ALIKE_MIN) if found else []
    return f"; txbatch has {like[0]}" if like else ""
