"""Reads counted values from Python: frozen rows, with the columns of the views in schema `report`. See docs/reports.md.

from txbatch.orchestration import open_reports      # in a task of Airflow; elsewhere `Reports.open()`
batch = open_reports().batch("word_count", 7)
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from txbatch import settings
from txbatch.core.errors import InvalidKey
from txbatch.core.topology.nodes import LiveLookup
from txbatch.core.topology.topology import Topology
from txbatch.direct.queries import answers
from txbatch.launch.job_search import jobs_above
from txbatch.postgres.apart.warehouses import Warehouses
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.reading.history_reader import HistoryReader
from txbatch.postgres.reading.multi_get import look_up, multi_get

Row = TypeVar("Row", "Batch", "Attempt", "Restatement", "Standing", "Version", "Waiting")
Key = Any | Sequence[Any]
_SNAPSHOT: Any = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch: a transaction, counted whole or not at all. The columns match the view `report.batches`.

    `status` is planned, emitted, committed or aborted. `final`: the batch is committed, and nothing below the batch can
    change. `records` were read, `kept` reached each state, `keys` were changed, by state. `late` records came after the
    `watermark` had passed the records' window. Windows are closed up to `closed_to` since then. `ahead` records had a time
    after the batch's planning, up to `ahead_to`. `duration` is the time from planning to commit, `emit_duration` Spark's time
    in the newest attempt. `lease_live`: the batch's run shows signs of life. Without an interval, the batch is none by time.
    """

    topology: str
    txid: int
    kind: str
    status: str
    final: bool
    interval_start: datetime | None
    interval_end: datetime | None
    attempts: int
    records: int | None
    kept: Mapping[str, int] | None
    keys: Mapping[str, int] | None
    dag_id: str | None
    run_id: str | None
    run: str | None
    created_at: datetime
    committed_at: datetime | None
    aborted_at: datetime | None
    reason: str | None
    position: int
    replaced_by: int | None
    requested_by: str | None
    late: Mapping[str, int] | None
    watermark: datetime | None
    closed_to: datetime | None
    ahead: int | None
    ahead_to: datetime | None
    duration: timedelta | None
    emit_duration: timedelta | None
    lease_live: bool


@dataclass(frozen=True, slots=True)
class Restatement:
    """A batch counting an earlier batch again, in the earlier batch's place. The columns match the view
    `report.restatements`.
    """

    topology: str
    position: int
    txid: int
    replaced_txid: int | None
    status: str
    reason: str | None
    requested_by: str | None
    dag_id: str | None
    run_id: str | None
    run: str | None
    created_at: datetime
    committed_at: datetime | None
    records_before: int | None
    records: int | None
    keys: Mapping[str, int] | None
    replaced_by: int | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a txid, written `7:2` in `attempt`. The columns are the columns of `report.attempts`.

    `code` is the begin of the sha256 of the job file that ran. `error_code` is the code of `error`, such as TX402: `error` is
    hidden from roles that may not read quarantines, `error_code` is not.
    """

    topology: str
    txid: int
    attempt_id: int
    attempt: str
    status: str
    run: str | None
    error: str | None
    started_at: datetime
    finished_at: datetime | None
    duration: timedelta | None
    code: str | None
    error_code: str | None


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a topology is counted, and the obstacles. The columns match the view `report.topologies`.

    `whole_to`, by time: everything from the first interval up to this moment is counted, without a gap. `in_flight` batches
    are planned or emitted, `failing` batches of these have a failed newest attempt. `gaps` intervals between counted intervals
    are not counted. `waiting` is the number of rows of `Reports.waiting`. `left_out` partitions could not be read by a batch,
    and no batch has read them since.
    """

    topology: str
    job: str
    by_interval: bool
    zone: str | None
    newest_txid: int | None
    current_to_txid: int | None
    committed_at: datetime | None
    whole_to: datetime | None
    in_flight: int
    failing: int
    waiting: int
    gaps: int
    left_out: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """A batch waiting for its turn, or a run waiting for a batch. The columns match the view `report.waiting`.

    Without a `txid`, a run waits and has no batch yet. `lease_live`: the run in `waits_for_run` shows signs of life.
    """

    topology: str
    txid: int | None
    run: str | None
    status: str
    waits_for_txid: int
    waits_for_run: str | None
    waits_for_status: str
    lease_live: bool | None
    since: datetime | None
    waited: timedelta | None
    lease_until: datetime | None


