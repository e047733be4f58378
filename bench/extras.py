"""What the contest needs beyond the product: other people's tools, kept away from the product's environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from functools import cache
from pathlib import Path

from bench.measure import LeftOut
from txbatch import settings
from txbatch.embedded import java

HOME = settings.home() / "bench"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
JDBC = "org.postgresql:postgresql:42.7.13"
JDBC_NEEDS_NOT = "org.checkerframework:checker-qual"  # annotations for compilers
DEBIAN_JAR = Path("/usr/share/java/postgresql.jar")
MAVEN_JAR = Path.home() / ".m2/repository/org/postgresql/postgresql/42.7.13/postgresql-42.7.13.jar"
PROGRAMS = Path(__file__).with_name("programs")


@cache
def python() -> Path:
    """The Python that has requirements.txt, made where it is not there. LeftOut when it cannot be made."""
    home = HOME / "venv"
    stamp, wanted = home / "requirements.txt", REQUIREMENTS.read_text()
    found = home / "bin" / "python"
    if not stamp.exists() or stamp.read_text() != wanted:
        print("    (installing bench/requirements.txt, apart)", flush=True)
        venv.create(home, clear=True, with_pip=True)
        options = ("--quiet", "--no-input", "--disable-pip-version-check", "--no-deps")
        done = subprocess.run(
            [str(found), "-m", "pip", "install", *options, "-r", str(REQUIREMENTS)], capture_output=True, check=False
        )
        if done.returncode:
            raise LeftOut("bench/requirements.txt cannot be installed here")
        stamp.write_text(wanted)
    return found


@cache
def jdbc_jar() -> Path:
    """PostgreSQL's JDBC driver: Debian's, else Maven's, else what Spark's `--packages` finds. LeftOut when there is none."""
    for jar in (DEBIAN_JAR, MAVEN_JAR):
        if jar.exists():
            return jar
    ivy = HOME / "ivy"
    jar = ivy / "jars" / f"{JDBC.replace(':', '_', 1).replace(':', '-')}.jar"
    if not jar.exists():
        packages = ("--packages", JDBC, "--exclude-packages", JDBC_NEEDS_NOT, "--conf", f"spark.jars.ivy={ivy}")
        command = [spark_submit(), *packages, str(Path(__file__).with_name("trivial_job.py"))]
        subprocess.run(command, env=spark_environment(), capture_output=True, check=False)
    if not jar.exists():
        shutil.rmtree(ivy, ignore_errors=True)
        raise LeftOut(
            f"no Maven repository within reach has {JDBC}, and Debian's libpostgresql-jdbc-java is not installed; "
            f"mvn dependency:get -Dartifact={JDBC} gets it"
        )
    return jar


def spark_submit() -> str:
    """The spark-submit of this environment."""
    return str(Path(sys.executable).with_name("spark-submit"))


def spark_environment() -> dict[str, str]:
    """What a stock spark-submit needs to start here."""
    import pyspark

    places = {"JAVA_HOME": str(java.java_home(settings.home())), "SPARK_HOME": str(Path(pyspark.__file__).parent)}
    return {**os.environ, **places, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
