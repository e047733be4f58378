"""What pages ask of states: keys to choose from, why a value is as it is, what a value was, what changed. Values are texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, Engine

from txbatch.core.errors import CannotAsk, PastNotKept, UnknownName
from txbatch.postgres.database.expressions import escape_percent, listed, pg_name
from txbatch.postgres.database.generations import CURRENT, past
from txbatch.postgres.database.queries import query
from txbatch.postgres.reading.history_reader import HistoryReader, amount_to
from txbatch.postgres.reading.ledger_reader import Rows, checked_key, key_type
from txbatch.ui import shown
from txbatch.ui.reader import told_if_slow
from txbatch.ui.state_payloads import AsOf, Changed, Changes, Column, Keys, Version, Why

KEYS_MAX, VERSIONS_MAX, CHANGES_MAX, CHANGES_OF_BATCH_MAX = 50, 1_000, 200, 50
TEXT = "text"
# The columns of report.why_<state> behind the values and `counts`; those of a state that removes keys have two more.
_ABOUT = ("attempt", "dag_id", "run_id", "run", "start", "end", "committed_at", "reason", "requested_by", "reads")


@dataclass(frozen=True, slots=True)
class Shape:
    """A state with the columns of its report. `stored` is the row of the ledger."""

    stored: Mapping[str, Any]
    keys: list[Column]
    values: list[Column]
    typed: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the state."""
        return str(self.stored["state"])

    @property
    def removable(self) -> bool:
        """True if batches may remove keys."""
        return "remove" in self.stored["columns"]

    def function(self, prefix: str, schema: str = CURRENT.reports) -> str:
        """Return the quoted name of a function on the past of the state."""
        return f"{schema}.{escape_percent(pg_name(f'{prefix}_{self.name}'))}"

    def report(self) -> str:
        """Return the quoted name of the report of the state."""
        return f"{CURRENT.reports}.{escape_percent(pg_name(self.name))}"

    def casts(self) -> list[str]:
        """Return the parameters of a key, typed."""
        return [f"CAST(%(k{n})s AS {key_type(type_)})" for n, type_ in enumerate(self.typed.values())]

    def same(self) -> str:
        """Return the condition that a row has the key."""
        pairs = zip(self.typed, self.casts(), strict=True)
        return " AND ".join(f"{_quoted(name)} = {cast}" for name, cast in pairs) or "true"


