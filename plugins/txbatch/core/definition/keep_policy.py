"""How much of the past a topology keeps, as stored in the ledger (R22, R30)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from txbatch.core.batch.transaction import Metadata
from txbatch.core.state.keep import Keep, describe_keep
from txbatch.core.topology.kept_windows import KeptWindows

if TYPE_CHECKING:
    from txbatch.core.topology.topology import Topology


def kept_windows(topology: Topology) -> dict[str, KeptWindows]:
    """Return how long windows stay in the states of a topology, for states with a limit."""
    states = {each.state.name: each for each in topology.aggregates if each.state.keep_windows is not None}
    return {name: KeptWindows.of(each, each.state.keep_windows or 0) for name, each in states.items()}


def policy(topology: Topology) -> dict[str, Any] | None:
    """Return a topology's policy about the past as JSON for the ledger; None if the topology keeps everything."""
    windows = {name: each.to_json() for name, each in kept_windows(topology).items()}
    found = {**(topology.keep.to_json() if topology.keep else {}), **({"windows": windows} if windows else {})}
    return found or None


def stored_windows(stored: Metadata | None) -> dict[str, KeptWindows]:
    """Return a stored policy's part about windows, by state."""
    return {name: KeptWindows.from_json(each) for name, each in (stored or {}).get("windows", {}).items()}


def describe_policy(keep: Keep | None, windows: Mapping[str, KeptWindows]) -> str:
    """Return how much of the past a topology keeps, in words.

    >>> describe_policy(Keep(days=90), {})
    'the last 90 days'
    """
    more = "".join(f"; windows of state {state!r} for {each}" for state, each in sorted(windows.items()))
    return f"{describe_keep(keep)}{more}"
