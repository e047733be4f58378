"""Spark's reading for an attempt: made once, however often asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txbatch.core.batch.came_late import Late
from txbatch.core.batch.planned_files import Entry, planned_size
from txbatch.core.errors import SourceChanged
from txbatch.formats.changes import look

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Reading:
    """The records for `asked`, `kept` by Spark or scanned each time, and the looks of the files before.

    `late` returns the late records by position and file, after all records have been read.
    """

    asked: tuple[Any, ...]
    looks: Mapping[Path, Entry | None]
    records: DataFrame
    kept: bool
    late: Callable[[], Mapping[int, Mapping[str, Late]]] = dict

    def serves(self, asked: tuple[Any, ...]) -> bool:
        """Return whether the reading serves a question. Raise TransientError if a file to be scanned again has been replaced.

        Data appended to a file changes nothing of the plan.
        """
        if self.asked != asked or (self.kept and not self.records.storageLevel.useMemory):
            return False
        for file, before in self.looks.items() if not self.kept else ():
            now = look(file)
            grown = now is not None and before is not None and now[0] > planned_size(before)
            if now != before and not grown:
                raise SourceChanged(f"{file} was changed while it was read; emit again")
        return True

    def end(self) -> None:
        """Release kept records: Spark would reuse the same scan for the next reading."""
        if self.kept:
            self.records.unpersist()
