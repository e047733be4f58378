"""Translate between Airflow and txbatch: the run of a task, settings from connections, and errors of txbatch for Airflow."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowNotFoundException
from airflow.sdk import BaseHook

from txbatch.core.batch.transaction import Interval, Run
from txbatch.core.errors import InvalidSetting, TerminalError, TxbatchError
from txbatch.core.topology.topology import Topology
from txbatch.error_pages import advise
from txbatch.orchestration import grid, result
from txbatch.orchestration.schedules import empty_interval

if TYPE_CHECKING:
    from airflow.sdk import DAG, Connection, Context

    from txbatch.launch.job_file import Job
    from txbatch.postgres.ledger import PostgresLedger
    from txbatch.reports import Reports
    from txbatch.run.steps import Steps
    from txbatch.settings import Settings

log = logging.getLogger(__name__)
DATABASE_CONN_ID = "txbatch"
SPARK_CONN_ID = "txbatch_spark"
# With the name of a source behind it.
SOURCE_CONN_PREFIX = "txbatch_source_"
# Seconds of a batch's lease between two tasks of its run; emit_batch and waits renew the lease. Later, other runs adopt.
AIRFLOW_LEASE_SECONDS = 900
# Names in the extra of a connection of the type postgres for Airflow's own hook: no options of libpq.
_AIRFLOWS_OWN = {
    *("cursor", "iam", "redshift", "redshift-serverless", "cluster-identifier", "workgroup-name", "region_name"),
    *("aws_conn_id", "azure_conn_id", "sqlalchemy_scheme", "sqlalchemy_query", "enable_log_db_messages"),
}
LOCAL_SPARK = '{"conn_type": "spark", "host": "local[*]", "extra": {"deploy-mode": "client"}}'


def run_of(topology: Topology, context: Context) -> Run:
    """Return the run of a task, the same in every retry and clear, with all parameters that choose data (R2)."""
    dag_run, params = context["dag_run"], context["params"]
    name = f"airflow:{dag_run.dag_id}:{dag_run.run_id}"
    interval = _interval(dag_run, context.get("dag")) if topology.by_interval else None
    given = {name: params[name] for name in topology.parameters if params.get(name) is not None}
    return Run(name, dag_run.dag_id, dag_run.run_id, interval, given)


def _interval(dag_run: object, dag: DAG | None) -> Interval | None:
    if dag is not None and grid.is_given(dag):
        return grid.interval_of(dag_run, dag)
    start, end = getattr(dag_run, "data_interval_start", None), getattr(dag_run, "data_interval_end", None)
    if start is None or end is None:
        return None
    if start == end:
        raise empty_interval(start, dag)
    return Interval(start, end)


def open_steps(job: Job) -> Steps:
    """Return the steps of a job on this Airflow's database."""
    from txbatch import settings, wiring

    ready = settings.ensure_database(resolve_settings())
    return wiring.open_steps(job, ready, lease_seconds=AIRFLOW_LEASE_SECONDS)


def resolve_settings() -> Settings:
    """Return the settings of a task. The database is from TXBATCH_DATABASE_URL, the connection `txbatch`, or the
    embedded PostgreSQL.

    From now on this process finds the sources of spouts in connections, too: `txbatch_source_<name>`.
    """
    from txbatch import settings

    settings.sources_from(_source)
    url = None if os.environ.get("TXBATCH_DATABASE_URL") else _connection_url(DATABASE_CONN_ID)
    return settings.resolve(url, lambda database: _connection_url(f"{DATABASE_CONN_ID}_{database}"))


def open_reports() -> Reports:
    """Return the reports of this Airflow's database, for a task, from TXBATCH_DATABASE_URL or the connection `txbatch`."""
    from txbatch import settings
    from txbatch.reports import Reports

    return Reports(settings.ensure_database(resolve_settings()))


def _source(name: str) -> str | None:
    """Return what the connection of a source says: the URL of a database, or the options of clients of Kafka as JSON."""
    conn_id = f"{SOURCE_CONN_PREFIX}{name}"
    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        return None
    if connection.conn_type != "kafka":
        return url_of(connection)
    return json.dumps({**_of_fields(connection), **connection.extra_dejson})


def _of_fields(connection: Connection) -> dict[str, str]:
    """Return the options of Kafka's clients that the fields of a connection say; its extra says others."""
    host, port = connection.host, connection.port or 9092
    found = {
        "bootstrap.servers": host if host and ":" in host else host and f"{host}:{port}",
        "sasl.username": connection.login,
        "sasl.password": connection.password,
    }
    return {name: value for name, value in found.items() if value}


def _connection_url(conn_id: str) -> str | None:
    try:
        return url_of(BaseHook.get_connection(conn_id))
    except AirflowNotFoundException:
        return None


async def open_ledger() -> PostgresLedger:
    """Return the ledger of this Airflow, for a trigger: the triggerer can only read connections asynchronously."""
    from txbatch import settings
    from txbatch.postgres.database.engine import connect
    from txbatch.postgres.ledger import PostgresLedger

    url = None
    if not os.environ.get("TXBATCH_DATABASE_URL"):
        with suppress(AirflowNotFoundException):
            url = url_of(await BaseHook.aget_connection(DATABASE_CONN_ID))
    ready = await asyncio.to_thread(settings.ensure_database, settings.resolve(url))
    engine = connect(ready.database_url, application_name="txbatch trigger")
    return PostgresLedger(engine, lease_seconds=AIRFLOW_LEASE_SECONDS)


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


def ensure_spark_connection(conn_id: str) -> None:
    """Use this machine as the Spark master of a missing connection: Airflow's hook would assume YARN."""
    try:
        BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        os.environ[f"AIRFLOW_CONN_{conn_id.upper()}"] = LOCAL_SPARK


def spark_master(conn_id: str) -> str:
    """Return the Spark master of an existing connection."""
    connection = BaseHook.get_connection(conn_id)
    return f"{connection.host}:{connection.port}" if connection.port else str(connection.host)


@contextmanager
def failing_as_airflow(context: Context, **held: object) -> Iterator[None]:
    """Context manager. If a retry cannot help, fail the task at once; Airflow retries after all other errors.

    Every TxbatchError is also left for the note of the failed run, and its advice is in the log. `held` has names for the
    advice: topology, job.
    """
    try:
        yield
    except TxbatchError as error:
        with suppress(Exception):  # the error is raised even if the note fails
            advice = advise(error, held, in_airflow=True)
            for line in (str(error), *advice.lines()):
                log.error("%s", line)
            result.tell(context, result.failed(error, advice))
        if isinstance(error, TerminalError):
            raise AirflowFailException(str(error)) from error
        raise
