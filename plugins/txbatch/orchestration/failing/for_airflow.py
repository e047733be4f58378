"""Errors of txbatch for Airflow: fail at once or be tried again, with the advice in the log and a note for the run."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import AirflowFailException

from txbatch.core.errors import SpoutFailed, TerminalError, TxbatchError
from txbatch.error_pages import advise
from txbatch.orchestration import result
from txbatch.orchestration.failing import notes

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)


def failing_as_airflow(context: Context, **held: object) -> FailingAsAirflow:
    """Context manager. Leave each error for the note of the run, with the advice in the log, and raise the error for Airflow.

    If a retry cannot help, fail the task at once; Airflow retries after all other errors. `held` has names for the advice:
    topology, job.
    """
    return FailingAsAirflow(context, held)


@dataclass(frozen=True, slots=True)
class FailingAsAirflow:
    """Context manager of `failing_as_airflow`. The traceback printed by Airflow ends with the text of the error.

    Airflow prints the frames of an error, then each error behind. Frames of txbatch tell a reader nothing beyond the text,
    and would follow the text: at the level DEBUG the log has all frames, before the text.
    """

    context: Context
    held: dict[str, object]

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, frames: object) -> None:
        if isinstance(error, TxbatchError):
            self._tell(error)
            raised = AirflowFailException(str(error)) if isinstance(error, TerminalError) else error
            raise raised.with_traceback(None) from None

    def _tell(self, error: TxbatchError) -> None:
        """Leave the note of the run, and log the advice. The error is raised even if the note fails."""
        log.debug("%s", error, exc_info=error)
        if isinstance(error, SpoutFailed) and error.__cause__ is not None:  # with the frames of the user's own code
            log.error("%s", error.__cause__, exc_info=error.__cause__)
        with suppress(Exception):
            error.about = {**self.held, **error.about}
            advice = advise(error, self.held, in_airflow=True)
            for line in (str(error), *advice.lines()):
                log.error("%s", line)
            result.tell(self.context, notes.note(error, advice, *self._tries))

    @property
    def _tries(self) -> tuple[int, int]:
        """The number of the present try, and the number of tries that Airflow makes."""
        ti = self.context["ti"]
        return getattr(ti, "try_number", 1), getattr(ti, "max_tries", 0) + 1
