"""Wait for the ledger, or for a whole source, if neither answers: the task goes on by itself.

Airflow's retries are over after half a minute. An outage of the ledger would fail every run of that minute.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import AirflowException

from txbatch.core.errors import SourceAway, TerminalError
from txbatch.core.text import one_line
from txbatch.orchestration import result
from txbatch.orchestration.airflow import AIRFLOW_LEASE_SECONDS, ledger_away, run_name
from txbatch.orchestration.failing.notes import without_server
from txbatch.orchestration.trigger import AskAgainTrigger, LedgerTrigger, compare_versions
from txbatch.orchestration.waiting import ASK_AGAIN_PARAM, LEDGER_TIMEOUT_PARAM, Deadlines

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)
# Since when the ledger is away, beside the deadlines.
_SINCE = "ledger_away_since"
# The deadline for a source: as long as the ledger's, and of its own.
_SOURCE = "source_timeout"
# A task that has worked longer has met the ledger: the outage before is over. An attempt may meet its source at the end alone.
_WORKED = timedelta(minutes=10)
_ASK_AGAIN_SECONDS = 60.0
# No longer sleep for a source: each try of the task renews the lease of its batch.
_SLEEP_MAX = AIRFLOW_LEASE_SECONDS / 3
# A source is asked again after a part of the outage until now: an attempt of Spark is dear.
_PART = 8
_WHY_MAX = 300


@contextmanager
def outages_waited_for(
    name: str, context: Context, event: Mapping[str, Any] | None, of_waits: dict[str, str]
) -> Iterator[None]:
    """Context manager. If the block fails because the ledger or a source is away, defer the task.

    An error that no retry helps is raised. `event` is the end of the wait before, `of_waits` has the deadlines of the try.

    The triggerer may see a ledger that the worker does not see. The worker alone decides about the end of an outage.
    """
    deadlines, began = Deadlines(name, context, of_waits), datetime.now(UTC)
    compare_versions(name, event)
    if event is not None:  # else the note would go on to say that the run waits
        result.note_now(context, "goes on after a wait")
    if _SINCE in of_waits and ledger_away() is None:
        _over(deadlines)
    try:
        yield
    except (TerminalError, AirflowException):
        raise
    except Exception as error:
        if (worked := datetime.now(UTC) - began) > _WORKED:
            _forget(deadlines, (_SINCE, LEDGER_TIMEOUT_PARAM))
            deadlines.put_off(worked, (_SOURCE,))
        if why := ledger_away():
            _wait_for_ledger(deadlines, why, seen=bool(event and event.get("answers")))
        if isinstance(error, SourceAway):
            _wait_for_source(deadlines, error.text)
        raise


def _over(deadlines: Deadlines) -> None:
    """Forget the deadline: the next outage has its own. Put off all other deadlines by the length of the outage, and leave
    the length for the note of the run.
    """
    since = deadlines.of_waits.pop(_SINCE)
    deadlines.of_waits.pop(LEDGER_TIMEOUT_PARAM, None)
    deadlines.put_off(datetime.now(UTC) - datetime.fromisoformat(since))
    told = f"waited {_length(since)} for the ledger"
    log.info("%s: %s, which answers again", deadlines.name, told)
    result.tell_wait(deadlines.context, told)


def source_met(of_waits: dict[str, str]) -> None:
    """Forget the deadline for the source: a batch is committed, and the next outage has its own deadline."""
    of_waits.pop(_SOURCE, None)


def _forget(deadlines: Deadlines, keys: Sequence[str]) -> None:
    """Forget the deadlines of an outage that is over."""
    for key in keys:
        deadlines.of_waits.pop(key, None)


def _wait_for_ledger(deadlines: Deadlines, why: str, *, seen: bool) -> NoReturn:
    """Wait until the triggerer sees the ledger; a while, if the triggerer has `seen` the ledger and the worker has not."""
    now, why = datetime.now(UTC), f"the ledger does not answer ({why})"
    since = datetime.fromisoformat(deadlines.of_waits.setdefault(_SINCE, now.isoformat()))
    left = deadlines.left(LEDGER_TIMEOUT_PARAM, f"{_for_notes(why)}; clear this task once it does")
    latest = deadlines.latest(LEDGER_TIMEOUT_PARAM)
    _say(
        deadlines,
        f"waits for the ledger since {since:%H:%M} UTC, and goes on by itself, until {latest} at the latest",
        why,
    )
    seconds = left.total_seconds()
    least = min(_ASK_AGAIN_SECONDS, seconds) if seen else 0.0
    deadlines.defer(LedgerTrigger(seconds, deadlines.name, run_name(deadlines.context), least), left)


def _wait_for_source(deadlines: Deadlines, why: str) -> NoReturn:
    left = deadlines.left(LEDGER_TIMEOUT_PARAM, f"{_for_notes(why)}; clear this task once the source answers", _SOURCE)
    latest = deadlines.latest(_SOURCE)
    _say(deadlines, f"waits for the source, and goes on by itself, until {latest} at the latest", why)
    again = float((deadlines.context.get("params") or {}).get(ASK_AGAIN_PARAM, _ASK_AGAIN_SECONDS))
    waited = deadlines.limit(LEDGER_TIMEOUT_PARAM) - left
    seconds = max(again, waited.total_seconds() / _PART)
    deadlines.defer(AskAgainTrigger(min(seconds, _SLEEP_MAX, left.total_seconds())), left)


def _say(deadlines: Deadlines, told: str, why: str) -> None:
    """Log the wait, and leave a note without the server."""
    log.warning("%s: %s: %s", deadlines.name, told, one_line(why))
    result.tell(deadlines.context, f"{told}: {_for_notes(why)}")


def _for_notes(why: str) -> str:
    return one_line(without_server(why), _WHY_MAX)


def _length(since: str) -> str:
    """Return the time since a moment, in words.

    >>> _length((datetime.now(UTC) - timedelta(minutes=12, seconds=3)).isoformat())
    '12 min'
    """
    seconds = round((datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds())
    return f"{seconds} s" if seconds < 120 else f"{timedelta(seconds=seconds) // timedelta(minutes=1)} min"
