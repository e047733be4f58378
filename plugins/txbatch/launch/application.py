"""One Spark application that emits attempt after attempt, instead of one each: several batches cost one start.

Each attempt is still its own txid, fence, manifest and commit, and one that fails leaves the others alone. Folders of
attempts go to the driver over a socket: it runs on this machine, and ends with this process.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Assignment
from txbatch.core.errors import EmissionFailed, TaskEnded, TransientError
from txbatch.core.text import one_line
from txbatch.launch.job_file import Job, check_emission, emits_nothing
from txbatch.launch.submission import Submission, application, is_short

if TYPE_CHECKING:
    from txbatch.core.batch.staging import AttemptFolder

log = logging.getLogger(__name__)
# So long Spark may take to stop once there is no more to do; then it is killed.
_STOP_SECONDS = 60
_SHORT_BYTES = 80
_STAGE_BYTES = 200


class Launched(Protocol):
    """A spark-submit that can be run once."""

    def run(self) -> None:
        """To its end; raises when it fails."""

    def kill(self) -> None:
        """End it at once, if it runs."""


class Application:
    """Emits attempts of one job. Starts Spark for the first, and again when the running application cannot take the next one."""

    def __init__(self, job: Job, home: Path, launch: Callable[[Submission], Launched], *, local: bool) -> None:
        """DefinitionError for a job that emits nothing where Spark runs it."""
        check_emission(job)
        self.job, self.home, self.launch, self.local = job, home, launch, local
        self.killed = False
        self._running: _Running | None = None
        self._ending = list[_Running]()
        self._at_work = ""

    def start(self, plans: Sequence[BatchPlan], code: str) -> None:
        """Start Spark for attempts of these plans, and go on: it is told which, once they have begun. Nothing where it runs."""
        if self._running is None and not self.killed:
            topology = self.job.topology.name
            log.info("%s: starting Spark", topology)
            self._running = self._launched(f"txbatch {topology}", [], code, short=is_short(self.job, *plans))

    def emit(self, folder: AttemptFolder, assignment: Assignment) -> None:
        """Run the job on an attempt's folder. TransientError when the attempt fails, or Spark ends before it is done."""
        self.emit_bulk([(folder, assignment)])
        if folder.read_error() is not None:
            raise EmissionFailed(f"{_name(assignment)}: it failed; Spark's output above says why")

    def emit_bulk(self, attempts: Sequence[tuple[AttemptFolder, Assignment]]) -> None:
        """Run the job once for several attempts; what became of each, its folder says. TransientError when Spark ends before."""
        self.begin(attempts)
        self.wait()

    def begin(self, attempts: Sequence[tuple[AttemptFolder, Assignment]]) -> None:
        """Let that begin, and go on: Spark is another process. `wait` before anything else is emitted, which would end it."""
        folders, first = [folder.uri for folder, _ in attempts], attempts[0][1]
        short = is_short(self.job, *(assignment.plan for _, assignment in attempts))
        if self._running is None or not self._running.takes(folders, first.code, short):
            self.close()
            self._running = self._started(folders, first, short)
        self._at_work = _name(first)

    def wait(self) -> None:
        """Until what was begun is done. TransientError when Spark ends before."""
        if self._running is None:
            raise TaskEnded(f"{self._at_work}: it was ended before it was done")
        try:
            if not self._running.wait():
                raise emits_nothing(self.job)
        except TransientError as error:
            raise EmissionFailed(f"{self._at_work}: {error}") from error

    @property
    def stage(self) -> str:
        """Which stages of Spark are at work, with how many of their tasks are done; nothing where that is not known."""
        return self._running.stage if self._running is not None and self._running.busy else ""

    def kill(self) -> None:
        """End it in the middle of what it does, for good: nothing is started any more."""
        self.killed = True
        for running in self._all:
            running.launched.kill()

    def let_end(self) -> None:
        """Let Spark end beside what comes, if it runs; another starts for what is emitted all the same."""
        running, self._running = self._running, None
        if running is not None:
            running.let_end()
            self._ending.append(running)

    def close(self) -> None:
        """End it; in the middle of an attempt, it is killed."""
        ending, self._running, self._ending = self._all, None, []
        for running in ending:
            running.close()

    @property
    def _all(self) -> list[_Running]:
        return [*self._ending, *([] if self._running is None else [self._running])]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _started(self, folders: Sequence[str], assignment: Assignment, short: bool) -> _Running:
        if self.killed:
            raise TaskEnded(f"{assignment.topology} {assignment.attempt}: this task is being ended")
        log.info("%s %s: starting Spark", assignment.topology, assignment.attempt)
        return self._launched(_name(assignment), folders, assignment.code, short=short)

    def _launched(self, name: str, folders: Sequence[str], code: str, *, short: bool) -> _Running:
        what = application(self.job, name, folders, self.home, local=self.local, short=short)
        return _Running(what, self.launch, code, short, busy=bool(folders))


