"""Sales per shop, from CSV files: a batch is a day."""

import os
from pathlib import Path

from txbatch import Avg, Count, IntervalSpout, Max, OpaqueState, Sum, Topology, emit

FOLDER = os.environ.get("SALES_FOLDER") or Path(__file__).resolve().parents[1] / "data" / "sales"

topology = Topology("sales")
(
    topology.new_stream(
        "sales",
        IntervalSpout(
            FOLDER,
            "sold_at timestamp, shop string, price decimal(10,2)",
            time="sold_at",
            pattern="*.csv",
            options={"header": True},
        ),
    )
    .group_by("shop")
    .persistent_aggregate(
        OpaqueState("sales"), sales=Count(), turnover=Sum("price"), mean=Avg("price"), dearest=Max("price")
    )
)

if __name__ == "__main__":
    raise SystemExit(emit(topology))
