"""A source that reads by time, whose runs start when upstream lands."""

from typing import Any

from txbatch import Count, FixedBatchSpout, OpaqueState, Topology, emit


class LandedSpout(FixedBatchSpout):
    by_interval = True

    def initialize_transaction(self, txid: int, prev_metadata: Any, curr_metadata: Any) -> Any:
        return {**curr_metadata, "start": 0, "end": 1}


topology = Topology("landed")
(
    topology.new_stream("words", LandedSpout("word string", 1, "word"))
    .group_by("word")
    .persistent_aggregate(OpaqueState("landed"), count=Count())
)

if __name__ == "__main__":
    raise SystemExit(emit(topology))
