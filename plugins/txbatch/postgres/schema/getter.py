"""The function to look up a state's values by key, in SQL: `report.get_<state>`."""

from __future__ import annotations

from collections.abc import Mapping

from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.postgres.database.expressions import listed, pg_name
from txbatch.postgres.database.functions import Function


def getter(aggregate: PersistentAggregate, types: Mapping[str, str]) -> Function:
    """Return the function for the row of a key; `types` are the PostgreSQL types of the report's columns."""
    state, takes = aggregate.state.name, {key.name: types[key.name] for key in aggregate.keys}
    # An argument has the collation of whoever calls, by which no index would be searched.
    collated = {"text": ' COLLATE "C"'}
    same = [f"r.{pg_name(name)} = ${n}{collated.get(takes[name], '')}" for n, name in enumerate(takes, 1)]
    where = f" WHERE {' AND '.join(same)}" if same else ""
    body = f"SELECT {listed(f'r.{pg_name(name)}' for name in types)} FROM report.{pg_name(state)} r{where}"
    said = (
        f"The row of a key of state {state!r}, with its values as report.{state} has them; no row: there is no such key"
    )
    return Function(getter_name(state), takes, f"report.{pg_name(state)}", body, said)


def getter_name(state: str) -> str:
    """Return the name of a state's function."""
    return f"get_{state}"
