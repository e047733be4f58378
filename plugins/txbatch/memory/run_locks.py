"""Names held by a process, in memory. Compare `postgres.database.run_locks`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class MemoryRunLocks:
    """`core.protocol.ports.RunLocks` in the calling process: a finished block, after an error too, holds nothing any more."""

    def __init__(self) -> None:
        self.names: frozenset[tuple[str, str]] = frozenset()

    @contextmanager
    def hold(self, topology: str, name: str) -> Iterator[bool]:
        """Context manager. Hold a name of a topology until the block ends; yield False if another block holds the name."""
        if self.held(topology, name):
            yield False
            return
        self.names |= {(topology, name)}
        try:
            yield True
        finally:
            self.names -= {(topology, name)}

    def held(self, topology: str, name: str) -> bool:
        """Return whether a block holds the name."""
        return (topology, name) in self.names
