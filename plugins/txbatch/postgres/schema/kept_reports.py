"""The part of a state's views and functions to restore after they are created again: the order of columns, and grants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from txbatch.core.state.state import report_names
from txbatch.postgres.database.expressions import pg_name
from txbatch.postgres.database.functions import PREFIXES
from txbatch.postgres.database.queries import query


@dataclass(frozen=True, slots=True, order=True)
class Grant:
    """A right of a role on a view or function; `role` is quoted. `kind` is the kind of object in GRANT."""

    kind: str
    name: str
    role: str
    privilege: str
    grantable: bool

    def statement(self) -> str:
        """Return the statement that grants the right."""
        return f"GRANT {self.privilege} ON {self._on} TO {self.role}{' WITH GRANT OPTION' if self.grantable else ''}"

    def undone(self) -> str:
        """Return the statement that revokes the right."""
        return f"REVOKE {self.privilege} ON {self._on} FROM {self.role}"

    @property
    def _on(self) -> str:
        return f"{self.kind} report.{pg_name(self.name)}"


@dataclass(frozen=True, slots=True)
class KeptReports:
    """The former views and functions of a state: columns of views in order, and grants."""

    views: Mapping[str, Sequence[str]]
    functions: Sequence[str]
    granted: frozenset[Grant]

    @classmethod
    def of(cls, connection: Connection, state: str) -> KeptReports:
        """Read the views and functions of a state."""
        found = connection.execute(query("report_columns"), {"views": report_names(state)}).mappings()
        views = {row["view"]: row["columns"] for row in found}
        functions = [
            row["name"]
            for row in connection.execute(query("report_functions"), {"names": _functions(state)}).mappings()
        ]
        return cls(views, functions, _granted(connection, [*views], functions))

    def named(self, was: str, state: str) -> KeptReports:
        """Return the views and functions under the state's new name."""
        views = dict(zip(report_names(was), report_names(state), strict=True))
        functions = dict(zip(_functions(was), _functions(state), strict=True))
        names = {"TABLE": views, "FUNCTION": functions}
        return KeptReports(
            {views[view]: columns for view, columns in self.views.items()},
            [functions[name] for name in self.functions],
            frozenset(replace(grant, name=names[grant.kind][grant.name]) for grant in self.granted),
        )

    def columns(self, renamed: Mapping[str, str]) -> dict[str, list[str]]:
        """Return the columns of each view, in order, with renamed columns by their new names."""
        return {view: [renamed.get(name, name) for name in names] for view, names in self.views.items()}

    def of_view(self, view: str) -> list[Grant]:
        """Return the grants on a view."""
        return sorted(grant for grant in self.granted if (grant.kind, grant.name) == ("TABLE", view))

    def grants(self, connection: Connection) -> Iterator[str]:
        """Yield the statements that restore the grants; a new view or function keeps the grants of its creation."""
        now = _granted(connection, [*self.views], self.functions)
        there = {(grant.kind, grant.name) for grant in now}
        yield from (grant.undone() for grant in sorted(now - self.granted))
        yield from (grant.statement() for grant in sorted(self.granted - now) if (grant.kind, grant.name) in there)


def _functions(state: str) -> list[str]:
    return [f"{prefix}_{state}" for prefix in PREFIXES]


def _granted(connection: Connection, views: Sequence[str], functions: Sequence[str]) -> frozenset[Grant]:
    rows = connection.execute(query("report_grants"), {"views": views, "functions": functions}).mappings()
    return frozenset(Grant(**row) for row in rows)
