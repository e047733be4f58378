"""What of a state's views in `report` outlives that they are dropped and made anew: the order of columns, and who may read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from txbatch.core.state import changes_name, versions_name
from txbatch.postgres.expressions import pg_name
from txbatch.postgres.queries import query


@dataclass(frozen=True, slots=True, order=True)
class Grant:
    """What a role, which is quoted, may do with a view."""

    view: str
    role: str
    privilege: str
    grantable: bool

    def statement(self) -> str:
        """Return what grants it."""
        option = " WITH GRANT OPTION" if self.grantable else ""
        return f"GRANT {self.privilege} ON report.{pg_name(self.view)} TO {self.role}{option}"

    def undone(self) -> str:
        """Return what takes it away."""
        return f"REVOKE {self.privilege} ON report.{pg_name(self.view)} FROM {self.role}"


@dataclass(frozen=True, slots=True)
class KeptReports:
    """The views of a state as they were: columns in order, and grants."""

    views: Mapping[str, Sequence[str]]
    granted: frozenset[Grant]

    @classmethod
    def of(cls, connection: Connection, state: str) -> KeptReports:
        """Read them."""
        found = connection.execute(
            query("report_columns"), {"views": [state, changes_name(state), versions_name(state)]}
        ).mappings()
        views = {row["view"]: row["columns"] for row in found}
        return cls(views, _granted(connection, [*views]))

    def named(self, was: str, state: str) -> KeptReports:
        """The same of a state that has another name now."""
        names = {of(was): of(state) for of in (str, changes_name, versions_name)}
        granted = frozenset(replace(grant, view=names[grant.view]) for grant in self.granted)
        return KeptReports({names[view]: columns for view, columns in self.views.items()}, granted)

    def columns(self, renamed: Mapping[str, str]) -> dict[str, list[str]]:
        """The columns of each view, in order, some of them by another name."""
        return {view: [renamed.get(name, name) for name in names] for view, names in self.views.items()}

    def grants(self, connection: Connection) -> Iterator[str]:
        """Yield what makes the grants what they were."""
        now = _granted(connection, [*self.views])
        yield from (grant.undone() for grant in sorted(now - self.granted))
        yield from (grant.statement() for grant in sorted(self.granted - now))


def _granted(connection: Connection, views: Sequence[str]) -> frozenset[Grant]:
    rows = connection.execute(query("report_grants"), {"views": views}).mappings()
    return frozenset(Grant(**row) for row in rows)
