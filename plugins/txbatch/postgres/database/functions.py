"""Functions of PostgreSQL that are made from a definition, in the schema `report`; and names for what they take and return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from txbatch.postgres.database.expressions import listed, pg_name, pg_text

# With which the names of a state's functions begin.
PREFIXES = ("get", "closed", "as_of", "corrected", "changes", "why")


@dataclass(frozen=True, slots=True)
class Function:
    """A function in the schema `report`: what it takes, names with types, its body, and what it is for.

    `returns` is the view of whose rows it returns some, or names with types, too.
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
        """What it takes and returns, as the catalog has it."""
        returns = {} if isinstance(self.returns, str) else self.returns
        return [list(each) for each in (*self.takes.items(), *returns.items())]

    def statements(self) -> list[str]:
        """What makes it, or makes it anew, with its comment."""
        # Rows of a view have its collations, without which no index would find a key.
        returns = f"SETOF {self.returns}" if isinstance(self.returns, str) else f"TABLE ({_typed(self.returns)})"
        return [
            f"CREATE OR REPLACE FUNCTION report.{pg_name(self.name)}({_typed(self.takes)}) RETURNS {returns} "
            f"LANGUAGE sql STABLE PARALLEL SAFE AS {pg_text(self.body)}",
            f"COMMENT ON FUNCTION {self.signature} IS {pg_text(self.said)}",
        ]


def _typed(names: Mapping[str, str]) -> str:
    return listed(f"{pg_name(name)} {type_}" for name, type_ in names.items())
