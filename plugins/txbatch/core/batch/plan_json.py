"""The JSON of a batch's plan in the ledger, byte for byte, in the present format and all older formats:

    {"format": 2, "streams": {<name>: <entry>}, "idle": {<name>: <entry>}, "parameters": {...}}

Later formats add keys:

- Format 3 adds `"whole": true`: no named partition may be left out.
- Format 4 adds `"static": {<name>: <version>}` and `"as_of": {<name>: <cut>}`: the version of each static state, and the cut
  of each live state, for looking records up.
- Format 5 adds `"watermark": {<stream>: <microseconds since 1970>}`: the watermark of each stream, by which records are late.
- Format 6 adds `"planned_at": <microseconds since 1970>`: the time of planning, which is the records' processing time.
- Format 7 adds `"base": {<stream>: <number>}`: the first record number of each stream with numbered records.
- Format 8 adds `"records": <number>` to entries of streams by time: the number of records in the interval.

An entry of a partitioned spout is `{"partitions": {...}, "continues": [...], "unreadable": {...}, "missing": [...]}`: txbatch
carries the ranges on. An entry of any other spout is `{"plan": <the spout's plan>}`, and by time also has
`"interval": [<start>, <end>]`. Format 1, of batches in older ledgers, has the spout's plan itself for an entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

from txbatch.core.batch.stream_plan import OfInterval, Ranges, StreamPlan, Successive
from txbatch.core.stored_json import check_format, is_range

FORMAT = 2
FORMAT_OF_RECORDS = 8
# The format that brought a key.
_FORMATS = {"whole": 3, "static": 4, "as_of": 4, "watermark": 5, "planned_at": 6, "base": 7}
# The fields of a plan that are JSON as they are, left out if empty.
_PLAIN = ("parameters", "static", "as_of", "watermark", "planned_at", "base")


def write_plan(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON of a plan, in the oldest format with all keys of the plan. `plan` has the fields of a BatchPlan."""
    entry = _plan_alone if plan["format"] == 1 else _entry
    streams, idle = ({name: entry(planned) for name, planned in plan[part].items()} for part in ("streams", "idle"))
    more = {"idle": idle, **{name: plan[name] for name in _PLAIN}, "whole": plan["whole"]}
    value = {"streams": streams, **{name: each for name, each in more.items() if each}}
    formats = [plan["format"], *(_FORMATS[name] for name in value if name in _FORMATS)]
    if any(map(_has_records, (*plan["streams"].values(), *plan["idle"].values()))):
        formats.append(FORMAT_OF_RECORDS)
    return {"format": max(formats), **value}


def read_plan(value: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return the fields of a BatchPlan. If a newer txbatch stored the plan, raise NewerFormat; `what` names the plan."""
    format_ = check_format(what, value, FORMAT_OF_RECORDS)
    read = _by_its_keys if format_ == 1 else _of_entry
    parts = {part: {name: read(entry) for name, entry in value.get(part, {}).items()} for part in ("streams", "idle")}
    plain = {name: value[name] for name in _PLAIN if name in value}
    return {**parts, **plain, "format": min(format_, FORMAT), "whole": value.get("whole") is True}


def _has_records(planned: StreamPlan) -> bool:
    return isinstance(planned, OfInterval) and planned.records is not None


def _entry(planned: StreamPlan) -> Any:
    match planned:
        case Ranges():
            return planned.plan
        case Successive(plan):
            return {"plan": plan}
        case OfInterval(plan, interval, records):
            return {"plan": plan, "interval": interval, **({} if records is None else {"records": records})}
        case _:
            assert_never(planned)


def _of_entry(entry: Mapping[str, Any]) -> StreamPlan:
    if "partitions" in entry:
        return Ranges.from_json(entry)
    if "interval" in entry:
        return OfInterval(entry["plan"], entry["interval"], entry.get("records"))
    return Successive(entry["plan"])


def _plan_alone(planned: StreamPlan) -> Any:
    return planned.plan


def _by_its_keys(plan: Any) -> StreamPlan:
    """Return a stream's plan of format 1, recognized by txbatch's own keys; without such keys, a `Successive`."""
    if not isinstance(plan, Mapping):
        return Successive(plan)
    ranges = plan.get("partitions")
    if isinstance(ranges, Mapping) and all(map(is_range, ranges.values())):
        return Ranges.from_json(plan)
    return Successive(plan) if plan.get("interval") is None else OfInterval(plan, plan["interval"])
