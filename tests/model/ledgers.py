"""Two ledgers as the model looks at them: what is stored, and how time passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import pytest
from sqlalchemy import Engine, text
from support import Keyed, record_batch

from txbatch.core.batch.apart import LastWriter
from txbatch.core.batch.transaction import Batch
from txbatch.core.protocol.ledger import Ledger
from txbatch.core.topology.topology import Topology
from txbatch.memory.ledger import MemoryLedger
from txbatch.memory.tables import Tables
from txbatch.postgres.apart import apart
from txbatch.postgres.apart.warehouses import Warehouses
from txbatch.postgres.database.expressions import pg_name
from txbatch.postgres.database.queries import query
from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.ledger import PostgresLedger
from txbatch.postgres.reading.ledger_reader import LedgerReader
from txbatch.postgres.schema import state_tables
from txbatch.postgres.tables import batches as rows_of

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a ledger holds of one topology: all that the oracle judges."""

    batches: tuple[Batch, ...]
    consumed: Mapping[str, int]
    read: Mapping[tuple[int, str], int | None]
    rows: Mapping[Key, tuple[int, int, int | None]]
    contributions: Mapping[tuple[Key, int, int], int]
    last: LastWriter | None = None  # of a state apart, which has no contributions (R21)

    def final(self) -> dict[int, Any]:
        """Of each final batch all that must never change again."""
        return {each.txid: self._of(each) for each in self.batches if each.status.final}

    def _of(self, batch: Batch) -> Any:
        contributed = {at: value for at, value in self.contributions.items() if at[2] == batch.txid}
        read = {at: records for at, records in self.read.items() if at[0] == batch.txid}
        return batch.status, batch.metadata, batch.fence, batch.token, contributed, read


class View(Protocol):
    """A ledger with a window and a clock."""

    ledger: Ledger

    def seen(self, topology: str) -> Seen:
        """What is stored."""

    def end_lease(self, topology: str, txid: int) -> None:
        """As if time had passed and nobody had renewed this lease."""

    def as_partials(self, topology: Topology, partials: Sequence[Keyed]) -> Any:
        """In the form that this ledger's commit takes."""

    def restart(self) -> None:
        """As when every process begins anew, but for the database's."""

    def forget(self, topology: str) -> None:
        """As when the database was lost; what attempts have staged remains."""

    def meddle(self, state: str, key: Key, txid: int) -> None:
        """A row is changed by somebody who is none of ours."""

    def report(self, state: str) -> Mapping[str, int]:
        """What people see."""

    def query(self, state: str, keys: Sequence[str]) -> Mapping[str, int | None]:
        """These keys in one round trip; None: absent (R20)."""

    def die_in_commit(self, patch: pytest.MonkeyPatch) -> None:
        """The process ends in the last moment before the commit is durable."""


class MemoryView:
    """The twin; its clock stands still, so a lease is live until it is ended."""

    def __init__(self, ledger: type[MemoryLedger] = MemoryLedger) -> None:
        self.now = datetime.now(UTC)
        self.ledger = ledger(clock=lambda: self.now)

    def seen(self, topology: str) -> Seen:
        tables, state = self.ledger.tables, self.ledger.tables.states[topology]
        apart = self.ledger.warehouses.states.get((str(state.database), topology))
        return Seen(
            batches=tuple(tables.batches_of(topology)),
            consumed={at[2]: range_["end"] for at, range_ in tables.consumed.items()},
            read={(at[3], at[2]): read.records if read else None for at, read in tables.partitions.items()},
            rows={
                key: (row.value[0], row.txid, row.prev[0] if getattr(row, "prev", None) else None)
                for key, row in (apart or state).rows.items()
            },
            contributions={at: partial[0] for at, partial in state.contributions.items()},
            last=apart.last if apart else None,
        )

    def end_lease(self, topology: str, txid: int) -> None:
        tables = self.ledger.tables.copy()
        tables.leases[topology, txid] = self.now - timedelta(seconds=1)
        self.ledger.tables = tables

    def as_partials(self, topology: Topology, partials: Sequence[Keyed]) -> Any:
        return {topology.aggregates[0].state.name: partials}

    def restart(self) -> None:
        """The twin is the database."""

    def forget(self, topology: str) -> None:
        self.ledger.tables = Tables()

    def meddle(self, state: str, key: Key, txid: int) -> None:
        tables = self.ledger.tables.copy()
        stored = tables.states[state]
        tables.states[state] = replace(stored, rows={**stored.rows, key: replace(stored.rows[key], txid=txid)})
        self.ledger.tables = tables

    def report(self, state: str) -> Mapping[str, int]:
        return {key[0]: row.value[0] for key, row in self.ledger.rows(state).items()}

    def query(self, state: str, keys: Sequence[str]) -> Mapping[str, int | None]:
        return {key: self.report(state).get(key) for key in keys}

    def die_in_commit(self, patch: pytest.MonkeyPatch) -> None:
        patch.setenv("TXBATCH_FAILPOINTS", "commit.before_commit=raise")


