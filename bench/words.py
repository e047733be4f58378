"""End to end: 1 GB of text, a million words, into a state that has half of them, from the command to the commit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench import corpus, extras
from bench.database import Server, server
from bench.measure import Contestant, Figure, Stopwatch, interleaved
from bench.results import Results
from txbatch import settings
from txbatch.core.batch.transaction import Assignment, TransactionAttempt
from txbatch.launch.job_file import load_job
from txbatch.launch.submission import Submission, submission

JOB = Path(__file__).with_name("words_job.py")
TEXT = str(corpus.FOLDER / "text-*.txt")
WITH, WITHOUT = "1", "0"


@dataclass(frozen=True)
class Words:
    """The text and the databases that it goes into; every method is a contestant."""

    server: Server

    def txbatch(self, contributions: str, watch: Stopwatch) -> None:
        """`txbatch run`, as one types it."""
        folder = self._source(contributions)
        for file in corpus.FOLDER.glob("text-*.txt"):
            os.link(file, folder / file.name)
        try:
            self._contest(watch, contributions, lambda database: [self._run(database, contributions)])
        finally:
            for file in folder.glob("text-*.txt"):
                file.unlink()

    def bare(self, watch: Stopwatch) -> None:
        """What the wrapper does, without it: the plan by hand, submitted the same way, then COPY and an upsert."""
        ours, target = self.submission(), self.server.home / "bare"
        conf = [part for name, value in ours.conf.items() for part in ("--conf", f"{name}={value}")]
        environment = {**os.environ, **ours.environment}

        def commands(database: str) -> list[Command]:
            load = [sys.executable, str(extras.PROGRAMS / "upsert.py"), str(target)]
            return [Command(_spark(conf, "parquet", str(target)), environment), Command(load, self._told(database))]

        self._contest(watch, WITHOUT, commands)
        shutil.rmtree(target)

    def spark(self, how: str, watch: Stopwatch) -> None:
        """Stock spark-submit, Spark's JDBC writer and MERGE; `how`: jdbc, or stream for foreachBatch with AvailableNow."""
        conf, target = ["--jars", str(extras.jdbc_jar())], self.server.home / how

        def commands(database: str) -> list[Command]:
            return [Command(_spark(conf, how, str(target)), extras.spark_environment() | self.server.told(database))]

        self._contest(watch, WITHOUT, commands)
        shutil.rmtree(target, ignore_errors=True)

    def duckdb(self, watch: Stopwatch) -> None:
        """DuckDB counts; COPY, and the same upsert as of `bare`."""
        program = [str(extras.python()), str(extras.PROGRAMS / "upsert.py")]
        self._contest(watch, WITHOUT, lambda database: [Command([*program, "duckdb", TEXT], self._told(database))])

    @staticmethod
    def submission() -> Submission:
        """How `txbatch run` submits this batch: not as a short job, also where the text is not written yet."""
        os.environ |= {"WORDS_FOLDER": str(corpus.FOLDER), "WORDS_CONTRIBUTIONS": WITHOUT}
        end = corpus.LINES_PER_FILE * corpus.LINE * corpus.WORD_BYTES
        sizes = {f"text-{number}.txt": {"start": 0, "end": end} for number in range(corpus.FILES)}
        metadata = {"format": 1, "streams": {"lines": {"partitions": sizes}}}
        assignment = Assignment("words", TransactionAttempt(1, 1), "token", metadata, "0" * 64)
        return submission(load_job(str(JOB)), assignment, "memory://bench", settings.home(), local=True)

    def prefill(self) -> None:
        """The state before: by `txbatch run` itself, a word once."""
        for contributions in (WITH, WITHOUT):
            folder = self._source(contributions)
            folder.mkdir()
            os.link(corpus.FOLDER / corpus.BEFORE, folder / corpus.BEFORE)
            database = self._template(contributions)
            self.server.run(f"CREATE DATABASE {database}")
            migrate = Command([_txbatch(), "migrate"], self._environment(database, contributions))
            for command in (migrate, self._run(database, contributions)):
                command.run()
            self.server.run("VACUUM (FREEZE, ANALYZE)", database=database)

    def clean(self) -> None:
        """Remove the links to the text."""
        for contributions in (WITH, WITHOUT):
            shutil.rmtree(self._source(contributions), ignore_errors=True)

    def _contest(self, watch: Stopwatch, contributions: str, commands: Callable[[str], Sequence[Command]]) -> None:
        """Run the commands in turn on a fresh copy; then look whether every word was counted."""
        with self.server.copy_of(self._template(contributions)) as database:
            made = commands(database)
            with watch.timed():
                for command in made:
                    command.run()
            connection = self.server.connect(database)
            with connection, connection.cursor() as cursor:
                cursor.execute("SELECT count(*), sum(count) FROM state.words")
                found = cursor.fetchone()
            connection.close()
            assert found == (corpus.words_after(), corpus.TOTAL + corpus.WORDS), found

    def _run(self, database: str, contributions: str) -> Command:
        return Command([_txbatch(), "run", str(JOB)], self._environment(database, contributions))

    def _environment(self, database: str, contributions: str) -> dict[str, str]:
        told = {"WORDS_FOLDER": str(self._source(contributions)), "WORDS_CONTRIBUTIONS": contributions}
        staging = (self.server.home / "staging" / contributions).as_uri()
        return {**os.environ, **told, "TXBATCH_DATABASE_URL": self.server.url_of(database), "TXBATCH_STAGING": staging}

    def _told(self, database: str) -> dict[str, str]:
        return {**os.environ, **self.server.told(database)}

    def _source(self, contributions: str) -> Path:
        return corpus.FOLDER.with_name(f"source-{contributions}-{self.server.home.name}")

    def _template(self, contributions: str) -> str:
        return f"words_{contributions}"


