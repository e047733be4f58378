"""The listing rule: which files of a folder are input. Spark silently reads nothing from all other files."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Iterator, Sequence, Set
from fnmatch import translate
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from txbatch.core.errors import (
    GONE,
    RESTORE,
    AmbiguousFiles,
    InvalidOption,
    PartitionUnreadable,
    SourceChanged,
    SourceMissing,
)

GLOB_CHARACTERS = "\\*?[]{},"


def absolute(root: object, spout: str) -> Path:
    """Return a spout's root as a path. Raise DefinitionError unless the root is the same folder wherever a process runs."""
    if not isinstance(root, str | os.PathLike) or not Path(root).is_absolute():
        raise InvalidOption(
            f"{spout}: root {str(root) if isinstance(root, Path) else root!r} is no absolute path: a shell and Airflow would "
            'read other folders; write it whole ("/data/sales"), or from the job file (Path(__file__).parent / "data")'
        )
    return Path(root)


def name_pattern(pattern: object, spout: str) -> str:
    """Return the pattern. Raise DefinitionError if no file's name can match the pattern."""
    if not isinstance(pattern, str) or not pattern or "/" in pattern:
        raise InvalidOption(
            f"{spout}: pattern {pattern!r} is for a file's name, at any depth, such as '*.csv': it has no '/'"
        )
    return pattern


def files_below(
    root: Path, pattern: str = "*", known: Container[str] = (), *, foreign_links: bool = False
) -> list[str]:
    """Return relative paths of the regular files at any depth, sorted by bytes, without hidden files and folders.

    A link to a folder is entered, a link to a file counts as a file; not if the target is listed in its own place. Files in
    `known` are left out; without links to files, files in `known` are not even looked at. Raise TransientError if `root` is
    no folder, Spark could not read a name, two links have the same target, or a link leads out of `root` to another user's
    files, unless `foreign_links` is true. Raise PartitionUnreadable if a folder cannot be listed, or a link leads to nothing.
    """
    if not root.is_dir():
        raise SourceMissing(f"{root} is not a folder that can be read; create it or mend the path")
    found, cut = list(_walk(root, foreign_links=foreign_links)), len(os.path.join(root, ""))
    links = [Path(entry.path) for entry in found if entry.is_symlink()]
    _check_links(links)
    for link in links:
        check_owner(str(link), str(root), foreign_links)
    asked = found if links else [entry for entry in found if entry.path[cut:] not in known]
    fits = re.compile(translate(pattern)).match
    matching = [entry.path for entry in asked if fits(entry.name) and entry.is_file()]
    twice = set(map(str, _listed_anyway(list(map(Path, matching)), set(links)))) if links else ()
    listed = (path[cut:] for path in matching if path not in twice)
    names = sorted((name for name in listed if name not in known), key=os.fsencode)
    for name in names:
        _check_name(name)
    return names


def _walk(root: Path, *, foreign_links: bool) -> Iterator[os.DirEntry[str]]:
    """Yield entries other than folders, from all folders once, also from folders behind links."""
    tops, entered = [str(root)], {os.path.realpath(root): str(root)}
    while tops:
        left = [tops.pop()]
        while left:
            files, folders = _look_into(left.pop())
            yield from files
            for each in folders:
                if each.is_symlink():
                    check_owner(each.path, str(root), foreign_links)
            tops += (each.path for each in folders if each.is_symlink() and _is_new(each.path, str(root), entered))
            left += (each.path for each in reversed(folders) if not each.is_symlink())


def _look_into(folder: str) -> tuple[list[os.DirEntry[str]], list[os.DirEntry[str]]]:
    """Return the files and, in order, the folders in a folder, without hidden names."""
    try:
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if not hidden(entry.name)]
    except OSError as error:
        raise PartitionUnreadable(f"{error.filename} cannot be listed: {error.strerror}") from error
    folders = sorted((entry for entry in found if _is_folder(entry)), key=lambda entry: entry.name)
    return [entry for entry in found if not _is_folder(entry)] if folders else found, folders


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself, which is told of as one that leads to nothing
        return False


def _is_new(link: str, root: str, entered: dict[str, str]) -> bool:
    """Return whether a link leads to a folder not yet listed. Raise TransientError if files would be listed twice."""
    target, where = os.path.realpath(link), os.path.realpath(os.path.dirname(link))
    for known, name in entered.items():
        if _lists(known, target) and (name == root or _lists(known, where)):
            return False
        if _lists(known, target) or _lists(target, known):
            raise AmbiguousFiles(f"the link {link} leads to files that {name} leads to as well; remove one of them")
    entered[target] = link
    return True


