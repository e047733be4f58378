"""Two ledgers as the model looks at them: what is stored, and how time passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from sqlalchemy import Engine, text
from support import Keyed, record_batch

from txbatch.core.protocol import Ledger
from txbatch.core.topology import Topology
from txbatch.core.transaction import Batch
from txbatch.memory.ledger import MemoryLedger
from txbatch.postgres import rows as rows_of
from txbatch.postgres.engine import transaction
from txbatch.postgres.ledger import PostgresLedger
from txbatch.postgres.statements import quoted

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a ledger holds of one topology: all that the oracle judges."""

    batches: tuple[Batch, ...]
    consumed: Mapping[str, int]
    read: Mapping[tuple[int, str], int | None]
    rows: Mapping[Key, tuple[int, int, int | None]]
    contributions: Mapping[tuple[Key, int, int], int]

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


class MemoryView:
    """The twin; its clock stands still, so a lease is live until it is ended."""

    def __init__(self, ledger: type[MemoryLedger] = MemoryLedger) -> None:
        self.now = datetime.now(UTC)
        self.ledger = ledger(clock=lambda: self.now)

    def seen(self, topology: str) -> Seen:
        tables, state = self.ledger.tables, self.ledger.tables.states[topology]
        return Seen(
            batches=tuple(tables.batches_of(topology)),
            consumed={at[2]: range_["end"] for at, range_ in tables.consumed.items()},
            read={(at[3], at[2]): read.records if read else None for at, read in tables.partitions.items()},
            rows={
                key: (row.value[0], row.txid, row.prev[0] if getattr(row, "prev", None) else None)
                for key, row in state.rows.items()
            },
            contributions={at: partial[0] for at, partial in state.contributions.items()},
        )

    def end_lease(self, topology: str, txid: int) -> None:
        tables = self.ledger.tables.copy()
        tables.leases[topology, txid] = self.now - timedelta(seconds=1)
        self.ledger.tables = tables

    def as_partials(self, topology: Topology, partials: Sequence[Keyed]) -> Any:
        return {topology.aggregates[0].state.name: partials}


class PostgresView:
    """The real one."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.ledger = engine, PostgresLedger(engine)

    def seen(self, topology: str) -> Seen:
        """In one transaction."""
        with transaction(self.engine) as connection:

            def selected(statement: str) -> list[Any]:
                return [tuple(row) for row in connection.execute(text(statement), {"t": topology})]

            txids = selected("SELECT txid FROM txbatch.batch WHERE topology = :t ORDER BY 1")
            consumed = selected("SELECT partition, metadata FROM txbatch.consumed WHERE topology = :t")
            read = selected("SELECT txid, partition, records, status FROM txbatch.partition WHERE topology = :t")
            rows = selected(f"SELECT to_jsonb(s) FROM state.{quoted(topology)} s WHERE :t IS NOT NULL")
            contributions = selected(
                f"SELECT word, position, txid, count FROM contribution.{quoted(topology)} WHERE :t IS NOT NULL"
            )
            return Seen(
                batches=tuple(rows_of.batch(connection, topology, txid) for (txid,) in txids),
                consumed={partition: range_["end"] for partition, range_ in consumed},
                read={(txid, each): n for txid, each, n, status in read if status != "skipped"},
                rows={(row["word"],): (row["count"], row["txid"], row.get("prev_count")) for (row,) in rows},
                contributions={((word,), position, txid): n for word, position, txid, n in contributions},
            )

    def end_lease(self, topology: str, txid: int) -> None:
        ended = "UPDATE txbatch.batch SET lease_until = clock_timestamp() - interval '1 s' WHERE topology = :t AND txid = :n"
        with self.engine.begin() as connection:
            connection.execute(text(ended), {"t": topology, "n": txid})

    def as_partials(self, topology: Topology, partials: Sequence[Keyed]) -> Any:
        aggregate = topology.aggregates[0]
        return {aggregate.state.name: [record_batch(aggregate, partials)]}
