"""Where a generation of states stands: the one that counts, one that a rebuild counts anew, and those it replaced (R23).

>>> CURRENT.contribution("word_count"), coming(7).state("word_count"), past(7).schemas[0]
('contribution."word_count"', 'state_next_7."word_count"', 'state_past_7')
"""

from __future__ import annotations

from dataclasses import dataclass

from txbatch.postgres.database.expressions import pg_name

_KINDS = ("state", "contribution", "contribution_base", "contribution_partition")


@dataclass(frozen=True, slots=True)
class Generation:
    """Schemas whose names end alike; '' is the generation that counts. What is returned of a state is a quoted table."""

    suffix: str = ""

    @property
    def schemas(self) -> tuple[str, ...]:
        """The schemas, one for each kind of table."""
        return tuple(f"{kind}{self.suffix}" for kind in _KINDS)

    @property
    def reports(self) -> str:
        """The schema of what people ask of it."""
        return f"report{self.suffix}"

    def state(self, name: str) -> str:
        """The table of a state's rows."""
        return f"state{self.suffix}.{pg_name(name)}"

    def contribution(self, name: str) -> str:
        """The table of its contributions."""
        return f"contribution{self.suffix}.{pg_name(name)}"

    def base(self, name: str) -> str:
        """The table of what retention folded of them."""
        return f"contribution_base{self.suffix}.{pg_name(name)}"

    def partition(self, name: str, first: int) -> str:
        """The partition of the contributions that begins with this txid."""
        return f"contribution_partition{self.suffix}.{pg_name(f'{name}@{first}')}"


CURRENT = Generation()


def coming(rebuild: int) -> Generation:
    """Return the generation that a rebuild counts."""
    return Generation(f"_next_{rebuild:d}")


def past(rebuild: int) -> Generation:
    """Return the generation that a rebuild replaced."""
    return Generation(f"_past_{rebuild:d}")