class StatePages(HistoryReader):
    """Read states of a topology for pages. Raise UnknownName if the topology has no such state, InvalidKey if a key does not fit,
    PastNotKept if the past is not kept, or is folded.
    """

    def __init__(self, engine: Engine, topology: str) -> None:
        super().__init__(engine)
        self.topology = topology

    def keys(self, state: str, given: Sequence[str], starts: str, limit: int) -> Keys:
        """Return keys to choose from: of the leading columns as given, and of the next column from `starts` on."""
        shape = self._shape(state)
        names = list(shape.typed)
        checked_key(given, names[: len(given)])
        where = [f"{_quoted(name)} = {cast}" for name, cast in zip(names, shape.casts()[: len(given)], strict=False)]
        if starts and len(given) < len(names):
            where += _starts(names[len(given)], shape.typed[names[len(given)]])
        order = listed(_quoted(name) for name in names)
        selected = listed(f"{_quoted(name)}::text" for name in names)
        statement = f"SELECT {selected} FROM {shape.report()} WHERE {' AND '.join(where) or 'true'} ORDER BY {order}"
        if not names:
            return Keys([], [], False)
        asked = {**_parameters(given), "starts": starts, "limit": limit + 1}
        with self._snapshot(shape) as connection:
            found = connection.exec_driver_sql(f"{statement} LIMIT %(limit)s", asked).all()
        return Keys(shape.keys, [list(row) for row in found[:limit]], len(found) > limit)

    def explained(self, state: str, key: Sequence[str], limit: int = VERSIONS_MAX) -> Why:
        """Return where a key's value comes from: the versions of its positions, and whether they amount to the value."""
        shape = self._dated_shape(state)
        asked = _parameters(checked_key(key, shape.typed))
        with self._snapshot(shape) as connection:
            versions = connection.exec_driver_sql(_versions(shape), {**asked, "limit": limit + 1}).all()
            report = f"SELECT * FROM {shape.report()} WHERE {shape.same()}"
            row = connection.exec_driver_sql(report, asked).mappings().first()
            if not versions and row is None:
                raise UnknownName(f"state {state!r} has no key {','.join(key)!r}, and never had: no batch counted one")
            value = None if row is None else _texts(connection, shape, shape.report(), asked)
            equal = amount_to(connection, shape.stored, row, shape.casts(), asked)
        told = [_version(shape, each) for each in versions[:limit]]
        more = len(versions) > limit
        txid = None if row is None else row["txid"]
        return Why(state, list(key), shape.keys, shape.values, value, txid, equal, told, more)

    def then(self, state: str, txid: int, key: Sequence[str], *, corrected: bool) -> AsOf:
        """Return a key's value as of a txid; `corrected`: after all up to the txid, as restated until today."""
        shape = self._past_shape(state)
        asked = {**_parameters(checked_key(key, shape.typed)), "state": state, "txid": txid}
        schema, known = CURRENT.reports, "report.known_at("
        if not corrected and (before := self._before(state, txid)) is not None:
            schema, known = past(before["rebuild"]).reports, f"report.known_before({before['rebuild']:d}, "
            shape = _before_rebuild(shape, before["columns"])
        with self._snapshot(shape) as connection:
            (can,) = connection.execute(query("askable"), {"state": state}).mappings().all()
            connection.exec_driver_sql(f"SELECT {known}%(state)s, %(txid)s)", asked)
            of = f"{shape.function('corrected' if corrected else 'as_of', schema)}(%(txid)s)"
            row = _texts(connection, shape, of, asked)
            found = connection.execute(query("page_moments"), {"topology": self.topology, "txid": txid}).first()
        when = map(shown.at, found or (None, None, None))
        return AsOf(state, list(key), txid, corrected, shape.values, row, can["first"], can["last"], *when)

    def changed(self, state: str, first: int, last: int, limit: int) -> Changes:
        """Return the keys with different values at two txids."""
        shape = self._past_shape(state)
        keys, values = range(len(shape.keys)), range(len(shape.values))
        pairs = [each for n in values for each in (f"b{n}", f"a{n}")]
        names = [*(f"k{n}" for n in keys), "change", *pairs]
        selected = listed(name if name == "change" else f"c.{name}::text" for name in names)
        of = f"{shape.function('changes')}(%(first)s, %(last)s) AS c ({listed(names)})"
        asked = {"first": first, "last": last, "limit": limit + 1, "state": state}
        with self._snapshot(shape) as connection:
            for txid in ("first", "last"):
                connection.exec_driver_sql(f"SELECT report.known_at(%(state)s, %({txid})s)", asked)
            found = connection.exec_driver_sql(f"SELECT {selected} FROM {of} LIMIT %(limit)s", asked).all()
        rows = [_changed(list(row), len(shape.keys)) for row in found[:limit]]
        return Changes(state, first, last, shape.keys, shape.values, rows, len(found) > limit)

    def default_state(self) -> str:
        """Return the first state of the topology whose past can be told. Raise UnknownName if there is none."""
        rows = self._rows("page_states", topology=self.topology)
        for state in map(shown.state, rows):
            if state.past_kept:
                return state.state
        raise UnknownName(f"topology {self.topology!r} has no state whose past is kept")

    def _rows(self, name: str, **parameters: Any) -> Rows:
        with told_if_slow():
            return super()._rows(name, **parameters)

    def _shape(self, state: str) -> Shape:
        """Return a state of the topology with its columns. Raise CannotAsk for a state in another database."""
        found = next((row for row in self._rows("page_states", topology=self.topology) if row["state"] == state), None)
        if found is None:
            raise UnknownName(f"topology {self.topology!r} has no state {state!r}")
        if found["apart"] is not None:
            raise CannotAsk(
                f"state {state!r} is kept in another database, {found['apart']!r}: ask there; it has no past"
            )
        if found["value_columns"] is None:
            raise UnknownName(f"the view of state {state!r} in the schema report is gone")
        stored = self._state(state)
        values = [
            each for each in shown.columns(found["value_columns"]) if each.name in stored["columns"]["aggregates"]
        ]
        return Shape(stored, shown.columns(found["key_columns"]), values, dict(stored["columns"]["keys"]))

    def _dated_shape(self, state: str) -> Shape:
        """Return a state with its past. Raise PastNotKept for any other state."""
        shape = self._shape(state)
        with told_if_slow():
            self._dated(state)
        return replace(shape, values=self._in_order(shape))

    def _in_order(self, shape: Shape) -> list[Column]:
        """Return the values in the order of the functions on the past: a view has older columns first, a function has not."""
        found = self._rows("report_functions", names=[f"why_{shape.name}"])
        if not found:
            return shape.values
        named = {value.name: value for value in shape.values}
        behind = len(_ABOUT) + (3 if shape.removable else 1)
        listed_values = found[0]["columns"][len(shape.typed) + 3 : -behind]
        return [named.get(name, Column(name, type_)) for name, type_ in listed_values]

    def _past_shape(self, state: str) -> Shape:
        """Return a state with a past for PostgreSQL. Raise PastNotKept for any other state."""
        shape = self._dated_shape(state)
        rows = self._rows("page_states", topology=self.topology)
        if any(row["merged_by_job"] for row in rows if row["state"] == state):
            raise PastNotKept(
                f"state {state!r} merges values by Python of its job: `txbatch as-of {state} TXID` in the project's folder tells "
                "its past"
            )
        return shape

    @contextmanager
    def _snapshot(self, shape: Shape) -> Iterator[Connection]:
        """Context manager. Open one snapshot. Raise the errors of a bad key, of a txid that cannot be asked, and TooSlow."""
        with told_if_slow(), self._asking(shape.name, shape.typed) as connection:
            yield connection


