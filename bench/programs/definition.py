"""Fifty operations, defined in a fresh process: the seconds of a definition, and that nothing of Spark was imported for it."""

import sys
import time

from txbatch import Avg, Count, FixedBatchSpout, Max, OpaqueState, Sum, Topology


def main() -> None:
    """Ten rounds of five operations, to a state."""
    began = time.perf_counter()
    topology = Topology("fifty")
    stream = topology.new_stream("in", FixedBatchSpout("k string, n bigint", 1, ("a", 1)))
    for number in range(10):
        stream = stream.filter("n > 0").each("n + 1", f"more_{number} bigint").distinct()
        stream = stream.group_by("k").aggregate(n=Sum("n"), largest=Max(f"more_{number}"), mean=Avg("n"), all=Count())
        stream = stream.group_by("k").first_n(3, "n", descending=True).project("k", "n")
    stream.group_by("k").persistent_aggregate(OpaqueState("fifty"), n=Count())
    print(time.perf_counter() - began)
    if any(name.partition(".")[0] == "pyspark" for name in sys.modules):
        sys.exit("pyspark was imported")


if __name__ == "__main__":
    main()
