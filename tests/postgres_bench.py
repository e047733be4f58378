"""Batches on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any
from uuid import uuid4

import psycopg2
from sqlalchemy import Engine, make_url, text
from support import Keyed, LogSpout, code, manifest_of, record_batch, run, word_count

from txbatch.core.batch.transaction import Assignment, Batch, TransactionAttempt
from txbatch.core.corrections.rebuild import Rebuild
from txbatch.core.protocol import coordinator
from txbatch.core.topology.topology import Topology
from txbatch.postgres.apart.warehouses import Warehouses
from txbatch.postgres.corrections.rebuild import PostgresRebuilds
from txbatch.postgres.ledger import PostgresLedger


class Bench:
    """A ledger with a topology, and batches brought as far as a test wants them."""

    def __init__(self, engine: Engine, topology: Topology | None = None, warehouses: Warehouses | None = None) -> None:
        self.engine, self.ledger = engine, PostgresLedger(engine, warehouses=warehouses)
        self.topology = topology or word_count(LogSpout({"a": 1_000_000}))
        self.ledger.register(self.topology, "jobs/job.py")

    def planned(self, name: str = "run") -> Batch:
        batch = coordinator.initialize_transaction(self.ledger, self.topology, run(name))
        assert isinstance(batch, Batch)
        return batch

    def emitted(self, partials: Any, name: str = "run", **changes: Any) -> Batch:
        batch = self.planned(name)
        assignment = self.ledger.start_attempt(batch, run(name), code())
        return self.ledger.record_manifests(
            [(assignment, manifest_of(self.topology, assignment, partials, **changes))]
        )[0]

    def commit(self, batch: Batch, partials: Any) -> bool:
        arrow = {each.state.name: [record_batch(each, partials[each.state.name])] for each in self.topology.aggregates}
        return self.ledger.commit(self.topology, batch, arrow).applied

    def whole(self, partials: Any, name: str = "run") -> Batch:
        batch = self.emitted(partials, name)
        assert self.commit(batch, partials)
        return batch

    @property
    def rebuilds(self) -> PostgresRebuilds:
        return PostgresRebuilds(self.engine)

    def rebuilt(self, rebuild: Rebuild, partials: Any) -> bool:
        """Count the next version of a rebuild by these partials."""
        version = self.rebuilds.next(rebuild)
        assert version is not None
        attempt = TransactionAttempt(version.txid, 1)
        assignment = Assignment(self.topology.name, attempt, uuid4().hex, version.metadata, code("new"))
        arrow = {each.state.name: [record_batch(each, partials[each.state.name])] for each in self.topology.aggregates}
        manifest = manifest_of(self.topology, assignment, partials)
        return self.rebuilds.count(rebuild, self.topology, assignment, manifest, arrow)

    def rows(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text(statement), parameters)]

    def run(self, *statements: str) -> None:
        with self.engine.begin() as connection:
            for statement in statements:
                connection.execute(text(statement))


def words(**counts: int) -> dict[str, list[Keyed]]:
    return {"word_count": [((word,), (count,)) for word, count in counts.items()]}


class Calls:
    """Calls in threads of their own, each with its answer or its error."""

    def __init__(self) -> None:
        self.threads: list[Thread] = []
        self.answers: dict[str, Any] = {}

    def start(self, name: str, call: Callable[[], Any]) -> None:
        def answer() -> None:
            try:
                self.answers[name] = call()
            except Exception as error:
                self.answers[name] = error

        thread = Thread(target=answer, name=name, daemon=True)
        thread.start()
        self.threads.append(thread)

    def join(self) -> dict[str, Any]:
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive(), f"{thread.name} hangs"
        return self.answers


def raw_connection(url: str, **options: Any) -> Any:
    """A connection of the driver alone, as a report or a person has it."""
    parsed = make_url(url)
    return psycopg2.connect(
        host=parsed.query["host"], port=parsed.query["port"], user=parsed.username, dbname=parsed.database, **options
    )
