"""Questions about a state's past, outside SQL: through the functions made by `postgres.schema.history`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from math import isclose
from typing import Any

from psycopg2.errors import InvalidParameterValue
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DataError

from txbatch.core.aggregates.merge import merge_named
from txbatch.core.corrections.verify import TOLERANCE
from txbatch.core.definition.job_rules import Jobs, defined, no_jobs, python_rule
from txbatch.core.errors import (
    CannotAsk,
    InvalidKey,
    PastNotKept,
    PastStillOpen,
    TerminalError,
    UnknownName,
    error_of,
)
from txbatch.core.state.state import changes_name, versions_name
from txbatch.core.topology.kept_windows import KeptWindows, Left
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.postgres.apart.warehouses import Warehouses
from txbatch.postgres.database.driver_errors import message_of
from txbatch.postgres.database.expressions import escape_percent, listed, pg_name
from txbatch.postgres.database.generations import CURRENT, past
from txbatch.postgres.database.queries import query
from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.reading.ledger_reader import LedgerReader, Rows, answered, checked_key, key_type, keys_listed
from txbatch.postgres.schema.python_history import PythonHistory
from txbatch.postgres.state.folds import Folds

# The last columns of report.why_<state>, whatever they are called there.
_ABOUT = (
    *("counts", "removed", "counted", "attempt", "dag_id", "run_id", "run", "interval_start", "interval_end"),
    *("committed_at", "reason", "requested_by", "reads"),
)
_MARKS = ("removed", "counted")
_NOW = "`txbatch query` has its values as they are"
# For the keys of a whole state, which are hashed: less, where they do not fit, goes by way of the disk.
_MEMORY = "256MB"
Key = Sequence[str]


class HistoryReader(LedgerReader):
    """Read the past of states. Every method is one transaction with one snapshot.

    Raise UnknownName if the state is unknown; TerminalError if the state's past is not kept, and for bad keys as in `query`.
    `jobs` has the jobs whose Python merges values.
    """

    def __init__(self, engine: Engine, warehouses: Warehouses | None = None, jobs: Jobs = no_jobs) -> None:
        super().__init__(engine, warehouses)
        self.jobs = jobs

    def txid_at(self, state: str, at: datetime) -> int:
        """Return the newest txid committed at a moment; 0 if there was none.

        Raise TerminalError if reports at the moment showed a rebuild's new count without a batch since: no txid has the same
        rows.
        """
        self._dated(state)
        (found,) = self._rows("reach", state=state, at=at)
        if found["rebuild"] is None:
            return int(found["then"])
        later = _NOW if found["newest"] == found["then"] else "ask as of the next txid"
        raise PastNotKept(
            f"state {state!r}: at {at.isoformat()} reports showed what rebuild {found['rebuild']} had counted anew, with no "
            f"batch since, which no txid stands for: {later}; reports before {found['swapped_at'].isoformat()} are those as of "
            f"txid {found['then']}"
        )

    def as_of(
        self, state: str, txid: int, keys: Sequence[Key] = (), *, corrected: bool = False, limit: int | None = None
    ) -> Rows:
        """Return the rows of a state as of a txid: an answer for each key, as in `query`, or without keys the first rows.

        Raise TerminalError if the txid is not committed, or was folded.
        """
        with self._naming_nearest(state, txid):
            return self._as_of(state, txid, keys, corrected=corrected, limit=limit)

    def _as_of(self, state: str, txid: int, keys: Sequence[Key], *, corrected: bool, limit: int | None) -> Rows:
        stored, generation, known = self._dated(state), CURRENT, "report.known_at("
        if not corrected and (before := self._before(state, txid)) is not None:
            stored, generation = {**stored, "columns": before["columns"]}, past(before["rebuild"])
            known = f"report.known_before({before['rebuild']:d}, "
        own = self._own(stored)
        typed = dict(stored["columns"]["keys"])
        if keys and not typed:
            raise InvalidKey(f"state {state!r} is one global value and has no key; ask without")
        rows = f"{_function('corrected' if corrected else 'as_of', state, generation.reports)}(%(txid)s)"
        asked = [checked_key(key, typed) for key in keys]
        with self._asking(state, typed) as connection:
            # The function asks so for each row that it finds, which may be none.
            connection.exec_driver_sql(f"SELECT {known}%(state)s, %(txid)s)", {"state": state, "txid": txid})
            if own:
                rows = _folded(PythonHistory.of(connection, own, generation), txid, typed, asked, corrected=corrected)
            if not asked:
                connection.execute(query("hash_in_memory"), {"memory": _MEMORY})
                order = f" ORDER BY {escape_percent(listed(map(pg_name, typed)))}" if typed else ""
                statement = f"SELECT * FROM {rows}{order} LIMIT %(limit)s"
                return [
                    dict(row)
                    for row in connection.exec_driver_sql(statement, {"txid": txid, "limit": limit}).mappings()
                ]
            one = f"SELECT * FROM {rows} WHERE {_same(typed)}"  # key by key: each by index
            given = [{"txid": txid, **_parameters(key)} for key in asked]
            found = [connection.exec_driver_sql(one, each).mappings().first() for each in given]
            names = self._columns(connection, state, generation.reports)
            return [
                answered(key, typed, dict(row or dict.fromkeys(names))) for key, row in zip(asked, found, strict=True)
            ]

    def why(self, state: str, key: Key = ()) -> dict[str, Any]:
        """Return a key's value, all versions of its positions, and `equal`: whether the versions amount to the value.

        `equal` is None if only the job could merge the values, by a rule of its own; to a role that reads the schema report
        alone also if no txid was committed since a rebuild. Raise UnknownName if the key never existed.
        """
        stored = self._dated(state)
        typed = dict(stored["columns"]["keys"])
        asked = _parameters(checked_key(key, typed))
        casts = _casts(typed)
        with self._asking(state, typed) as connection:
            found = connection.exec_driver_sql(
                f"SELECT * FROM {_function('why', state)}({listed(casts)})", asked
            ).mappings()
            versions = [_version(dict(row), removable="remove" in stored["columns"]) for row in found]
            report = f"SELECT * FROM report.{escape_percent(pg_name(state))} WHERE {_same(typed)}"
            row = connection.exec_driver_sql(report, asked).mappings().first()
            if not versions and row is None:
                _check_left(connection, stored, key, casts, asked)
                raise UnknownName(f"state {state!r} has no key {','.join(key)!r}, and never had: no batch counted one")
            equal = amount_to(connection, stored, row, casts, asked)
        values = {name: value for name, value in row.items() if name not in (*typed, "txid")} if row else None
        told = {
            "state": state,
            "topology": stored["topology"],
            "key": dict(zip(typed, key, strict=True)),
            "values": values,
        }
        return told | {"txid": row["txid"] if row else None, "equal": equal, "versions": versions}

    def told_without(self, state: str, txid: int) -> str | None:
        """Return the windows missing from a state as of a txid, because they have left (R30). Return None if none are missing."""
        stored = self._dated(state)
        if (before := self._before(state, txid)) is not None:
            left = Left.from_json(before["left"]) if before["left"] else None
        else:
            with transaction(self.engine) as connection:
                left = _left(connection, stored)
        return (
            None
            if left is None or left.txid <= txid
            else f"as of txid {txid} these windows are missing: {left.describe(state)}"
        )

    def restatements(self, topology: str, limit: int = 20) -> Rows:
        """Return the newest restates of a topology. Raise UnknownName if the topology is unknown."""
        self._check_known(topology)
        return self._rows("restatements", topology=topology, limit=limit)

    def _dated(self, state: str) -> dict[str, Any]:
        """Return a state's row in the ledger, if the state's past is kept."""
        stored = self._state(state)
        if stored["database"] is not None:
            where = f"apart, in {stored['database']!r}, without contributions"
            raise PastNotKept(f"state {state!r} is kept {where}: its past is not kept; {_NOW}")
        if not stored["contributions"]:
            raise PastNotKept(f"state {state!r} is kept without contributions, so its past is not kept; {_NOW}")
        with transaction(self.engine) as connection:
            versions = {"name": f"report.{pg_name(versions_name(state))}"}
            made = connection.execute(query("relation_exists"), versions).scalar_one()
        if not made:
            raise PastNotKept(
                f"state {state!r} was made by an earlier version; its past can be asked once its job has run again"
            )
        return stored

    @contextmanager
    def _naming_nearest(self, state: str, txid: int) -> Iterator[None]:
        """Context manager. Add to an error about the past the nearest txid that the state can be asked as of, if any."""
        try:
            yield
        except (PastNotKept, PastStillOpen) as error:
            for askable in self._rows("askable", state=state):
                if askable["first"] <= askable["last"]:
                    error.about = {"state": state, "txid": min(max(txid, askable["first"]), askable["last"])}
            raise

    def _own(self, stored: Mapping[str, Any]) -> PersistentAggregate | None:
        """Return the job's definition of a state if the job's Python merges values; otherwise None.

        Raise TerminalError if the job is not available, or defines the state in another way.
        """
        state, columns = stored["state"], stored["columns"]
        rule = python_rule(columns)
        if rule is None:
            return None
        try:
            return defined(self.jobs, stored["topology"], state, columns)
        except TerminalError as error:
            raise CannotAsk(
                f"state {state!r} merges {rule}, which is Python of its job, and the job cannot be loaded: {error}; "
                f"`txbatch why {state} KEY` and report.{changes_name(state)} have what each batch contributed"
            ) from error

    def _before(self, state: str, txid: int) -> dict[str, Any] | None:
        """Return the rebuild before whose swap reports showed the state as of a txid. Return None if none is kept."""
        found = next(iter(self._rows("past_with", state=state, txid=txid)), None)
        return None if found is None or found["dropped"] or found["columns"] is None else found

    def _columns(self, connection: Connection, state: str, schema: str = "report") -> list[str]:
        return [row.name for row in connection.execute(query("columns_of"), {"name": f"{schema}.{pg_name(state)}"})]

    @contextmanager
    def _asking(self, state: str, typed: Mapping[str, str]) -> Iterator[Connection]:
        """Context manager. Open one snapshot. Raise TerminalError for a bad key, and for a txid that cannot be asked."""
        with transaction(self.engine.execution_options(isolation_level="REPEATABLE READ")) as connection:
            try:
                yield connection
            except DataError as error:
                message = message_of(error.orig)
                if isinstance(error.orig, InvalidParameterValue):  # of our own functions, which say it all
                    raise error_of(message, PastNotKept) from error
                raise InvalidKey(f"state {state!r} has the key {keys_listed(typed)}; {message}") from error


def _folded(own: PythonHistory, txid: int, typed: Mapping[str, str], asked: Sequence[Key], *, corrected: bool) -> str:
    """Return the rows of a state as of a txid, for FROM: the rows of the keys or, without keys, all rows."""
    of_keys = None
    if asked:
        keys = f"SELECT {listed(_casts(typed))}"
        own.connection.exec_driver_sql(
            f"CREATE TEMP TABLE asked ON COMMIT DROP AS {keys} WHERE false", _parameters(asked[0])
        )
        for key in asked:
            own.connection.exec_driver_sql(f"INSERT INTO pg_temp.asked {keys}", _parameters(key))
        of_keys = "SELECT * FROM pg_temp.asked"
    found = own.corrected(txid, of_keys) if corrected else own.as_of(txid, of_keys)
    return f"({escape_percent(found)}) r"


def _function(prefix: str, state: str, schema: str = "report") -> str:
    return f"{schema}.{escape_percent(pg_name(f'{prefix}_{state}'))}"


def _check_left(
    connection: Connection, stored: Mapping[str, Any], key: Key, casts: Sequence[str], asked: Mapping[str, str]
) -> None:
    """Raise UnknownName if a missing key belongs to a window that began before the windows that have left."""
    left = _left(connection, stored)
    names = [name for name, _ in stored["columns"]["keys"]]
    if left is None or left.kept.window.name not in names:
        return
    start = casts[names.index(left.kept.window.name)]
    before = f"SELECT {start} < timestamptz 'epoch' + %(before)s * interval '1 microsecond'"
    if connection.exec_driver_sql(before, {**asked, "before": left.before}).scalar():
        raise UnknownName(
            f"state {stored['state']!r} has no key {','.join(key)!r} any more, if it ever had: {left.describe(stored['state'])}"
        )


def _parameters(key: Key) -> dict[str, str]:
    return {f"k{n}": part for n, part in enumerate(key)}


def _casts(typed: Mapping[str, str]) -> list[str]:
    return [f"CAST(%(k{n})s AS {key_type(type_)})" for n, type_ in enumerate(typed.values())]


def _same(typed: Mapping[str, str]) -> str:
    pairs = zip(typed, _casts(typed), strict=True)
    return " AND ".join(f"{escape_percent(pg_name(name))} = {part}" for name, part in pairs) or "true"


def _version(row: dict[str, Any], *, removable: bool) -> dict[str, Any]:
    """Return a row of report.why_<state>, with the values in `values` and every other column by its own name."""
    about = [name for name in _ABOUT if removable or name not in _MARKS]
    cells = list(row.items())
    numbers = dict(zip(("position", "txid", "replaced_by"), [value for _, value in cells[:3]], strict=True))
    values = dict(cells[3 : -len(about)])
    return {**numbers, "values": values, **dict(zip(about, [value for _, value in cells[-len(about) :]], strict=True))}


def _left(connection: Connection, stored: Mapping[str, Any]) -> Left | None:
    """Return the windows that have left a state, or None."""
    found = connection.execute(query("reported_windows_left"), {"topology": stored["topology"]})
    of_states = {row.state: row for row in found}
    if (row := of_states.get(stored["state"])) is None:
        return None
    return Left(KeptWindows.from_json(row.kept), row.left_before, row.txid, row.windows, row.records)


def amount_to(
    connection: Connection, stored: Mapping[str, Any], row: Any, casts: Sequence[str], asked: Mapping[str, str]
) -> bool | None:
    """Return whether a key's counting contributions amount to the report's row; None if this cannot be told here."""
    if not all(merge_named(merge) for *_, merge in stored["columns"]["values"]):
        return None
    if connection.execute(query("reads_contributions")).scalar_one():
        return _amounts(connection, stored, casts, asked)
    return _shown_alike(connection, stored, row, asked)


def _shown_alike(connection: Connection, stored: Mapping[str, Any], row: Any, asked: Mapping[str, str]) -> bool | None:
    """Return whether the report as of the newest txid, folded from all contributions of a key, has the report's row.

    The right to read the schema report is enough. None if the newest txid cannot be asked.
    """
    (known,) = connection.execute(query("askable"), {"state": stored["state"]}).mappings().all()
    if known["first"] > known["last"]:
        return None
    connection.execute(query("fold_all"))
    typed = dict(stored["columns"]["keys"])
    of_newest = f"SELECT * FROM {_function('as_of', stored['state'])}(%(newest)s) WHERE {_same(typed)}"
    folded = connection.exec_driver_sql(of_newest, {**asked, "newest": known["last"]}).mappings().first()
    if folded is None or row is None:
        return folded is None and row is None
    return all(_alike(row[name], folded[name]) for name in row if name != "txid")


def _amounts(connection: Connection, stored: Mapping[str, Any], casts: Sequence[str], asked: Mapping[str, str]) -> bool:
    """Return whether a key's counting contributions amount to the state's row.

    For a session, compare the contributions and rows of all its pieces.
    """
    folds = Folds(stored["topology"], stored["state"], stored["columns"])
    keys = [f"{cast} AS {escape_percent(key)}" for cast, key in zip(casts, folds.keys, strict=False)] or [
        f"true AS {folds.keys[0]}"
    ]
    same = " AND ".join(f"r.{key} = k.{key}" for key in folds.keys)
    there = " WHERE counted" if folds.removable else ""
    row = [f"r.{name}" for name in (*folds.keys, *folds.values)]
    state = f"(SELECT * FROM {folds.generation.state(folds.state)}{there})"
    end = stored["columns"].get("sessions")
    of = escape_percent(f"SELECT * FROM one k{_pieces(folds, pg_name(end)) if end else ''}")
    ordered = listed(f"r.{key}" for key in folds.keys)
    has, amounts = (
        connection.exec_driver_sql(
            f"WITH one AS (SELECT {listed(keys)}), asked AS ({of}) "
            + escape_percent(f"SELECT {listed(row)} FROM asked k JOIN {rows} r ON {same} ORDER BY {ordered}"),
            asked,
        ).all()
        for rows in (state, f"({folds.now('asked')})")
    )
    pairs = zip(has, amounts, strict=False)
    return len(has) == len(amounts) and all(all(map(_alike, *pair)) for pair in pairs)


def _pieces(folds: Folds, end: str) -> str:
    """Return the SQL that adds the keys of all pieces of the session of key `k`."""
    *others, start = folds.keys
    same = " AND ".join(f"s.{key} = k.{key}" for key in folds.keys)
    last = f"(SELECT s.{end} FROM report.{pg_name(folds.state)} s WHERE {same})"
    within = " AND ".join([*(f"p.{key} = k.{key}" for key in others), f"p.{start} BETWEEN k.{start} AND {last}"])
    own = listed(f"p.{key}" for key in folds.keys)
    state, versions = folds.generation.state(folds.state), f"report.{pg_name(versions_name(folds.state))}"
    return "".join(f" UNION SELECT {own} FROM one k JOIN {table} p ON {within}" for table in (state, versions))


def _alike(one: Any, other: Any) -> bool:
    """Return whether two values are equal; doubles may differ by the order of adding."""
    return bool(
        one == other or (isinstance(one, float) and isinstance(other, float) and isclose(one, other, rel_tol=TOLERANCE))
    )
