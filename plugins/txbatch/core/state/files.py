"""Files: a folder for copies of a state's records, a file for each committed batch (R10)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from txbatch.core.records.fields import Field


class Named(Protocol):
    """A state, by the present name and the name before."""

    @property
    def name(self) -> str:
        """The name of the state."""

    @property
    def was(self) -> str | None:
        """The state's name before, if the state has history by that name (R23)."""


class KeptRecords(Protocol):
    """A state that keeps records, with the fields of the records."""

    @property
    def state(self) -> Named:
        """The state."""

    @property
    def rows_of(self) -> tuple[Field, ...]:
        """The fields of the records."""


class KnownState(Protocol):
    """How far a state is: the newest txid, the making of the topology, and the replaced generations."""

    @property
    def txid(self) -> int:
        """The newest committed txid."""

    @property
    def made(self) -> tuple[str, int]:
        """When the topology was made, and the first txid."""

    @property
    def replaced(self) -> tuple[object, ...]:
        """The generations replaced by rebuilds."""


class CommittedRecords(Protocol):
    """The ledger's answers about the records of a state, a part of `core.upstream.upstream.Upstream`."""

    def known(self, state: str) -> KnownState:
        """Return how far the state is."""

    def positions(self, state: str, after: int) -> Sequence[tuple[int, int]]:
        """Return the positions counted after a txid, each with the position's last counting txid."""

    def records(self, state: str, position: int, columns: Sequence[str]) -> Iterable[tuple[Any, ...]]:
        """Return columns of the records of a position."""


class Files(Protocol):
    """A folder of one state alone. `storage.parquet_files` has the real folder."""

    @property
    def folder(self) -> Path:
        """The folder."""

    def write(self, aggregate: KeptRecords, upstream: CommittedRecords) -> None:
        """Write each committed batch with a missing or outdated file. Raise TransientError if writing is impossible."""
