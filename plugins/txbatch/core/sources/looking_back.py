"""Spouts by time that find late records: records of intervals that earlier batches have counted."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from txbatch.core.batch.came_late import Counted, Late
from txbatch.core.batch.transaction import Metadata
from txbatch.core.windows.window import micros

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LooksBack:
    """A spout that looks back. `lookback_micros` is how far a run counts late records by itself; None: they are told alone."""

    lookback: str | None = None

    @property
    def lookback_micros(self) -> int | None:
        """The length of the look back, in microseconds. Raise DefinitionError for an invalid length."""
        return None if self.lookback is None else micros(type(self).__name__, "lookback", self.lookback)


class LooksBackInFiles(LooksBack):
    """A spout that meets late records while it reads files. Spout and emitter are one object."""

    @abstractmethod
    def arrived(self, before: Metadata, now: Metadata) -> Mapping[str, int]:
        """Return the files of the plan `now` that are new since the plan `before`, with 0, or have grown, with the bytes then.

        A file that was replaced, or whose new part cannot be told from the rest, is left out.
        """

    @abstractmethod
    def look_for(self, spark: SparkSession, intervals: Sequence[Counted], arrived: Mapping[str, int]) -> None:
        """Look for records of these intervals in these files, from the next `emit_batch` on."""

    @abstractmethod
    def found_late(self) -> Mapping[int, Mapping[str, Late]]:
        """Return the late records that were met, by position and file. Called once all records have been read."""