class PostgresView:
    """The real one; `databases` has the URLs of others, for states apart."""

    def __init__(self, engine: Engine, databases: Callable[[str], str] | None = None) -> None:
        self.engine, self.databases = engine, databases
        self.restart()

    def seen(self, topology: str) -> Seen:
        """In one transaction."""
        with transaction(self.engine) as connection:

            def selected(statement: str) -> list[Any]:
                return [tuple(row) for row in connection.execute(text(statement), {"t": topology})]

            txids = selected("SELECT txid FROM txbatch.batch WHERE topology = :t ORDER BY 1")
            consumed = selected("SELECT partition, metadata FROM txbatch.consumed WHERE topology = :t")
            read = selected("SELECT txid, partition, records, status FROM txbatch.partition WHERE topology = :t")
            rows, last = self._there(topology)
            contributions = (
                []
                if last
                else selected(
                    f"SELECT word, position, txid, count FROM contribution.{pg_name(topology)} WHERE :t IS NOT NULL"
                )
            )
            return Seen(
                batches=tuple(rows_of.batch(connection, topology, txid) for (txid,) in txids),
                consumed={partition: range_["end"] for partition, range_ in consumed},
                read={(txid, each): n for txid, each, n, status in read if status != "skipped"},
                rows={(row["word"],): (row["count"], row["txid"], row.get("prev_count")) for row in rows},
                contributions={((word,), position, txid): n for word, position, txid, n in contributions},
                last=last,
            )

    def _there(self, state: str) -> tuple[list[Any], LastWriter | None]:
        """The rows of the state, wherever it is, and its last writer if it is apart."""
        with self._database(state).connect() as connection:
            rows = list(connection.execute(text(f"SELECT to_jsonb(s) FROM state.{pg_name(state)} s")).scalars())
            stored = None
            if connection.engine is not self.engine:
                stored = connection.execute(query("apart"), {"state": state}).mappings().one()
            return rows, apart.last_writer(stored) if stored else None

    def _database(self, state: str) -> Engine:
        with self.engine.connect() as connection:
            stored = connection.execute(query("state"), {"state": state}).mappings().one()
        return self.ledger.warehouses.engine(stored["database"]) if stored["database"] else self.engine

    def end_lease(self, topology: str, txid: int) -> None:
        ended = "UPDATE txbatch.batch SET lease_until = clock_timestamp() - interval '1 s' WHERE topology = :t AND txid = :n"
        with self.engine.begin() as connection:
            connection.execute(text(ended), {"t": topology, "n": txid})

    def as_partials(self, topology: Topology, partials: Sequence[Keyed]) -> Any:
        aggregate = topology.aggregates[0]
        return {aggregate.state.name: [record_batch(aggregate, partials)]}

    def restart(self) -> None:
        self.engine.dispose()
        warehouses = Warehouses(self.databases) if self.databases else None
        self.ledger = PostgresLedger(self.engine, warehouses=warehouses)

    def forget(self, topology: str) -> None:
        with transaction(self.engine) as connection:
            state_tables.drop(connection, topology)

    def meddle(self, state: str, key: Key, txid: int) -> None:
        with self.engine.begin() as connection:
            changed = f"UPDATE state.{pg_name(state)} SET txid = :n WHERE word = :word"
            connection.execute(text(changed), {"n": txid, "word": key[0]})

    def report(self, state: str) -> Mapping[str, int]:
        with self._database(state).connect() as connection:
            rows = connection.execute(text(f"SELECT word, count AS number FROM report.{pg_name(state)}"))
            return {row.word: row.number for row in rows}

    def query(self, state: str, keys: Sequence[str]) -> Mapping[str, int | None]:
        found = LedgerReader(self.engine, self.ledger.warehouses).query(state, [[key] for key in keys])
        return {row["word"]: row["count"] for row in found}

    def die_in_commit(self, patch: pytest.MonkeyPatch) -> None:
        patch.setenv("TXBATCH_FAILPOINTS", "commit.before_commit=raise")
