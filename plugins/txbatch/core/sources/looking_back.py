"""Spouts by time with a look back: the spouts find late records, of intervals counted by earlier batches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from txbatch.core.batch.came_late import Counted, Late
from txbatch.core.batch.transaction import Metadata
from txbatch.core.windows.window import micros


class LooksBack:
    """A spout with a look back. Within `lookback`, a run counts intervals with late records again; None: runs only tell."""

    lookback: str | None = None

    @property
    def lookback_micros(self) -> int | None:
        """The length of the look back, in microseconds. Raise DefinitionError for an invalid length."""
        return None if self.lookback is None else micros(type(self).__name__, "lookback", self.lookback)


class LateRows(NamedTuple):
    """The rows of an interval compared with the counted rows: the number of late rows, of missing rows, and of changed or
    replaced rows.
    """

    late: int
    gone: int
    changed: int = 0


class LooksBackInTable(LooksBack):
    """A spout of a table. The server compares the rows of an interval with a plan, without reading the rows."""

    table: str

    @abstractmethod
    def late_rows(self, plans: Sequence[Metadata]) -> Sequence[LateRows | None]:
        """Return the late and missing rows of each plan's interval; None for a plan of another table."""


class LooksBackInFiles(LooksBack):
    """A spout of files, with late records found during reading. Spout and emitter are the same object."""

    @property
    def by_folders(self) -> bool:
        """True if a plan names only the files of the interval's folders."""
        return False

    @abstractmethod
    def arrived(self, before: Metadata, now: Metadata) -> Mapping[str, int]:
        """Return the new files since the plan `before`, with 0, and the grown files, with the first byte of the new lines.

        A line that was unfinished before is new. Replaced files are left out, and grown files without a clear new part.
        """

    @abstractmethod
    def one_look(self) -> AbstractContextManager[object]:
        """Context manager. All plans of the block name the same files."""

    @abstractmethod
    def as_now(self, metadata: Metadata) -> Metadata:
        """Return a plan of the same interval with the present files. Raise TxbatchError if the files cannot be listed."""

    @abstractmethod
    def bounded(self, metadata: Metadata, names: Iterable[str]) -> list[str]:
        """Return the files with records of the plan's interval alone, by the names of folders: no other run sees the files."""

    @abstractmethod
    def gone(self, metadata: Metadata) -> list[str]:
        """Return the missing files of a plan."""

    @abstractmethod
    def look_for(self, intervals: Sequence[Counted], arrived: Mapping[str, int]) -> None:
        """Look for records of the intervals in the files, from the next `emit_batch` on."""

    @abstractmethod
    def found_late(self) -> Mapping[int, Mapping[str, Late]]:
        """Return the late records, by position and file. Called after all records have been read."""
