"""Days of files, of which late ones are counted by the next run."""

import os
from pathlib import Path

from txbatch import Count, IntervalSpout, OpaqueState, Topology, emit

topology = Topology("lookback")
days = IntervalSpout(
    Path(os.environ["PIPELINE_FOLDER"], "days"), "at timestamp, page string", time="at", lookback="3 days"
)
topology.new_stream("days", days).group_by("page").persistent_aggregate(OpaqueState("lookback"), views=Count())

if __name__ == "__main__":
    raise SystemExit(emit(topology))
