"""Topologies whose states show each kind of view and function: plain, by windows, by sessions, late records, a quarantine."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from txbatch import Count, FixedBatchSpout, Max, OpaqueState, Sum, Topology, session_window, window

FIELDS = "sold_at timestamp, shop string, customer string, amount decimal(10,2)"
SALE = (datetime(2026, 1, 1, tzinfo=UTC), "Oslo", "Ada", "5.00")


def is_sold(record: Mapping[str, Any]) -> bool:
    """Return whether a sale counts: a Python function, so that a quarantine can take a record."""
    return bool(record["amount"])


def shop() -> Topology:
    """Return the topology `shop` with the states `sales`, `hourly` and `visits`, late records aside and a quarantine."""
    topology = Topology("shop", quarantine=100)
    source = topology.new_stream("sales", FixedBatchSpout(FIELDS, 1, SALE))
    sales = source.with_watermark("sold_at", "1 hour", late="side").filter(is_sold)
    sales.group_by("shop").persistent_aggregate(OpaqueState("sales"), sales=Count(), amount=Sum("amount"))
    sales.group_by(window("sold_at", "1 hour"), "shop").persistent_aggregate(OpaqueState("hourly"), sales=Count())
    sales.group_by(session_window("sold_at", "30 minutes"), "customer").persistent_aggregate(
        OpaqueState("visits"), sales=Count(), last=Max("sold_at")
    )
    return topology
