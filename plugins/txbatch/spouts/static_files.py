"""StaticFiles: the files of a static state, in the version fixed by a batch's plan (R3)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txbatch.core.batch.transaction import Metadata
from txbatch.core.errors import ABORT, RESTORE, InvalidFunction, SourceChanged, SourceMissing
from txbatch.core.topology.look_up import Versioned
from txbatch.formats.listing import absolute, escaped, files_below, name_pattern

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class StaticFiles(Versioned):
    """The files below `root` with names matching `pattern`, by the listing rule of FileSpout.

    `read` makes a DataFrame of the Spark session and the paths of the files. Planning a batch fixes the files by size and
    sha256. Every attempt of the batch reads exactly the fixed files, or fails and names a changed file.
    """

    def __init__(
        self,
        root: str | Path,
        pattern: str,
        read: Callable[[SparkSession, Sequence[str]], DataFrame],
        *,
        foreign_links: bool = False,
    ) -> None:
        self.root, self.pattern = absolute(root, "StaticFiles"), name_pattern(pattern, "StaticFiles")
        if not callable(read):
            raise InvalidFunction(
                f"StaticFiles: {read!r} is no function; give one of the Spark session and a list of paths, to a DataFrame"
            )
        self._read, self.foreign_links = read, foreign_links

    def version(self) -> Metadata:
        """Return the size and sha256 of each file. Raise TransientError without files."""
        found = {
            name: _fingerprint(self.root / name)
            for name in files_below(self.root, self.pattern, foreign_links=self.foreign_links)
        }
        if not found:
            raise SourceMissing(f"{self.root} has no file {self.pattern!r} to look values up in; put it there")
        return found

    def read(self, spark: SparkSession, version: Metadata) -> DataFrame:
        """Return the rows of the plan's files."""
        self.check(version)
        return self._read(spark, [escaped((self.root / name).resolve()) for name in version])

    def check(self, version: Metadata) -> None:
        """Refuse a file changed since the planning: TransientError names the file."""
        for name, planned in version.items():
            if (found := _fingerprint(self.root / name)) != planned:
                raise SourceChanged(f"{self.root / name} {_changed(planned, found)}; {RESTORE}")


def _fingerprint(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as content:
            sha256 = hashlib.file_digest(content, "sha256").hexdigest()
            return {"bytes": content.tell(), "sha256": sha256}
    except OSError as error:
        raise SourceMissing(f"{file} cannot be read: {error.strerror}; restore it, or {ABORT}") from error


def _changed(planned: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    if planned["bytes"] == now["bytes"]:
        return f"has {now['bytes']:,} bytes, as when it was planned, with another content"
    return f"had {planned['bytes']:,} bytes when it was planned, now {now['bytes']:,}"
