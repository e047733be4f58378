"""Files: where the records of a state that keeps them are written besides, a file for each committed batch (R10)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from txbatch.core.topology.persistent_aggregate import PersistentAggregate
    from txbatch.core.upstream.upstream import Upstream


class Files(Protocol):
    """A folder of one state alone. `storage.parquet_files` has it."""

    @property
    def folder(self) -> Path:
        """The folder."""

    def write(self, aggregate: PersistentAggregate, upstream: Upstream) -> None:
        """Write the committed batches that are not there yet, or not as they are now; TransientError when that cannot be."""
