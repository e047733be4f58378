"""The URL of a database in a connection of Airflow, of the type txbatch or postgres. Airflow itself is not imported."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

from txbatch.core.errors import InvalidSetting

# Names in the extra of a connection of the type postgres for Airflow's own hook: no options of libpq.
_AIRFLOWS_OWN = {
    *("cursor", "iam", "redshift", "redshift-serverless", "cluster-identifier", "workgroup-name", "region_name"),
    *("aws_conn_id", "azure_conn_id", "sqlalchemy_scheme", "sqlalchemy_query", "enable_log_db_messages"),
}


class Connection(Protocol):
    """A connection of Airflow, as tasks and the API server have it."""

    conn_id: Any
    host: Any
    port: Any
    login: Any
    password: Any
    schema: Any

    @property
    def extra_dejson(self) -> Any:
        """The extra of the connection, as a mapping."""


def url_of(connection: Connection) -> str:
    """Return a connection's URL. Raise DefinitionError if the URL is invalid or names no server: libpq would use any
    server found.
    """
    from sqlalchemy import URL

    from txbatch.postgres.database.url import parse, with_hosts

    what, host = f"the Airflow connection {connection.conn_id!r}", connection.host
    options = _options(connection.extra_dejson, what)
    if not (host or {"host", "hostaddr", "service"} & options.keys()):
        raise InvalidSetting(f"{what} names no host: give it one")
    several = "," in (host or "")
    url = URL.create(
        "postgresql+psycopg2",
        username=connection.login,
        password=connection.password,
        host=None if several else host,
        port=None if several else connection.port,
        database=connection.schema,
        query=options,
    )
    if several:
        url = with_hosts(url, str(host), what, connection.port)
    told = url.render_as_string(hide_password=False)
    parse(told, what)
    return told


def _options(extra: Mapping[str, Any], what: str) -> dict[str, str]:
    """Return the options for libpq in a connection's extra. Raise DefinitionError for an option that only Airflow's own
    hook supports.
    """
    if "__extra__" in extra:  # Airflow keeps nested mappings under this name
        return _options(_kept(extra["__extra__"], what) | {k: v for k, v in extra.items() if k != "__extra__"}, what)
    if str(extra.get("iam") or "false").lower() != "false":
        raise InvalidSetting(f"{what} has iam: only Airflow's own hook asks a cloud for a password; give it a password")
    return {name: str(value) for name, value in extra.items() if name not in _AIRFLOWS_OWN and value not in (None, "")}


def _kept(given: object, what: str) -> dict[str, Any]:
    with suppress(ValueError):
        found = json.loads(given) if isinstance(given, str) else given
        if isinstance(found, dict):
            return found
    raise InvalidSetting(f"{what}: its __extra__ is no JSON of names and values; write the options into Extra itself")
