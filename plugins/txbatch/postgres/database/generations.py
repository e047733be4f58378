"""The schemas of a generation of states: the current generation, a rebuild's next, and the generations replaced (R23).

>>> CURRENT.contribution("word_count"), coming(7).state("word_count"), past(7).schemas[0]
('contribution."word_count"', 'state_next_7."word_count"', 'state_past_7')
"""

from __future__ import annotations

from dataclasses import dataclass

from txbatch.postgres.database.expressions import pg_name

_KINDS = ("state", "contribution", "contribution_base", "contribution_partition")


@dataclass(frozen=True, slots=True)
class Generation:
    """Schemas whose names have the same ending; the current generation has the ending ''.

    Methods return the quoted tables of a state.
    """

    suffix: str = ""

    @property
    def schemas(self) -> tuple[str, ...]:
        """The schemas: each kind of table has a schema."""
        return tuple(f"{kind}{self.suffix}" for kind in _KINDS)

    @property
    def reports(self) -> str:
        """The schema of the generation's reports."""
        return f"report{self.suffix}"

    def state(self, name: str) -> str:
        """Return the table of a state's rows."""
        return f"state{self.suffix}.{pg_name(name)}"

    def contribution(self, name: str) -> str:
        """Return the table of a state's contributions."""
        return f"contribution{self.suffix}.{pg_name(name)}"

    def base(self, name: str) -> str:
        """Return the table of a state's contributions folded by retention."""
        return f"contribution_base{self.suffix}.{pg_name(name)}"

    def partition(self, name: str, first: int) -> str:
        """Return the partition of a state's contributions that begins with the txid `first`."""
        return f"contribution_partition{self.suffix}.{pg_name(f'{name}@{first}')}"


CURRENT = Generation()


def coming(rebuild: int) -> Generation:
    """Return the generation that a rebuild counts."""
    return Generation(f"_next_{rebuild:d}")


def past(rebuild: int) -> Generation:
    """Return the generation that a rebuild replaced."""
    return Generation(f"_past_{rebuild:d}")
