"""Visits to a shop: page views of each user that are at most half an hour apart, whenever they arrive."""

from datetime import UTC, datetime, timedelta

from txbatch import Count, FixedBatchSpout, Max, OpaqueState, Topology, emit, session_window

BEGIN = datetime(2026, 11, 23, tzinfo=UTC)
USERS, VISITS = 40, 6


def log():
    """The views in the order in which they arrive: most at once, each seventh up to three hours late."""
    views = []
    for visit in range(USERS * VISITS):
        begin = BEGIN + timedelta(hours=4 * (visit // USERS), minutes=visit * 37 % 120)
        for number in range(1 + visit * 7 % 9):
            at = begin + timedelta(minutes=number * (5 + visit % 25))
            late = timedelta(minutes=visit * 53 % 180) if len(views) % 7 == 0 else timedelta(0)
            views.append((at, f"user {visit % USERS}", ("home", "search", "basket", "paid")[number % 4], at + late))
    return sorted(views, key=lambda view: view[3])


FIELDS = "at timestamp, user string, page string, arrived timestamp"
topology = Topology("sessions")
views = topology.new_stream("views", FixedBatchSpout(FIELDS, 200, *log())).with_watermark("at", "1 hour")

# A late view makes a visit longer, or one of two: the batch that brings it changes what reports show, and no other one.
# Visits that are over by the watermark, with the batch that closed them: SELECT * FROM report.closed_sessions(0, 6)
# SELECT "user", session_start, session_end - session_start AS lasted, views, bought FROM report.sessions ORDER BY 1, 2
# How visits changed by one batch: SELECT * FROM report.changes_sessions(3, 4)
views.group_by(session_window("at", "30 minutes"), "user").persistent_aggregate(
    OpaqueState("sessions"), views=Count(), bought=Count(where="page = 'paid'"), newest=Max("arrived")
)

if __name__ == "__main__":
    raise SystemExit(emit(topology))
