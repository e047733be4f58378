"""A topology in the test's process, on the ledger's twin in memory, dying at chosen points (Storm's LocalTopology).

>>> from txbatch import Count, OpaqueState, Topology
>>> from txbatch.testing import FeederBatchSpout, submit_topology
>>> topology, words = Topology("words"), FeederBatchSpout("word string")
>>> aggregate = topology.new_stream("in", words).group_by("word").persistent_aggregate(OpaqueState("words"), count=Count())
>>> local = submit_topology(topology)
>>> words.feed("the", "cat", "the")
>>> local.run(dies_at="commit.before_commit"), local.rows("words")
((), [])
>>> local.run(), local.rows("words")
((1,), [{'word': 'cat', 'count': 1}, {'word': 'the', 'count': 2}])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from txbatch import failpoints
from txbatch.core.aggregates.merge import Partial
from txbatch.core.batch.transaction import Batch, Interval, Metadata
from txbatch.core.errors import InvalidArgument, MissingPart, NoInterval, UnknownName
from txbatch.core.records.comparing import order_of
from txbatch.core.sources.spout import Spout
from txbatch.core.state.append import COPY, RECORD
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.topology.sessions import join_pieces
from txbatch.core.topology.topology import Topology
from txbatch.launch.expressions import check_expressions
from txbatch.launch.job_file import load_job
from txbatch.memory.application import MemoryApplication
from txbatch.memory.ask import ask
from txbatch.memory.ledger import MemoryLedger
from txbatch.memory.run_locks import MemoryRunLocks
from txbatch.memory.runner import MemoryJob
from txbatch.memory.staging import MemoryStaging
from txbatch.run.runner import Runner
from txbatch.run.steps import Steps
from txbatch.testing.replaced import Functions, Rows, replaced

# Where a batch may die, in the order in which it comes there; those of states in another database (R21) are the two with "apart".
POINTS = (
    "initialize.planned",
    "emit.attempt_started",
    "emit.manifest_written",
    "emit.recorded",
    "commit.loaded",
    "commit.apart_committed",
    "commit.before_commit",
    "commit.committed",
    "success.cleaned",
)


class _Died(BaseException):
    """Ends a run like a kill ends a process: nothing catches the exception, and nothing is noted."""


class _Spouts(dict[str, Any]):
    """The spouts by stream. UnknownName lists the known streams."""

    def __missing__(self, stream: str) -> Any:
        raise UnknownName(f"the topology has no stream {stream!r}; it has {', '.join(map(repr, self))}")


@dataclass(frozen=True, slots=True)
class LocalTopology:
    """The result of `submit_topology`. Each `run` acts as a process of its own: only the ledger and the staging area are
    kept.
    """

    topology: Topology
    _ledger: MemoryLedger = field(default_factory=MemoryLedger, repr=False)
    _staging: MemoryStaging = field(default_factory=MemoryStaging, repr=False)

    @property
    def spouts(self) -> Mapping[str, Any]:
        """The spout of each stream, to be fed. Raise UnknownName for an unknown stream."""
        return _Spouts((name, stream.spout) for name, stream in self.topology.streams.items())

    def run(
        self,
        *,
        interval: Interval | None = None,
        parameters: Metadata | None = None,
        batches: int | None = None,
        dies_at: str | None = None,
    ) -> tuple[int, ...]:
        """Run batch after batch until nothing is new, first the unfinished batches; return the txids that ended well.

        If `batches` is given, run at most `batches` batches. With `dies_at`, kill the process at the first arrival at the
        point, one of `POINTS`. Raise TerminalError if the run never arrives at the point, DefinitionError for a spout that
        never ends, and the errors of the run.
        """
        if interval is not None and not isinstance(interval, Interval):
            raise InvalidArgument(
                f"run(interval={interval!r}): give an Interval(start, end) of two datetimes with a zone"
            )
        if interval is None and self.topology.by_interval:
            raise NoInterval(
                f"topology {self.topology.name!r} reads by time: say run(interval=Interval(start, end)), of datetimes with a zone"
            )
        endless = [name for name, spout in self.spouts.items() if getattr(spout, "cycle", False)]
        if endless and batches is None:
            raise MissingPart(
                f"stream {endless[0]!r} begins again at its end, so the run has none; say run(batches=...)"
            )
        with self._runner() as runner:
            found = runner.run(interval=interval, parameters=parameters, until_idle=True)
            return _ended(islice(found, batches), dies_at)

    def restate(self, *txids: int, why: str, dies_at: str | None = None) -> tuple[int, ...]:
        """Count committed batches again, in the same places (R17); return and raise like `run`."""
        with self._runner() as runner:
            return _ended(runner.restate(txids, why), dies_at)

    def lose_staged_files(self) -> None:
        """Empty the staging area, like somebody tidying up: uncommitted batches are emitted again, by a new attempt."""
        for batch in self.batches():
            self._staging.remove(batch.topology, batch.txid)

    def submit_topology(
        self,
        job: Topology | str | Path,
        *,
        spouts: Mapping[str, Spout] | None = None,
        functions: Functions | None = None,
        static: Rows | None = None,
    ) -> LocalTopology:
        """Return another version of the job on the same ledger, with the feeders of the same streams."""
        new = replaced(_loaded(job), spouts or {}, functions or {}, static or {}, self.spouts)
        return LocalTopology(new, self._ledger, self._staging)

    def rows(self, state: str) -> list[dict[str, Any]]:
        """Return the rows of a state in the order of keys: the keys, and each value as reported.

        For a state that keeps records: the records in the order of batches, each with the batch's position in `batch`.
        """
        aggregate = next((each for each in self.topology.aggregates if each.state.name == state), None)
        if aggregate is None:
            known = ", ".join(repr(each.state.name) for each in self.topology.aggregates)
            raise UnknownName(f"topology {self.topology.name!r} has no state {state!r}; it has {known}")
        if state not in self._ledger.tables.states:
            return []
        stored = {key: (row.value, row.txid) for key, row in self._ledger.rows(state).items() if row.value is not None}
        told = [_row(aggregate, key, partial) for key, (partial, _) in join_pieces(aggregate, stored).items()]
        return sorted(told, key=lambda row: order_of(row.values()))

    def ask(self, query: str, questions: Sequence[Any]) -> list[list[dict[str, Any]]]:
        """Return the answer of a query stream to each question, like `Reports.ask` (Storm's LocalDRPC)."""
        return ask(self._ledger, self.topology, query, questions)

    def new_values(self, table: str) -> list[tuple[Any, ...]]:
        """Return the rows written by commits into a table of new values, in order."""
        return self._ledger.new_values(table)

    def batches(self) -> list[Batch]:
        """Return all batches, in the order of txids."""
        return self._ledger.tables.batches_of(self.topology.name)

    def _runner(self) -> Runner:
        steps = Steps(MemoryJob(self.topology), self._ledger, self._staging, MemoryRunLocks(), _standing_still)
        return Runner(steps, MemoryApplication(self.topology, self._staging))


def run(topology: Topology, on: LocalTopology | None = None) -> LocalTopology:
    """Run a topology until nothing is new; `on` gives an earlier topology's ledger to run on.

    Nothing is replaced: a `StateSpout` reads the states of the earlier topology. Raise like `LocalTopology.run`.
    """
    checked = topology.check()
    local = LocalTopology(checked) if on is None else LocalTopology(checked, on._ledger, on._staging)
    local.run()
    return local


def submit_topology(
    job: Topology | str | Path,
    *,
    spouts: Mapping[str, Spout] | None = None,
    functions: Functions | None = None,
    static: Rows | None = None,
) -> LocalTopology:
    """Return the topology of a job or a job file, to run in memory, with an empty ledger.

    Spouts become feeders of the same fields and kind, unless a spout runs in memory or `spouts` has another spout by the
    stream's name. `functions` has a Python function of a record for each Spark SQL expression, `static` the rows of each
    static state read by Spark. DefinitionError names everything left that needs Spark.
    """
    return LocalTopology(replaced(_loaded(job), spouts or {}, functions or {}, static or {}))


def _loaded(job: Topology | str | Path) -> Topology:
    """Return the job's topology. Raise DefinitionError if an expression reads a missing field."""
    topology = job if isinstance(job, Topology) else load_job(str(job)).topology
    check_expressions(topology)
    return topology.check()


def _ended(batches: Iterable[Batch], dies_at: str | None) -> tuple[int, ...]:
    """Return the txids of ended batches, each once, until the process died."""
    ended = dict[int, None]()
    if dies_at is not None and dies_at not in POINTS:
        raise InvalidArgument(f"dies_at is {dies_at!r}; a batch may die at {', '.join(POINTS)}")
    try:
        with failpoints.watch(_killed_at(dies_at)):
            ended.update((batch.txid, None) for batch in batches)
    except _Died:
        return tuple(ended)
    if dies_at is None:
        return tuple(ended)
    raise InvalidArgument(
        f"the run never came to {dies_at}: it ended txids {list(ended)}; feed it before, or name another point"
    )


def _killed_at(point: str | None) -> Callable[[str], None]:
    def reached(name: str) -> None:
        if name == point:
            raise _Died(name)

    return reached


@contextmanager
def _standing_still(call: Callable[[], object], *, seconds: float, name: str) -> Iterator[None]:
    """Context manager. Keep nothing alive: no lease ends within a test."""
    yield


def _row(aggregate: PersistentAggregate, key: Any, partial: Partial) -> dict[str, Any]:
    """Return a row like in reports."""
    keys = {each.name: value for each, value in zip(aggregate.keys, key, strict=True)}
    for hidden in (RECORD.name, COPY.name) if aggregate.state.appends else ():
        del keys[hidden]
    if aggregate.window is not None:
        keys |= aggregate.window.derived(keys[aggregate.window.name])
    return keys | {name: each.finish(part) for name, each, part in _parts(aggregate, partial)}


def _parts(aggregate: PersistentAggregate, partial: Partial) -> Iterator[tuple[str, Any, Partial]]:
    """Yield each value's name and aggregator with the value's part of a row."""
    for name, aggregator in aggregate.aggregates.items():
        at = [number for number, column in enumerate(aggregate.columns) if column.value == name]
        yield name, aggregator, tuple(partial[number] for number in at)
