"""Days of a folder whose files come, change, move and go at random, counted, restated, rebuilt and verified."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
from cli_support import DAYS, rows
from click.testing import Result
from sizes import some_of
from sqlalchemy import Engine, text
from without_spark import LikeTheDriver

Txbatch = Callable[..., Result]
ALL = (1, 2, 3)
GONE = "not there any more, and the interval had"


def interval(day: int) -> list[str]:
    return ["--interval", f"2024-01-0{day}T00:00Z", f"2024-01-0{day + 1}T00:00Z"]


@dataclass
class Folder:
    """What the folder has, and by day what was read when it was counted last, and of which files."""

    root: Path
    random: Random
    read: dict[int, list[str]] = field(default_factory=dict)
    named: dict[int, set[str]] = field(default_factory=dict)
    txids: dict[int, int] = field(default_factory=dict)

    @property
    def files(self) -> list[str]:
        return sorted(path.name for path in self.root.iterdir())

    def now(self, day: int, names: list[str] | None = None) -> list[str]:
        """What a day reads, of these files."""
        lines = [line for name in names or self.files for line in (self.root / name).read_text().split()]
        return [line.partition(",")[2] for line in lines if line.startswith(f"2024-01-0{day}")]

    def counts(self, day: int) -> None:
        self.read[day], self.named[day] = self.now(day), {*self.files}

    def lost(self, day: int) -> bool:
        """True if a day would be counted again without records whose file is gone."""
        return bool(self.named[day] - {*self.files}) and self.now(day) != self.read[day]

    def verified(self, day: int) -> str:
        then = sorted(self.named[day])
        same = self.now(day) == self.read[day]
        as_then = {*then} <= {*self.files} and self.now(day, then) == self.read[day]
        return "EQUAL" if same else "LATE" if as_then else "UNVERIFIABLE"

    def changes(self) -> None:
        """A file comes or is written anew, gets another name, or goes."""
        random, there = self.random, self.files
        way = random.choice(["write", "write", "rename", "remove"])
        if way == "write" or not there:
            lines = (f"2024-01-0{random.choice(ALL)}T10:00Z,{random.choice('abc')}" for _ in range(random.randrange(4)))
            (self.root / random.choice("uvwxyz")).write_text("\n".join(lines))
        elif way == "rename":
            (self.root / random.choice(there)).rename(self.root / random.choice("uvwxyz"))
        else:
            (self.root / random.choice(there)).unlink()


@pytest.mark.rule("R17", "R23", "R24")
@pytest.mark.parametrize("seed", range(some_of(2, 4)))
def test_numbers_are_those_of_the_last_count_whatever_becomes_of_files(
    seed: int,
    txbatch: Txbatch,
    write_job: Callable[[str, str], str],
    engine: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("txbatch.wiring.Application", LikeTheDriver)
    root = tmp_path / "in"
    root.mkdir()
    folder, random = Folder(root, Random(seed)), Random(seed)
    job = write_job("days.py", DAYS.format(root=str(root)))
    for number in range(24):
        folder.changes()
        does = random.choice(["run", "run", "restate", "accept", "verify", "rebuild"])
        told = _does(does, folder, random, job, txbatch, f"the {number}th")
        with engine.begin() as connection:
            known = connection.execute(text("SELECT to_regclass('report.days')")).scalar_one()
            found = dict(map(tuple, connection.execute(text("SELECT name, count FROM report.days")))) if known else {}  # type: ignore[arg-type]
        assert found == Counter(name for read in folder.read.values() for name in read), (number, does, told)


def _does(does: str, folder: Folder, random: Random, job: str, txbatch: Txbatch, why: str) -> Any:
    day = random.choice(sorted(folder.read) or ALL) if does in ("restate", "accept") else random.choice(ALL)
    if does == "run":
        done = txbatch("run", job, *interval(day), "--json")
        assert (done.exit_code == 0) == bool(folder.files or day in folder.read), done.output
        if done.exit_code == 0 and day not in folder.read:
            folder.txids[day] = rows(done)[0]["txid"]
            folder.counts(day)
        return done.output
    if not folder.read:
        return None
    match does:
        case "restate" | "accept":
            accept = ["--accept-missing"] * (does == "accept")
            done = txbatch("restate", job, str(folder.txids.get(day, 9)), "--why", why, *accept)
            refused = not folder.files or (does == "restate" and folder.lost(day))
            assert (done.exit_code == 1) == refused, done.output
            assert (GONE in done.stderr) == (refused and bool(folder.files)) or "are not there" in done.stderr, (
                done.output
            )
            if not refused:
                folder.counts(day)
        case "rebuild":
            done = txbatch("rebuild", job, "--why", why)
            refused = not folder.files or any(map(folder.lost, folder.read))
            assert (done.exit_code == 1) == refused, done.output
            if refused:
                assert txbatch("rebuild", job, "--cancel").exit_code == 0
            for each in [] if refused else folder.read:
                folder.counts(each)
        case _:
            done = txbatch("verify", job, "--json")
            found = {row["txid"]: row["outcome"] for row in json.loads(done.stdout) if row["txid"] is not None}
            expected = Counter(map(folder.verified, folder.read))
            assert Counter(found.values()) == expected, done.output
    return done.output
