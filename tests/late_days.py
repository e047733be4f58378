"""Days of files of lines, read by time without Spark, with the late records that come in new lines of files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from txbatch import IntervalSpout
from txbatch.core.batch.came_late import Counted, Late
from txbatch.core.records.time_buckets import micros_of

FIELDS = "at timestamp, name string"
JOB = """
from late_days import FIELDS, Days
topology = Topology("days")
stream = topology.new_stream("in", Days({root!r}, FIELDS, time="at"{options}))
stream.group_by("name").persistent_aggregate({state}, count=Count())
if __name__ == "__main__":
    raise SystemExit(emit(topology))
"""
STATE = 'TransactionalState("days")'


def job(root: object, lookback: str | None = None, state: str = STATE) -> str:
    """The text of a job of days."""
    return JOB.format(root=str(root), options="" if lookback is None else f", lookback={lookback!r}", state=state)


class Days(IntervalSpout):
    """Lines such as `2024-01-01T10:00Z,a`."""

    def batch(self, plan: Any) -> list[tuple[datetime, str]]:
        """The records of a plan; the plan is checked as Spark's reader checks it."""
        self.check_plan(plan)
        start, end = map(datetime.fromisoformat, plan["interval"])
        return [record for name in plan["files"] for record in self._lines(name, 0) if start <= record[0] < end]

    def late_batch(self, intervals: Sequence[Counted], arrived: Mapping[str, int]) -> dict[int, dict[str, Late]]:
        """The late records, by position and file."""
        found: dict[int, dict[str, Late]] = {}
        for name, since in arrived.items():
            times = [micros_of(at) for at, _ in self._lines(name, since)]
            for position, start, end in intervals:
                if number := sum(start <= at < end for at in times):
                    found.setdefault(position, {})[name] = Late(number, since)
        return found

    def _lines(self, name: str, since: int) -> Iterator[tuple[datetime, str]]:
        for line in (self._folder / name).read_bytes()[since:].decode().split():
            at, word = line.split(",")
            yield datetime.fromisoformat(at), word
