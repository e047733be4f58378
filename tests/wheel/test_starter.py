"""`txbatch init`: a project of the user's own, made by an installed wheel, that works."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from wheel_support import call

from txbatch import __version__
from txbatch.cli.main import main
from txbatch.settings import project_root

NAMES = ("shop", "mein Laden", "Lädchen", "-x")


@pytest.fixture(scope="module")
def shop(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("projects")
    made = call([str(environment / "txbatch"), "init", "shop"], folder)
    assert made.returncode == 0, made.stderr
    return folder / "shop"


def test_it_has_what_its_user_owns_and_nothing_of_this_package(shop: Path, wheel: Path) -> None:
    files = {str(file.relative_to(shop)) for file in shop.rglob("*") if file.is_file()}
    assert files == {
        *(".gitignore", "Makefile", "README.md", "requirements.txt", "docker-compose.yml", "reports/turnover.sql"),
        *("postgres/10-roles.sql", "postgres/20-passwords.sql"),
        *("jobs/sales.py", "dags/sales.py", "tests/test_job.py", "tests/test_sales.py"),
        *(f"data/sales/2026-01-0{day}.csv" for day in (1, 2, 3)),
    }
    assert (shop / "README.md").read_text().startswith("# shop\n")
    wanted = [f"--find-links {wheel.parent.as_uri()}", f"txbatch[airflow,spark,embedded]=={__version__}", "pytest"]
    assert (shop / "requirements.txt").read_text().splitlines() == wanted


def test_its_dag_and_job_load(environment: Path, shop: Path) -> None:
    told = call([str(environment / "txbatch"), "doctor"], shop / "jobs", TXBATCH_DATABASE_URL="postgresql://nobody@/x")
    wrapped = "".join(told.stdout.split())
    assert f"1DAGindags/and1jobinjobs/of{shop}load" in wrapped, told.stdout


@pytest.mark.timeout(300)
def test_its_tests_pass(environment: Path, shop: Path) -> None:
    told = call([str(environment / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"], shop)
    assert told.returncode == 0, told.stdout + told.stderr


def test_down_fails_where_its_environment_is_not_active_and_something_may_run(tmp_path: Path) -> None:
    shutil.copy(project_root() / "starter" / "Makefile", tmp_path)
    down = ["make", "--no-print-directory", "down", "VIRTUAL_ENV="]
    assert call(down, tmp_path).stdout == "nothing is set up in .venv\n"
    (tmp_path / ".txbatch").mkdir()
    told = call(down, tmp_path)
    assert (told.returncode, "activate the environment" in told.stderr) == (2, True)


@pytest.mark.skipif(not shutil.which("docker-compose"), reason="no docker-compose here")
def test_compose_takes_its_file_with_the_passwords_that_make_makes(shop: Path, tmp_path: Path) -> None:
    command, folder = ["docker-compose", "config", "--quiet"], shutil.copytree(shop, tmp_path / "shop")
    assert "run make passwords" in call(command, folder).stderr
    assert call(["make", "passwords"], folder).returncode == 0
    told = call(command, folder)
    assert told.returncode == 0, told.stderr


@pytest.mark.parametrize("name", NAMES)
def test_names(name: str, tmp_path: Path) -> None:
    made = CliRunner().invoke(main, ["init", "--", str(tmp_path / "new" / name)])
    assert made.exit_code == 0, made.output
    assert f"\nNext\n  cd {shlex.quote(str(tmp_path / 'new' / name))}\n  make demo " in made.stdout
    assert (tmp_path / "new" / name / "README.md").read_text(encoding="utf-8").startswith(f"# {name}\n")
    assert [each.name for each in (tmp_path / "new").iterdir()] == [name]


def refusal(folder: Path) -> str:
    made = CliRunner().invoke(main, ["init", str(folder)])
    assert (made.exit_code, made.stdout) == (1, "")
    line, *advice = made.stderr.splitlines()
    assert any(each.startswith("  Next: txbatch ") for each in advice)
    return line


def test_what_is_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert CliRunner().invoke(main, ["init", str(tmp_path / "empty")]).exit_code == 0
    assert "is not empty, .gitignore, Makefile, README.md, dags, data and 6 more is in the way" in refusal(
        tmp_path / "empty"
    )
    (tmp_path / "file").touch()
    assert f"{tmp_path}/file is a file: name another folder" in refusal(tmp_path / "file")
    assert "cannot make a project" in refusal(tmp_path / "file" / "below")


@pytest.mark.parametrize("name", ["a,b", "a*", "a\nb", "x" * 300])
def test_a_name_that_cannot_be(name: str, tmp_path: Path) -> None:
    assert refusal(tmp_path / name).startswith("txbatch: TX")
    assert list(tmp_path.iterdir()) == []


def test_a_wheel_that_a_checkout_has_not_made_yet_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("txbatch.cli.project.starter.project_root", lambda: tmp_path)
    CliRunner().invoke(main, ["init", str(tmp_path / "early")])
    (told,) = caplog.messages
    assert told.startswith(f"{tmp_path}/dist has no wheel of txbatch {__version__}")
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / f"txbatch-{__version__}-py3-none-any.whl").touch()
    CliRunner().invoke(main, ["init", str(tmp_path / "late")])
    assert caplog.messages == [told]
