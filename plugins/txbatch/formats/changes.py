"""Finds files changed since a batch counted the files: one look at each file, compared with the plans."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from txbatch.core.batch.planned_files import Entry, PlannedFiles, difference, planned_size
from txbatch.core.errors import RESTORE, SourceChanged, TxbatchError
from txbatch.core.protocol.lookback import LatePosition, differing, late_gone
from txbatch.core.protocol.restate import restate_command
from txbatch.formats.listing import files_below

LOOKS_MAX = 100_000
# By so many of its last bytes a file that grew is told from another one that took its place.
ENDING_BYTES = 4096
# So far back the beginning of an unfinished line is looked for.
LINE_BYTES = 1_000_000
_LINE_ENDS = b"\n", b"\r"


def look(file: Path) -> list[int] | None:
    """Return a file's entry for a plan made now, or None if the file cannot be looked at."""
    try:
        found = file.stat()
    except OSError:
        return None
    return [found.st_size, found.st_mtime_ns]


def planned(file: Path) -> list[int] | None:
    """Return a plan's entry for a file that may grow: size, time and a checksum of the end; None if the file is gone."""
    entry = look(file)
    ending = _ending(file, entry[0]) if entry else None
    return [*entry, ending] if entry and ending is not None else entry


@dataclass
class Looks:
    """One look at each file, for a bounded number of files; `by` makes a file's entry."""

    left: int = field(default_factory=lambda: LOOKS_MAX)
    found: dict[Path, Entry | None] = field(default_factory=dict)
    by: Callable[[Path], Entry | None] = look

    def at(self, file: Path) -> Entry | None:
        """Return the file's entry for a plan made now, or None if the file is gone."""
        if file not in self.found:
            self.left -= 1
            self.found[file] = self.by(file)
        return self.found[file]


def check_not_replaced(file: Path, entry: Entry) -> None:
    """Refuse a file longer than planned, with other content at the planned end: TransientError.

    A shorter or missing file is refused by the reader; a file of the same length is read in the present state.
    """
    if is_replaced(file, entry):
        raise SourceChanged(
            f"{file} is another file than when it was planned: it is longer, and does not begin with what it held then; "
            f"{RESTORE}"
        )


def is_replaced(file: Path, entry: Entry) -> bool:
    """Return whether a file is longer than planned, with changed content before the planned end; False if unknown."""
    now = look(file)
    if isinstance(entry, int) or len(entry) < 3 or now is None or now[0] <= planned_size(entry):
        return False
    return _ending(file, planned_size(entry)) != entry[2]


def line_begin(file: Path, at: int) -> int | None:
    """Return the beginning of the first new line of a file grown from a size: `at`, or the beginning of an unfinished line.

    Return None for a line too long, or an unreadable file. A whole line without a line end was finished.
    """
    begin = max(at - LINE_BYTES, 0)
    try:
        with file.open("rb") as content:
            content.seek(begin)
            data = content.read(at - begin + 1)
    except OSError:
        return None
    if data[-1:] in _LINE_ENDS:
        return at
    found = max(data.rfind(end, 0, at - begin) for end in _LINE_ENDS)
    return begin + found + 1 if found >= 0 or begin == 0 else None


def _ending(file: Path, size: int) -> int | None:
    """Return the checksum of the last bytes before `size`; None if the file cannot be read."""
    try:
        with file.open("rb") as content:
            content.seek(max(size - ENDING_BYTES, 0))
            return zlib.crc32(content.read(min(size, ENDING_BYTES)))
    except OSError:
        return None


def changed(counted: Iterable[PlannedFiles]) -> Iterator[dict[str, Any]]:
    """Yield a row per changed file, of FileSpouts and IntervalSpouts; plans come newest first. No error is raised for a file.

    `seen_by` is the txid of a newer plan with the file in the present state. A file seen by a restate is no longer reported.
    """
    looks, told, plans = Looks(), set[tuple[str, str, str]](), list(counted)
    newest = {(plan.topology, plan.stream): plan for plan in reversed(plans)}
    newer = defaultdict[tuple[str, str], list[PlannedFiles]](list)
    for plan in sorted(plans, key=lambda each: each.txid or 0, reverse=True):
        of = plan.topology, plan.stream
        for name, change in changes_of(plan, looks, older=plan is not newest[of]):
            if (*of, name) in told:
                continue
            told.add((*of, name))
            seen = [
                each for each in newer[of] if name in plan.files and each.knows(name, looks.at(_folder(plan) / name))
            ]
            if not any(each.restates for each in seen):
                row = {"topology": of[0], "stream": of[1], "file": name, "change": change, "txid": plan.txid}
                yield {**row, "seen_by": seen[0].txid if seen else None}
        newer[of].append(plan)


def differs_since(plans: Iterable[PlannedFiles], late: LatePosition, looks: Looks) -> str | None:
    """Return the first missing, shorter or replaced file of a late position, in the words of a run; None without such a file.

    `plans` are counted plans, of this position and of further positions. `looks`, by `planned`, serves all positions: each plan
    names each file.
    """
    of = late.interval.start, late.interval.end
    counted = sorted((each for each in plans if each.interval == of), key=lambda each: each.stream)
    return next(filter(None, (_differs(each, late, looks) for each in counted)), None)


def _differs(plan: PlannedFiles, late: LatePosition, looks: Looks) -> str | None:
    folder = _folder(plan)
    if not folder.exists():
        return None
    if late.streams == {plan.stream} and (gone := [each for each in sorted(late.files) if not looks.at(folder / each)]):
        return late_gone(gone[0])
    now = {name: entry for name in plan.files if (entry := looks.at(folder / name))}
    grown = [name for name, entry in now.items() if planned_size(entry) > planned_size(plan.files[name])]
    arrived = [name for name in grown if not is_replaced(folder / name, plan.files[name])]
    return differing(plan.files, now, arrived, restate_command(plan.topology, late.position))


def _folder(plan: PlannedFiles) -> Path:
    """Return the folder of a plan's files."""
    root = Path(plan.source["root"])
    return root.parent if root.is_file() else root


def changes_of(plan: PlannedFiles, looks: Looks, *, older: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the changed files of a plan, each with the change; `older`: newer plans followed."""
    root, folder = Path(plan.source["root"]), _folder(plan)
    if not root.exists():
        yield str(root), "not there: its files were not looked at"
        return
    for name, entry in plan.files.items():
        if looks.left <= 0:
            yield str(root), f"has more than {LOOKS_MAX:,} files: the others were not looked at"
            return
        change = difference(entry, looks.at(folder / name))
        if change and not (older and plan.is_live(entry) and change.startswith(("grown", "filled"))):
            yield name, change
    if plan.source.get("spout") == "FileSpout":
        yield from _empty(root, plan)


def _empty(root: Path, plan: PlannedFiles) -> Iterator[tuple[str, str]]:
    """Yield files of no batch, because the files are empty."""
    try:
        names = files_below(root, plan.source.get("pattern", "*"), foreign_links=True)
    except TxbatchError:
        return
    for name in names:
        now = None if name in plan.files else look(root / name)
        if now and planned_size(now) == 0:
            yield name, "empty: it is read once it is filled"
