"""How many people a link reaches: the followers of all who shared it, each of them once (Trident's reach)."""

import os
from pathlib import Path

from txbatch import Count, FileSpout, OpaqueState, StaticFiles, StaticState, Topology, emit

FOLDER = Path(os.environ.get("REACH_FOLDER") or Path(__file__).resolve().parents[1] / ".txbatch" / "demo" / "reach")
FOLLOWS = "person string, follower string"


def rows(spark, paths):
    """The graph: CSV files with a line for each follower of a person."""
    return spark.read.csv(paths, FOLLOWS)


topology = Topology("reach")
follows = topology.new_static_state(StaticState("follows", StaticFiles(FOLDER / "follows", "*.csv", rows), FOLLOWS))

# A row for each follower whom a link has reached, however often: the number of these rows is the reach of the link,
# SELECT link, count(*) FROM report.reached GROUP BY link
(
    topology.new_stream("shares", FileSpout(FOLDER / "shares", "*.txt"))
    .map(["split_part(line, ' ', 1)", "split_part(line, ' ', 2)"], "link string, person string")
    .state_query(follows, "person", how="inner", many=True)
    .group_by("link", "follower")
    .persistent_aggregate(OpaqueState("reached"), times=Count())
)

if __name__ == "__main__":
    raise SystemExit(emit(topology))
