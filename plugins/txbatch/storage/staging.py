"""The staging area: one folder per attempt, `<root>/<topology>/<txid>/<attempt_id>-<token>/`, on any filesystem
that fsspec knows. The token keeps apart what attempts of the same number write: a lost or restored database issues old
numbers again, while drivers of the old ones may still be at work (R5).

assignment.json              what the attempt is told: metadata, token
fence.json                   whether it may go on: see `core.fence`
partials/<number>/*.parquet  one folder per state: see `storage.parquet`
manifest.json                what it read and wrote; last, and whole or not at all
error.json                   why it failed
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import fsspec

from txbatch.core.errors import Incomplete, TransientError
from txbatch.core.fence import Fence
from txbatch.core.manifest import Manifest
from txbatch.core.transaction import Assignment

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

    def said_something(self) -> bool:
        """Whether the attempt wrote its manifest, or why it failed."""
        return any(self.filesystem.exists(self.path(name)) for name in ("manifest.json", "error.json"))

    def partials_uri(self, number: int) -> str:
        """Where Spark writes the partials of a topology's n-th state."""
        return f"{self.uri}/partials/{number}"

    def remove(self) -> None:
        """Remove the folder; nothing happens when it is gone."""
        if self.filesystem.exists(self.path("")):
            self.filesystem.rm(self.path("").rstrip("/"), recursive=True)

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