@dataclass(frozen=True, slots=True)
class Answer:
    """A key's values in a state, and the txid of the last change. If `found` is False, both are missing."""

    key: tuple[str, ...]
    found: bool
    txid: int | None
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Version:
    """A batch's contribution to a key, and whether the contribution counts. `position` None: folded by retention.

    The columns match the view `report.why_<state>`, with the state's values in `values`.
    """

    position: int | None
    txid: int
    replaced_by: int | None
    values: Mapping[str, Any]
    counts: bool
    attempt: str | None
    dag_id: str | None
    run_id: str | None
    run: str | None
    interval_start: datetime | None
    interval_end: datetime | None
    reads: Sequence[str]
    committed_at: datetime | None
    reason: str | None
    requested_by: str | None


@dataclass(frozen=True, slots=True)
class Why:
    """Explains where a key's value comes from. `values` None: the key is missing now.

    `equal`: whether the counting versions amount to the value. None: only the job can compare, by a merge of the job's own.
    """

    key: tuple[str, ...]
    values: Mapping[str, Any] | None
    txid: int | None
    equal: bool | None
    versions: Sequence[Version]


class Reports:
    """Reads a ledger's database, and states in other databases. Each method is a transaction, and sees whole batches."""

    def __init__(self, of: settings.Settings) -> None:
        self._engine = connect(of.database_url, application_name="txbatch reports")
        self._warehouses = Warehouses(of.warehouse_url)
        self._reader = HistoryReader(self._engine, self._warehouses, jobs_above(self._engine, Path.cwd()))

    @classmethod
    def open(cls) -> Self:
        """Return the reports of the database in TXBATCH_DATABASE_URL; if unset, start and use the embedded database."""
        return cls(settings.ensure_database(settings.resolve()))

    def batches(self, topology: str, limit: int = 20) -> list[Batch]:
        """Return the newest batches, newest first. UnknownName for an unknown topology."""
        return [_row(Batch, row) for row in self._reader.batches(topology, limit)]

    def batch(self, topology: str, txid: int) -> Batch | None:
        """Return the batch of a txid, or None."""
        return next((_row(Batch, row) for row in self._reader.batches_by_txid(topology, [txid])), None)

    def batch_of_run(self, topology: str, run_id: str) -> Batch | None:
        """Return the newest batch planned by a run of the topology's DAG, or None."""
        return next((_row(Batch, row) for row in self._reader.batches_of_run(topology, run_id)), None)

    def attempts(self, topology: str, limit: int = 20) -> list[Attempt]:
        """Return the newest attempts, newest first. UnknownName for an unknown topology."""
        return [_row(Attempt, row) for row in self._reader.attempts(topology, limit)]

    def query(self, state: str, keys: Sequence[Key] = ()) -> list[Answer]:
        """Return an answer for each key, in the order asked and in a single round trip (R20). A global value is asked without
        keys.

        A key is a value, or a tuple of values for several columns. Raise UnknownName if the state is unknown, TerminalError
        if a key does not fit.
        """
        columns = self._reader.key_columns(state)
        asked = [_parts(key) for key in keys]
        found = self._reader.query(state, asked)
        return [_answer(row, key, columns) for row, key in zip(found, asked or [()], strict=True)]

    def multi_get(
        self, state: str, keys: Sequence[Key] = (), *, database: str | None = None
    ) -> list[Mapping[str, Any] | None]:
        """Return the values of each key, in the order asked and in a single round trip; None for a missing key.

        A key is a value of the column's own type, or a tuple for several columns; a global value is asked without keys. The
        right to read the schema `report` is enough. `database` names the database of a state kept apart. Raise UnknownName if
        the state is missing, TerminalError if a key does not fit.
        """
        engine = self._engine if database is None else self._warehouses.engine(database)
        with transaction(engine) as connection:
            return [*multi_get(connection, state, keys)]

    def ask(self, topology: Topology, query: str, questions: Sequence[Any]) -> list[list[dict[str, Any]]]:
        """Return the answer to each question to a query stream: records, as dicts. All answers see the same moment of the
        states.

        A question is a value, or a tuple of values for several fields. The right to read the schema `report` is enough. Raise
        UnknownName if the query is unknown, TerminalError if a question does not fit, or a function of the job fails.
        """
        asked = topology.query_stream(query)
        states = {step.aggregate.state.database for step in asked.steps if isinstance(step, LiveLookup)}
        if not states:
            return answers(asked, questions, lambda aggregate, keys: [])
        (database,) = states
        engine = self._engine if database is None else self._warehouses.engine(database)
        with transaction(engine.execution_options(**_SNAPSHOT)) as connection:
            return answers(asked, questions, partial(look_up, connection))

    def as_of(self, state: str, txid: int, keys: Sequence[Key] = (), *, corrected: bool = False) -> list[Answer]:
        """Return an answer for each key as of a txid; without keys, the global value, or all keys at the time.

        `corrected`: count the batches up to the txid with all restates until today. Raise UnknownName if the state is
        unknown, TerminalError if the state's past is not kept, or the txid is not committed or was folded. Warn if windows
        have left since.
        """
        columns = self._reader.key_columns(state)
        asked = [_parts(key) for key in keys]
        found = self._reader.as_of(state, txid, asked, corrected=corrected)
        if (without := self._reader.told_without(state, txid)) is not None:
            warnings.warn(without, stacklevel=2)
        if asked:
            return [_answer(row, key, columns) for row, key in zip(found, asked, strict=True)]
        keys_of = [tuple(_text(row[name]) for name in columns) for row in found]
        return [Answer(key, True, row["txid"], _values(row, columns)) for key, row in zip(keys_of, found, strict=True)]

    def why(self, state: str, key: Key = ()) -> Why:
        """Return where a key's value comes from. Raise UnknownName if the state is unknown, or the key never existed."""
        told = self._reader.why(state, _parts(key))
        versions = [_row(Version, version) for version in told["versions"]]
        return Why(tuple(told["key"].values()), told["values"], told["txid"], told["equal"], versions)

    def restatements(self, topology: str, limit: int = 20) -> list[Restatement]:
        """Return the newest restates, newest first. UnknownName for an unknown topology."""
        return [_row(Restatement, row) for row in self._reader.restatements(topology, limit)]

    def topologies(self) -> list[Standing]:
        """Return how far each topology is counted, and the obstacles, by name."""
        return [_row(Standing, row) for row in self._reader.standings()]

    def waiting(self) -> list[Waiting]:
        """Return the batches that wait for their turn, and the runs that wait for a batch, of all topologies."""
        return [_row(Waiting, row) for row in self._reader.waiting()]


def _parts(key: Key) -> tuple[str, ...]:
    return tuple(map(_text, key if isinstance(key, tuple | list) else (key,)))


def _text(part: Any) -> str:
    """Return a key's column in PostgreSQL's text form. Raise TerminalError for None: no key holds None."""
    if part is None:
        raise InvalidKey("None is no part of a key: name a value")
    return f"\\x{bytes(part).hex()}" if isinstance(part, bytes | bytearray | memoryview) else str(part)


def _row(kind: type[Row], row: Mapping[str, Any]) -> Row:
    """Return a view's row, without columns unknown to the class."""
    return kind(**{field.name: row[field.name] for field in fields(kind)})


def _answer(row: Mapping[str, Any], key: tuple[str, ...], columns: Mapping[str, str]) -> Answer:
    txid = row.get("txid")
    values = {name: value for name, value in row.items() if name not in columns and name != "txid"}
    values.pop(
        next(name for name in row if name not in columns)
    )  # whether it was found, whatever that column is called
    return Answer(key, txid is not None, txid, values)


def _values(row: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in columns and name != "txid"}
