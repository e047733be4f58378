"""The wheel, built from this checkout and installed beside this environment's packages, in an environment of its own."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from wheel_support import ROOT


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="session")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin/ of an environment with the wheel alone; what the wheel needs is found in this checkout's environment."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(folder, symlinks=True)
    install = ["--python", str(folder / "bin" / "python"), "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True)
    (packages,) = folder.glob("lib/python3.*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (folder / "bin" / "spark-submit").symlink_to(Path(sys.executable).with_name("spark-submit"))
    return folder / "bin"
