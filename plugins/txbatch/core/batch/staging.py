"""The staging area as the protocol sees it: a folder per attempt, between a task and the task's Spark driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from txbatch.core.batch.heartbeat import Heartbeat
from txbatch.core.batch.manifest import Manifest
from txbatch.core.batch.transaction import Assignment
from txbatch.core.records.fields import Field


class AttemptFolder(Protocol):
    """The folder of one attempt. `storage.staging` has the real folder, `memory.staging` the twin."""

    @property
    def uri(self) -> str:
        """The address of the folder."""

    def write_assignment(self, assignment: Assignment) -> None:
        """Create the folder, and write the attempt's assignment."""

    def write_export(self, number: int, fields: Sequence[Field], records: Iterable[tuple[Any, ...]]) -> None:
        """Write a stream's records from a state, which Spark cannot ask. Raise BadRecord for a value of another type."""

    def write_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Write whether the attempt may go on (R5). If the folder was removed, do nothing."""

    def read_heartbeat(self) -> Heartbeat:
        """Read whether the attempt may go on. Raise TransientError if the folder has no readable heartbeat."""

    def read_manifest(self) -> Manifest:
        """Read the manifest. Raise Incomplete if the attempt wrote none, TransientError if the manifest cannot be read."""

    def read_error(self) -> Mapping[str, str] | None:
        """Read why the attempt failed: `kind` and `message`; None if the attempt left no reason, or no readable reason."""

    def said_something(self) -> bool:
        """True if the attempt wrote a manifest, or the reason for a failure."""

    def read_partials(self, manifest: Manifest) -> Mapping[str, Any]:
        """Open the partials of each state, in the form for the ledger's commit.

        If the partials differ from the manifest, raise Incomplete, at once or while the partials are read (R7).
        """


class Staging(Protocol):
    """The staging area of all topologies."""

    def attempt(self, assignment: Assignment) -> AttemptFolder:
        """Return the folder of one attempt."""

    def supersede(self, by: Assignment) -> None:
        """Tell the drivers of all other attempts of a txid to stop: `by` takes over."""

    def remove(self, topology: str, txid: int) -> None:
        """Remove the folders of all attempts of a txid."""
