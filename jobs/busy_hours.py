"""How busy each hour of the day is: made of the closed hours of hourly, of which each is handed on once."""

from txbatch import AppendState, Count, Max, OpaqueState, StateSpout, Sum, Topology, emit

HOURS = "window_start timestamp, window_end timestamp, page string, views bigint, late bigint, closed_by bigint"

topology = Topology("busy_hours")
closed = topology.new_stream("closed", StateSpout("hourly", HOURS, emit="final"))

# Each hour as it was when it was closed: SELECT * FROM report.closed_hours ORDER BY window_start, page
closed.persist(AppendState("closed_hours"))

# An hour counts once, whatever is restarted: SELECT hour, views / hours FROM report.busy_hours ORDER BY 1
(
    closed.each("hour(window_start)", "hour int")
    .group_by("hour", "page")
    .persistent_aggregate(OpaqueState("busy_hours"), hours=Count(), views=Sum("views"), most=Max("views"))
)

if __name__ == "__main__":
    raise SystemExit(emit(topology))
