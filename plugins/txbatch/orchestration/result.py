"""The result of a run, in one line. The plugin writes the line into the run's note."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from txbatch import fit
from txbatch.core.text import as_markdown, how_many, one_line

if TYPE_CHECKING:
    from airflow.sdk import Context

    from txbatch.run.advance import Finished

log = logging.getLogger(__name__)
XCOM_KEY = "txbatch"
# How long a task waited for the ledger: the plugin puts the line behind the result.
WAITED_KEY = "txbatch_waited"
# The beginning and the greatest length of a note by txbatch, as the plugin has them.
MARK, NOTE_MAX = "txbatch: ", 900
_DAY = timedelta(days=1)


def tell(context: Context, line: str, until_then: str | None = None) -> None:
    """Leave the line for the plugin, to read at the end of the run. From Airflow 3.4 on, note the line at once, or
    `until_then` in place of the line.
    """
    context["ti"].xcom_push(key=XCOM_KEY, value=line)
    note_now(context, until_then or line)


def note_now(context: Context, line: str) -> None:
    """Write the note of the run while the run works, from Airflow 3.4 on, unless the present note is of a person.

    If Airflow fails here, the run goes on: the plugin writes the note at the end.
    """
    write = fit.note_writer(context["ti"])
    if write is None:
        return
    try:
        present = fit.present_note(context["dag_run"])
        if not present or present.startswith(MARK):
            write(f"{MARK}{as_markdown(one_line(line, NOTE_MAX), NOTE_MAX - len(MARK))}")
    except Exception as error:
        log.debug("the note of the run is not written now: %s", error)


def finished(found: Finished, more: Sequence[Finished]) -> dict[str, Any]:
    """Return the XCom of a commit: the run's batch, and all batches finished on the way."""
    batch = found.batch
    others = [txid for each in more for txid in (*each.adopted, each.batch.txid)]
    if not found.applied:
        log.info("%s: already committed as txid %s", batch.topology, batch.txid)
    adopted = [*found.adopted, *others]
    return {"topology": batch.topology, "txid": batch.txid, "applied": found.applied, "adopted": adopted}


def committed(batch: Mapping[str, Any], zone: str) -> str:
    """Describe a row of `report.batches`: its txid, interval, records, keys and attempts."""
    start, end = batch["interval_start"], batch["interval_end"]
    what = f", {interval(start, end, zone)}" if start and end else ""
    parts = [*_counted(batch), how_many(batch["attempts"], "attempt")]
    return f"txid {batch['txid']}{what}: {', '.join(parts)}"


def _counted(batch: Mapping[str, Any]) -> list[str]:
    keys = batch["keys"] or {}
    told = [how_many(count, "key") + f" of {state}" * (len(keys) > 1) for state, count in keys.items()]
    return [how_many(batch["records"] or 0, "record"), *told]


def restated(batches: Iterable[Mapping[str, Any]]) -> str:
    """Describe rows of `report.batches` counted again by a run: the txids old and new, records and keys."""
    rows = [row for row in batches if row["kind"] == "restate" and row["status"] == "committed"]
    return "; ".join(map(_restated, sorted(rows, key=lambda row: row["txid"])))


def _restated(batch: Mapping[str, Any]) -> str:
    return f"txid {batch['txid']} restates txid {batch['position']}: {', '.join(_counted(batch))}"


def interval(start: datetime, end: datetime, zone: str) -> str:
    """Return an interval in its schedule's zone: `2013-01-04 (America/New_York)` for a day in New York."""
    first, last = (moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None) for moment in (start, end))
    if first.time() == last.time() == datetime.min.time() and last - first == _DAY:
        return f"{first.date().isoformat()} ({zone})"
    end_told = f"{last:%H:%M}" if first.date() == last.date() else last.isoformat(" ", "minutes")
    return f"{first.isoformat(' ', 'minutes')} to {end_told} ({zone})"


def zone_of(schedule: object) -> str:
    """Return the zone of a schedule's intervals. Airflow's own classes hide the zone; the SDK's classes show the zone."""
    zone = getattr(schedule, "timezone", None) or getattr(schedule, "_timezone", None) or "UTC"
    return str(getattr(zone, "name", zone))


def tell_wait(context: Context, line: str) -> None:
    """Leave the line about a wait that is over, in place of the line about the wait, and for the end of the note."""
    tell(context, line)
    context["ti"].xcom_push(key=WAITED_KEY, value=line)
