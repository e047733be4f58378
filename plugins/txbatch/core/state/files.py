"""Files: where the records of a state that keeps them are written besides, a file for each committed batch (R10)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from txbatch.core.errors import DefinitionError

if TYPE_CHECKING:
    from txbatch.core.state.state import State
    from txbatch.core.topology.persistent_aggregate import PersistentAggregate
    from txbatch.core.upstream.upstream import Upstream


class Files(Protocol):
    """A folder of one state alone. `storage.parquet_files` has it."""

    @property
    def folder(self) -> Path:
        """The folder."""

    def write(self, aggregate: PersistentAggregate, upstream: Upstream) -> None:
        """Write the committed batches that are not there yet, or not as they are now; TransientError when that cannot be."""


def check_files(state: State, files: Files, *, pruned: bool) -> Files:
    """Return the files of a state; DefinitionError where a batch that has to be written again may be there no more."""
    of = f"state {state.name!r}: files={files!r}"
    if not hasattr(files, "write"):
        raise DefinitionError(f"{of} is no place for files; give ParquetFiles('/lake/{state.name}')")
    if state.database is not None:
        raise DefinitionError(f"{of}: the state is kept apart, in {state.database!r}, and files are written from here")
    if pruned or not state.contributions:
        raise DefinitionError(
            f"{of}: a batch is written again after a restate or a rebuild, which need its rows and contributions; keep both"
        )
    return files


def check_folders(states: Iterable[State]) -> None:
    """DefinitionError where two states write their files into one folder."""
    taken: dict[Path, str] = {}
    for state in states:
        if state.files is not None:
            other = taken.setdefault(state.files.folder, state.name)
            if other != state.name:
                raise DefinitionError(
                    f"states {other!r} and {state.name!r} write their files into one folder, {state.files.folder}; name two"
                )
