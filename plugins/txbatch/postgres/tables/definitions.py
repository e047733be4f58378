"""What the ledger keeps of a topology's definition, and whether it is still that (R23)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, RowMapping

from txbatch.core.batch.transaction import canonical_json
from txbatch.core.corrections.rebuild import Progress
from txbatch.core.definition.checks import check_definition
from txbatch.core.definition.keep_policy import policy
from txbatch.core.definition.renames import by_name
from txbatch.core.definition.stored import (
    KnownTopology,
    StateDefinition,
    stream_definitions,
    stream_fields,
    stream_watermarks,
)
from txbatch.core.errors import SchemaMismatch, UnknownName
from txbatch.core.topology.topology import Topology
from txbatch.postgres.database.queries import query


def check(connection: Connection, topology: Topology, job: str | None = None) -> KnownTopology:
    """Return what is known of a topology, which is nothing else than is defined now; `job` is where.

    SchemaMismatch when the topology, if it is known, or a state's name is stored otherwise.
    """
    stored = known(connection, topology)
    try:
        check_definition(topology, job or stored.job, stored)
    except SchemaMismatch as error:
        if (told := rebuilt_now(connection, topology.name)) is None:
            raise
        raise SchemaMismatch(f"{told}. Until then {error}") from error
    return stored


def rebuilt_now(connection: Connection, topology: str) -> str | None:
    """Return which rebuild of the topology runs, and how far it is; None when none does."""
    running = connection.execute(query("running_rebuild"), {"topology": topology}).mappings().first()
    if running is None:
        return None
    row = connection.execute(query("rebuild_progress"), {"rebuild": running["rebuild"]}).mappings().one()
    progress = Progress(row["counted"], row["to_count"], row["seconds_each"])
    return (
        f"rebuild {running['rebuild']} of {topology!r} by {running['job']} runs: {progress}; let it end, or "
        f"`txbatch rebuild {topology} --cancel`"
    )


def known(connection: Connection, topology: Topology) -> KnownTopology:
    """Return what the ledger knows of a topology, and of who has the names of its states."""
    name = name_of(connection, topology)
    names = {"topology": name, "states": [aggregate.state.name for aggregate in topology.aggregates]}
    found = _known(name, connection.execute(query("definition"), names).mappings().one())
    return found if name == topology.name else by_name(found, name, topology)


def name_of(connection: Connection, topology: Topology) -> str:
    """Return the name by which the ledger has the history of a topology: its own, or the one that it had."""
    if topology.was is None or topology.was == topology.name:
        return topology.name
    names = {"topology": topology.name, "was": topology.was}
    renamed = connection.execute(query("had_other_name"), names).scalar_one()
    return topology.was if renamed else topology.name


def check_name(connection: Connection, topology: Topology, job: str) -> None:
    """UnknownName for a topology whose history still has the name that the topology had; `job` is its file."""
    if (name := name_of(connection, topology)) != topology.name:
        raise UnknownName(
            f"no topology {topology.name!r} is known yet: the job says was={name!r}, and {name!r} is its name until "
            f"`txbatch change {job} --why '...' --yes` renames it"
        )


def store(connection: Connection, topology: Topology, job: str) -> None:
    """Keep the definition of a topology whose row is locked; SchemaMismatch when its history is another's."""
    stored = check(connection, topology, job)
    connection.execute(query("update_topology"), row(topology, job, stored))


def row(topology: Topology, job: str, stored: KnownTopology) -> dict[str, Any]:
    """What the ledger keeps of it, given what it had."""
    watermarks, keep = stream_watermarks(topology, stored), policy(topology)
    return {
        "topology": topology.name,
        "job": job,
        "by_interval": topology.by_interval,
        "source": canonical_json(topology.source),
        "streams": canonical_json(stream_fields(topology)),
        "keep": canonical_json(keep) if keep else None,
        "watermarks": canonical_json(watermarks) if watermarks else None,
    }


def _known(topology: str, row: RowMapping) -> KnownTopology:
    states = row["states"] or []
    own = {each["state"]: _state(each) for each in states if each["topology"] == topology}
    owners = {each["state"]: each["topology"] for each in states}
    if row["job"] is None:
        return KnownTopology("", False, {}, own, owners, None, None)
    streams = stream_definitions(row["source"] or {}, row["streams"])
    committed = (row["committed_txid"], row["counted"]) if row["committed_txid"] else None
    return KnownTopology(
        row["job"],
        row["by_interval"],
        streams,
        own,
        owners,
        row["txid"],
        committed,
        row["planned"],
        watermarks=row["watermarks"] or {},
        counted=row["any_committed"],
        read=row["any_read"],
    )


def _state(row: Mapping[str, Any]) -> StateDefinition:
    traits = row["kind"], row["contributions"], row["database"]
    return StateDefinition(*traits, row["columns"], row["streams"], row["values_since"] or {}, row["joined"])
