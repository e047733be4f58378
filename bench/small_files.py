"""Ten thousand small files: as one batch, as a thousand batches of ten, and by hand as a folder that Spark reads.

Each has 40 words of a thousand. By hand it is the same plan, submitted as we do, into Parquet; then COPY and an upsert.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from functools import partial
from pathlib import Path

from bench import extras
from bench.by_hand import submitted_as
from bench.database import Server, server
from bench.measure import Contestant, Figure, Stopwatch, interleaved
from bench.results import Results
from bench.words import Command
from bench.year import txbatch

FILES, BATCHES = 10_000, 1_000
LINES, LINE_WORDS, VOCABULARY = 4, 10, 1_000
JOB = """
from txbatch import *

topology = Topology("small_files")
lines = topology.new_stream("lines", FileSpout({root!r}, files_per_batch={files}))
words = lines.flat_map("split(line, ' ')", "word string")
words.group_by("word").persistent_aggregate(OpaqueState("words"), count=Count())
if __name__ == "__main__":
    raise SystemExit(emit(topology))
"""
STATE = (
    "CREATE SCHEMA IF NOT EXISTS state",
    'CREATE TABLE state.words (word text COLLATE "C" PRIMARY KEY, count bigint, txid bigint)',
)


def write(folder: Path) -> Path:
    """Write the files, the same ones each time, and return their folder."""
    chosen = random.Random(7)
    folder.mkdir()
    for number in range(FILES):
        lines = (" ".join(f"word{chosen.randrange(VOCABULARY):03}" for _ in range(LINE_WORDS)) for _ in range(LINES))
        (folder / f"{number:05}.txt").write_text("".join(f"{line}\n" for line in lines))
    return folder


def job(home: Path, root: Path, files: int) -> Path:
    """Write the job that counts the words of a folder, so many files a batch."""
    path = home / f"small_files_{files}.py"
    path.write_text(JOB.format(root=str(root), files=files))
    return path


def measure(section: str, results: Results) -> None:
    """Each into a database that has none of it; every word is looked for."""
    with server() as running:
        root = write(running.home / "files")
        running.run("CREATE DATABASE migrated")
        txbatch(running, "migrated", "migrate")
        one, many = (job(running.home, root, files) for files in (FILES, FILES // BATCHES))
        contestants: dict[str, Contestant] = {
            "one batch": partial(_ours, running, one, 1),
            "by folder": partial(_by_folder, running, one, root),
            f"{BATCHES} batches": partial(_ours, running, many, BATCHES),
        }
        results.add(section, interleaved(contestants), FIGURES, files=FILES, words_a_file=LINES * LINE_WORDS)


def _ours(running: Server, path: Path, batches: int, watch: Stopwatch) -> None:
    with running.copy_of("migrated") as database:
        took = txbatch(running, database, "run", str(path), "--until-idle")
        watch.seconds, watch.cpu = took.seconds, took.cpu
        _check(running, database)
        assert _one(running, database, "SELECT count(*) FROM report.batches WHERE status = 'committed'") == batches


def _by_folder(running: Server, path: Path, root: Path, watch: Stopwatch) -> None:
    target = running.home / "by_folder"
    with running.copy_of("template1") as database:
        running.run(*STATE, database=database)
        count = submitted_as(path, "words.py", "parquet", str(root), str(target))
        load = [sys.executable, str(extras.PROGRAMS / "upsert.py"), str(target)]
        with watch.timed():
            count.run()
            Command(load, {**os.environ, **running.told(database)}).run()
        _check(running, database)
    shutil.rmtree(target)


def _check(running: Server, database: str) -> None:
    assert _one(running, database, "SELECT sum(count) FROM state.words") == FILES * LINES * LINE_WORDS


def _one(running: Server, database: str, question: str) -> int:
    connection = running.connect(database)
    with connection, connection.cursor() as cursor:
        cursor.execute(question)
        (found,) = cursor.fetchone() or (0,)
    connection.close()
    return int(found)


FIGURES = [
    Figure(f"one batch of {FILES:,} files / by folder in bare Spark", "one batch", "by folder", 2, 1.5),
    Figure(
        f"{BATCHES:,} batches of {FILES // BATCHES} small files / one of {FILES:,}",
        f"{BATCHES} batches",
        "one batch",
        2,
        1.5,
    ),
]
SECTIONS = {"ten thousand small files": measure}
