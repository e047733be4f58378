"""The staging area as the protocol sees it: a folder per attempt, through which a task and its Spark driver tell each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from txbatch.core.batch.heartbeat import Heartbeat
from txbatch.core.batch.manifest import Manifest
from txbatch.core.batch.transaction import Assignment
from txbatch.core.records.fields import Field


class AttemptFolder(Protocol):
    """The folder of one attempt. `storage.staging` has the real one, `memory.staging` its twin."""

    @property
    def uri(self) -> str:
        """Where it is."""

    def write_assignment(self, assignment: Assignment) -> None:
        """Tell the attempt what to do; makes the folder."""

    def write_export(self, number: int, fields: Sequence[Field], records: Iterable[tuple[Any, ...]]) -> None:
        """Write what a stream takes from a state, which Spark cannot ask; BadRecord for a value of another type."""

    def write_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Say whether the attempt may go on (R5). Does nothing if the folder was removed."""

    def read_heartbeat(self) -> Heartbeat:
        """Read whether the attempt may go on; TransientError when the folder does not say."""

    def read_manifest(self) -> Manifest:
        """Read what the attempt read and wrote; Incomplete when it did not get that far, TransientError when nobody can tell."""

    def read_error(self) -> Mapping[str, str] | None:
        """Read why the attempt failed: `kind` and `message`; None when it did not say, or that cannot be read."""

    def said_something(self) -> bool:
        """True when the attempt wrote its manifest, or why it failed."""

    def read_partials(self, manifest: Manifest) -> Mapping[str, Any]:
        """Open the partials of each state, in the form that the ledger's commit takes.

        Incomplete, at once or while they are read, when they are not what the manifest describes (R7).
        """


class Staging(Protocol):
    """The staging area of all topologies."""

    def attempt(self, assignment: Assignment) -> AttemptFolder:
        """Return the folder of one attempt."""

    def supersede(self, by: Assignment) -> None:
        """Tell the drivers of all other attempts of a txid that this one took their place."""

    def remove(self, topology: str, txid: int) -> None:
        """Remove what all attempts of a txid staged."""
