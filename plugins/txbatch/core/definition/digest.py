"""The digest of a definition: with the digest of the stored definition, nothing is to be compared (R23)."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from txbatch.core.definition.keep_policy import policy
from txbatch.core.definition.stored import state_definition, stream_fields
from txbatch.core.stored_json import canonical_json

if TYPE_CHECKING:
    from txbatch.core.topology.persistent_aggregate import PersistentAggregate
    from txbatch.core.topology.topology import Topology


def definition_digest(topology: Topology) -> str:
    """Return the SHA-256 of all parts of a topology that the ledger stores, or compares with stored parts.

    Registered topologies with equal digests have no differences: `redefinitions` would return nothing. The reverse does not
    hold: if the digests differ, the parts are compared.
    """
    parts = {
        "name": [topology.name, topology.was],
        "by_interval": topology.by_interval,
        "source": topology.source,
        "fields": stream_fields(topology),
        "renamed": {name: stream.roots[0].was for name, stream in topology.streams.items()},
        "watermarks": {name: each.to_json() for name, each in topology.watermarks.items()},
        "keep": policy(topology),
        "states": [_state(each) for each in topology.aggregates],
    }
    return hashlib.sha256(canonical_json(parts).encode()).hexdigest()


def _state(aggregate: PersistentAggregate) -> dict[str, Any]:
    state, now = aggregate.state, state_definition(aggregate)
    return {
        "state": [state.name, state.was, state.since],
        "traits": [now.kind, now.contributions, now.database],
        "columns": now.columns,
        "streams": now.streams,
        "values": {name: [each.was, each.since] for name, each in aggregate.aggregates.items()},
    }
