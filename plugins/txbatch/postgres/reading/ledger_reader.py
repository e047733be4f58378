"""Questions of people to the ledger and the states. Read-only."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DataError

from txbatch.core.batch.holes import NAMED
from txbatch.core.batch.planned_files import PlannedFiles
from txbatch.core.batch.planned_table import PlannedTable
from txbatch.core.errors import CannotAsk, InvalidKey, TerminalError, UnknownName
from txbatch.core.text import how_many
from txbatch.postgres.database.driver_errors import message_of
from txbatch.postgres.database.expressions import escape_percent, pg_name, select_all, sql_type
from txbatch.postgres.database.queries import query
from txbatch.postgres.database.transaction import transaction

if TYPE_CHECKING:
    from txbatch.core.batch.transaction import Interval
    from txbatch.core.protocol.lookback import LatePosition
    from txbatch.postgres.apart.warehouses import Warehouses

Rows = list[dict[str, Any]]
COUNTED_FILES_MAX = 100_000
COUNTED_BYTES_MAX = 4_000_000  # of the stored plans of a topology that are looked at
HOLES_OF_MAX = 1_000  # batches
_NAMED = {"left_out": {"named": NAMED}, "given_up": {"named": NAMED}}


class LedgerReader:
    """Read the ledger's database, and the states apart in `warehouses`. Every method is one transaction."""

    def __init__(self, engine: Engine, warehouses: Warehouses | None = None) -> None:
        self.engine, self._given = engine, warehouses

    @cached_property
    def warehouses(self) -> Warehouses:
        """The databases of states apart."""
        from txbatch.postgres.apart.warehouses import Warehouses

        return self._given or Warehouses()

    def status(self, topology: str | None = None) -> Rows:
        """Return one row for each topology, with lists of details.

        `waiting` names the runs that wait for a batch, `failing` the batch in flight that failed last, and why, `missed` the
        states that have not counted every committed txid, `uncounted` the uncounted intervals between counted intervals,
        `restating` the batches in flight that count other batches again, `windows_left` the windows that have left states,
        `windows_wait` the gap between intervals that keeps later windows from closing, `ahead` the last batches that read
        records of the future, `vanished` by stream the partitions that are listed no more, `left_out` those that no batch has
        read since one left them out (R13), `given_up` those whose records one of the last thousand batches gave up (R16).
        """
        statements = {
            "waiting": "waiting",
            "failing": "failing",
            "missed": "missed",
            "uncounted": "gaps",
            "restating": "restating",
            "windows_left": "windows_left_of",
            "windows_wait": "windows_wait",
            "ahead": "ahead",
            "vanished": "vanished",
            "left_out": "left_out",
            "given_up": "given_up",
        }
        with transaction(self.engine) as connection:
            rows = _found(connection, "status", topology=topology)
            for name, statement in statements.items():
                found = _found(connection, statement, topology=topology, **_NAMED.get(statement, {}))
                for row in rows:
                    row[name] = [each for each in found if each["topology"] == row["topology"]]
        return [{**row, "gaps": len(row["uncounted"])} for row in rows]

    def further(self, topology: str | None = None) -> tuple[set[str], set[str]]:
        """Return the topologies to ask for late records, and those to ask for states half committed; None: among all."""
        rows = self._rows("further", topology=topology)
        late, apart = ({row["topology"] for row in rows if row[column]} for column in ("met_late", "apart"))
        return late, apart

    def late(self, topology: str) -> list[LatePosition]:
        """Return the positions of a topology with uncounted late records."""
        from txbatch.core.protocol.lookback import outstanding
        from txbatch.postgres.tables import came_late

        with transaction(self.engine) as connection:
            return outstanding(came_late.found_late(connection, topology))

    def half_committed(self, topology: str) -> Rows:
        """Return the states apart that show a batch not committed in the ledger: the next run repairs the states (R21)."""
        with transaction(self.engine) as connection:
            return self.warehouses.ahead(connection, topology)

    def standings(self) -> Rows:
        """Return how far each topology is counted, and the obstacles, as readers of the schema report may see both."""
        return self._rows("standings")

    def waiting(self, topology: str | None = None) -> Rows:
        """Return the batches that wait for their turn, and the runs that wait for a batch; None: of all topologies."""
        return self._rows("waiting", topology=topology)

    def batches(self, topology: str, limit: int = 20) -> Rows:
        """Return the newest batches of a topology. Raise UnknownName if the topology is unknown."""
        self._check_known(topology)
        return self._rows("batches", topology=topology, limit=limit)

    def batches_by_txid(self, topology: str, txids: Sequence[int]) -> Rows:
        """Return the batches of some txids of a topology, oldest first."""
        return self._rows("batches_by_txid", topology=topology, txids=list(txids))

    def holes_of(self, topology: str, txids: Sequence[int]) -> Rows:
        """Return the holes of some batches, for `describe_holes`: partitions left out as of the last one (R13), read again
        after a hole, read behind records that were given up (R16), or listed no more since one of the plans. Of many batches
        the newest thousand are looked at.
        """
        return self._rows("holes_of", topology=topology, txids=sorted(txids)[-HOLES_OF_MAX:], named=NAMED)

    def restated(self, topology: str, txids: Sequence[int]) -> Rows:
        """Return the batches of some txids, oldest first. A restate has the version it `replaces`, and its `records_before`."""
        return self._rows("restated", topology=topology, txids=list(txids))

    def emitted_in(self, topology: str, txid: int) -> timedelta | None:
        """Return the duration of a batch's newest attempt, from start to manifest. Return None if it is unknown."""
        found = self._rows("emitted_in", topology=topology, txid=txid)
        return found[0]["took"] if found else None

    def counted_within(self, topology: str, interval: Interval) -> dict[int, Interval]:
        """Return the committed batches whose intervals overlap an interval. Raise UnknownName if the topology is unknown."""
        from txbatch.core.batch.transaction import Interval

        self._check_known(topology)
        asked = {"interval_start": interval.start, "interval_end": interval.end}
        rows = self._rows("counted_within", topology=topology, **asked)
        return {row["txid"]: Interval(row["interval_start"], row["interval_end"]) for row in rows}

    def covered(self, topology: str, prefix: str) -> Rows:
        """Return the time covered by committed batches, without gaps, in order; `by_run`: by runs of a prefix and a number."""
        return self._rows("covered", topology=topology, prefix=prefix)

    def batches_of_run(self, topology: str, run_id: str) -> Rows:
        """Return the batches planned by a run of the topology's DAG, newest first, with aborted batches."""
        return self._rows("batches_of_run", topology=topology, run_id=run_id)

    def given_up_by(self, topology: str, reason: str) -> int | None:
        """Return the txid that gave records up for a reason; None if there is no such txid."""
        found = self._rows("given_up_by", topology=topology, reason=reason)
        return found[0]["txid"] if found else None

    def attempts(self, topology: str, limit: int = 20) -> Rows:
        """Return the newest attempts of a topology. Raise UnknownName if the topology is unknown."""
        self._check_known(topology)
        return self._rows("attempts", topology=topology, limit=limit)

    def attempts_if_known(self, topology: str, limit: int = 20) -> Rows:
        """Return the newest attempts of a topology; nothing if the topology is unknown."""
        return self._rows("attempts", topology=topology, limit=limit)

    def partitions(self, topology: str) -> Rows:
        """Return the ranges each batch read of each partition, and the holes."""
        self._check_known(topology)
        return self._rows("partitions", topology=topology)

    def completeness(self, topology: str) -> Rows:
        """Return how far each partition is counted, and since which txid a partition is unreadable."""
        return self._rows("completeness", topology=topology)

    def counted(self, topology: str | None = None) -> list[PlannedFiles]:
        """Return the counted part of each file, by the plans of committed batches, newest first; None: of all topologies."""
        files: dict[tuple[str, str], PlannedFiles] = {}
        for row in self._rows("counted_ranges", topology=topology, limit=COUNTED_FILES_MAX):
            of = row["topology"], row["stream"]
            counted = files.setdefault(of, PlannedFiles(*of, row["source"], {}))
            counted.files[row["partition"]] = [row["metadata"]["end"], row["metadata"].get("mtime_ns")]
        found = list(files.values())
        for row, stream, source, plan in self._planned_intervals(topology, "IntervalSpout"):
            interval = row["interval_start"], row["interval_end"]
            when, restates = (interval, row["created_at"]), row["kind"] == "restate"
            found.append(PlannedFiles(row["topology"], stream, source, plan["files"], row["txid"], *when, restates))
        return found

    def counted_tables(self, topology: str | None = None) -> list[PlannedTable]:
        """Return the tables read by time, by the plans that count, by stream and newest first; None: of all topologies."""
        found = [
            PlannedTable(row["topology"], stream, source, plan, row["txid"], row["many"])
            for row, stream, source, plan in self._planned_intervals(topology, "PostgresIntervalSpout")
        ]
        return sorted(found, key=lambda each: (each.topology, each.stream))

    def _planned_intervals(self, topology: str | None, spout: str) -> Iterator[tuple[Any, str, Any, Any]]:
        """Yield each committed batch by time that counts, with a stream of a spout, its source and its plan."""
        for row in self._rows("counted_intervals", topology=topology, spout=spout, bytes=COUNTED_BYTES_MAX):
            from txbatch.core.batch.plan import BatchPlan

            plan = BatchPlan.from_json(row["metadata"], f"{row['topology']}: the plan of txid {row['txid']}")
            for stream, planned in plan.streams.items():
                source = row["source"][stream]
                if source["spout"] == spout:
                    yield row, stream, source, planned.plan

    def server(self) -> dict[str, Any]:
        """Return the server, and the session's rights on the server."""
        return self._rows("server")[0]

    def key_columns(self, state: str) -> dict[str, str]:
        """Return a state's key columns with their types; empty for a global value. Raise UnknownName if the state is unknown."""
        return dict(self._state(state)["columns"]["keys"])

    def query(self, state: str, keys: Sequence[Sequence[str]]) -> Rows:
        """Return the report rows of many keys, each a text per column, in one round trip and in the order asked (R20).

        An absent key has `found` False; if the state has a column `found`, the answer has `is_found`. A global value is asked
        without keys. Raise UnknownName if the state is unknown; TerminalError if a key does not fit the columns' types, if a
        key has too many or too few columns, or if keys are missing.
        """
        stored = self._state(state)
        apart, typed = stored["database"], dict(stored["columns"]["keys"])
        engine = self.warehouses.engine(apart) if apart else self.engine
        if not typed:
            return _global(engine, state, keys)
        if not keys:
            raise _without_keys(state, stored)
        asked = [checked_key(key, typed) for key in keys]
        columns = {f"k{number}": list(column) for number, column in enumerate(zip(*asked, strict=True))}
        with transaction(engine) as connection:
            try:
                found = connection.exec_driver_sql(_query(state, typed), columns)
            except DataError as error:
                told = message_of(error.orig)
                raise InvalidKey(f"state {state!r} has the key {keys_listed(typed)}; {told}") from error
            return [answered(key, typed, dict(row._mapping)) for key, row in zip(asked, found, strict=True)]

    def job(self, topology: str) -> str:
        """Return the path of a topology's job file, as given. Raise UnknownName if the topology is unknown."""
        return str(self._known(topology)["job"])

    def _state(self, state: str) -> dict[str, Any]:
        found = self._rows("reported_state", state=state)
        if not found:
            raise UnknownName(f"no state {state!r} is known; `txbatch status` lists the topologies with their states")
        return found[0]

    def _check_known(self, topology: str) -> None:
        self._known(topology)

    def _known(self, topology: str) -> dict[str, Any]:
        """Return a topology's row, by its index alone. Raise UnknownName if the topology is unknown."""
        found = self._rows("reported_topology", topology=topology)
        if not found:
            from txbatch.postgres.tables.batches import unknown_topology

            raise unknown_topology(topology)
        return found[0]

    def _rows(self, name: str, **parameters: Any) -> Rows:
        with transaction(self.engine) as connection:
            return _found(connection, name, **parameters)


