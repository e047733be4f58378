"""Emits batches in the calling process, at the request of `run`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.staging import AttemptFolder
from txbatch.core.batch.transaction import Assignment
from txbatch.core.errors import TxbatchError
from txbatch.core.topology.topology import Topology
from txbatch.core.upstream.look_ups import live_states
from txbatch.core.upstream.upstream import stream_numbers
from txbatch.direct.emitter import emit_batch
from txbatch.memory.staging import MemoryStaging


class MemoryApplication:
    """`core.protocol.ports.Application` in the calling process: emits into a `MemoryStaging`."""

    killed, stage = False, ""

    def __init__(self, topology: Topology, staging: MemoryStaging) -> None:
        self.topology, self.staging = topology, staging

    def start(self, plans: Sequence[BatchPlan], code: str) -> None:
        """Nothing has to be started."""

    def emit(self, folder: AttemptFolder, assignment: Assignment) -> None:
        """Read the attempt's batch and stage the partials."""
        at = self.staging.attempt(assignment)
        numbers, planned = stream_numbers(self.topology), assignment.plan.streams
        exports = {name: at.read_export(number) for name, number in numbers.items() if name in planned}
        tables = {state: at.read_export(number) for state, number in live_states(self.topology).items()}
        at.write_result(*emit_batch(self.topology, assignment, exports, tables))

    def emit_bulk(self, attempts: Sequence[tuple[AttemptFolder, Assignment]]) -> None:
        """Emit one attempt after the other; a failed attempt stages nothing."""
        for folder, assignment in attempts:
            with suppress(TxbatchError):
                self.emit(folder, assignment)

    def begin(self, attempts: Sequence[tuple[AttemptFolder, Assignment]]) -> None:
        """Emit all attempts at once."""
        self.emit_bulk(attempts)

    def wait(self) -> None:
        """Return at once: `begin` has done all."""

    def let_end(self) -> None:
        """Nothing was started."""

    def close(self) -> None:
        """Nothing was started."""
