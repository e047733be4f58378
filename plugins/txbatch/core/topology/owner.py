"""What a stream knows of its topology."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from txbatch.core.topology.look_up import StaticState
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.windows.watermark import Watermark


class Owner(Protocol):
    """What a stream knows of its topology."""

    name: str
    static_states: dict[str, StaticState]
    quarantine: int | None
    aggregates: list[PersistentAggregate]

    @property
    def watermarks(self) -> Mapping[str, Watermark]:
        """The watermarks by stream, of those that have one."""

    def add(self, aggregate: PersistentAggregate) -> None:
        """Take a persistent aggregate in."""
