"""What came of a run, in one line: the plugin makes it the run's note."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from txbatch.core.text import how_many

if TYPE_CHECKING:
    from airflow.sdk import Context

XCOM_KEY = "txbatch"
_DAY = timedelta(days=1)


def tell(context: Context, line: str) -> None:
    """Leave the line where the plugin finds it once the run is over."""
    context["ti"].xcom_push(key=XCOM_KEY, value=line)


def committed(batch: Mapping[str, Any], zone: str) -> str:
    """A row of `report.batches`: its txid, what it counted, its records, keys and attempts."""
    start, end = batch["interval_start"], batch["interval_end"]
    what = f", {interval(start, end, zone)}" if start and end else ""
    parts = [*_counted(batch), how_many(batch["attempts"], "attempt")]
    return f"txid {batch['txid']}{what}: {', '.join(parts)}"


def _counted(batch: Mapping[str, Any]) -> list[str]:
    keys = batch["keys"] or {}
    told = [how_many(count, "key") + f" of {state}" * (len(keys) > 1) for state, count in keys.items()]
    return [how_many(batch["records"] or 0, "record"), *told]


def restated(batches: Iterable[Mapping[str, Any]]) -> str:
    """The rows of `report.batches` that a run counted again: which txid stands for which, with records and keys."""
    rows = [row for row in batches if row["kind"] == "restate" and row["status"] == "committed"]
    return "; ".join(map(_restated, sorted(rows, key=lambda row: row["txid"])))


def _restated(batch: Mapping[str, Any]) -> str:
    return f"txid {batch['txid']} restates txid {batch['position']}: {', '.join(_counted(batch))}"


def interval(start: datetime, end: datetime, zone: str) -> str:
    """An interval as its schedule's zone has it: `2013-01-04 (America/New_York)` for a day there."""
    first, last = (moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None) for moment in (start, end))
    if first.time() == last.time() == datetime.min.time() and last - first == _DAY:
        return f"{first.date().isoformat()} ({zone})"
    end_told = f"{last:%H:%M}" if first.date() == last.date() else last.isoformat(" ", "minutes")
    return f"{first.isoformat(' ', 'minutes')} to {end_told} ({zone})"


def zone_of(schedule: object) -> str:
    """The zone in which a schedule cuts its intervals: Airflow's own classes hide the one that those of its SDK show."""
    zone = getattr(schedule, "timezone", None) or getattr(schedule, "_timezone", None) or "UTC"
    return str(getattr(zone, "name", zone))
