"""The staging area: one folder per attempt, `<root>/<topology>/<txid>/<attempt_id>-<token>/`, on any filesystem
that fsspec knows. The token keeps apart what attempts of the same number write: a lost or restored database issues old
numbers again, while drivers of the old ones may still be at work (R5).

assignment.json              what the attempt is told: metadata, token
fence.json                   whether it may go on: see `core.fence`
partials/<number>/*.parquet  one folder per state
manifest.json                what it read and wrote; last, and whole or not at all
error.json                   why it failed
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from typing import Any
from uuid import uuid4

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from txbatch.core.aggregator import Merge
from txbatch.core.errors import Incomplete, TransientError
from txbatch.core.fence import Fence
from txbatch.core.fields import FLOATING_TYPES
from txbatch.core.manifest import Manifest, StagedFile, StagedState
from txbatch.core.persistent_aggregate import PersistentAggregate, ValueColumn
from txbatch.core.transaction import Assignment

ROWS_PER_BATCH = 64 * 1024
# A file is read whole, to compare its digest: so many rows of partials it may have, however few files there are.
ROWS_PER_FILE_MAX = 2_000_000
TOKEN_CHARACTERS = 8


@dataclass(frozen=True, slots=True)
class AttemptFolder:
    """The folder of one attempt, by its URI."""

    uri: str

    @property
    def filesystem(self) -> Any:
        """The fsspec filesystem the folder lies on."""
        return fsspec.core.url_to_fs(self.uri)[0]

    def path(self, name: str) -> str:
        """A file of the folder, as the filesystem names it."""
        return f"{fsspec.core.url_to_fs(self.uri)[1].rstrip('/')}/{name}"

    def write_assignment(self, assignment: Assignment) -> None:
        """Tell the attempt what to do; makes the folder."""
        self.filesystem.makedirs(self.path(""), exist_ok=True)
        self._write_json("assignment.json", assignment.to_json())

    def read_assignment(self) -> Assignment:
        """What the attempt is told."""
        return Assignment.from_json(self._read_json("assignment.json"))

    def write_fence(self, fence: Fence) -> None:
        """Say whether the attempt may go on (R5); nothing is made of a folder that is gone."""
        if self.filesystem.exists(self.path("")):
            self._write_json("fence.json", fence.to_json())

    def read_fence(self) -> Fence:
        """Whether the attempt may go on; TransientError when the folder does not say."""
        try:
            return Fence.from_json(self._read_json("fence.json"))
        except (OSError, ValueError, KeyError) as error:
            raise TransientError(f"{self.uri}/fence.json cannot be read ({error}); emit again") from error

    def write_manifest(self, manifest: Manifest) -> None:
        """Say what was read and written; the attempt's last act."""
        self._write_json("manifest.json", manifest.to_json())

    def read_manifest(self) -> Manifest:
        """What the attempt read and wrote; Incomplete when it did not get that far."""
        try:
            return Manifest.from_json(self._read_json("manifest.json"))
        except FileNotFoundError:
            raise Incomplete(f"{self.uri} has no manifest: the attempt did not finish; emit again") from None
        except (ValueError, KeyError, TypeError) as error:
            raise Incomplete(f"{self.uri}/manifest.json cannot be read ({error}); emit again") from error

    def write_error(self, kind: str, message: str) -> None:
        """Say why the attempt failed, for the process that submitted it."""
        self._write_json("error.json", {"kind": kind, "message": message})

    def read_error(self) -> Mapping[str, str] | None:
        """Why the attempt failed, if it could say."""
        try:
            error: Mapping[str, str] = self._read_json("error.json")
            return error
        except (FileNotFoundError, ValueError):
            return None

    def partials_uri(self, number: int) -> str:
        """Where Spark writes the partials of a topology's n-th state."""
        return f"{self.uri}/partials/{number}"

    def describe(self, number: int, aggregate: PersistentAggregate) -> StagedState:
        """What stands in the files of a state, read back from them, one at a time."""
        names = sorted(
            name for name in self.filesystem.find(self.path(f"partials/{number}")) if name.endswith(".parquet")
        )
        columns = aggregate.partial_columns
        files: list[StagedFile] = []
        totals: dict[str, list[Decimal | int | None]] = {column.name: [] for column in columns}
        for name in names:
            content = self.filesystem.cat_file(name)
            files.append(self._describe(name, content))
            values = pq.read_table(pa.BufferReader(content), columns=list(totals))
            for column in columns:
                totals[column.name].append(_total(column, values[column.name]))
        together = {column.name: _together(column, totals[column.name]) for column in columns}
        return StagedState(tuple(files), sum(file.rows for file in files), together)

    def partials(self, staged: StagedState) -> Iterator[pa.RecordBatch]:
        """The record batches of a state's files. Incomplete when a file is not the one the manifest describes (R7a)."""
        for file in staged.files:
            path = self.path(file.name)
            content = self.filesystem.cat_file(path) if self.filesystem.exists(path) else b""
            if _sha256(content) != file.sha256 or self._describe(path, content) != file:
                raise Incomplete(f"{self.uri}/{file.name} is not the file that the manifest describes; emit again")
            yield from pq.ParquetFile(pa.BufferReader(content)).iter_batches(ROWS_PER_BATCH)

    def remove(self) -> None:
        """Remove the folder; nothing happens when it is gone."""
        if self.filesystem.exists(self.path("")):
            self.filesystem.rm(self.path("").rstrip("/"), recursive=True)

    def _describe(self, path: str, content: bytes) -> StagedFile:
        rows = pq.read_metadata(pa.BufferReader(content)).num_rows
        name = path.removeprefix(self.path(""))
        return StagedFile(name, len(content), rows, _sha256(content))

    def _write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Under another name first, so that a reader finds it whole or not at all."""
        temporary = self.path(f"_{name}.{uuid4().hex}")
        with self.filesystem.open(temporary, "w", encoding="utf-8") as file:
            json.dump(value, file, ensure_ascii=False, indent=1)
        self.filesystem.mv(temporary, self.path(name))

    def _read_json(self, name: str) -> Any:
        with self.filesystem.open(self.path(name), encoding="utf-8") as file:
            return json.load(file)


@dataclass(frozen=True, slots=True)
class Staging:
    """The staging area of all topologies."""

    root: str

    def check(self) -> None:
        """Make sure that it can be written to; raises whatever its filesystem raises."""
        probe = AttemptFolder(f"{self.root}/_probe-{uuid4().hex}")
        probe.filesystem.makedirs(probe.path(""), exist_ok=True)
        probe.write_error("none", "txbatch doctor")
        probe.remove()

    def attempt(self, assignment: Assignment) -> AttemptFolder:
        """The folder of one attempt."""
        name = f"{assignment.attempt.attempt_id}-{assignment.token[:TOKEN_CHARACTERS]}"
        return AttemptFolder(f"{self.root}/{assignment.topology}/{assignment.attempt.txid}/{name}")

    def supersede(self, by: Assignment) -> None:
        """Tell the drivers of all other attempts of a txid that this one took their place, those of a lost database too."""
        parent, mine = self.transaction(by.topology, by.attempt.txid), self.attempt(by)
        if not parent.filesystem.exists(parent.path("")):
            return
        for path in parent.filesystem.ls(parent.path("").rstrip("/"), detail=False):
            other = AttemptFolder(f"{parent.uri}/{path.rstrip('/').rpartition('/')[2]}")
            if other != mine and other.filesystem.exists(other.path("fence.json")):
                other.write_fence(replace(other.read_fence(), superseded=str(by.attempt)))

    def topology(self, topology: str) -> AttemptFolder:
        """The folder of a topology."""
        return AttemptFolder(f"{self.root}/{topology}")

    def transaction(self, topology: str, txid: int) -> AttemptFolder:
        """The folder of all attempts of a txid."""
        return AttemptFolder(f"{self.root}/{topology}/{txid}")


def _total(column: ValueColumn, values: pa.ChunkedArray) -> Decimal | int | None:
    """Of one file: the sum where it is exact (null when there is none), else how many are true, or not null."""
    total: Decimal | int | None = len(values) - values.null_count
    if column.partial.type == "boolean":
        total = pc.sum(values).as_py() or 0
    elif _is_exact(column):
        total = pc.sum(_as_decimal(values)).as_py()
    return total


def _together(column: ValueColumn, totals: list[Decimal | int | None]) -> str | None:
    """Of all files, the same as `postgres.expressions.total_sql`: every digit, and no exponent."""
    present = [Decimal(total) for total in totals if total is not None]
    if not present and _is_exact(column):
        return None
    with localcontext(prec=76):
        return format(sum(present, Decimal()), "f")


def _is_exact(column: ValueColumn) -> bool:
    partial = column.partial
    return partial.merge is Merge.ADD and partial.type not in (*FLOATING_TYPES, "boolean")


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _as_decimal(chunk: pa.ChunkedArray) -> pa.ChunkedArray:
    scale = chunk.type.scale if pa.types.is_decimal(chunk.type) else 0
    return chunk.cast(pa.decimal256(76, scale))
