"""Write an attempt's partials to one state: COPY, then a statement of R9. The state's place and kind decide how."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import psycopg2.errors
from sqlalchemy import Connection

from txbatch.core.batch.manifest import StagedState
from txbatch.core.batch.transaction import Assignment
from txbatch.core.errors import BadRecord, Incomplete, StateAhead
from txbatch.core.naming import naming
from txbatch.core.protocol.commit import CommitPlan, StatePlan
from txbatch.core.state.state import StateKind
from txbatch.postgres.database.driver_errors import translate
from txbatch.postgres.database.engine import execute
from txbatch.postgres.database.generations import CURRENT
from txbatch.postgres.state import python_merge
from txbatch.postgres.state.new_values import RETURNING_VERSION_MIN, NewValues, check_rights
from txbatch.postgres.state.refold import CHANGED, FOLDED, Refold
from txbatch.postgres.state.statements import (
    INDEX_PROBES,
    INDEX_WALK,
    INDEX_WALK_BYTES_MAX,
    INDEX_WALK_VERSION_MIN,
    StateStatements,
    statements_of,
)


@dataclass(frozen=True, slots=True)
class StagedRows:
    """The content of a state's temporary table: the number of rows, and of bytes sent."""

    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class StateWriter:
    """Write an attempt to one state: `load`, then `apply`. Each subclass has a place and a kind of state.

    Both raise BadRecord, with the names of batch and state, for a value that PostgreSQL cannot store.
    """

    connection: Connection
    statements: StateStatements
    assignment: Assignment

    @property
    def name(self) -> str:
        """The state's name."""
        return self.statements.aggregate.state.name

    @property
    def txid(self) -> int:
        """The batch's txid."""
        return self.assignment.attempt.txid

    def load(self, batches: Any, staged: StagedState) -> StagedRows:
        """COPY the partials into a temporary table and compare them with the manifest (R7). Raise Incomplete if they differ."""
        from txbatch.postgres.state.copy_in import (
            copy_in,  # brings Arrow, which most who know the ledger do not need
        )

        execute(self.connection, self.statements.create_staged())
        keys = [key.name for key in self.statements.aggregate.keys]
        columns = [column.name for column in self.statements.partial_columns]
        with self._naming():
            sent = copy_in(self.connection, self.statements.copy(), batches, keys, keys + columns)
        found = execute(self.connection, self.statements.totals()).fetchone()
        expected = (str(staged.rows), *(staged.totals[column] for column in columns))
        if found != expected:
            raise Incomplete(
                f"{self.assignment.topology} {self.assignment.attempt}: state {self.name!r} was loaded as rows and "
                f"totals {found}, the manifest says {expected}; emit again"
            )
        return StagedRows(staged.rows, sent)

    def apply(self, staged: StagedRows) -> int:
        """Apply the loaded rows by R9; return the number of keys.

        Raise StateAhead if a row is at a later txid, or at the batch's txid although no earlier attempt can have written
        there.
        """
        with self._naming():
            self._prepare()
            staged, written = self._merge(staged)
            if written != staged.rows:
                self._check_left(written, staged.rows)
            self._complete()
        return staged.rows

    def _prepare(self) -> None:
        """Do the work before the upsert."""

    def _check_left(self, written: int, rows: int) -> None:
        """Raise the error for rows left alone by the upsert."""
        execute(self.connection, "ROLLBACK TO before_state")
        self._check_ahead(self.statements.ahead(self.txid))
        self._check_kept_back(written, rows)

    def _check_kept_back(self, written: int, rows: int) -> None:
        raise StateAhead(
            f"state {self.name!r}: {written} of {rows} rows were written, a trigger or a policy kept the others: state "
            "changed outside the ledger; nothing was committed"
        )

    def _complete(self) -> None:
        """Do the work after the upsert."""

    def _merge(self, staged: StagedRows) -> tuple[StagedRows, int]:
        """Upsert; return the loaded rows, with one row for each key, and the number of written rows."""
        try:
            return staged, self._upsert(staged)
        except (psycopg2.errors.CardinalityViolation, psycopg2.errors.UniqueViolation):
            execute(self.connection, "ROLLBACK TO before_state")
        staged = replace(staged, rows=self._collapse())
        return staged, self._upsert(staged)

    def _upsert(self, staged: StagedRows) -> int:
        """Upsert; return the number of written rows. `ROLLBACK TO before_state` undoes the upsert."""
        fits = len(self.statements.keys) == 1 and staged.bytes <= INDEX_WALK_BYTES_MAX
        walk = fits and self._server_version >= INDEX_WALK_VERSION_MIN
        execute(self.connection, f"SAVEPOINT before_state; {INDEX_WALK if walk else INDEX_PROBES}")
        merged = self._merged_by_python(walk=walk)
        return self._write(self.statements.upsert(self.txid, walk=walk, merged=merged))

    def _write(self, upsert: str) -> int:
        """Run the upsert; return the number of written rows."""
        return int(execute(self.connection, upsert).rowcount)

    @property
    def _server_version(self) -> int:
        return int(getattr(self.connection.connection.dbapi_connection, "server_version", 0))

    def _merged_by_python(self, *, walk: bool) -> str | None:
        """Return the table of the staged rows merged by Python. Return None if PostgreSQL can merge the rows."""
        if not self.statements.aggregate.by_python:
            return None
        return python_merge.merge_staged(self.connection, self.statements, walk=walk)

    def _collapse(self) -> int:
        """Merge several staged rows of one key (R9); return the number of rows left."""
        self._run(self.statements.collapse(python_merge.once(self.connection, self.statements)))
        return int(execute(self.connection, f"SELECT count(*) FROM {self.statements.staged}").fetchone()[0])

    def _check_ahead(self, statement: str) -> None:
        execute(self.connection, INDEX_PROBES)
        ahead = execute(self.connection, statement).fetchone()
        if ahead:
            raise StateAhead(
                f"state {self.name!r}, key {ahead[1:]}: the row is at txid {ahead[0]}, the batch is txid {self.txid}: state "
                "changed outside the ledger; nothing was committed"
            )

    def _run(self, statements: Sequence[str]) -> None:
        for statement in statements:
            execute(self.connection, statement)

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Context manager. Add the names of batch and state to a BadRecord, and the beginning of a key too long for an index."""
        with naming(f"{self.assignment.topology} {self.assignment.attempt}, state {self.name!r}"):
            try:
                yield
            except psycopg2.Error as error:
                problem = translate(error)
                if not isinstance(problem, BadRecord):
                    raise
                raise type(problem)(f"{problem}{self._too_long(error)}{self._too_large(error)}") from error

    def _too_long(self, error: psycopg2.Error) -> str:
        if not isinstance(error, psycopg2.errors.ProgramLimitExceeded):
            return ""
        execute(self.connection, f"ROLLBACK TO before_state; {INDEX_PROBES}")
        start, size = execute(self.connection, self.statements.longest_key()).fetchone()
        return f"; the longest key has {size:,} bytes and begins {start!r}: shorten it or filter it out in the job"

    def _too_large(self, error: psycopg2.Error) -> str:
        summed = self.statements.aggregate.summed
        if not isinstance(error, psycopg2.errors.NumericValueOutOfRange) or not summed:
            return ""
        in_rebuild = self.statements.generation != CURRENT
        way_out = (
            "cancel the rebuild, sum decimals, and rebuild"
            if in_rebuild
            else "abort the batch, or sum decimals and rebuild"
        )
        return f"; the sum of {summed} outgrows its type: {way_out}"


class LedgerWriter(StateWriter):
    """Write to a state in the ledger's own database, where no txid comes twice: with contributions."""

    def _prepare(self) -> None:
        check_rights(self.connection, self.statements.aggregate)
        if not self._returns:
            self._run(NewValues(self.statements).before(self.statements.staged))

    def _write(self, upsert: str) -> int:
        returned = NewValues(self.statements).returned(upsert, self.txid) if self._returns else None
        return super()._write(upsert) if returned is None else int(execute(self.connection, returned).fetchone()[0])

    def _complete(self) -> None:
        self._run(self.statements.remove(self.txid))
        if not self._returns:
            self._run(NewValues(self.statements).after(self.txid))
        if self.statements.aggregate.state.contributions:
            execute(self.connection, self.statements.contribute(self.txid, self.txid))

    @property
    def _returns(self) -> bool:
        """Whether a MERGE returns changed rows: if so, no look before and after the MERGE is needed."""
        return self._server_version >= RETURNING_VERSION_MIN


