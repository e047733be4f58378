"""A record a year, counted by decades; a test holds the planning, the emission and the success of a batch, each in its task."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from txbatch import Count, FixedBatchSpout, OpaqueState, Sum, Topology, emit


def held(place: str) -> None:
    folder = Path(os.environ["PIPELINE_FOLDER"])
    (folder / f"kills at {place}").touch()
    while (folder / f"kills hold {place}").exists():
        time.sleep(0.05)


class YearSpout(FixedBatchSpout):
    by_interval = True

    def __init__(self) -> None:
        super().__init__("year int", 1, 0)

    def initialize_transaction(self, txid: int, prev_metadata: Any, curr_metadata: Any) -> Any:
        held("initialize_transaction")
        return {**curr_metadata, "start": 0, "end": 1}

    def batch(self, metadata: Any) -> list[tuple[int]]:
        return [(int(metadata["interval"][0][:4]),)]

    def success(self, txid: int) -> None:
        held("success")


def at_work(record: Mapping[str, int]) -> tuple[str, int]:
    held(f"emit_batch {record['year']}")
    return f"{record['year'] // 10}0s", record["year"]


topology = Topology("kills", max_pending=5)
(
    topology.new_stream("years", YearSpout())
    .map(at_work, "decade string, year int")
    .group_by("decade")
    .persistent_aggregate(OpaqueState("kills"), count=Count(), years=Sum("year"))
)

if __name__ == "__main__":
    raise SystemExit(emit(topology))
