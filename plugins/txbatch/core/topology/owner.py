"""The parts of a topology that a stream uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from txbatch.core.topology.look_up import StaticState
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.windows.watermark import Watermark


class Owner(Protocol):
    """The parts of a topology that a stream uses."""

    name: str
    static_states: dict[str, StaticState]
    quarantine: int | None
    aggregates: list[PersistentAggregate]

    @property
    def watermarks(self) -> Mapping[str, Watermark]:
        """The watermarks by stream; streams without a watermark are left out."""

    def add(self, aggregate: PersistentAggregate) -> None:
        """Add a persistent aggregate."""
