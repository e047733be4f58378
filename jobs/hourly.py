"""Page views per hour, and per day of New York, of a log in which some arrive late: windows of event time."""

from datetime import UTC, datetime, timedelta

from txbatch import Count, FixedBatchSpout, Max, OpaqueState, Topology, emit, window

BEGIN = datetime(2026, 10, 31, tzinfo=UTC)  # the next day New York's clocks go back
VIEWS, HOURS = 1_200, 60


def log():
    """The views in the order in which they arrive: most at once, each tenth up to six hours late."""
    views = []
    for number in range(VIEWS):
        at = BEGIN + timedelta(seconds=number * 7919 % (HOURS * 3600))
        late = timedelta(seconds=number * 6151 % (6 * 3600) if number % 10 == 0 else 0)
        views.append((at, ("home", "news", "shop")[number % 3], at + late))
    return sorted(views, key=lambda view: view[2])


topology = Topology("hourly")
views = topology.new_stream(
    "views", FixedBatchSpout("at timestamp, page string, arrived timestamp", 200, *log())
).with_watermark("at", "1 hour")  # late ones count all the same, and are told: SELECT txid, late FROM report.batches

# A view counts in the hour that it is of, whenever it arrives; those are late that arrive when the hour is over.
# jobs/busy_hours.py gets each hour once, when it is closed: SELECT * FROM report.closed_hourly(0, 6)
# SELECT window_start, window_end, sum(views), sum(late) FROM report.hourly GROUP BY 1, 2 ORDER BY 1
views.group_by(window("at", "1 hour"), "page").persistent_aggregate(
    OpaqueState("hourly"),
    views=Count(),
    late=Count(where="arrived >= window_start + interval 1 hour"),
    newest=Max("arrived"),
)

# One of these days has 25 hours: SELECT window_start, window_end - window_start, views FROM report.daily ORDER BY 1
views.group_by(window("at", "1 day", timezone="America/New_York")).persistent_aggregate(
    OpaqueState("daily"), views=Count()
)

if __name__ == "__main__":
    raise SystemExit(emit(topology))
