"""A Spark application that emits attempt after attempt: several batches cost one start.

Each attempt still has a txid, fence, manifest and commit of its own; a failing attempt leaves the others alone. A socket
sends the folders of attempts to the driver: the driver runs on the same machine, and ends with the calling process.
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
    """A spark-submit, to be run once."""

    def run(self) -> None:
        """Run to the end; raise if spark-submit fails."""

    def kill(self) -> None:
        """End a running spark-submit at once."""


class Application:
    """Emits attempts of a job. Starts Spark for the first attempt, and again if the running application cannot take the next."""

    def __init__(self, job: Job, home: Path, launch: Callable[[Submission], Launched], *, local: bool) -> None:
        """Raise DefinitionError if the job would emit nothing inside Spark."""
        check_emission(job)
        self.job, self.home, self.launch, self.local = job, home, launch, local
        self.killed = False
        self._running: _Running | None = None
        self._ending = list[_Running]()
        self._at_work = ""

    def start(self, plans: Sequence[BatchPlan], code: str) -> None:
        """Start Spark for attempts of the plans, and return; the attempts follow later. Do nothing if Spark runs."""
        if self._running is None and not self.killed:
            topology = self.job.topology.name
            log.info("%s: starting Spark", topology)
            self._running = self._launched(f"txbatch {topology}", [], code, short=is_short(self.job, *plans))

    def emit(self, folder: AttemptFolder, assignment: Assignment) -> None:
        """Run the job on an attempt's folder. Raise TransientError if the attempt fails, or Spark ends first."""
        self.emit_bulk([(folder, assignment)])
        if folder.read_error() is not None:
            raise EmissionFailed(f"{_name(assignment)}: it failed; Spark's output above says why")

    def emit_bulk(self, attempts: Sequence[tuple[AttemptFolder, Assignment]]) -> None:
        """Run the job once for several attempts; each folder holds the attempt's result. Raise TransientError if Spark ends
        first.
        """
        self.begin(attempts)
        self.wait()

    def begin(self, attempts: Sequence[tuple[AttemptFolder, Assignment]]) -> None:
        """Begin attempts and return: Spark is another process. Call `wait` before the next `begin`, which would end the
        attempts.
        """
        folders, first = [folder.uri for folder, _ in attempts], attempts[0][1]
        short = is_short(self.job, *(assignment.plan for _, assignment in attempts))
        if self._running is None or not self._running.takes(folders, first.code, short):
            self.close()
            self._running = self._started(folders, first, short)
        self._at_work = _name(first)

    def wait(self) -> None:
        """Wait until the begun attempts are done. Raise TransientError if Spark ends first."""
        if self._running is None:
            raise TaskEnded(f"{self._at_work}: it was ended before it was done")
        try:
            if not self._running.wait():
                raise emits_nothing(self.job)
        except TransientError as error:
            raise EmissionFailed(f"{self._at_work}: {error}") from error

    @property
    def stage(self) -> str:
        """Return the stages of Spark at work, with the numbers of finished tasks; "" if unknown."""
        return self._running.stage if self._running is not None and self._running.busy else ""

    def kill(self) -> None:
        """Kill Spark in the middle of any work, for good: the application starts nothing more."""
        self.killed = True
        for running in self._all:
            running.launched.kill()

    def let_end(self) -> None:
        """Let a running Spark end in the background; later attempts start another Spark."""
        running, self._running = self._running, None
        if running is not None:
            running.let_end()
            self._ending.append(running)

    def close(self) -> None:
        """End Spark; in the middle of an attempt, Spark is killed."""
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
    """A spark-submit in a thread, with the driver at the other end of a socket."""

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
        """Return the stages at work, as last written by the driver."""
        try:
            with self._stages.open("rb") as file:
                return one_line(file.read(_STAGE_BYTES).decode(errors="replace"))
        except OSError:
            return ""

    def takes(self, folders: Sequence[str], code: str, short: bool) -> bool:
        """Offer attempts, by folder, to the running application. False: nothing started, launch a new application.

        The application accepts only while idle, alive, and with the same job code. An application for short jobs accepts no
        long job.
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
        """Wait until the attempt is done: the folder holds the result. False if Spark ended well without a word.

        Raise TransientError if Spark ended before the attempt was done.
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
        """Wait for a word of the driver. Raise OSError for another word, EOFError if the driver is gone."""
        said = self._connected().recv_bytes(len(word))
        if said != word:
            raise OSError(f"the driver said {said!r}, and not {word!r}")

    def _end_after(self, error: Exception) -> None:
        """Wait for the end of a silent driver; kill a driver with a wrong answer."""
        if not isinstance(error, EOFError | ConnectionError):
            self.failure = error
            self.launched.kill()
        self._thread.join()

    def let_end(self) -> None:
        """Close the connection: the driver ends without further attempts."""
        self._close_socket()
        if self._connection is not None:
            self._connection.close()

    def close(self) -> None:
        """End spark-submit: gently if idle and connected, by a kill if not."""
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
    """Return a folder for the user alone, with a path short enough for a socket (107 bytes)."""
    usual = gettempdir()
    short = len(os.fsencode(usual)) <= _SHORT_BYTES
    return TemporaryDirectory(prefix=prefix, dir=usual if short else "/tmp", ignore_cleanup_errors=True)  # noqa: S108


def _local_dirs(scratch: str) -> dict[str, str]:
    """Return a private place for Spark's blocks, unless the user sets a place: everybody could read blocks in /tmp."""
    return {} if "SPARK_LOCAL_DIRS" in os.environ else {"SPARK_LOCAL_DIRS": scratch}
