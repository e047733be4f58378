"""How much of a topology's past stays, by the job and until now, as `plan` shows it (R22)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sqlalchemy import Engine

from txbatch.core.corrections import growth
from txbatch.core.definition.keep_policy import describe_policy, kept_windows
from txbatch.core.topology.topology import Topology
from txbatch.postgres.corrections.retention import Retention
from txbatch.postgres.corrections.window_retention import PostgresWindows


def stored_policy(engine: Engine, topology: Topology) -> dict[str, Any]:
    """Return the policy of a job, and the stored policy until now, if any.

    `growth` has the growth of a month, estimated from the last batches, with a description; None if unknown.
    """
    retention = Retention(engine)
    policies, until_now, found = retention.policies(), None, retention.growth(topology.name)
    if topology.name in policies:
        until_now = describe_policy(policies[topology.name], PostgresWindows(engine).policy(topology.name))
    grows = {**asdict(found), "does": growth.describe_growth(found, topology.keep)} if found else None
    return {
        "keep": describe_policy(topology.keep, kept_windows(topology)),
        "kept_until_now": until_now,
        "growth": grows,
    }
