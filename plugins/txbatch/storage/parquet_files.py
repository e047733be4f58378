"""ParquetFiles: a folder with a file for each committed batch of a state that keeps records (docs/adr/0007)."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from txbatch.core.errors import (
    DatabasesDisagree,
    InvalidArgument,
    StateInUse,
    TerminalError,
    Unavailable,
)
from txbatch.core.records.fields import Field
from txbatch.core.state.append import BATCH

if TYPE_CHECKING:
    from txbatch.core.state.files import CommittedRecords, KeptRecords, KnownState

NAME = "batch-{:012d}.parquet"
MARK, WRITING = "_written.json", "_writing"  # names that Spark passes over
TRIES = 5


@dataclass(frozen=True, slots=True)
class FolderState:
    """The content of a folder: a state's batches up to a txid. `made` is the topology's creation, `swaps` the number of
    rebuilds.
    """

    state: str
    made: str
    swaps: int
    txid: int = 0


class ParquetFiles:
    """A folder with a file for each committed batch of an `AppendState`, `batch-<position>.parquet`, with the batch's
    records.

    A batch's file appears after the commit, whole, by a rename. A restate's file replaces the batch's file in the same way.
    The next run writes files left unwritten by a killed process. The folder belongs to the state alone, on a file system of
    the committing process.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not self.folder.is_absolute():
            raise InvalidArgument(
                f"ParquetFiles({str(folder)!r}): give the absolute path of a folder in which files can be renamed, '/lake/sold'"
            )

    def __repr__(self) -> str:
        return f"ParquetFiles({str(self.folder)!r})"

    def write(self, aggregate: KeptRecords, upstream: CommittedRecords) -> None:
        """Write the batches committed since the folder's mark.

        Raise TransientError if the folder cannot be written, TerminalError if the folder belongs to another state.
        """
        try:
            done = any(self._written(aggregate, upstream) for _ in range(TRIES))
        except OSError as error:
            raise Unavailable(
                f"state {aggregate.state.name!r}: {self.folder} cannot be written ({error}); committed rows stay, and the "
                "next run writes the files"
            ) from error
        if not done:
            raise StateInUse(f"{self.folder}: others write the same batches just now; try again")

    def _written(self, aggregate: KeptRecords, upstream: CommittedRecords) -> bool:
        """Write new batches, the oldest first. Return False if another process has begun to write the same batches."""
        state = aggregate.state
        (self.folder / WRITING).mkdir(parents=True, exist_ok=True)
        mark = self._mark()  # before the ledger is asked, which never knows less than a mark that was there
        known = upstream.known(state.name)
        now = FolderState(state.name, known.made[0], len(known.replaced))
        if mark is None:
            self._note(now)
        else:
            self._check(mark, now, (state.name, state.was), known)
        for position, txid in upstream.positions(state.name, mark.txid if mark and mark.swaps == now.swaps else 0):
            if not self._write(state.name, aggregate.rows_of, position, upstream):
                return False
            self._note(replace(now, txid=txid))
        return True

    def _write(self, state: str, fields: Sequence[Field], position: int, upstream: CommittedRecords) -> bool:
        """Write the file of a batch. A later process removes unfinished files of earlier processes: the later process reads
        no less.
        """
        from txbatch.storage.exports import write_parquet  # brings Arrow, which no definition needs

        for other in (self.folder / WRITING).glob(f"{position}-*"):
            other.unlink(missing_ok=True)
        mine = self.folder / WRITING / f"{position}-{uuid4().hex}"
        with mine.open("xb") as file:
            records = upstream.records(
                state, position, [field.name for field in fields]
            )  # not before the file is there
            write_parquet(file, (BATCH, *fields), ((position, *record) for record in records))
            file.flush()
            os.fsync(file.fileno())
        return self._rename(mine, NAME.format(position))

    def _mark(self) -> FolderState | None:
        """Return the folder's mark; None for an empty folder. Raise TerminalError for files without a mark, or an unreadable
        mark.
        """
        files = any(self.folder.glob("*.parquet"))  # before the mark, which is there before they are
        try:
            return FolderState(**json.loads((self.folder / MARK).read_text()))
        except FileNotFoundError:
            if files:
                raise self._not_ours(f"the folder has files, and no {MARK} that names their state") from None
            return None
        except (ValueError, TypeError) as error:
            raise self._not_ours(f"{MARK} cannot be read ({error})") from error

    def _check(self, mark: FolderState, now: FolderState, names: Sequence[str | None], known: KnownState) -> None:
        """Raise TerminalError for the mark of another state, or a mark no longer known to the ledger."""
        if mark.state not in names or mark.made != now.made:
            raise self._not_ours(f"the files are of state {mark.state!r} of a topology made {mark.made}")
        if mark.txid > known.txid:
            raise self._not_ours(
                f"the files end at txid {mark.txid}, the ledger, which was set back, at txid {known.txid}"
            )

    def _not_ours(self, why: str) -> TerminalError:
        return DatabasesDisagree(
            f"{self.folder} is not the folder of these batches: {why}; empty it, and the next run writes all of them, or name "
            "another"
        )

    def _note(self, mark: FolderState) -> None:
        """Write the mark, after the files of the mark's batches. If a late process writes an older mark, batches are written
        again.
        """
        made = self.folder / WRITING / f"mark-{uuid4().hex}"
        made.write_text(json.dumps(asdict(mark)) + "\n")
        self._rename(made, MARK)

    def _rename(self, made: Path, name: str) -> bool:
        try:
            made.replace(self.folder / name)
        except FileNotFoundError:
            return False
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return True