def _before_rebuild(shape: Shape, columns: Mapping[str, Any]) -> Shape:
    """Return a state before a rebuild, with the values kept until today. Raise PastNotKept if its key was another."""
    if dict(columns["keys"]) != dict(shape.typed):
        raise PastNotKept(f"state {shape.name!r} had another key before a rebuild: `txbatch as-of` tells its past")
    return replace(shape, values=[value for value in shape.values if value.name in columns["aggregates"]])


def _quoted(name: str) -> str:
    return escape_percent(pg_name(name))


def _parameters(key: Sequence[str]) -> dict[str, Any]:
    return {f"k{n}": part for n, part in enumerate(key)}


def _starts(name: str, type_: str) -> list[str]:
    """Return the conditions for values from a text on; for texts, a common begin."""
    quoted = _quoted(name)
    from_ = f"{quoted} >= CAST(%(starts)s AS {key_type(type_)})"
    return [from_, f"starts_with({quoted}, %(starts)s)"] if key_type(type_) == TEXT else [from_]


def _texts(connection: Connection, shape: Shape, of: str, asked: Mapping[str, Any]) -> list[str | None] | None:
    """Return the values of a key in a report or a function, as texts; None for a missing key."""
    selected = listed([*(f"{_quoted(column.name)}::text" for column in shape.values), "true"])
    row = connection.exec_driver_sql(f"SELECT {selected} FROM {of} WHERE {shape.same()}", dict(asked)).first()
    return None if row is None else list(row)[:-1]


def _versions(shape: Shape) -> str:
    """Return the query of the versions of a key."""
    values = [f"v{n}" for n in range(len(shape.values))]
    marks = ["removed", "counted"] if shape.removable else []
    names = ["position", "txid", "replaced_by", *values, "counts", *marks, *_ABOUT]
    selected = [f"w.{name}::text" if name in values else f"w.{pg_name(name)}" for name in names]
    of = f"{shape.function('why')}({listed(shape.casts())}) AS w ({listed(map(pg_name, names))})"
    return f"SELECT {listed(selected)} FROM {of} LIMIT %(limit)s"


def _version(shape: Shape, row: Sequence[Any]) -> Version:
    position, txid, replaced_by, *rest = row
    values, (counts, *about) = rest[: len(shape.values)], rest[len(shape.values) :]
    told = dict(zip(_ABOUT, about[-len(_ABOUT) :], strict=True))
    return Version(
        position,
        txid,
        replaced_by,
        counts,
        list(values),
        shown.at(told["start"]),
        shown.at(told["end"]),
        told["attempt"],
        told["dag_id"],
        told["run_id"],
        shown.at(told["committed_at"]),
        told["reason"],
        told["requested_by"],
        list(told["reads"] or ()),
    )


def _changed(row: list[Any], keys: int) -> Changed:
    key, change, pairs = row[:keys], row[keys], row[keys + 1 :]
    before, after = pairs[::2], pairs[1::2]
    return Changed(key, None if change == "added" else before, None if change == "removed" else after)
