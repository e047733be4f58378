"""Files: where the records of a state that keeps them are written besides, a file for each committed batch (R10)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from txbatch.core.records.fields import Field


class Named(Protocol):
    """A state, by its name and the name that it had."""

    @property
    def name(self) -> str:
        """The name of the state."""

    @property
    def was(self) -> str | None:
        """The name that the state had, where it has history by that (R23)."""


class KeptRecords(Protocol):
    """A state that keeps records, and the fields of its records."""

    @property
    def state(self) -> Named:
        """The state."""

    @property
    def rows_of(self) -> tuple[Field, ...]:
        """The fields of the records."""


class KnownState(Protocol):
    """How far a state is: its newest txid, when its topology was made, and which of its generations were replaced."""

    @property
    def txid(self) -> int:
        """The newest committed txid."""

    @property
    def made(self) -> tuple[str, int]:
        """When the topology was made, and its first txid."""

    @property
    def replaced(self) -> tuple[object, ...]:
        """The generations that rebuilds replaced."""


class CommittedRecords(Protocol):
    """What a ledger tells of the records of a state. `core.upstream.upstream.Upstream` has it."""

    def known(self, state: str) -> KnownState:
        """Return how far the state is."""

    def positions(self, state: str, after: int) -> Sequence[tuple[int, int]]:
        """Return the positions that were counted after a txid, each with the last txid that counted it."""

    def records(self, state: str, position: int, columns: Sequence[str]) -> Iterable[tuple[Any, ...]]:
        """Return these columns of the records of a position."""


class Files(Protocol):
    """A folder of one state alone. `storage.parquet_files` has it."""

    @property
    def folder(self) -> Path:
        """The folder."""

    def write(self, aggregate: KeptRecords, upstream: CommittedRecords) -> None:
        """Write the committed batches that are not there yet, or not as they are now; TransientError when that cannot be."""
