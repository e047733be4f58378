"""A source that reads by time, and is ready for an interval only when a test says so."""

import os
from pathlib import Path
from typing import Any

from txbatch import Count, FixedBatchSpout, OpaqueState, Topology, emit


class LateSpout(FixedBatchSpout):
    by_interval = True

    def is_ready(self, txid: int) -> bool:
        return Path(os.environ["PIPELINE_FOLDER"], "ready").exists()

    def initialize_transaction(self, txid: int, prev_metadata: Any, curr_metadata: Any) -> Any:
        return {**curr_metadata, "start": 0, "end": 1}


topology = Topology("late")
(
    topology.new_stream("words", LateSpout("word string", 1, "word"))
    .group_by("word")
    .persistent_aggregate(OpaqueState("late"), count=Count())
)

if __name__ == "__main__":
    raise SystemExit(emit(topology))
