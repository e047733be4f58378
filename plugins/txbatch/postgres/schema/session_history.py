"""The functions on the past of a state by sessions: the pieces of a moment are folded in one pass, then joined (R27)."""

from __future__ import annotations

from dataclasses import dataclass

from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.windows.session_window import SessionWindow
from txbatch.postgres.database.expressions import listed, pg_name
from txbatch.postgres.database.functions import Function
from txbatch.postgres.schema.history import StateHistory
from txbatch.postgres.schema.sessions import rows_at, rows_corrected


@dataclass(frozen=True, slots=True)
class SessionHistory(StateHistory):
    """The functions on the past of a state by sessions: sessions have no history of their own, their pieces do."""

    def as_of(self) -> Function:
        body = self._known_rows(rows_at(self.aggregate, self._sessions, "$1"))
        return self._dated("as_of", body, "as in reports when this txid was the newest committed txid")

    def corrected(self) -> Function:
        body = self._known_rows(rows_corrected(self.aggregate, self._sessions, "$1"))
        return self._dated("corrected", body, "after all up to this txid, as it was restated until today")

    def changes(self) -> Function:
        keys = range(len(self.aggregate.keys))
        before, after = (
            f"(SELECT s.*, true AS there FROM ({rows_at(self.aggregate, self._sessions, txid)}) s)"
            for txid in ("$1", "$2")
        )
        same = " AND ".join(f"a.k{n} = b.k{n}" for n in keys)
        shown = [f"COALESCE(a.k{n}, b.k{n})" for n in keys]
        were, are = (self._values(row, "0_") for row in "ba")
        were, are = (
            [f"CASE WHEN {row}.there THEN {value} END" for value in values] for row, values in (("b", were), ("a", are))
        )
        change = "CASE WHEN b.there IS NULL THEN 'added' WHEN a.there IS NULL THEN 'removed' ELSE 'changed' END"
        # Of one that is no more nobody knows more than that it was in between.
        txid = "CASE WHEN $1 > $2 THEN COALESCE(b.txid, $1) ELSE COALESCE(a.txid, $2) END"
        pairs = [each for pair in zip(were, are, strict=True) for each in pair]
        differ = f"(b.there, {listed(were)}) IS DISTINCT FROM (a.there, {listed(are)})"
        return self._of_changes(
            f"SELECT {listed([*shown, change, *pairs, txid])} FROM {before} b FULL JOIN {after} a ON {same} "
            f"WHERE {differ} AND {self._known('$1')} AND {self._known('$2')}"
        )

    def _known_rows(self, rows: str) -> str:
        return f"SELECT {listed(self._finished())} FROM ({rows}) c WHERE {self._known('$1')}"

    def _of_key(self) -> list[str]:
        """Return the conditions for the versions of a session: versions that begin within the present session."""
        *others, start = (pg_name(key.name) for key in self.aggregate.keys)
        equal = [f"v.{name} = ${n}" for n, name in enumerate(others, 1)]
        of_now = [f"r.{name} = ${n}" for n, name in enumerate([*others, start], 1)]
        end = f"SELECT r.{pg_name(self._sessions.end_name)} FROM report.{self._name} r WHERE {' AND '.join(of_now)}"
        begin = f"${len(others) + 1}"
        return [*equal, f"v.{start} BETWEEN {begin} AND COALESCE(({end}), {begin})"]

    @property
    def _sessions(self) -> SessionWindow:
        if self.aggregate.sessions is None:
            raise AssertionError(f"{self.aggregate.state.name}: it has no sessions")
        return self.aggregate.sessions


def history_of(aggregate: PersistentAggregate, types: dict[str, str]) -> StateHistory:
    """Return the functions on a state's past; `types` are the types of the report's columns."""
    return (SessionHistory if aggregate.sessions else StateHistory)(aggregate, types)
