"""The staging area in memory. Compare `storage.staging`: the same folders, each with a frozen value as content."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from txbatch.arrow import arrow_array
from txbatch.core.batch.heartbeat import Heartbeat
from txbatch.core.batch.manifest import Manifest
from txbatch.core.batch.transaction import Assignment
from txbatch.core.errors import Incomplete, StagingUnreadable
from txbatch.core.records.fields import Field
from txbatch.memory.stored import Partials

# Topology, txid, attempt_id and token.
At = tuple[str, int, int, str]


@dataclass(frozen=True, slots=True)
class Content:
    """The content of an attempt's folder."""

    assignment: Assignment
    heartbeat: Heartbeat | None = None
    manifest: Manifest | None = None
    partials: Partials = field(default_factory=dict)
    exports: Mapping[int, Sequence[tuple[Any, ...]]] = field(default_factory=dict)


class MemoryStaging:
    """`core.batch.staging.Staging` in the calling process. `folders` is replaced whole, never changed in place."""

    def __init__(self) -> None:
        self.folders: Mapping[At, Content] = {}

    def attempt(self, assignment: Assignment) -> MemoryFolder:
        """Return the folder of one attempt."""
        return MemoryFolder(self, _at(assignment))

    def supersede(self, by: Assignment) -> None:
        """Tell all other attempts at a txid to stop for the newer attempt."""
        for at, content in self.folders.items():
            if at[:2] == _at(by)[:2] and at != _at(by) and content.heartbeat:
                self.put(at, replace(content, heartbeat=replace(content.heartbeat, superseded=str(by.attempt))))

    def remove(self, topology: str, txid: int) -> None:
        """Remove the staged files of all attempts at a txid."""
        self.folders = {at: content for at, content in self.folders.items() if at[:2] != (topology, txid)}

    def put(self, at: At, content: Content) -> None:
        """Store the content of a folder."""
        self.folders = {**self.folders, at: content}


@dataclass(frozen=True, slots=True)
class MemoryFolder:
    """`core.batch.staging.AttemptFolder` in the calling process."""

    staging: MemoryStaging
    at: At

    @property
    def uri(self) -> str:
        """The folder's name in logs."""
        topology, txid, attempt_id, token = self.at
        return f"in-memory://{topology}/{txid}/{attempt_id}-{token[:8]}"

    def write_assignment(self, assignment: Assignment) -> None:
        """Create the folder, and write the attempt's assignment."""
        self.staging.put(self.at, Content(assignment))

    def write_export(self, number: int, fields: Sequence[Field], records: Iterable[tuple[Any, ...]]) -> None:
        """Write the records of a stream from a state. Raise BadRecord for a value of the wrong type.

        Does nothing if the folder was removed.
        """
        rows = tuple(records)
        for column, each in zip(zip(*rows, strict=True), fields, strict=False):
            arrow_array(column, each, "the state has")
        if content := self._content:
            self.staging.put(self.at, replace(content, exports={**content.exports, number: rows}))

    def read_export(self, number: int) -> Sequence[tuple[Any, ...]]:
        """Return the records of the n-th exported stream."""
        return self._content.exports[number] if self._content else ()

    def write_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Write the heartbeat: whether the attempt may go on (R5). Do nothing if the folder was removed."""
        if content := self._content:
            self.staging.put(self.at, replace(content, heartbeat=heartbeat))

    def read_heartbeat(self) -> Heartbeat:
        """Read the heartbeat: whether the attempt may go on. Raise TransientError if the heartbeat is missing."""
        if (content := self._content) is None or content.heartbeat is None:
            raise StagingUnreadable(f"{self.uri} has no heartbeat; emit again")
        return content.heartbeat

    def write_result(self, manifest: Manifest, partials: Partials) -> None:
        """Stage the attempt's manifest and partials, whole. Do nothing if the folder was removed."""
        if content := self._content:
            self.staging.put(self.at, replace(content, manifest=manifest, partials=partials))

    def read_manifest(self) -> Manifest:
        """Read the attempt's manifest. Raise Incomplete if the attempt did not finish."""
        if (content := self._content) is None or content.manifest is None:
            raise Incomplete(f"{self.uri} has no manifest: the attempt did not finish; emit again")
        return content.manifest

    def read_error(self) -> Mapping[str, str] | None:
        """Return None: a failure in the process raises an error of its own."""
        return None

    def said_something(self) -> bool:
        """Return whether the attempt staged a result."""
        return self._content is not None and self._content.manifest is not None

    def read_partials(self, manifest: Manifest) -> Partials:
        """Return the partials of each state. Raise Incomplete if the partials are gone."""
        if (content := self._content) is None or content.manifest != manifest:
            raise Incomplete(f"{self.uri} does not hold what the manifest describes; emit again")
        return content.partials

    @property
    def _content(self) -> Content | None:
        return self.staging.folders.get(self.at)


def _at(assignment: Assignment) -> At:
    attempt = assignment.attempt
    return assignment.topology, attempt.txid, attempt.attempt_id, assignment.token
