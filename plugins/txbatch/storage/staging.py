"""The staging area: a folder for each attempt, `<root>/<topology>/<txid>/<attempt_id>-<begin of the token>/`.

Any filesystem of fsspec will do. The token keeps apart the files of attempts with equal numbers: a lost or restored database
issues old numbers again, while drivers of the old attempts may still be at work (R5).

assignment.json              the attempt's task: metadata, token
fence.json                   the attempt's heartbeat, to go on or to stop: see `core.batch.heartbeat`
exports/<number>.parquet     records for streams from states of the ledger: see `storage.exports`
partials/<number>/*.parquet  a folder for each state: see `storage.parquet`
manifest.json                what was read and written; last, and whole or not at all
error.json                   why the attempt failed

Records read again to be verified (R24) lie beside, in `<root>/<topology>/verify-<token>/`, until verify ends.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from threading import get_ident
from typing import Any, TypeVar
from uuid import uuid4

import fsspec
from fsspec.implementations.local import LocalFileSystem

from txbatch.core.batch.heartbeat import Heartbeat
from txbatch.core.batch.manifest import Manifest
from txbatch.core.batch.transaction import Assignment
from txbatch.core.errors import (
    Incomplete,
    InvalidSetting,
    NewerFormat,
    StagingUnreadable,
    TransientError,
    UnsafeStaging,
)
from txbatch.core.records.fields import Field
from txbatch.core.stored_json import check_format
from txbatch.core.topology.topology import checked_topology_name
from txbatch.storage.links import links_on

log = logging.getLogger(__name__)
TOKEN_CHARACTERS = 8
# Seen by one process alone, made of other filesystems by fsspec alone, or not to be written to.
_NOT_SHARED = {
    "memory",
    "local",
    "simplecache",
    "filecache",
    "blockcache",
    "reference",
    "dir",
    "data",
    "http",
    "https",
    "zip",
    "tar",
}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
Value = TypeVar("Value")


ERROR_FORMAT = 1  # written down from format 2 on
LONG_BYTES_MAX = 256 << 20  # of an assignment and a manifest, which name what the spouts planned
SHORT_BYTES_MAX = 1 << 20  # of a heartbeat and an error


class Unreadable(Exception):
    """Raised if a file of an attempt's folder has unexpected content."""


