"""What sessions cost, against windows of an hour with as many keys: the commit of a batch, and reading what comes together."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from bench import batches
from bench.database import Server, server
from bench.measure import Contestant, Figure, Stopwatch, interleaved
from bench.results import Results
from txbatch.core.aggregates.aggregator import Count, Max
from txbatch.core.state.state import OpaqueState
from txbatch.core.topology.topology import Topology
from txbatch.core.windows.session_window import session_window
from txbatch.core.windows.window import window

KEYS, SESSIONS_OF_A_USER, ROWS = 1_000_000, 10, 100_000
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class VisitsSpout(batches.NumberedSpout):
    """The same with a time."""

    fields = "at timestamp, user string"


@dataclass(frozen=True)
class Case:
    """A state of a million rows, ten of each user, and a batch that has a row of each: half of these go on with what is there."""

    running: Server
    database: str
    sessions: bool

    @property
    def topology(self) -> Topology:
        """The topology, whose state has no contributions."""
        made = Topology("bench")
        stream = made.new_stream("keys", VisitsSpout())
        state = OpaqueState("counts", contributions=False)
        if self.sessions:
            stream.group_by("user", session_window("at", "30 minutes")).persistent_aggregate(state, views=Count())
        else:
            hours = stream.group_by("user", window("at", "1 hour"))
            hours.persistent_aggregate(state, latest=Max("at"), views=Count())
        return made

    @property
    def columns(self) -> tuple[str, str]:
        """The names of start and end."""
        return ("session_start", "session_end") if self.sessions else ("window_start", "latest")

    def fill(self) -> None:
        """Make the database that copies are made of: a row of a user each two hours."""
        start, end = self.columns
        at = f"timestamptz '{BEGIN.isoformat()}' + i % {SESSIONS_OF_A_USER} * interval '2 hours'"
        user = f"'user' || lpad((i / {SESSIONS_OF_A_USER})::text, 10, '0')"
        rows = (
            f'INSERT INTO state.counts ("user", {start}, {end}, views, txid) SELECT {user}, {at}, {at}, 1, 1 '
            f"FROM generate_series(0, {KEYS - 1}) i ORDER BY 1, 2"
        )
        batches.fill_by(self.running, self.database, self.topology, self._partials(0), rows)

    def commit(self, watch: Stopwatch) -> None:
        """All that the commit task does."""
        batches.timed_commit(self.running, self.database, self.topology, self._partials(ROWS), watch)

    def all_read(self, watch: Stopwatch) -> None:
        """A question about all rows of the report."""
        self._asked(watch, "SELECT count(*), sum(views) FROM report.counts")

    def users_read(self, watch: Stopwatch) -> None:
        """A question about each of a thousand users."""
        users = [
            f"SELECT * FROM report.counts WHERE \"user\" = 'user{number:010d}'" for number in range(0, 100_000, 100)
        ]
        self._asked(watch, *users)

    def _asked(self, watch: Stopwatch, *statements: str) -> None:
        connection = self.running.connect(self.database)
        with connection, connection.cursor() as cursor, watch.timed():
            for statement in statements:
                cursor.execute(statement)
                cursor.fetchall()
        connection.close()

    def _partials(self, rows: int) -> pa.Table:
        """A row of each user: of a session that goes on 20 minutes later, of an hour that has begun; or new ones, days later."""
        users = pa.array([f"user{number:010d}" for number in range(rows)], pa.string())
        later = timedelta(minutes=20 if self.sessions else 0)
        times: list[Any] = [BEGIN + (later if number % 2 else timedelta(days=9)) for number in range(rows)]
        start, end = self.columns
        at, views = pa.array(times, pa.timestamp("us", "UTC")), pa.array([1] * rows, pa.int64())
        return pa.table({"user": users, start: at, end: at, "views": views})


def measure(section: str, results: Results) -> None:
    """Sessions and hours: a commit, a question about all, and questions about users."""
    with server() as running:
        cases = {"hours": Case(running, "by_hours", False), "sessions": Case(running, "by_sessions", True)}
        for case in cases.values():
            case.fill()
        contestants: dict[str, Contestant] = {}
        for name, case in cases.items():
            asked = {"commit": case.commit, "all": case.all_read, "users": case.users_read}
            contestants |= {f"{name}, {what}": call for what, call in asked.items()}
        figures = [
            Figure("commit of 100,000 keys, sessions / hours", "sessions, commit", "hours, commit", 4, 1.2),
            Figure("all of 1 M rows, sessions / hours", "sessions, all", "hours, all"),
            Figure("1,000 users, sessions / hours", "sessions, users", "hours, users"),
        ]
        results.add(section, interleaved(contestants), figures, keys=KEYS, rows=ROWS)


SECTIONS = {"sessions": measure}
