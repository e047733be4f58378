"""Names that one process holds until it ends, as the driver sees them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

REBUILD = "rebuild"  # held by who rebuilds; no run is called so


class RunLocks(Protocol):
    """A killed process holds no name any more. `postgres.database.run_locks` has the real ones, `memory.run_locks` their twin."""

    def hold(self, topology: str, name: str) -> AbstractContextManager[bool]:
        """Context manager. Hold a name of a topology until the block ends; yields False while a living process holds it."""

    def held(self, topology: str, name: str) -> bool:
        """True while a living process holds the name."""