class _Running:
    """A spark-submit, run by a thread of its own, with the driver at the other end of a socket."""

    def __init__(
        self, what: Submission, launch: Callable[[Submission], Launched], code: str, short: bool, *, busy: bool
    ) -> None:
        self.code, self.short, self.busy = code, short, busy
        self.failure: BaseException | None = None
        self._heard = False
        self._folder, self._scratch = _folder("txbatch-"), _folder("spark-")
        self._socket, self._stages = f"{self._folder.name}/socket", Path(self._scratch.name, "stages.txt")
        what = replace(what, environment=_local_dirs(self._scratch.name) | dict(what.environment))
        self._listener = Listener(self._socket, "AF_UNIX")
        self._connection: Connection | None = None
        more = "--stages", str(self._stages), "--socket", self._socket
        self.launched = launch(replace(what, arguments=(*what.arguments, *more)))
        self._thread = threading.Thread(target=copy_context().run, args=(self._run,), name="spark-submit", daemon=True)
        self._thread.start()

    @property
    def stage(self) -> str:
        """Which stages are at work, as the driver wrote it last."""
        try:
            with self._stages.open("rb") as file:
                return one_line(file.read(_STAGE_BYTES).decode(errors="replace"))
        except OSError:
            return ""

    def takes(self, folders: Sequence[str], code: str, short: bool) -> bool:
        """Offer attempts, by their folders, to the running application. False: it did not start, launch a new application.

        It accepts only while idle, alive, with the same job code, and not a long job where it was launched for short ones.
        """
        if self.busy or self.code != code or (self.short and not short):
            return False
        self.busy = True
        try:
            self._connected().send_bytes("\n".join(folders).encode())
            self._hear(b"begun")
        except (EOFError, OSError):
            self.busy = False
        return self.busy

    def wait(self) -> bool:
        """Until the attempt is done, as its folder says; False when Spark ended well, and never said a word.

        TransientError when it ended before it was done.
        """
        try:
            self._hear(b"done")
        except (EOFError, OSError) as error:
            self._end_after(error)
            if self.failure is None and not self._heard:
                return False
            raise EmissionFailed(str(self.failure or "Spark ended before it was done")) from self.failure
        self.busy, self._heard = False, True
        return True

    def _hear(self, word: bytes) -> None:
        """Wait for a word of the driver. OSError if it says another one, EOFError if it is gone."""
        said = self._connected().recv_bytes(len(word))
        if said != word:
            raise OSError(f"the driver said {said!r}, and not {word!r}")

    def _end_after(self, error: Exception) -> None:
        """Of a driver that speaks no more, or not as it should."""
        if not isinstance(error, EOFError | ConnectionError):
            self.failure = error
            self.launched.kill()
        self._thread.join()

    def let_end(self) -> None:
        """Tell it that nothing more comes."""
        self._close_socket()
        if self._connection is not None:
            self._connection.close()

    def close(self) -> None:
        """End it, gently when it has nothing to do, and waits to be told."""
        gently = self._connection is not None and not self.busy
        self.let_end()
        self._thread.join(_STOP_SECONDS if gently else 0)
        while self._thread.is_alive():
            self.launched.kill()
            self._thread.join(1)
        self._scratch.cleanup()

    def _run(self) -> None:
        try:
            self.launched.run()
        except BaseException as error:
            self.failure = self.failure or error
        with suppress(OSError):  # nobody else may come any more
            Client(self._socket).close()

    def _connected(self) -> Connection:
        """Wait until the driver connects. If Spark ended first, the launching thread connects and hangs up: EOFError."""
        if self._connection is None:
            self._connection = self._listener.accept()
            self._close_socket()
        return self._connection

    def _close_socket(self) -> None:
        self._listener.close()
        self._folder.cleanup()


def _name(assignment: Assignment) -> str:
    return f"txbatch {assignment.topology} {assignment.attempt}"


def _folder(prefix: str) -> TemporaryDirectory[str]:
    """One for this user alone, where a socket's path is short enough (107 bytes)."""
    usual = gettempdir()
    short = len(os.fsencode(usual)) <= _SHORT_BYTES
    return TemporaryDirectory(prefix=prefix, dir=usual if short else "/tmp", ignore_cleanup_errors=True)  # noqa: S108


def _local_dirs(scratch: str) -> dict[str, str]:
    """Where Spark keeps its blocks, which everybody could read in /tmp, unless the user says where."""
    return {} if "SPARK_LOCAL_DIRS" in os.environ else {"SPARK_LOCAL_DIRS": scratch}
