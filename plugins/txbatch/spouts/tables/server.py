"""The server of a source: which one, how far, and whether the rows that were counted are in the server's history."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from txbatch.core.errors import OtherHistory, PartitionUnreadable, SourceBehind
from txbatch.core.sources.snapshots import Snapshot, horizon
from txbatch.spouts.tables.connection import Session

# Beside asynchronous commits a flush takes 0.2 s; a server that does not flush for so long has other troubles.
FLUSH_SECONDS = 30
_FLUSH_AGAIN_SECONDS = 0.02
# Readers write to the log, too: they mark rows in pages. A server flushes that with the next commit, which may be hours
# away: after so long the session commits a transaction that has a number and changes nothing.
_PUSH_SECONDS = 1
_NUMBERED = "SELECT pg_current_xact_id()::text"
# The snapshot is taken before the position: what had ended in the snapshot has its end in the log before the position.
_SERVER = """
SELECT pg_is_in_recovery(), (SELECT system_identifier FROM pg_control_system())::text,
       CASE WHEN pg_is_in_recovery()
            THEN greatest((SELECT timeline_id FROM pg_control_checkpoint()),
                          (SELECT min_recovery_end_timeline FROM pg_control_recovery()))
            ELSE ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::integer END,
       (SELECT oid::bigint FROM pg_database WHERE datname = current_database()),
       (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint,
       pg_current_snapshot()::text, pg_snapshot_xmin(pg_current_snapshot())::text, pg_snapshot_xmax(pg_current_snapshot())::text,
       CASE WHEN NOT pg_is_in_recovery() THEN pg_current_wal_insert_lsn()::text END
"""
# How far a session's server has come; asked in a transaction before the rows are read.
_PLACE = """
SELECT (SELECT system_identifier FROM pg_control_system())::text,
       CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END::text
"""
_REACHED = """
SELECT (SELECT system_identifier FROM pg_control_system())::text = %s AND
       CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END >= %s::pg_lsn
"""
# A standby that replays is so far behind at most, where one task is told to wait for what another server had.
_LAG_SECONDS = 10
_LAG_AGAIN_SECONDS = 0.1
# Which server and database.
SYSTEM = """
SELECT (SELECT system_identifier FROM pg_control_system())::text,
       (SELECT oid::bigint FROM pg_database WHERE datname = current_database())
"""
# At the start of a page or of a segment, the header of the page is all that is behind the flushed log until somebody writes.
_FLUSHED = """
SELECT pg_is_in_recovery() OR (
  SELECT flushed >= wanted OR (at %% current_setting('wal_block_size')::numeric = 0 AND wanted - flushed =
         CASE WHEN at %% pg_size_bytes(current_setting('wal_segment_size')) = 0 THEN 40 ELSE 24 END)
    FROM (SELECT %s::pg_lsn AS wanted, pg_current_wal_flush_lsn() AS flushed) l, LATERAL (SELECT flushed - '0/0'::pg_lsn AS at) f)
"""


@dataclass(frozen=True, slots=True)
class Server:
    """A server at a moment. `snapshot` sees what has ended and is flushed; `xmax` is the next transaction, as far as known."""

    system: str
    timeline: int
    database: int
    started: int
    snapshot: Snapshot
    xmax: int
    standby: bool = False

    def history(self, table: int) -> list[Any]:
        """Return what a range keeps of the server and a table."""
        return [self.system, self.timeline, self.database, table, self.started]


def look(session: Session, sleep: Callable[[float], None] = time.sleep) -> Server:
    """Return the server as of now. Wait until all that had ended is flushed: a crash gives other numbers to other transactions.

    On a standby only the horizon counts, for a standby's own snapshots list no transaction in progress.
    """
    standby, system, timeline, database, started, text, xmin, xmax, position = session.row(_SERVER)
    if standby:
        return Server(system, timeline, database, started, horizon(int(xmin)), int(xmax), standby=True)
    until = time.monotonic() + FLUSH_SECONDS
    push = until - FLUSH_SECONDS + _PUSH_SECONDS
    while not session.row(_FLUSHED, position)[0]:
        if time.monotonic() > push:
            session.rows(_NUMBERED)
            session.renew()
            push = until
        if time.monotonic() > until:
            raise PartitionUnreadable(
                f"{session.of}: its server has not flushed its log for {FLUSH_SECONDS} s; try again"
            )
        sleep(_FLUSH_AGAIN_SECONDS)
    return Server(system, timeline, database, started, Snapshot.parse(text), int(xmax))


def place(session: Session) -> tuple[str, str]:
    """Return the system of a session's server, and how far the server has come."""
    system, position = session.row(_PLACE)
    return system, position


def wait_for(session: Session, asked: tuple[str, str], sleep: Callable[[float], None] = time.sleep) -> None:
    """Wait until a session's server has what another server of the same name had. Raise SourceBehind if it stays behind."""
    until = time.monotonic() + _LAG_SECONDS
    while not session.row(_REACHED, *asked)[0]:
        if time.monotonic() > until:
            raise SourceBehind(
                f"{session.of}: a task is at a server that lacks what the planned one had ({asked[1]}): a standby lags, or the "
                "source leads to several servers; try again, or let the source lead to one"
            )
        sleep(_LAG_AGAIN_SECONDS)


def token(history: Collection[Any]) -> str:
    """Return a history as a spout accepts the history: system, timeline, database and table.

    >>> token(["7712", 2, 5, 16384, 1790000000])
    '7712/2/5/16384'
    """
    return "/".join(map(str, list(history)[:4]))


def check(of: str, server: Server, table: int, range_: Mapping[str, Any], accept: Collection[str]) -> None:
    """Raise OtherHistory if a range was planned in another history, SourceBehind if the server lacks its transactions."""
    then, now = range_["history"], server.history(table)
    if then[:4] != now[:4] and token(now) not in accept:
        only = (
            "is a physical copy, or was upgraded by pg_upgrade, and has all that was counted,"
            if then[0] != now[0]
            else "has all that was counted,"
        )
        raise OtherHistory(
            f"{of} is {_other(then, now)} what was counted ({token(then)}, now {token(now)}): read it with a new topology; or, "
            f"if it {only} give the spout accept={token(now)!r}"
        )
    needed = int(range_["xact"]) + 1 if "key" in range_ else Snapshot.parse(range_["end"]).xmax
    if server.xmax < needed:
        raise SourceBehind(
            f"{of} is behind what was counted (transaction {needed - 1}, now {server.xmax - 1}): it lags, or was restored from a "
            "copy; try again, or, if it stays so, read it with a new topology"
        )


def _other(then: list[Any], now: list[Any]) -> str:
    if then[0] != now[0]:
        return "on another server than"
    if then[2:4] != now[2:4]:
        return "another table than"
    return "on another timeline of its server (a standby was promoted, or a copy restored) than"