@dataclass(frozen=True, slots=True)
class RestateWriter(StateWriter):
    """Write a restate to a state in the ledger's own database, after the old version has been replaced (R17).

    `uncounted` are the columns that joined after the batch's position: they are null. If the whole state joined later,
    `counts` is False (R23).
    """

    position: int
    replaced: int
    uncounted: Collection[str] = ()
    counts: bool = True

    def apply(self, staged: StagedRows) -> int:
        """Contribute the loaded rows, and fold the keys of both versions again; return the number of keys.

        Raise StateAhead if a row is at the batch's txid or a later txid.
        """
        refold = Refold(self.statements, self.txid, self.replaced)
        with self._naming():
            check_rights(self.connection, self.statements.aggregate)
            execute(self.connection, "SAVEPOINT before_state")
            self._contribute()
            self._run(refold.find())
            found_folds = python_merge.fold_in_python(self.connection, self.statements, refold.folds, CHANGED)
            execute(self.connection, refold.store_folded(found_folds))
            self._run(NewValues(self.statements).before(CHANGED))
            if self.statements.kind is not StateKind.NON_TRANSACTIONAL:
                self._check_ahead(refold.ahead(refold.gone))
            gone = int(execute(self.connection, refold.vanish()).rowcount)
            found = int(execute(self.connection, f"SELECT count(*) FROM {FOLDED}").fetchone()[0])
            written = int(execute(self.connection, refold.put()).rowcount)
            if written != found:
                self._check_ahead(refold.ahead())
                self._check_kept_back(written, found)
            self._run(NewValues(self.statements).after(self.txid))
            execute(self.connection, refold.forget())
        return gone + found

    def _contribute(self) -> None:
        if not self.counts:
            return
        contribute = self.statements.contribute(self.txid, self.position, self.uncounted)
        try:
            execute(self.connection, contribute)
        except psycopg2.errors.UniqueViolation:
            execute(self.connection, "ROLLBACK TO before_state")
            self._collapse()
            execute(self.connection, contribute)


class ApartWriter(StateWriter):
    """Write to a state in another database (R21), for a txid new there. Removed values can be given back."""

    def _complete(self) -> None:
        self._run(self.statements.remove_apart(self.txid))


class OpaqueReplay(ApartWriter):
    """Write after an earlier attempt of the txid: the earlier attempt's rows are taken back first."""

    def _prepare(self) -> None:
        self._run(self.statements.take_back(self.txid))


class TransactionalReplay(ApartWriter):
    """Write after an earlier attempt of the txid with the same partials: the rows stay."""

    def _prepare(self) -> None:
        self._check_ahead(self.statements.ahead(self.txid + 1))

    def _check_left(self, written: int, rows: int) -> None:
        pass


def writer_of(connection: Connection, plan: CommitPlan, state: StatePlan, number: int) -> StateWriter:
    """Return the writer of a commit to a state in the ledger's own database. `number` tells the commit's states apart."""
    statements = statements_of(state.aggregate, f"staged_{number}")
    if plan.replaced is None:
        return LedgerWriter(connection, statements, plan.assignment)
    of = plan.assignment, plan.batch.position, plan.replaced, state.uncounted, state.counts
    return RestateWriter(connection, statements, *of)
