"""A source that reads by time: a file for each day, in a folder where a test puts files, damages them and mends them."""

import os
from pathlib import Path
from typing import Any

from txbatch import FixedBatchSpout, OpaqueState, Sum, Topology, TransientError, emit
from txbatch.core.errors.records import BadRecord


class DayFiles(FixedBatchSpout):
    by_interval = True

    def __init__(self) -> None:
        super().__init__("carrier string, origin string, flights int", 1, ("", "", 0))

    def initialize_transaction(self, txid: int, prev_metadata: Any, curr_metadata: Any) -> Any:
        found = folder().glob(f"{curr_metadata['interval'][0][:10]}.csv")
        return {**curr_metadata, "files": {file.name: file.stat().st_size for file in found}, "start": 0, "end": 1}

    def batch(self, metadata: Any) -> list[tuple[str, str, int]]:
        return [record for name in metadata["files"] for record in records(folder() / name)]


def folder() -> Path:
    return Path(os.environ["PIPELINE_FOLDER"], "days")


def records(file: Path) -> list[tuple[str, str, int]]:
    if not file.exists():
        raise TransientError(f"{file.name} is not there")
    lines = [line.split(",") for line in file.read_text().splitlines()]
    for number, (*_, flights) in enumerate(lines, 1):
        if not flights.isdecimal():
            raise BadRecord(f"{file.name}, line {number}: field flights: {flights!r} is no int")
    return [(carrier, origin, int(flights)) for carrier, origin, flights in lines]


topology = Topology("days", max_pending=8)
(
    topology.new_stream("flights", DayFiles())
    .group_by("carrier", "origin")
    .persistent_aggregate(OpaqueState("days"), flights=Sum("flights"))
)

if __name__ == "__main__":
    raise SystemExit(emit(topology))
