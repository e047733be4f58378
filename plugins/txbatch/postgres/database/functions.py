"""Functions of PostgreSQL in the schema `report`, made from a definition; and the names of their arguments and results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from txbatch.postgres.database.expressions import listed, pg_name, pg_text

# With which the names of a state's functions begin.
PREFIXES = ("get", "closed", "as_of", "corrected", "changes", "why")


@dataclass(frozen=True, slots=True)
class Function:
    """A function in the schema `report`: arguments (names with types), body, and purpose.

    `returns` is the view that the rows come from, or names with types, too.
    """

    name: str
    takes: Mapping[str, str]
    returns: str | Mapping[str, str]
    body: str
    said: str

    @property
    def signature(self) -> str:
        """The name with the types of the arguments."""
        return f"report.{pg_name(self.name)}({listed(self.takes.values())})"

    @property
    def columns(self) -> list[list[str]]:
        """The names and types of arguments and results, in the order of the catalog."""
        returns = {} if isinstance(self.returns, str) else self.returns
        return [list(each) for each in (*self.takes.items(), *returns.items())]

    def statements(self) -> list[str]:
        """Return the statements that create or replace the function, with its comment."""
        # Rows of a view have its collations, without which no index would find a key.
        returns = f"SETOF {self.returns}" if isinstance(self.returns, str) else f"TABLE ({_typed(self.returns)})"
        return [
            f"CREATE OR REPLACE FUNCTION report.{pg_name(self.name)}({_typed(self.takes)}) RETURNS {returns} "
            f"LANGUAGE sql STABLE PARALLEL SAFE AS {pg_text(self.body)}",
            f"COMMENT ON FUNCTION {self.signature} IS {pg_text(self.said)}",
        ]


def _typed(names: Mapping[str, str]) -> str:
    return listed(f"{pg_name(name)} {type_}" for name, type_ in names.items())