@dataclass(frozen=True, slots=True)
class AttemptFolder:
    """The folder of one attempt, by its URI."""

    uri: str

    @property
    def filesystem(self) -> Any:
        """The folder's fsspec filesystem."""
        return _located(self.uri, os.getpid(), get_ident())[0]

    def path(self, name: str) -> str:
        """Return a file's path on the filesystem."""
        return f"{_located(self.uri, os.getpid(), get_ident())[1]}/{name}"

    def write_assignment(self, assignment: Assignment) -> None:
        """Create the folder, and write the attempt's assignment. Raise TransientError if writing fails."""
        with self._in_our_words("written to"):
            self.filesystem.makedirs(self.path(""), exist_ok=True)
            self._write_json("assignment.json", assignment.to_json())

    def read_assignment(self) -> Assignment:
        """Read the attempt's assignment. Raise TransientError if the assignment cannot be read."""
        try:
            return self._read("assignment.json", Assignment.from_json, LONG_BYTES_MAX)
        except (OSError, Unreadable) as error:
            raise StagingUnreadable(f"{self.uri}/assignment.json cannot be read ({error}); emit again") from error

    def has_heartbeat(self) -> bool:
        """Return whether the folder holds a heartbeat file, and is no link to elsewhere."""
        link = links_on(self.filesystem, self.path("").rstrip("/"))
        return not link and bool(self.filesystem.isfile(self.path("fence.json")))

    def write_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Write the heartbeat: whether the attempt may go on (R5). Do nothing if the folder was removed."""
        if self.filesystem.exists(self.path("")):
            self._write_json("fence.json", heartbeat.to_json())

    def read_heartbeat(self) -> Heartbeat:
        """Read the heartbeat: whether the attempt may go on. Raise TransientError if the heartbeat cannot be read."""
        try:
            return self._read("fence.json", Heartbeat.from_json, SHORT_BYTES_MAX)
        except (OSError, Unreadable) as error:
            raise StagingUnreadable(f"{self.uri}/fence.json cannot be read ({error}); emit again") from error

    def superseded(self, by: str) -> Heartbeat:
        """Return the heartbeat with the number of the replacing attempt, also if the file cannot be read."""
        try:
            heartbeat = self.read_heartbeat()
        except (TransientError, NewerFormat):
            heartbeat = Heartbeat(lease_seconds=0)
        return replace(heartbeat, superseded=by)

    def write_manifest(self, manifest: Manifest) -> None:
        """Write the manifest of files read and written; the attempt's last act."""
        self._write_json("manifest.json", manifest.to_json())

    def read_manifest(self) -> Manifest:
        """Read the attempt's manifest. Raise Incomplete if the manifest is missing or broken, TransientError if storage
        fails.
        """
        try:
            return self._read("manifest.json", Manifest.from_json, LONG_BYTES_MAX)
        except FileNotFoundError:
            raise Incomplete(f"{self.uri} has no manifest: the attempt did not finish; emit again") from None
        except OSError as error:
            raise StagingUnreadable(f"{self.uri}/manifest.json cannot be read ({error}); emit again") from error
        except Unreadable as error:
            raise Incomplete(f"{self.uri}/manifest.json cannot be read ({error}); emit again") from error

    def read_partials(self, manifest: Manifest) -> Mapping[str, Any]:
        """Open the record batches of each state. Reading raises Incomplete if a file differs from the manifest (R7)."""
        from txbatch.storage import parquet  # brings Arrow, which only a commit needs

        return {name: parquet.read(self, staged) for name, staged in manifest.states.items()}

    def write_error(self, kind: str, message: str) -> None:
        """Write the attempt's error, for the submitting process."""
        self._write_json("error.json", error_json(kind, message))

    def read_error(self) -> Mapping[str, str] | None:
        """Return the attempt's error, `kind` and `message`; None if unreadable. Raise NewerFormat for a file of a newer
        txbatch.
        """
        try:
            return self._read("error.json", _error_of, SHORT_BYTES_MAX)
        except (OSError, Unreadable):
            return None

    def said_something(self) -> bool:
        """Return whether the attempt wrote a manifest or an error."""
        return any(self.filesystem.exists(self.path(name)) for name in ("manifest.json", "error.json"))

    def write_export(self, number: int, fields: Sequence[Field], records: Iterable[tuple[Any, ...]]) -> None:
        """Write a stream's records from a state, because Spark cannot ask the state. Raise BadRecord for a value of the wrong
        type.
        """
        from txbatch.storage import exports

        with self._in_our_words("written to"):
            exports.write(self, number, fields, records)

    def export_uri(self, number: int) -> str:
        """Return the URI of the records of the n-th exported stream."""
        return f"{self.uri}/exports/{number}.parquet"

    def partials_uri(self, number: int) -> str:
        """Return the URI of the folder for Spark's partials of a topology's n-th state."""
        return f"{self.uri}/partials/{number}"

    def folders(self) -> list[AttemptFolder]:
        """Return the folder's entries by name; nothing if the folder is missing. Raise TransientError if reading fails."""
        with self._in_our_words("read"), suppress(FileNotFoundError, NotADirectoryError):
            found = self.filesystem.ls(self.path("").rstrip("/"), detail=False)
            return [AttemptFolder(f"{self.uri}/{path.rstrip('/').rpartition('/')[2]}") for path in found]
        return []

    def remove(self) -> None:
        """Remove the folder. Do nothing if the folder is gone, also if another process removes the folder meanwhile.

        Raise TransientError if the folder cannot be removed.
        """
        with self._in_our_words("removed"), suppress(FileNotFoundError):
            self.filesystem.rm(self.path("").rstrip("/"), recursive=True)

    @contextmanager
    def _in_our_words(self, what: str) -> Iterator[None]:
        """Context manager. Raise TransientError for errors of the filesystem."""
        try:
            yield
        except OSError as error:
            raise StagingUnreadable(f"{self.uri} cannot be {what} ({error}); see `txbatch doctor`") from error

    def _write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Write under a temporary name, then rename: a reader finds the file whole or not at all."""
        temporary = self.path(f"_{name}.{uuid4().hex}")
        with self.filesystem.open(temporary, "w", encoding="utf-8") as file:
            file.write(json.dumps(value, ensure_ascii=False))  # `dump`, or an indent, would do without the encoder in C
        if isinstance(self.filesystem, LocalFileSystem):
            os.replace(temporary, self.path(name))  # never into a folder that a link of that name leads to
        else:
            self.filesystem.mv(temporary, self.path(name))

    def _read(self, name: str, made: Callable[[Any], Value], bytes_max: int) -> Value:
        """Return the result of `made` for a file's JSON. Raise NewerFormat for a file of a newer txbatch, Unreadable for
        other faults.
        """
        with self._open(name) as file:
            content = file.read(bytes_max + 1)
            if len(content) > bytes_max:
                raise Unreadable(f"it has {file.seek(0, os.SEEK_END):,} bytes, at most {bytes_max:,} are read")
        try:
            return made(json.loads(content))
        except NewerFormat as error:
            raise NewerFormat(f"{self.uri}/{name}: {error}") from error
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise Unreadable(f"{type(error).__name__}: {str(error)[:200]}") from error

    def _open(self, name: str) -> Any:
        """Open a regular file and nothing else: opening a pipe waits for good, a link leads elsewhere."""
        if not isinstance(self.filesystem, LocalFileSystem):
            return self.filesystem.open(self.path(name), "rb")
        try:
            opened = os.open(self.path(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                raise Unreadable("it is no regular file") from error
            raise
        if stat.S_ISREG(os.fstat(opened).st_mode):
            return open(opened, "rb")
        os.close(opened)
        raise Unreadable("it is no regular file")


def error_json(kind: str, message: str) -> dict[str, str]:
    """Return the content of error.json."""
    return {"kind": kind, "message": message}


def _error_of(value: Mapping[str, Any]) -> Mapping[str, str]:
    check_format("the error", value, ERROR_FORMAT)
    kind, message = value["kind"], value["message"]
    if not isinstance(kind, str) or not isinstance(message, str):
        raise TypeError("kind and message are no strings")
    return {"kind": kind, "message": message}


def check_uri(uri: str) -> None:
    """Raise DefinitionError if Spark or another process would not find a place under the same name, or a place is no folder.

    Raise TransientError if the place does not answer.
    """
    if not _found_alike(uri):
        raise InvalidSetting(
            f"TXBATCH_STAGING {uri!r} is not a place that Spark and every task see alike; write file:///folder, or s3a:// and "
            "its like"
        )
    try:
        fsspec.core.url_to_fs(uri)
    except (ImportError, ValueError) as error:
        raise InvalidSetting(
            f"TXBATCH_STAGING {uri!r} cannot be reached from here ({error}); install its filesystem for fsspec, or name another"
        ) from error
    except OSError as error:
        raise StagingUnreadable(f"TXBATCH_STAGING {uri!r} does not answer ({error}); try again") from error
    if (file := _file_on(uri)) is not None:
        raise InvalidSetting(f"TXBATCH_STAGING {uri!r} cannot be a folder: {file} is a file; name another place")


def _scheme(uri: str) -> str:
    scheme, separator, _ = uri.partition("://")
    return scheme if separator else "file"


def _found_alike(uri: str) -> bool:
    """Return whether all processes read a URI alike: the URI depends on no working directory, shell or single process."""
    if "::" in uri or _CONTROL.search(uri) or _scheme(uri) in ("", *_NOT_SHARED):
        return False
    return _scheme(uri) != "file" or uri.removeprefix("file:").removeprefix("//").startswith("/")


def _file_on(uri: str) -> str | None:
    """Return the part of a local path that exists and is no folder."""
    path = Path(AttemptFolder(uri).path("")) if _scheme(uri) == "file" else Path("/")
    return next((str(part) for part in (path, *path.parents) if os.path.exists(part) and not os.path.isdir(part)), None)


def _open_to_others(folder: Path) -> str | None:
    """Return how another user may replace a folder's files, and thereby the committed data; None if nobody may."""
    found = folder.stat()
    if found.st_uid not in (0, os.getuid()):
        return f"{folder} belongs to another user ({found.st_uid})"
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        return f"{folder} is writable by all"
    return None


