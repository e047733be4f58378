"""Which files differ from what was counted: one look at each, compared with what the plans say of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from txbatch.core.changes import Counted, Entry, difference, planned_size
from txbatch.core.errors import TxbatchError
from txbatch.spouts.listing import files_below

LOOKS_MAX = 100_000


@dataclass
class Looks:
    """One look at each file, and no more of them than are bounded."""

    left: int = field(default_factory=lambda: LOOKS_MAX)
    found: dict[Path, Entry | None] = field(default_factory=dict)

    def at(self, file: Path) -> Entry | None:
        """What is there now; None for nothing."""
        if file not in self.found:
            self.left -= 1
            self.found[file] = look(file)
        return self.found[file]


def look(file: Path) -> list[int] | None:
    """What a plan would say of a file now; None when it cannot be looked at."""
    try:
        found = file.stat()
    except OSError:
        return None
    return [found.st_size, found.st_mtime_ns]


def changed(counted: Iterable[Counted]) -> Iterator[dict[str, Any]]:
    """A row per file that differs, of FileSpouts and IntervalSpouts; plans come newest first. Nothing is raised for a file."""
    looks, newest = Looks(), set[tuple[str, str]]()
    told: set[tuple[str, str, str]] = set()
    for plan in counted:
        of = plan.topology, plan.stream
        for name, change in _changed(plan, looks, older=of in newest):
            if (*of, name) not in told:
                told.add((*of, name))
                yield {"topology": of[0], "stream": of[1], "file": name, "change": change, "txid": plan.txid}
        newest.add(of)


def _changed(plan: Counted, looks: Looks, *, older: bool) -> Iterator[tuple[str, str]]:
    root = Path(plan.source["root"])
    if not root.exists():
        yield str(root), "not there: its files were not looked at"
        return
    folder = root.parent if root.is_file() else root
    for name, entry in plan.files.items():
        if looks.left <= 0:
            yield str(root), f"has more than {LOOKS_MAX:,} files: the others were not looked at"
            return
        change = difference(entry, looks.at(folder / name))
        if change and not (older and plan.is_live(entry) and change.startswith(("grown", "filled"))):
            yield name, change
    if plan.source.get("spout") == "FileSpout":
        yield from _empty(root, plan)


def _empty(root: Path, plan: Counted) -> Iterator[tuple[str, str]]:
    """Files that no batch has, for they are empty."""
    try:
        names = files_below(root, plan.source.get("pattern", "*"))
    except TxbatchError:
        return
    for name in names:
        now = None if name in plan.files else look(root / name)
        if now and planned_size(now) == 0:
            yield name, "empty: it is read once it is filled"