def _lists(folder: str, path: str) -> bool:
    """Return whether listing the folder lists `path` too: the path lies below the folder, and in no hidden folder."""
    below = os.path.relpath(path, folder)
    return below == os.curdir or not any(map(hidden, below.split(os.sep)))  # ".." is hidden, too


def _check_links(links: Sequence[Path]) -> None:
    """Refuse a link to nothing: the target may be a folder not mounted, and the target's files would be missing silently."""
    for link in links:
        if not os.path.exists(link):
            raise PartitionUnreadable(
                f"the link {link} leads to nothing that can be read ({os.readlink(link)!r}); restore that, or remove the link"
            )


def check_links_of(root: Path, names: Iterable[str], *, foreign_links: bool) -> None:
    """Refuse planned files now behind a link out of the root, like `files_below` does: raise TransientError."""
    above = (parent for name in names for parent in (Path(name), *Path(name).parents[:-1]))
    for each in {} if foreign_links else dict.fromkeys(above):
        if (root / each).is_symlink() and (root / each).exists():
            check_owner(str(root / each), str(root), foreign_links)


def check_owner(link: str, root: str, foreign_links: bool) -> None:
    """Refuse a link out of the root to another user's files: a writer here would read all that tasks may read.

    Links of the tasks' user, and of root, are accepted: both users can read the target anyway.
    """
    owner, target = _owners(link)
    trusted = (target, os.geteuid(), 0)
    if foreign_links or owner in trusted or _lies_below(os.path.realpath(link), os.path.realpath(root)):
        return
    raise AmbiguousFiles(
        f"the link {link} leads out of {root} to {os.readlink(link)!r}, which another user owns than the link: remove it, or "
        "give the spout foreign_links=True, if everybody who writes there may read the files of the tasks"
    )


def _owners(link: str) -> tuple[int, int]:
    """Return the user of a link, and the user of the link's target."""
    return os.lstat(link).st_uid, os.stat(link).st_uid


def _lies_below(path: str, folder: str) -> bool:
    return os.path.commonpath([path, folder]) == folder


def _listed_anyway(files: Sequence[Path], links: Set[Path]) -> set[Path]:
    """Return links to files listed in their own place. Raise TransientError if two links lead to the same unlisted file."""
    real = cache(os.path.realpath)
    known = {os.path.join(real(file.parent), file.name): file for file in files if file not in links} if links else {}
    anyway = set()
    for link in sorted(links & set(files)):
        other = known.setdefault(os.path.realpath(link), link)
        if other in links and other != link:
            raise AmbiguousFiles(f"the link {link} leads to the file that {other} leads to as well; remove one of them")
        if other != link:
            anyway.add(link)
    return anyway


def check_size(file: Path, planned: int) -> None:
    """Refuse a file changed since the planning: TransientError. Raise PartitionUnreadable if the file cannot be looked at."""
    try:
        size = file.stat().st_size
    except OSError as error:
        raise PartitionUnreadable(f"{file} cannot be read: {error.strerror}; {GONE}") from error
    if size != planned:
        raise SourceChanged(
            f"{file} had {planned:,} bytes when it was planned, now {size:,}; {RESTORE}. "
            "Write files under a name that begins with '_' and rename them when whole"
        )


def hidden(name: str) -> bool:
    """Return whether Spark and Hadoop would read nothing from a name, without an error."""
    return name.startswith(("_", ".")) or name.endswith("._COPYING_")


def escaped(path: Path) -> str:
    """Return a path without characters Spark takes for a glob."""
    return "".join("\\" + character if character in GLOB_CHARACTERS else character for character in str(path))


def relative_path(uri: str, root: Path) -> str:
    """Return a file's relative path from Spark's URI."""
    path, folder = unquote(urlsplit(uri).path), os.path.join(os.path.realpath(root), "")
    if not path.startswith(folder):
        raise ValueError(f"{path!r} is not below {folder!r}")
    return path.removeprefix(folder)


def _check_name(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise AmbiguousFiles(f"the file name {os.fsencode(name)!r} is not UTF-8; rename the file") from None
    if ":" in name:
        raise AmbiguousFiles(f"Spark cannot read {name!r}, for the colon in its name; rename the file")
