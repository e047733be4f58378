"""The listing rule: which files of a folder are input. Spark reads nothing from the others, silently."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import unquote, urlsplit

from txbatch.core.errors import PartitionUnreadable, TransientError

GLOB_CHARACTERS = "\\*?[]{},"


def files_below(root: Path, pattern: str = "*") -> list[str]:
    """Relative paths of the regular files at any depth, in the order of their bytes, hidden files and folders left out.

    Raises TransientError when `root` is no folder or Spark could not read a name, PartitionUnreadable when a folder
    cannot be listed.
    """
    if not root.is_dir():
        raise TransientError(f"{root} is not a folder that can be read; create it or mend the path")
    found = []
    for folder, folders, files in os.walk(root, onerror=_refuse):
        folders[:] = [name for name in folders if not hidden(name)]
        found += [Path(folder, name) for name in files if not hidden(name) and fnmatchcase(name, pattern)]
    names = sorted((str(path.relative_to(root)) for path in found if path.is_file()), key=os.fsencode)
    for name in names:
        _check_name(name)
    return names


def check_size(file: Path, planned: int) -> None:
    """Refuse a file that is not as it was planned: TransientError; PartitionUnreadable when it cannot be looked at."""
    try:
        size = file.stat().st_size
    except OSError as error:
        raise PartitionUnreadable(f"{file} cannot be read: {error.strerror}") from error
    if size != planned:
        raise TransientError(
            f"{file} had {planned:,} bytes when it was planned, now {size:,}; restore it, or abort the batch. "
            "Write files under a name that begins with '_' and rename them when whole"
        )


def hidden(name: str) -> bool:
    """Whether Spark and Hadoop would read nothing from it, silently."""
    return name.startswith(("_", ".")) or name.endswith("._COPYING_")


def escaped(path: Path) -> str:
    """A path in which Spark takes no character for a glob."""
    return "".join("\\" + character if character in GLOB_CHARACTERS else character for character in str(path))


def relative_path(uri: str, root: Path) -> str:
    """The relative path of a file that Spark names by its URI."""
    return str(Path(unquote(urlsplit(uri).path)).relative_to(root.resolve()))


def _check_name(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise TransientError(f"the file name {os.fsencode(name)!r} is not UTF-8; rename the file") from None
    if ":" in name:
        raise TransientError(f"Spark cannot read {name!r}, for the colon in its name; rename the file")


def _refuse(error: OSError) -> None:
    raise PartitionUnreadable(f"{error.filename} cannot be listed: {error.strerror}") from error
