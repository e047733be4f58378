"""`make down`, `txbatch down`: end the Airflow and the PostgreSQL of this home, started by any program."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from txbatch import settings
from txbatch.core.errors import TxbatchError
from txbatch.embedded import postgres
from txbatch.embedded.locks import lock
from txbatch.local import airflow
from txbatch.local.airflow import LocalAirflowError
from txbatch.local.looking import looks
from txbatch.places import command

_LOCK = "up.lock"
_SECONDS = 60
_POLL_SECONDS = 0.05


def main() -> int:
    """Return exit code 0 if nothing is left running, 1 if a process does not end."""
    try:
        home = settings.home()
        ran = postgres.is_running(home)  # `up` stops PostgreSQL at its own end
        ended = airflow.stop(home)
        _wait_for_up(home)
        postgres.stop(home)
    except (TxbatchError, TimeoutError, OSError) as error:
        print(f"{command('down')}: {error}", file=sys.stderr)
        return 1
    print(f"stopped {_said(ended, ran)}")
    return 0


def _said(airflow: int, postgres: bool) -> str:
    """Describe the stopped processes."""
    if postgres and not airflow:
        return "PostgreSQL"
    return f"{airflow} processes of Airflow{' and PostgreSQL' if postgres else ''}"


@contextlib.contextmanager
def only_up(home: Path, complaint: str = "it runs already in {home}: use it") -> Iterator[None]:
    """Context manager. Prevent a second `up` or demo until the block ends. Raise LocalAirflowError if one runs."""
    home.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(lock(home / _LOCK, wait=False))
        except BlockingIOError:
            raise LocalAirflowError(f"{complaint.format(home=home)}, or stop it with `{command('down')}`") from None
        yield


def _wait_for_up(home: Path) -> None:
    """Wait for the end of `up` after the end of its Airflow. Raise LocalAirflowError if `up` goes on."""
    for _ in looks(_SECONDS, _POLL_SECONDS):
        if not (home / _LOCK).exists():
            return
        with contextlib.suppress(LocalAirflowError), only_up(home):
            return
    raise LocalAirflowError(f"`{command('up')}` in {home} goes on after {_SECONDS} s; press Ctrl-C there")


if __name__ == "__main__":
    raise SystemExit(main())
