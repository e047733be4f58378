"""Records per partition of a log with sixteen partitions, one of which fails: `txbatch demo outage` shows it."""

import os
from pathlib import Path

from txbatch import Count, OpaquePartitionedLogSpout, OpaqueState, Sum, Topology, emit

HOME = os.environ.get("TXBATCH_HOME") or Path(__file__).resolve().parents[1] / ".txbatch"

topology = Topology("demo_outage")
(
    topology.new_stream("log", OpaquePartitionedLogSpout(Path(HOME) / "demo" / "outage"))
    .map(["split(line, ' ')[0]", "cast(split(line, ' ')[1] as bigint)"], "partition string, amount bigint")
    .group_by("partition")
    .persistent_aggregate(OpaqueState("demo_outage"), records=Count(), amount=Sum("amount"))
)

if __name__ == "__main__":
    raise SystemExit(emit(topology))
