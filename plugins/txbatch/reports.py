"""Read from Python what was counted: frozen rows, as the views of the schema `report` have them. See docs/reports.md.

from txbatch.orchestration import open_reports      # in a task of Airflow; elsewhere `Reports.open()`
batch = open_reports().batch("word_count", 7)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Self, TypeVar

from txbatch import settings
from txbatch.core.errors import TerminalError
from txbatch.postgres.engine import connect
from txbatch.postgres.reader import Reader
from txbatch.postgres.warehouses import Warehouses

Row = TypeVar("Row", "Batch", "Attempt")
Key = Any | Sequence[Any]


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch: one transaction, which counts as a whole or not at all. The columns are those of `report.batches`.

    `status` is planned, emitted, committed or aborted; `final`: it is committed, and nothing below it can change. `records` were
    read, `kept` reached each state, `keys` were changed, by state. Without an interval, the batch is none by time.
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
    reason: str | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a txid, written `7:2` in `attempt`. The columns are those of `report.attempts`."""

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


@dataclass(frozen=True, slots=True)
class Answer:
    """What a state has for a key: its values and the txid that last changed it, or, where `found` is False, neither."""

    key: tuple[str, ...]
    found: bool
    txid: int | None
    values: Mapping[str, Any]


class Reports:
    """Reads a ledger's database, and states in other databases. Each method is one transaction, and sees whole batches."""

    def __init__(self, of: settings.Settings) -> None:
        engine = connect(of.database_url, application_name="txbatch reports")
        self._reader = Reader(engine, Warehouses(of.warehouse_url))

    @classmethod
    def open(cls) -> Self:
        """Return the reports of the database that TXBATCH_DATABASE_URL names, else of the embedded one, which is started."""
        return cls(settings.ensure_database(settings.resolve()))

    def batches(self, topology: str, limit: int = 20) -> list[Batch]:
        """Return the newest batches, newest first. UnknownName for an unknown topology."""
        return [_row(Batch, row) for row in self._reader.batches(topology, limit)]

    def batch(self, topology: str, txid: int) -> Batch | None:
        """Return the batch with this txid, or None."""
        return next((_row(Batch, row) for row in self._reader.batches_by_txid(topology, [txid])), None)

    def batch_of_run(self, topology: str, run_id: str) -> Batch | None:
        """Return the newest batch that this run of the topology's DAG planned, or None."""
        return next((_row(Batch, row) for row in self._reader.batches_of_run(topology, run_id)), None)

    def attempts(self, topology: str, limit: int = 20) -> list[Attempt]:
        """Return the newest attempts, newest first. UnknownName for an unknown topology."""
        return [_row(Attempt, row) for row in self._reader.attempts(topology, limit)]

    def query(self, state: str, keys: Sequence[Key] = ()) -> list[Answer]:
        """Return an answer for each key, in the order asked and in one round trip (R20). A global value is asked without keys.

        A key is a value, or of several columns a tuple of values. UnknownName for an unknown state, TerminalError for a key
        that does not fit.
        """
        columns = self._reader.key_columns(state)
        asked = [tuple(map(_text, key if isinstance(key, tuple | list) else (key,))) for key in keys]
        found = self._reader.query(state, asked)
        return [_answer(row, key, columns) for row, key in zip(found, asked or [()], strict=True)]


def _text(part: Any) -> str:
    """Return a column of a key as PostgreSQL reads it. TerminalError for None, which no key holds."""
    if part is None:
        raise TerminalError("None is no part of a key: name a value")
    return f"\\x{bytes(part).hex()}" if isinstance(part, bytes | bytearray | memoryview) else str(part)


def _row(kind: type[Row], row: Mapping[str, Any]) -> Row:
    """The view may have more columns than this version knows."""
    return kind(**{field.name: row[field.name] for field in fields(kind)})


def _answer(row: Mapping[str, Any], key: tuple[str, ...], columns: Mapping[str, str]) -> Answer:
    txid = row.get("txid")
    values = {name: value for name, value in row.items() if name not in columns and name != "txid"}
    values.pop(
        next(name for name in row if name not in columns)
    )  # whether it was found, whatever that column is called
    return Answer(key, txid is not None, txid, values)
