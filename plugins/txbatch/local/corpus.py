"""The demo's input: the Python files of the installed pyspark, copied once and checked by digest."""

from __future__ import annotations

import hashlib
import shutil
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from uuid import uuid4

from txbatch.core.errors import PackageMissing
from txbatch.places import install

DIGEST_FILE = "sha256"


def ensure_corpus(folder: Path) -> Path:
    """Return the folder `corpus/` with the files, named after their modules: `pyspark.sql.__init__.py`.

    Flat names keep `__init__.py` from beginning with an underscore: Spark silently ignores files with a leading underscore.
    """
    corpus, recorded = folder / "corpus", folder / f"corpus.{DIGEST_FILE}"
    expected = f"pyspark {version('pyspark')} {{}}\n"
    if corpus.is_dir() and recorded.is_file() and recorded.read_text() == expected.format(digest_of(corpus)):
        return corpus
    shutil.rmtree(corpus, ignore_errors=True)
    made = folder / f"_corpus.{uuid4().hex}"
    _copy(_pyspark(), made)
    made.rename(corpus)
    recorded.write_text(expected.format(digest_of(corpus)))
    return corpus


def digest_of(corpus: Path) -> str:
    """Return the sha256 of the names and contents of all files."""
    digest = hashlib.sha256()
    for file in sorted(corpus.iterdir()):
        digest.update(file.name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _copy(source: Path, target: Path) -> None:
    target.mkdir(parents=True)
    for file in sorted(source.rglob("*.py")):
        shutil.copyfile(file, target / ".".join(["pyspark", *file.relative_to(source).parts]))


def _pyspark() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise PackageMissing(f"pyspark is not installed; {install('spark')}")
    return Path(spec.origin).parent