def _found(connection: Connection, name: str, **parameters: Any) -> Rows:
    return [dict(row) for row in connection.execute(query(name), parameters).mappings()]


def _global(engine: Engine, state: str, keys: Sequence[Sequence[str]]) -> Rows:
    if keys:
        told = ", ".join(",".join(key) for key in keys)
        raise InvalidKey(f"state {state!r} is one global value and has no key; ask without {told}")
    with transaction(engine) as connection:
        row = connection.exec_driver_sql(f"SELECT * FROM report.{escape_percent(pg_name(state))}").mappings().first()
        return [{_flag(row.keys() if row else ()): row is not None, **(row or {})}]


def _without_keys(state: str, stored: Mapping[str, Any]) -> TerminalError:
    """Return the error for a query without keys. Keys of a state that keeps records mean nothing to people: read by SELECT."""
    if "rows" not in stored["columns"]:
        keys = keys_listed(dict(stored["columns"]["keys"]))
        return InvalidKey(f"state {state!r} has the key {keys}; name at least one")
    where = f" in the database {stored['database']!r}" if stored["database"] else ", such as by `txbatch psql`"
    select = f"{select_all(stored['state'])} ORDER BY batch{where}"
    return CannotAsk(f"state {state!r} keeps records, a row for each: read them by {select}")


