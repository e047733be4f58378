"""What Spark reads for one attempt: made once, however often it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txbatch.core.batch.planned_files import Entry, planned_size
from txbatch.core.errors import SourceChanged
from txbatch.formats.changes import look

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Reading:
    """The records that somebody `asked` for, `kept` by Spark or scanned each time, and how their files looked before that."""

    asked: tuple[Any, ...]
    looks: Mapping[Path, Entry | None]
    records: DataFrame
    kept: bool

    def serves(self, asked: tuple[Any, ...]) -> bool:
        """True if it is what is asked for now. TransientError where a file that is scanned again is another one by now.

        Who appends to a file changes nothing of what was planned.
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
        """Let what is kept go: Spark would take the same scan for the next one's."""
        if self.kept:
            self.records.unpersist()
