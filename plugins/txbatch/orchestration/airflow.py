"""Translate between Airflow and txbatch: the run of a task, and settings from connections."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import AirflowNotFoundException
from airflow.sdk import BaseHook

from txbatch.core.batch.transaction import Interval, Run
from txbatch.core.topology.topology import Topology
from txbatch.orchestration import grid
from txbatch.orchestration.schedules import empty_interval
from txbatch.postgres.database.connections import url_of

if TYPE_CHECKING:
    from airflow.sdk import DAG, Connection, Context

    from txbatch.launch.job_file import Job
    from txbatch.postgres.ledger import PostgresLedger
    from txbatch.reports import Reports
    from txbatch.run.steps import Steps
    from txbatch.settings import Settings

DATABASE_CONN_ID = "txbatch"
SPARK_CONN_ID = "txbatch_spark"
# With the name of a source behind it.
SOURCE_CONN_PREFIX = "txbatch_source_"
# Seconds of a batch's lease between two tasks of its run; emit_batch and waits renew the lease. Later, other runs adopt.
AIRFLOW_LEASE_SECONDS = 900
LOCAL_SPARK = '{"conn_type": "spark", "host": "local[*]", "extra": {"deploy-mode": "client"}}'


def run_name(context: Context) -> str:
    """Return the name of a DAG run to the ledger."""
    dag_run = context["dag_run"]
    return f"airflow:{dag_run.dag_id}:{dag_run.run_id}"


def run_of(topology: Topology, context: Context) -> Run:
    """Return the run of a task, the same in every retry and clear, with all parameters that choose data (R2)."""
    dag_run, params = context["dag_run"], context["params"]
    interval = _interval(dag_run, context.get("dag")) if topology.by_interval else None
    given = {name: params[name] for name in topology.parameters if params.get(name) is not None}
    return Run(run_name(context), dag_run.dag_id, dag_run.run_id, interval, given)


def _interval(dag_run: object, dag: DAG | None) -> Interval | None:
    if dag is not None and grid.is_given(dag):
        return grid.interval_of(dag_run, dag)
    start, end = getattr(dag_run, "data_interval_start", None), getattr(dag_run, "data_interval_end", None)
    if start is None or end is None:
        return None
    if start == end:
        raise empty_interval(start, dag)
    return Interval(start, end)


def open_steps(job: Job, zone: str | None = None) -> Steps:
    """Return the steps of a job on this Airflow's database; `zone` is the zone of the schedule, if there is one."""
    from txbatch import settings, wiring

    ready = settings.ensure_database(resolve_settings())
    return wiring.open_steps(job, ready, lease_seconds=AIRFLOW_LEASE_SECONDS, zone=zone)


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
    if not _of_kafka(connection):
        return url_of(connection)
    extra = {name: value for name, value in connection.extra_dejson.items() if value not in (None, "")}
    return json.dumps({**_of_fields(connection), **extra})


def _of_kafka(connection: Connection) -> bool:
    """True for brokers of Kafka: by the type, or by the extra. Without the provider of Kafka, Airflow's form does not offer
    the type.
    """
    return connection.conn_type == "kafka" or "bootstrap.servers" in connection.extra_dejson


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
    from txbatch.postgres.database.engine import connect
    from txbatch.postgres.ledger import PostgresLedger

    engine = connect(await ledger_url(), application_name="txbatch trigger")
    return PostgresLedger(engine, lease_seconds=AIRFLOW_LEASE_SECONDS)


async def ledger_url() -> str:
    """Return the URL of the ledger, for a trigger. The embedded PostgreSQL is started."""
    from txbatch import settings

    url = None
    if not os.environ.get("TXBATCH_DATABASE_URL"):
        with suppress(AirflowNotFoundException):
            url = url_of(await BaseHook.aget_connection(DATABASE_CONN_ID))
    ready = await asyncio.to_thread(settings.ensure_database, settings.resolve(url))
    return ready.database_url


def ledger_away() -> str | None:
    """Return why the ledger takes no sessions now; None if the ledger answers, or if no wait helps."""
    from txbatch import settings
    from txbatch.postgres.database.reach import away

    try:
        return away(settings.ensure_database(resolve_settings()).database_url)
    except Exception:  # no outage: the settings are wrong, or the embedded PostgreSQL does not start
        return None


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