def keys_listed(typed: Mapping[str, str]) -> str:
    """Return key columns with their types, for errors."""
    return ", ".join(f"{name} {type_}" for name, type_ in typed.items())


def _query(state: str, typed: Mapping[str, str]) -> str:
    listed = ", ".join(f"%(k{number})s::text[]" for number in range(len(typed)))
    same = " AND ".join(
        f"r.{pg_name(name)} = CAST(a.k{number} AS {key_type(type_)})"
        for number, (name, type_) in enumerate(typed.items())
    )
    names = ", ".join(f"k{number}" for number in range(len(typed)))
    statement = f"FROM unnest({listed}) WITH ORDINALITY AS a ({names}, n) LEFT JOIN report."
    return f"SELECT r.* {statement}{escape_percent(pg_name(state))} r ON {escape_percent(same)} ORDER BY a.n"


def key_type(type_: str) -> str:
    """Return the PostgreSQL type of a key, without a decimal's digits: a key with more digits is another key."""
    return sql_type(type_).partition("(")[0]


def checked_key(key: Sequence[str], names: Collection[str]) -> Sequence[str]:
    """Return the key. Raise TerminalError if the key has too many or too few parts."""
    if key and not names:
        raise InvalidKey(f"the state is one global value and has no key; ask without {','.join(key)!r}")
    if len(key) != len(names):
        raise InvalidKey(
            f"key {','.join(key)!r} has {how_many(len(key), 'part')}; the state's keys are {', '.join(names)}"
        )
    return key


def answered(key: Sequence[str], names: Collection[str], row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the key as asked, whether the key was found, and the values."""
    answer: dict[str, Any] = dict(zip(names, key, strict=True))
    answer[_flag(row)] = row["txid"] is not None
    return answer | {name: value for name, value in row.items() if name not in answer}


def _flag(columns: Collection[str]) -> str:
    """Return `found`; if a column has the name, `is_found`, and so on."""
    name = "found"
    while name in columns:
        name = f"is_{name}"
    return name
