"""Several attempts by the driver in the session of the tests, by one job or each by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from txbatch import Topology
from txbatch.core.batch.heartbeat import Heartbeat
from txbatch.core.batch.manifest import Manifest
from txbatch.core.batch.transaction import Assignment, Metadata, TransactionAttempt
from txbatch.core.protocol.bulk import reason_against
from txbatch.launch.driver import Driver
from txbatch.storage.staging import AttemptFolder

Rows = Callable[[AttemptFolder, int, int], Any]


class Emitter:
    """The driver in the session of these tests, and a place for folders of attempts."""

    def __init__(self, spark: SparkSession, root: Path, rows: Rows) -> None:
        self.spark, self.root, self.rows, self.number = spark, root, rows, 0
        self.planned_at: Sequence[int] | None = None  # of each batch
        self.compared: Sequence[AttemptFolder] = ()  # of the last comparison, emitted together

    def folders(self, topology: Topology, plans: Sequence[Metadata]) -> tuple[Driver, list[AttemptFolder]]:
        """A driver, and a folder for each plan."""
        job = self.root / "job.py"
        job.write_text("")
        driver = Driver(topology, job, ExitStack())
        driver._session = self.spark
        self.number += 1
        made = []
        for txid, plan in enumerate(plans, 1):
            folder = AttemptFolder((self.root / f"{self.number}" / f"{txid}").as_uri())
            at = None if self.planned_at is None else self.planned_at[txid - 1]
            attempt = TransactionAttempt(txid, 1)
            folder.write_assignment(Assignment(topology.name, attempt, "token", plan, driver.code, planned_at=at))
            folder.write_heartbeat(Heartbeat(lease_seconds=600))
            made.append(folder)
        return driver, made

    def alone(self, topology: Topology, plans: Sequence[Metadata]) -> list[AttemptFolder]:
        driver, folders = self.folders(topology, plans)
        for folder in folders:
            driver.emit(folder)
        return folders

    def together(self, topology: Topology, plans: Sequence[Metadata]) -> list[AttemptFolder]:
        driver, folders = self.folders(topology, plans)
        driver.emit_bulk(folders)
        return folders

    def compare(self, topology: Topology, plans: Sequence[Metadata]) -> list[Manifest]:
        """Emit both ways, and find all equal; return the manifests."""
        assert reason_against(topology) is None
        together = self.together(topology, plans)
        alone = self.alone(topology, plans)
        assert [self.staged(topology, each) for each in together] == [self.staged(topology, each) for each in alone]
        self.compared = together
        return [each.read_manifest() for each in together]

    def staged(self, topology: Topology, folder: AttemptFolder) -> tuple[Any, ...]:
        """The manifest but for the files, and the rows of each state; how Arrow has their columns, too."""
        manifest = folder.read_manifest()
        partials = {name: list(found) for name, found in folder.read_partials(manifest).items()}
        types = {name: [found[0].schema.types if found else None] for name, found in partials.items()}
        rows = {
            each.state.name: {repr(key): repr(row) for key, row in self.rows(folder, number, len(each.keys)).items()}
            for number, each in enumerate(topology.aggregates)
        }
        states = {name: replace(of, files=()) for name, of in manifest.states.items()}
        return replace(manifest, states=states), rows, {name: of for name, of in types.items() if of != [None]}
