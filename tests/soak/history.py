"""One topology's random history on real databases: runs that die at any statement and come back, aborts, skips, zombies.

Every record has a word of its own and belongs to one of a few buckets, so that each state tells how often it was counted.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import psycopg2
from soak.dying import Life, Process
from sqlalchemy import Engine, text
from support import ListSpout
from without_spark import stage

from txbatch import Count, OpaqueState, PartitionedSpout, Spout, SpoutKind, Topology, TransactionalState
from txbatch.core.batch.manifest import Manifest
from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Assignment, Batch, BatchStatus, Interval, Run
from txbatch.core.corrections.audit import Audit
from txbatch.core.corrections.verify import Outcome
from txbatch.core.errors import TransientError, TxbatchError
from txbatch.core.protocol.coordinator import NothingNew
from txbatch.launch.job_file import Job
from txbatch.postgres.corrections.verify import PostgresBooks
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.expressions import pg_name
from txbatch.postgres.database.run_locks import PostgresRunLocks
from txbatch.run.advance import Advance, Finished
from txbatch.run.steps import Steps
from txbatch.storage import parquet
from txbatch.storage.staging import AttemptFolder, Staging

DAY, START = timedelta(days=1), datetime(2024, 1, 1, tzinfo=UTC)
BUCKETS = 3
# A process that never dies has about as many statements; the first of them register its topology.
STATEMENTS_MIN, STATEMENTS_MAX = 25, 140
FIELDS = "word string, bucket string"


def record(word: str) -> tuple[str, str]:
    return word, f"bucket {sum(word.encode()) % BUCKETS}"


class Records(PartitionedSpout):
    """Partitions that grow."""

    fields = FIELDS

    def __init__(self, kind: SpoutKind, partitions: int) -> None:
        self.kind, self.lengths = kind, {f"p{number}": 3 for number in range(partitions)}

    @property
    def identity(self) -> Mapping[str, Any]:
        return {"spout": "Records"}

    def partitions(self) -> list[str]:
        return sorted(self.lengths)

    def emit_partition_batch_new(self, attempt: Any, partition: str, last_metadata: Any) -> Mapping[str, Any] | None:
        start = last_metadata["end"] if last_metadata else 0
        end = min(start + 2, self.lengths[partition])
        return {"start": start, "end": end} if start < end else None

    def emit_partition_batch(self, *_: Any) -> Any:
        raise AssertionError("Spark is not there")

    def batch(self, plan: Mapping[str, Any]) -> list[tuple[str, str]]:
        ranges = plan["partitions"].items()
        return [record(f"{name} {number}") for name, of in ranges for number in range(of["start"], of["end"])]

    def words(self) -> set[str]:
        return {f"{name} {number}" for name, length in self.lengths.items() for number in range(length)}


class Days(ListSpout):
    """Three records a day."""

    fields, by_interval = FIELDS, True

    def __init__(self, kind: SpoutKind) -> None:
        super().__init__(kind=kind)

    @property
    def identity(self) -> Mapping[str, Any]:
        return {"spout": "Days"}

    def initialize_transaction(self, txid: int, prev_metadata: Any, curr_metadata: Any) -> Mapping[str, Any]:
        return {**curr_metadata}

    def batch(self, plan: Mapping[str, Any]) -> list[tuple[str, str]]:
        day = datetime.fromisoformat(plan["interval"][0])
        return [record(f"{day:%Y-%m-%d} {number}") for number in range(3)]


@dataclass
class Zombie:
    """What a process knew, that comes back to it late."""

    batch: Batch
    assignment: Assignment
    manifest: Manifest


@dataclass
class History:
    """A topology with three states, its databases, and what happened to it."""

    random: Random
    url: str
    url_of: Callable[[str], str]
    folder: Path
    name: str = "t"
    by_interval: bool = False
    kind: SpoutKind = SpoutKind.TRANSACTIONAL
    there: type[OpaqueState] | type[TransactionalState] = TransactionalState
    here: type[OpaqueState] | type[TransactionalState] = OpaqueState
    max_pending: int = 1
    runs: list[Run] = field(default_factory=list)
    zombies: list[Zombie] = field(default_factory=list)
    happened: list[str] = field(default_factory=list)
    deaths: int = 0

    def __post_init__(self) -> None:
        self.spout: Spout = Days(self.kind) if self.by_interval else Records(self.kind, self.random.randint(1, 2))
        self.topology = self._topology()
        self.job = Job(
            f"{self.name}.py", self.folder / "job.py", self.topology, hashlib.sha256(b"the same code").hexdigest()
        )
        self.job.path.write_text("the same code")
        self.staging = Staging(f"file://{self.folder}/staging")
        Process(self.url, self.url_of).ledger.register(self.topology, self.job.name)
        self.look = connect(self.url)
        self.look_there = connect(self.url_of("warehouse"))

    @classmethod
    def seeded(cls, seed: int, url: str, url_of: Callable[[str], str], folder: Path) -> History:
        random = Random(seed)
        kind = random.choice([SpoutKind.TRANSACTIONAL, SpoutKind.OPAQUE])
        fits = [OpaqueState] if kind is SpoutKind.OPAQUE else [TransactionalState, TransactionalState, OpaqueState]
        return cls(
            random,
            url,
            url_of,
            folder,
            f"t{seed}",
            seed % 3 == 0,
            kind,
            random.choice(fits),
            random.choice(fits),
            1 + seed % 3,
        )

    def __str__(self) -> str:
        how = f"{'by interval' if self.by_interval else 'by offset'}, {self.kind} spout, max_pending {self.max_pending}"
        return f"{self.name}: {how}, {self.here.__name__} here, {self.there.__name__} there"

    def _topology(self) -> Topology:
        topology = Topology(self.name, self.max_pending)
        stream = topology.new_stream("in", self.spout)
        stream.group_by("word").persistent_aggregate(self.here(f"{self.name}_words"), count=Count())
        stream.group_by("bucket").persistent_aggregate(self.here(f"{self.name}_buckets"), count=Count())
        for key in ("word", "bucket"):
            state = self.there(f"{self.name}_{key}s_there", database="warehouse")
            stream.group_by(key).persistent_aggregate(state, count=Count())
        return topology

    # ---- what may happen

    def step(self) -> None:
        """Anything."""
        acts = [(self.run, 10), (self.wake, 2), (self.abort, 1), (self.skip, 1), (self.expire, 2), (self.grow, 2)]
        (act,) = self.random.choices([each for each, _ in acts], [weight for _, weight in acts])
        self.happened.append(act.__name__)
        act()

    def life(self) -> Life:
        """Of a process that dies somewhere, mostly."""
        mortal = self.random.random() < 0.6
        return Life(
            self.random.randint(STATEMENTS_MIN, STATEMENTS_MAX) if mortal else 0, after=self.random.random() < 0.5
        )

    def run(self, run: Run | None = None, life: Life | None = None) -> bool:
        """A run, new or come back, as far as it gets; True when nothing was new for it."""
        run, life = run or self._any_run(), life or self.life()
        return bool(self.as_process(life, f"{run.name}", lambda steps: self._finish(steps, run)))

    def _any_run(self) -> Run:
        if self.runs and self.random.random() < 0.4:
            return self.random.choice(self.runs)
        number = len(self.runs)
        day = START + self.random.randrange(number + 2) * DAY
        run = Run(f"cli:{number}", interval=Interval(day, day + DAY) if self.by_interval else None)
        self.runs.append(run)
        return run

    def _finish(self, steps: Steps, run: Run) -> bool:
        found = Advance(steps, run, partial(self._submit, steps)).to_commit()
        if isinstance(found, Finished):
            steps.success(found.batch)
        return isinstance(found, NothingNew)

    def _submit(self, steps: Steps, folder: AttemptFolder, assignment: Assignment) -> None:
        if self.random.random() < 0.1:
            raise TransientError("Spark ended with 137")
        stage(self.topology, folder, assignment)
        batch = Batch(assignment.topology, assignment.attempt.txid, BatchStatus.EMITTED, assignment.metadata, "")
        known = Batch(
            **{name: getattr(batch, name) for name in ("topology", "txid", "status", "metadata", "key")},
            fence=assignment.attempt.attempt_id,
            token=assignment.token,
        )
        self.zombies.append(Zombie(known, assignment, folder.read_manifest()))

    def wake(self) -> None:
        """A process that stood still for long goes on where it was, whatever has happened since."""
        if not self.zombies:
            return
        zombie = self.random.choice(self.zombies)

        def too_late(steps: Steps) -> None:
            ledger, folder = steps.ledger, self.staging.attempt(zombie.assignment)
            for call in self.random.sample(
                [
                    lambda: ledger.renew_lease(zombie.assignment),
                    lambda: ledger.record_manifests([(zombie.assignment, zombie.manifest)])[0],
                    lambda: ledger.commit(
                        self.topology,
                        zombie.batch,
                        {name: parquet.read(folder, state) for name, state in zombie.manifest.states.items()},
                    ),
                    lambda: ledger.fail_attempt(zombie.assignment, "too late"),
                    lambda: ledger.success(self.name, zombie.batch.txid),
                ],
                3,
            ):
                with suppress(TxbatchError):
                    call()

        self.as_process(self.life(), f"zombie {zombie.assignment.attempt}", too_late)

    def abort(self) -> None:
        if batches := self._batches("status IN ('planned', 'emitted')"):
            txid = self.random.choice(batches)
            self.as_process(self.life(), f"abort {txid}", lambda steps: steps.ledger.abort(self.name, txid, "wrong"))

    def skip(self) -> None:
        if batches := self._batches("status <> 'committed'"):
            txid = self.random.choice(batches)
            self.as_process(self.life(), f"skip {txid}", lambda steps: steps.ledger.skip(self.name, txid, "poison"))

    def expire(self) -> None:
        """Time passes, and nobody renewed a lease."""
        with self.look.begin() as connection:
            connection.execute(text("UPDATE txbatch.batch SET lease_until = clock_timestamp() - interval '1 s'"))

    def grow(self) -> None:
        if isinstance(self.spout, Records):
            self.spout.lengths[self.random.choice(sorted(self.spout.lengths))] += self.random.randint(1, 3)

    def as_process(self, life: Life, who: str, call: Callable[[Steps], Any]) -> Any:
        """In a process of its own; what it is refused is an answer, and what goes wrong when it is dead is its death."""
        process, answer = Process(self.url, self.url_of, life), None
        try:
            answer = call(Steps(self.job, process.ledger, self.staging, PostgresRunLocks(process.engine)))
            self.happened.append(
                f"  {who}: {answer if isinstance(answer, bool) else 'ok'}, {life.statements} statements"
            )
        except (TxbatchError, psycopg2.Error) as error:
            if not life.over and isinstance(error, psycopg2.Error):
                raise
            self.happened.append(f"  {who}: {'died; ' if life.over else ''}{type(error).__name__}: {str(error)[:160]}")
        finally:
            process.end()
        if life.over:
            self.deaths += 1
            self.happened.append(
                f"  {who}: died {'after' if life.after else 'before'} {' '.join(life.last.split())[:80]}"
            )
        return answer

    def _batches(self, condition: str) -> list[int]:
        statement = text(f"SELECT txid FROM txbatch.batch WHERE topology = :name AND {condition} ORDER BY txid")
        with self.look.connect() as connection:
            return list(connection.execute(statement, {"name": self.name}).scalars())

    # ---- how it must end

    def drain(self) -> None:
        """Nobody dies any more, runs come one after the other: everything ends, and every record counts once."""
        for number in range(40):
            self.expire()
            nothing_new = [self.run(run, Life()) for run in self._all_runs(number)]
            if (self.by_interval or all(nothing_new)) and not self._batches("status IN ('planned', 'emitted')"):
                break
        else:
            raise AssertionError("it never ends: somebody waits for the dead")
        self.check()

    def _all_runs(self, number: int) -> list[Run]:
        if not self.by_interval:
            return [Run(f"cli:drain {number}")]
        return [run for run in self.runs if number % 4 == 0 or not self._done(run)]

    def _done(self, run: Run) -> bool:
        statement = text(
            "SELECT count(*) FROM txbatch.batch WHERE topology = :name AND status = 'committed' AND key = :key"
        )
        with self.look.connect() as connection:
            return bool(connection.execute(statement, {"name": self.name, "key": run.key}).scalar_one())

    def check(self) -> None:
        given_up = self.given_up()
        expected = Counter(self.all_words() - given_up)
        buckets = Counter(record(word)[1] for word in expected)
        for engine, suffix in ((self.look, ""), (self.look_there, "_there")):
            assert counts(engine, f"{self.name}_words{suffix}") == expected, f"words{suffix}, given up: {given_up}"
            assert counts(engine, f"{self.name}_buckets{suffix}") == buckets, f"buckets{suffix}, given up: {given_up}"
        books = PostgresBooks(self.look)
        assert (found := books.audit(self.topology)) == Audit(), found
        assert {each.outcome for each in books.states(self.topology)} == {Outcome.EQUAL}

    def all_words(self) -> set[str]:
        if isinstance(self.spout, Records):
            return self.spout.words()
        assert isinstance(self.spout, Days)
        days = {run.interval.start for run in self.runs if run.interval}
        return {word for day in days for word, _ in self.spout.batch({"interval": [day.isoformat()]})}

    def given_up(self) -> set[str]:
        """As the reports tell."""
        statement = text("SELECT metadata FROM txbatch.batch WHERE topology = :name AND kind = 'skip'")
        with self.look.connect() as connection:
            given_up = connection.execute(statement, {"name": self.name}).scalars()
            plans = [BatchPlan.from_json(metadata).streams["in"].plan for metadata in given_up]
        return {word for plan in plans for word, _ in self.spout.batch(plan)}  # type: ignore[attr-defined]

    def close(self) -> None:
        self.look.dispose()
        self.look_there.dispose()


def counts(engine: Engine, state: str) -> Counter[str]:
    with engine.connect() as connection:
        rows = connection.execute(text(f"SELECT * FROM report.{pg_name(state)}"))
        return Counter({row[0]: row[1] for row in rows})


class Report:
    """Somebody who reads meanwhile, again and again: what he sees is never torn."""

    def __init__(self, history: History) -> None:
        self.history, self.over, self.torn, self.reports = history, threading.Event(), list[str](), 0
        self.thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Report:
        self.thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.over.set()
        self.thread.join(30)

    def _read(self) -> None:
        here, there = connect(self.history.url), connect(self.history.url_of("warehouse"))
        while not self.over.wait(0.03):
            for engine, suffix in ((here, ""), (there, "_there")):
                with suppress(Exception):  # before the states are made
                    self._compare(engine, suffix)
        here.dispose()
        there.dispose()

    def _compare(self, engine: Engine, suffix: str) -> None:
        name = self.history.name
        sums = [f"(SELECT COALESCE(sum(count), 0) FROM report.{name}_{each}{suffix})" for each in ("words", "buckets")]
        if not suffix:
            sums.append(
                f"(SELECT COALESCE(sum(records), 0) FROM report.batches WHERE topology = '{name}' AND kind = 'ordinary')"
            )
        with engine.connect() as connection:
            seen = tuple(connection.execute(text(f"SELECT {', '.join(sums)}")).one())
        self.reports += 1
        if len(set(seen)) > 1:
            self.torn.append(f"{suffix or 'here'}: {seen}")
