"""Removes unread leftovers of killed processes from the staging area (R22).

A txid's folders are removed at the txid's success. Folders of an aborted txid, or of a success that never ran, stay. Records
read again beside the ledger are removed at the end of the process, unless the process is killed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from txbatch.core.protocol.ports import REBUILD, RunLocks
from txbatch.storage.staging import TOKEN_CHARACTERS, AttemptFolder, Staging

# Whoever verifies writes something within minutes; what nobody has written to for so long is left.
UNTOUCHED = timedelta(days=1)
_TXID = re.compile(r"[1-9][0-9]{0,18}")
_VERIFY = re.compile(rf"verify-(\w{{{TOKEN_CHARACTERS}}})")


@dataclass(frozen=True, slots=True)
class StagingLeftovers:
    """Finds and removes leftovers. A running rebuild holds a lock, and keeps the rebuild's folder."""

    staging: Staging
    locks: RunLocks
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    def number(self, topology: str, final: int) -> int:
        """Return the number of folders `remove` would remove now."""
        left = list(self._left(topology, final))
        return len(left) + (self._rebuilt(topology) is not None and not self.locks.held(topology, REBUILD))

    def remove(self, topology: str, final: int) -> int:
        """Remove the folders of final txids up to `final`, and of ended processes; return the number of removed folders."""
        left = list(self._left(topology, final))
        for folder in left:
            folder.remove()
        return len(left) + self._remove_rebuilt(topology)

    def _left(self, topology: str, final: int) -> Iterator[AttemptFolder]:
        for name in self._names(topology):
            if _TXID.fullmatch(name) and int(name) <= final:
                yield self.staging.transaction(topology, int(name))
            if (found := _VERIFY.fullmatch(name)) and self._untouched(
                folder := self.staging.verified(topology, found[1])
            ):
                yield folder

    def _remove_rebuilt(self, topology: str) -> int:
        folder = self._rebuilt(topology)
        if folder is None:
            return 0
        with self.locks.hold(topology, REBUILD) as held:
            if held:
                folder.remove()
            return int(held)

    def _rebuilt(self, topology: str) -> AttemptFolder | None:
        folder = self.staging.rebuilt(topology)
        return folder if folder.uri.rpartition("/")[2] in self._names(topology) else None

    def _names(self, topology: str) -> list[str]:
        return [folder.uri.rpartition("/")[2] for folder in self.staging.topology(topology).folders()]

    def _untouched(self, folder: AttemptFolder) -> bool:
        """Return whether nobody wrote into a folder for the time UNTOUCHED. False also if the filesystem gives no times."""
        filesystem, root = folder.filesystem, folder.path("").rstrip("/")
        with suppress(OSError, NotImplementedError, AttributeError):
            written = [filesystem.modified(path) for path in filesystem.find(root) or [root]]
            return max(map(_in_utc, written)) < self.clock() - UNTOUCHED
        return False


def _in_utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
