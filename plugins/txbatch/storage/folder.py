"""The folder of an attempt, as those see it who write and read its files."""

from __future__ import annotations

from typing import Any, Protocol


class Folder(Protocol):
    """A folder on a filesystem. `storage.staging.AttemptFolder` is one."""

    @property
    def uri(self) -> str:
        """Where it is."""

    @property
    def filesystem(self) -> Any:
        """The fsspec filesystem the folder lies on."""

    def path(self, name: str) -> str:
        """Return a file of the folder, as the filesystem names it."""