@lru_cache(maxsize=1024)
def _located(uri: str, process: int, thread: int) -> tuple[Any, str]:
    """Return the filesystem of a URI and the path there. Each thread has filesystems of its own, like in fsspec."""
    filesystem, path = fsspec.core.url_to_fs(uri)
    return filesystem, path.rstrip("/")


def _end(folder: AttemptFolder, by: Assignment) -> None:
    """Tell the driver of an older attempt to stop, if possible. The fence keeps out the driver's files in any case."""
    try:
        folder.write_heartbeat(folder.superseded(str(by.attempt)))
    except OSError as error:
        log.warning(
            "%s: the driver could not be stopped, although attempt %s has replaced the attempt: %s",
            folder.uri,
            by.attempt,
            error,
        )


@dataclass(frozen=True, slots=True)
class Staging:
    """The staging area of all topologies. Raise TerminalError if a folder below the root is a link."""

    root: str

    def check(self) -> list[str]:
        """Check whether the staging area is writable; raise the filesystem's errors. Return warnings about other users'
        access.
        """
        check_uri(self.root)
        probe = AttemptFolder(f"{self.root}/_probe-{uuid4().hex}")
        probe.filesystem.makedirs(probe.path(""), exist_ok=True)
        probe.write_error("none", "txbatch doctor")
        probe.remove()
        if not isinstance(probe.filesystem, LocalFileSystem):
            return []
        root = Path(probe.path("")).parent.resolve()
        return [told for folder in (root, *root.parents) if (told := _open_to_others(folder))]

    def attempt(self, assignment: Assignment) -> AttemptFolder:
        """The folder of one attempt."""
        name = f"{assignment.attempt.attempt_id}-{assignment.token[:TOKEN_CHARACTERS]}"
        return self._folder(assignment.topology, str(assignment.attempt.txid), name)

    def supersede(self, by: Assignment) -> None:
        """Tell the drivers of all other attempts at a txid to stop for the newer attempt, also attempts of a lost database."""
        parent, mine = self.transaction(by.topology, by.attempt.txid), self.attempt(by)
        for other in parent.folders():
            if other != mine and other.has_heartbeat():
                _end(other, by)

    def topology(self, topology: str) -> AttemptFolder:
        """The folder of a topology."""
        return self._folder(topology)

    def transaction(self, topology: str, txid: int) -> AttemptFolder:
        """The folder of all attempts of a txid."""
        return self._folder(topology, str(txid))

    def rebuilt(self, topology: str) -> AttemptFolder:
        """The folder of a rebuild's output, beside the folders of txids."""
        return self._folder(topology, "rebuild")

    def verified(self, topology: str, token: str) -> AttemptFolder:
        """The folder where a call of verify reads batches again, beside the folders of txids."""
        return self._folder(topology, f"verify-{token[:TOKEN_CHARACTERS]}")

    def remove(self, topology: str, txid: int) -> None:
        """Remove the staged files of all attempts at a txid."""
        self.transaction(topology, txid).remove()

    def _folder(self, topology: str, *names: str) -> AttemptFolder:
        """Return a folder. Raise DefinitionError for a name, TerminalError for a link, leading out of the staging area."""
        folder = AttemptFolder(self.root)
        for name in (checked_topology_name(topology), *names):
            folder = AttemptFolder(f"{folder.uri}/{name}")
            path = folder.path("").rstrip("/")
            if links_on(folder.filesystem, path):
                raise UnsafeStaging(f"{path} is a symbolic link, which the staging area must not hold; remove it")
        return folder
