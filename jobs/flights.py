"""Flights from New York in 2013, one batch per day: how many, cancelled, and how late, by carrier and airport."""

import os
from pathlib import Path

from txbatch import Avg, Count, IntervalSpout, Max, Sum, Topology, TransactionalState, emit

FLIGHTS = os.environ.get("FLIGHTS_FOLDER") or Path(__file__).resolve().parents[1] / ".txbatch" / "demo" / "flights"

topology = Topology("flights", max_pending=8)
(
    topology.new_stream(
        "flights",
        IntervalSpout(
            FLIGHTS,
            fields="year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, "
            "sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, origin string, "
            "dest string, air_time int, distance int, hour int, minute int, time_hour timestamp",
            time="time_hour",
            format="csv",
            options={"header": True, "null_value": "NA"},
        ),
    )
    .each("if(dep_time is null, true, null)", "cancelled boolean")
    .group_by("carrier", "origin")
    .persistent_aggregate(
        TransactionalState("flights"),
        flights=Count(),
        departures=Count("dep_time"),
        cancellations=Count("cancelled"),
        dep_delay_total=Sum("dep_delay"),
        dep_delay_mean=Avg("dep_delay"),
        dep_delay_max=Max("dep_delay"),
    )
)

if __name__ == "__main__":
    raise SystemExit(emit(topology))
