"""The protocol of an attempt's folder, for code that writes and reads files."""

from __future__ import annotations

from typing import Any, Protocol


class Folder(Protocol):
    """A folder on a filesystem. `storage.staging.AttemptFolder` is one."""

    @property
    def uri(self) -> str:
        """The folder's URI."""

    @property
    def filesystem(self) -> Any:
        """The folder's fsspec filesystem."""

    def path(self, name: str) -> str:
        """Return a file's path on the filesystem."""
