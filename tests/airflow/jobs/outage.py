"""A test holds the planning, the emission and the success of a batch, each in the middle of its task."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from txbatch import Count, FixedBatchSpout, OpaqueState, Topology, emit


def held(task: str) -> None:
    folder = Path(os.environ["PIPELINE_FOLDER"])
    (folder / f"at {task}").touch()
    while (folder / f"hold {task}").exists():
        time.sleep(0.05)


class HeldSpout(FixedBatchSpout):
    def initialize_transaction(self, txid: int, prev_metadata: Any, curr_metadata: Any) -> Any:
        held("initialize_transaction")
        return super().initialize_transaction(txid, prev_metadata, curr_metadata)

    def success(self, txid: int) -> None:
        held("success")


def at_work(record: Mapping[str, str]) -> str:
    held("emit_batch")
    return record["word"]


topology = Topology("outage")
(
    topology.new_stream("words", HeldSpout("word string", 1, "word"))
    .map(at_work, "word string")
    .group_by("word")
    .persistent_aggregate(OpaqueState("outage"), count=Count())
)

if __name__ == "__main__":
    raise SystemExit(emit(topology))
