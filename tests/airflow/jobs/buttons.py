"""One word a year; a test holds the planning, the emission and the success of a batch, each in the middle of its task."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from txbatch import Count, FixedBatchSpout, OpaqueState, Topology, emit


def held(task: str) -> None:
    folder = Path(os.environ["PIPELINE_FOLDER"])
    (folder / f"buttons at {task}").touch()
    while (folder / f"buttons hold {task}").exists():
        time.sleep(0.05)


class YearSpout(FixedBatchSpout):
    by_interval = True
    parameters = ("level",)

    def initialize_transaction(self, txid: int, prev_metadata: Any, curr_metadata: Any) -> Any:
        held("initialize_transaction")
        return {**curr_metadata, "start": 0, "end": 1}

    def success(self, txid: int) -> None:
        held("success")


def at_work(record: Mapping[str, str]) -> str:
    held("emit_batch")
    return record["word"]


topology = Topology("buttons")
(
    topology.new_stream("words", YearSpout("word string", 1, "word"))
    .map(at_work, "word string")
    .group_by("word")
    .persistent_aggregate(OpaqueState("buttons"), count=Count())
)

if __name__ == "__main__":
    raise SystemExit(emit(topology))
