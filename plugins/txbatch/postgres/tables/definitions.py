"""The stored definition of a topology, and the check against the topology as now defined (R23)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, RowMapping

from txbatch.core.corrections.rebuild import Progress
from txbatch.core.definition.checks import check_definition
from txbatch.core.definition.digest import definition_digest
from txbatch.core.definition.keep_policy import policy
from txbatch.core.definition.renames import by_name
from txbatch.core.definition.stored import (
    StateDefinition,
    StoredTopology,
    stream_definitions,
    stream_fields,
    stream_watermarks,
)
from txbatch.core.errors import NameTaken, SchemaMismatch, UnknownName
from txbatch.core.stored_json import canonical_json
from txbatch.core.topology.topology import Topology
from txbatch.postgres.database.queries import query


def check(connection: Connection, topology: Topology, job: str | None = None) -> StoredTopology:
    """Return the stored topology, if the definition is still the same; `job` is the file of the definition.

    Raise SchemaMismatch if the topology is stored with another definition, NameTaken if a state is another topology's.
    """
    stored = known(connection, topology)
    with rebuild_told(connection, topology.name):
        check_definition(topology, job or stored.job, stored)
    return stored


@contextmanager
def rebuild_told(connection: Connection, topology: str) -> Iterator[None]:
    """Context manager. If the block refuses a definition while a rebuild runs, put the rebuild in front of the error."""
    try:
        yield
    except (NameTaken, SchemaMismatch) as error:
        if (told := rebuilt_now(connection, topology)) is None:
            raise
        raise error.retold(f"{told}. Until then {error.text}") from error


def rebuilt_now(connection: Connection, topology: str) -> str | None:
    """Return the running rebuild of the topology and its progress, as a text. Return None if no rebuild runs."""
    running = connection.execute(query("running_rebuild"), {"topology": topology}).mappings().first()
    if running is None:
        return None
    row = connection.execute(query("rebuild_progress"), {"rebuild": running["rebuild"]}).mappings().one()
    progress = Progress(row["counted"], row["to_count"], row["seconds_each"])
    return (
        f"rebuild {running['rebuild']} of {topology!r} by {running['job']} runs: {progress}; let it end, or "
        f"`txbatch rebuild {topology} --cancel`"
    )


def known(connection: Connection, topology: Topology) -> StoredTopology:
    """Return the ledger's facts on a topology, and the owners of its states' names."""
    name = name_of(connection, topology)
    names = {"topology": name, "states": [aggregate.state.name for aggregate in topology.aggregates]}
    found = _known(name, connection.execute(query("definition"), names).mappings().one())
    return found if name == topology.name else by_name(found, name, topology)


def name_of(connection: Connection, topology: Topology) -> str:
    """Return the name of a topology's history in the ledger: the present name, or the former name."""
    if topology.was is None or topology.was == topology.name:
        return topology.name
    names = {"topology": topology.name, "was": topology.was}
    renamed = connection.execute(query("had_other_name"), names).scalar_one()
    return topology.was if renamed else topology.name


def check_name(connection: Connection, topology: Topology, job: str) -> None:
    """Raise UnknownName if a topology's history still has the topology's former name; `job` is the topology's file."""
    if (name := name_of(connection, topology)) != topology.name:
        raise UnknownName(
            f"no topology {topology.name!r} is known yet: the job says was={name!r}, and {name!r} is its name until "
            f"`txbatch change {job} --why '...' --yes` renames it"
        )


def store(connection: Connection, topology: Topology, job: str) -> None:
    """Store the definition of a topology whose row is locked. Raise SchemaMismatch if the history has another definition."""
    stored = check(connection, topology, job)
    connection.execute(query("update_topology"), row(topology, job, stored))


def row(topology: Topology, job: str, stored: StoredTopology) -> dict[str, Any]:
    """Return the ledger's row of a topology, given the row before."""
    watermarks, keep = stream_watermarks(topology, stored), policy(topology)
    return {
        "topology": topology.name,
        "job": job,
        "by_interval": topology.by_interval,
        "source": canonical_json(topology.source),
        "streams": canonical_json(stream_fields(topology)),
        "keep": canonical_json(keep) if keep else None,
        "watermarks": canonical_json(watermarks) if watermarks else None,
        "digest": definition_digest(topology),
    }


def _known(topology: str, row: RowMapping) -> StoredTopology:
    states = row["states"] or []
    own = {each["state"]: _state(each) for each in states if each["topology"] == topology}
    owners = {each["state"]: each["topology"] for each in states}
    if row["job"] is None:
        return StoredTopology("", False, {}, own, owners, None, None)
    streams = stream_definitions(row["source"] or {}, row["streams"])
    committed = (row["committed_txid"], row["counted"]) if row["committed_txid"] else None
    return StoredTopology(
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
