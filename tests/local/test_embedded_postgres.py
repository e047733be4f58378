"""The embedded PostgreSQL: started once, found again, and not misled by what a killed one leaves behind."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import sqlalchemy
from slowness import slowness
from sqlalchemy.pool import NullPool

from txbatch.embedded import postgres
from txbatch.embedded.postgres_process import postmaster, runs_in

PR_SET_CHILD_SUBREAPER = 36
START = "import sys; from pathlib import Path; from txbatch.embedded import postgres; print(postgres.start(Path(sys.argv[1])))"


@pytest.fixture
def new_home(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Makes homes whose servers are stopped at the end."""
    homes: list[Path] = []

    def make(name: str) -> Path:
        homes.append(tmp_path / name)
        return homes[-1]

    yield make
    for home in homes:
        postgres.stop(home)


@pytest.fixture
def home(new_home: Callable[[str], Path]) -> Path:
    return new_home("home")


@pytest.fixture
def nobody_reaps() -> Iterator[None]:
    """Orphans become this process's children, and stay zombies when they die."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    yield
    assert prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) == 0
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def sql(url: str, statement: str) -> list[tuple[object, ...]]:
    engine = sqlalchemy.create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        result = connection.exec_driver_sql(statement)
        return [tuple(row) for row in result] if result.returns_rows else []


def server_pid(home: Path) -> int:
    pid = postmaster(home / "postgres")
    assert pid is not None
    return pid


def kill_server(home: Path) -> int:
    """SIGKILL, and wait until it is dead; being our child, it stays a zombie (fixture nobody_reaps)."""
    pid = server_pid(home)
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return pid


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_server_is_started_once_and_reused(home: Path) -> None:
    assert not postgres.is_running(home)
    url = postgres.start(home)
    first = server_pid(home)
    assert postgres.is_running(home)
    assert postgres.start(home) == url == postgres.url(home)
    assert server_pid(home) == first


def test_data_survives_a_restart(home: Path) -> None:
    sql(postgres.start(home), "CREATE TABLE kept AS SELECT 7 AS value")
    postgres.stop(home)
    assert not postgres.is_running(home)
    assert sql(postgres.start(home), "SELECT value FROM kept") == [(7,)]


def test_stop_without_a_server_does_nothing(home: Path) -> None:
    postgres.stop(home)
    assert not home.exists()
    postgres.start(home)
    postgres.stop(home)
    postgres.stop(home)
    assert not postgres.is_running(home)


def test_the_only_way_in_is_a_socket_in_a_private_folder(home: Path) -> None:
    url = postgres.start(home)
    assert sql(url, "SELECT current_setting('listen_addresses')") == [("",)]
    assert (home / "postgres").stat().st_mode & 0o777 == 0o700
    assert (home / "postgres" / ".s.PGSQL.5432").is_socket()


def test_text_is_utf8_and_sorts_by_bytes(home: Path) -> None:
    url = postgres.start(home)
    settings = "SELECT datcollate, pg_encoding_to_char(encoding) FROM pg_database WHERE datname = current_database()"
    assert sql(url, settings) == [("C", "UTF8")]


def test_the_users_own_postgresql_settings_have_no_influence(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PGPORT": "7777", "PGDATA": "/nowhere", "PGHOST": "nowhere", "PGUSER": "nobody"}.items():
        monkeypatch.setenv(name, value)
    assert sql(postgres.start(home), "SELECT current_user, current_database()") == [("txbatch", "txbatch")]


def test_the_server_is_told_no_secret_of_the_starter(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", "postgresql://user:secret@host/db")
    postgres.start(home)
    assert b"secret" not in Path(f"/proc/{server_pid(home)}/environ").read_bytes()


def test_two_homes_side_by_side(new_home: Callable[[str], Path]) -> None:
    one, other = new_home("one"), new_home("other")
    sql(postgres.start(one), "CREATE TABLE mine ()")
    assert sql(postgres.start(other), "SELECT to_regclass('mine')") == [(None,)]
    postgres.stop(one)
    assert postgres.is_running(other)


def test_started_by_three_processes_at_once(home: Path) -> None:
    command = [sys.executable, "-c", START, str(home)]
    starters = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = [starter.communicate()[0].strip() for starter in starters]
    assert [starter.returncode for starter in starters] == [0, 0, 0]
    assert set(answers) == {postgres.url(home)}
    assert (home / "logs" / "postgres.log").read_text().count("starting PostgreSQL") == 1


def test_the_server_outlives_the_starter_and_its_ctrl_c(home: Path) -> None:
    """In the starter's process group it would die; holding the starter's pipes it would keep `communicate` waiting."""
    command = [sys.executable, "-c", f"{START}; sys.stdout.flush(); sys.stdin.read()", str(home)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, start_new_session=True, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline().strip() == postgres.url(home)
        os.killpg(starter.pid, signal.SIGINT)
        starter.communicate(timeout=30 * slowness())
    assert starter.returncode == -signal.SIGINT
    assert sql(postgres.url(home), "SELECT 1") == [(1,)]


@pytest.mark.usefixtures("nobody_reaps")
def test_a_killed_server_that_nobody_reaped(home: Path) -> None:
    url = postgres.start(home)
    sql(url, "CREATE TABLE kept ()")
    dead = kill_server(home)
    assert state_of(dead) == "Z"
    assert (home / "postgres" / "postmaster.pid").exists()
    assert not postgres.is_running(home)
    assert postgres.start(home) == url
    assert state_of(dead) == "Z"
    assert sql(url, "SELECT to_regclass('kept')::text") == [("kept",)]


def test_a_pid_that_belongs_to_another_program_by_now(home: Path) -> None:
    url = postgres.start(home)
    pid_files = [home / "postgres" / "postmaster.pid", home / "postgres" / ".s.PGSQL.5432.lock"]
    texts = [file.read_text() for file in pid_files]
    postgres.stop(home)
    for file, text in zip(pid_files, texts, strict=True):
        file.write_text("\n".join([str(os.getpid()), *text.splitlines()[1:]]) + "\n")
    assert not postgres.is_running(home)
    postgres.stop(home)  # must not stop the other program: that is this test
    assert sql(postgres.start(home), "SELECT 1") == [(1,)]
    assert postgres.url(home) == url


@pytest.mark.usefixtures("nobody_reaps")
def test_a_session_of_a_killed_server_ends_before_a_new_server_starts(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.start(home)
    engine = sqlalchemy.create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        session = int(connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())
        busy = "DO $$ BEGIN WHILE clock_timestamp() < now() + interval '4 s' LOOP END LOOP; END $$"
        worker = threading.Thread(target=lambda: _ignoring_its_end(connection, busy))
        worker.start()
        at_work = (
            f"SELECT count(*) FROM pg_stat_activity WHERE pid = {session} AND state = 'active' AND query LIKE 'DO%%'"
        )
        with engine.connect() as other:
            while not other.exec_driver_sql(at_work).scalar_one():
                other.rollback()  # a transaction sees the same activity all along
        kill_server(home)
        monkeypatch.setattr(postgres, "_ORPHANS_SECONDS", 0.1)
        with pytest.raises(postgres.EmbeddedPostgresError, match=rf"kill .*\b{session}\b.* and try again"):
            postgres.start(home)
        monkeypatch.undo()
        assert postgres.start(home) == url
        assert not runs_in(session, home / "postgres")
        worker.join()
        connection.invalidate()


def _ignoring_its_end(connection: sqlalchemy.Connection, statement: str) -> None:
    with suppress(sqlalchemy.exc.DBAPIError):
        connection.exec_driver_sql(statement)


def test_a_home_too_deep_for_a_socket(new_home: Callable[[str], Path]) -> None:
    home = new_home("deep" * 20 + "/" + "er" * 40)
    url = postgres.start(home)
    link = Path(sqlalchemy.make_url(url).query["host"])
    assert link.resolve() == home / "postgres"
    assert sql(url, "SELECT 1") == [(1,)]
    postgres.stop(home)
    assert not link.is_symlink()


def test_a_short_name_that_somebody_else_took(new_home: Callable[[str], Path], tmp_path: Path) -> None:
    home = new_home("comma,")  # libpq splits the host at a comma
    postgres.start(home)
    link = Path(sqlalchemy.make_url(postgres.url(home)).query["host"])
    link.unlink()
    link.symlink_to(tmp_path)
    with pytest.raises(postgres.EmbeddedPostgresError, match="is not ours"):
        postgres.start(home)


@pytest.mark.parametrize("name", ["two words", "Ünïcode", "it's $5", "percent%20"])
def test_awkward_paths(new_home: Callable[[str], Path], name: str) -> None:
    assert sql(postgres.start(new_home(name)), "SELECT 1") == [(1,)]


def test_private_parents_stay_private(tmp_path: Path, new_home: Callable[[str], Path]) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    assert sql(postgres.start(new_home("private/home")), "SELECT 1") == [(1,)]
    assert private.stat().st_mode & 0o777 == 0o700
    assert (private / "home" / "postgres").stat().st_uid == os.geteuid()


def test_data_half_made_by_a_killed_starter(home: Path) -> None:
    half = home / "postgres.new"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    assert sql(postgres.start(home), "SELECT 1") == [(1,)]
    assert not half.exists()


def test_root_without_user_namespaces(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "unshare").write_text("#!/bin/sh\necho 'unshare: Operation not permitted' >&2\nexit 1\n")
    (programs / "unshare").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(postgres.EmbeddedPostgresError, match="TXBATCH_DATABASE_URL") as raised:
        postgres.start(home)
    assert "\n" not in str(raised.value)
    assert not (home / "postgres").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_root_in_a_folder_that_only_somebody_else_may_pass(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    os.chown(closed, 12345, 12345)
    with pytest.raises(postgres.EmbeddedPostgresError, match="closed: run as that folder's owner"):
        postgres.start(closed / "home")


def test_data_of_another_user(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    postgres.start(home)
    owner = os.geteuid()
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: owner + 1)
        with pytest.raises(postgres.EmbeddedPostgresError, match=f"belongs to user {owner}, you are {owner + 1}"):
            postgres.start(home)


def test_data_of_another_version(home: Path) -> None:
    postgres.start(home)
    postgres.stop(home)
    version = home / "postgres" / "PG_VERSION"
    text = version.read_text()
    version.write_text("12\n")
    with pytest.raises(postgres.EmbeddedPostgresError, match="made by PostgreSQL 12, the installed one is"):
        postgres.start(home)
    version.write_text(text)
    assert sql(postgres.start(home), "SELECT 1") == [(1,)]


def test_a_server_that_does_not_start_says_why(home: Path) -> None:
    postgres.start(home)
    postgres.stop(home)
    with (home / "postgres" / "postgresql.conf").open("a") as settings:
        settings.write("shared_preload_libraries = 'missing'\n")
    with pytest.raises(postgres.EmbeddedPostgresError, match=r'log ends with\n.*could not access file "missing"'):
        postgres.start(home)


def test_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(postgres.EmbeddedPostgresError, match=r"cannot write .*: Not a directory; set TXBATCH_HOME"):
        postgres.start(tmp_path / "file" / "home")


def test_without_the_package(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "find_spec", lambda name: None)
    with pytest.raises(postgres.EmbeddedPostgresError, match="make setup"):
        postgres.start(home)
