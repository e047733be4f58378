"""The reports of a replaced generation, and states as of a txid, in a schema of their own (R19, R23).

The reports are copied from the catalog, as the former job made them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlalchemy import Connection

from txbatch.core.state.state import versions_name
from txbatch.postgres.database.expressions import pg_name, pg_text
from txbatch.postgres.database.generations import past
from txbatch.postgres.database.queries import query
from txbatch.postgres.schema.kept_reports import KeptReports


def keep_reports(connection: Connection, states: Sequence[str], rebuild: int, newest: int) -> Iterator[str]:
    """Yield the statements that keep the former reports of states, after the states' tables have been moved.

    `newest` is the last txid in the tables.
    """
    schema = past(rebuild).reports
    yield f"CREATE SCHEMA {schema}"
    yield f"COMMENT ON SCHEMA {schema} IS {pg_text(f'What reports showed before rebuild {rebuild}.')}"
    for role in connection.execute(query("readers_of_reports")).scalars().all():
        yield f"GRANT USAGE ON SCHEMA {schema} TO {role}"
    for state in states:
        reports = KeptReports.of(connection, state)
        for view in (state, versions_name(state)):
            shown = connection.execute(query("view_source"), {"name": f"report.{pg_name(view)}"}).scalar_one()
            if shown is None:
                continue
            yield f"CREATE VIEW {schema}.{pg_name(view)} AS {shown}"
            for grant in reports.of_view(view):
                yield f"GRANT {grant.privilege} ON {schema}.{pg_name(view)} TO {grant.role}"
        yield from _as_of(connection, state, rebuild, newest)


def _as_of(connection: Connection, state: str, rebuild: int, newest: int) -> Iterator[str]:
    """Yield the statements of the function for the state as of a txid; nothing for a state without contributions."""
    name, schema = f"as_of_{state}", past(rebuild).reports
    found = connection.execute(query("report_functions"), {"names": [name]}).mappings().first()
    if found is None:
        return
    body = found["body"].replace("report.known_at(", f"report.known_before({rebuild:d}, ")
    body = body.replace("report.far_back(", f"report.far_before({rebuild:d}, ")
    # What is restated after the swap has changed no key of these.
    body = body.replace("b.replaced_by > $1", f"b.replaced_by > $1 AND b.replaced_by <= {newest:d}")
    for view in (state, versions_name(state)):
        body = body.replace(f"report.{pg_name(view)}", f"{schema}.{pg_name(view)}")
    yield (
        f"CREATE FUNCTION {schema}.{pg_name(name)}(txid bigint) RETURNS SETOF {schema}.{pg_name(state)} "
        f"LANGUAGE sql STABLE PARALLEL SAFE AS {pg_text(body)}"
    )