@dataclass(frozen=True)
class Command:
    """A program, its arguments and its environment."""

    words: Sequence[str]
    environment: Mapping[str, str] | None = None

    def run(self) -> None:
        """Run it to its end; what it printed is shown when it fails."""
        done = subprocess.run(self.words, env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{self.words[0]} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")


def _spark(conf: Sequence[str], how: str, target: str) -> list[str]:
    return [extras.spark_submit(), "--master", "local[*]", *conf, str(extras.PROGRAMS / "words.py"), how, TEXT, target]


def _txbatch() -> str:
    return str(Path(sys.executable).with_name("txbatch"))


def measure(section: str, results: Results) -> None:
    """All contestants; the text is written once and kept."""
    corpus.ensure()
    with server() as running:
        words = Words(running)
        try:
            words.prefill()
            contestants: dict[str, Contestant] = {
                "txbatch": partial(words.txbatch, WITHOUT),
                "bare": words.bare,
                "txbatch with contributions": partial(words.txbatch, WITH),
                "PySpark, JDBC, MERGE": partial(words.spark, "jdbc"),
                "Structured Streaming, foreachBatch": partial(words.spark, "stream"),
                "DuckDB, COPY, upsert": words.duckdb,
            }
            results.add(section, interleaved(contestants), FIGURES, words=corpus.TOTAL, files=corpus.FILES)
        finally:
            words.clean()


FIGURES = [
    Figure(f"txbatch run / bare spark-submit, COPY and upsert, {corpus.SIZE} of text", "txbatch", "bare", 1.05, 1.02),
    Figure(f"txbatch run with contributions / bare, {corpus.SIZE}", "txbatch with contributions", "bare"),
    Figure(f"PySpark, JDBC, MERGE / txbatch run, {corpus.SIZE}", "PySpark, JDBC, MERGE", "txbatch", higher=True),
    Figure(
        f"Structured Streaming / txbatch run, {corpus.SIZE}",
        "Structured Streaming, foreachBatch",
        "txbatch",
        higher=True,
    ),
    Figure(f"DuckDB, COPY, upsert / txbatch run, {corpus.SIZE}", "DuckDB, COPY, upsert", "txbatch", higher=True),
]
SECTIONS = {"text, end to end": measure}
