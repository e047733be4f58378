"""Wait for the ledger, or for a whole source, if neither answers: the task goes on by itself.

Airflow's retries are over after half a minute. An outage of the ledger would fail every run of that minute.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import AirflowException

from txbatch.core.errors import DOES_NOT_ANSWER, PartitionUnreadable, TerminalError
from txbatch.core.text import one_line
from txbatch.orchestration import result
from txbatch.orchestration.airflow import ledger_away
from txbatch.orchestration.trigger import AskAgainTrigger, LedgerTrigger
from txbatch.orchestration.waiting import ASK_AGAIN_PARAM, LEDGER_TIMEOUT_PARAM, Deadlines

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)
# Since when the ledger is away, beside the deadlines.
_SINCE = "ledger_away_since"
_ASK_AGAIN_SECONDS = 60.0
# A source is asked again after a part of the outage until now: an attempt of Spark is dear.
_PART = 8
_WHY_MAX = 300


@contextmanager
def outages_waited_for(
    name: str, context: Context, event: Mapping[str, Any] | None, of_waits: dict[str, str]
) -> Iterator[None]:
    """Context manager. If the block fails because the ledger or a source is away, defer the task.

    An error that no retry helps is raised. `event` is the end of the wait before, `of_waits` has the deadlines of the try.
    """
    deadlines = Deadlines(name, context, of_waits)
    if event and event.get("answers"):
        _over(deadlines)
    try:
        yield
    except (TerminalError, AirflowException):
        raise
    except Exception as error:
        if why := ledger_away():
            _wait_for_ledger(deadlines, why)
        if isinstance(error, PartitionUnreadable) and DOES_NOT_ANSWER in error.text:
            _wait_for_source(deadlines, error.text)
        raise


def _over(deadlines: Deadlines) -> None:
    """Forget the deadline: the next outage has its own. Leave the length of the outage for the note of the run."""
    deadlines.of_waits.pop(LEDGER_TIMEOUT_PARAM, None)
    since = deadlines.of_waits.pop(_SINCE, None)
    if since is not None:
        told = f"waited {_length(since)} for the ledger"
        log.info("%s: %s, which answers again", deadlines.name, told)
        result.tell_wait(deadlines.context, told)


def _wait_for_ledger(deadlines: Deadlines, why: str) -> NoReturn:
    why = one_line(why, _WHY_MAX)
    now = datetime.now(UTC)
    since = datetime.fromisoformat(deadlines.of_waits.setdefault(_SINCE, now.isoformat()))
    left = deadlines.left(LEDGER_TIMEOUT_PARAM, f"the ledger does not answer ({why}); clear this task once it does")
    told = (
        f"waits for the ledger since {since:%H:%M} UTC, and goes on by itself, until {deadlines.latest(LEDGER_TIMEOUT_PARAM)} "
        f"at the latest: the ledger does not answer ({why})"
    )
    _say(deadlines, told)
    deadlines.defer(LedgerTrigger(left.total_seconds()), left)


def _wait_for_source(deadlines: Deadlines, why: str) -> NoReturn:
    left = deadlines.left(LEDGER_TIMEOUT_PARAM, f"{one_line(why, _WHY_MAX)}; clear this task once the source answers")
    _say(
        deadlines,
        f"waits for the source, and goes on by itself, until {deadlines.latest(LEDGER_TIMEOUT_PARAM)} at the latest: "
        f"{one_line(why, _WHY_MAX)}",
    )
    again = float((deadlines.context.get("params") or {}).get(ASK_AGAIN_PARAM, _ASK_AGAIN_SECONDS))
    waited = deadlines.limit(LEDGER_TIMEOUT_PARAM) - left
    seconds = max(again, waited.total_seconds() / _PART)
    deadlines.defer(AskAgainTrigger(min(seconds, left.total_seconds())), left)


def _say(deadlines: Deadlines, told: str) -> None:
    log.warning("%s: %s", deadlines.name, told)
    result.tell(deadlines.context, told)


def _length(since: str) -> str:
    """Return the time since a moment, in words.

    >>> _length((datetime.now(UTC) - timedelta(minutes=12, seconds=3)).isoformat())
    '12 min'
    """
    seconds = round((datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds())
    return f"{seconds} s" if seconds < 120 else f"{timedelta(seconds=seconds) // timedelta(minutes=1)} min"
