"""All that the pages ask of Airflow: who asks, what that user may read and trigger, the DAGs, the connection, the settings.

The only module of txbatch that imports airflow.api_fastapi: the API server alone does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Annotated, Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import get_user
from airflow.configuration import conf
from airflow.exceptions import AirflowConfigException
from airflow.models.connection import Connection
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.providers.common.compat.sdk import AirflowNotFoundException
from airflow.utils.session import create_session
from fastapi import Depends, HTTPException
from sqlalchemy import select

from txbatch import settings
from txbatch.core.errors import InvalidName, Unavailable
from txbatch.core.topology.topology import checked_topology_name
from txbatch.postgres.database.connections import url_of

# The first that is there is the database of the pages; a reader's is enough.
CONNECTIONS = ("txbatch_report", "txbatch")
SECTION, SHOW_VALUES = "txbatch", "pages_show_values"
# No team of Airflow can have such a name.
NOBODYS = "~"
User = Annotated[Any, Depends(get_user)]
# The connections that this process has found.
_seen: set[str] = set()


def readable(dag_id: str, user: User) -> str:
    """Return the name of a topology whose runs the user may read. The name in the path alone decides.

    Raise 422 for a name that no topology has, before anything is asked, also for `~`, Airflow's name of all DAGs; 403 if the
    user may not read the runs of this DAG.
    """
    try:
        checked_topology_name(dag_id)
    except InvalidName:
        raise HTTPException(422, "no topology has such a name") from None
    if not may(user, "GET", dag_id):
        raise HTTPException(403, "you may not read the runs of this DAG")
    return dag_id


Readable = Annotated[str, Depends(readable)]


def may(user: Any, method: Any, dag_id: str) -> bool:
    """Return whether a user may read (GET) or trigger (POST) the runs of a DAG.

    With teams a DAG unknown to Airflow belongs to nobody's team: an auth manager lets administrators alone pass.
    """
    details = DagDetails(id=dag_id, team_name=_team(dag_id)) if _teams() else DagDetails(id=dag_id)
    manager = get_auth_manager()
    return bool(manager.is_authorized_dag(method=method, access_entity=DagAccessEntity.RUN, details=details, user=user))


def dags(ids: Iterable[str]) -> dict[str, bool]:
    """Return the DAGs known to Airflow among some DAGs, each with whether the DAG is paused."""
    with create_session() as session:
        there = select(DagModel.dag_id, DagModel.is_paused).where(DagModel.dag_id.in_([*ids]), ~DagModel.is_stale)
        return {row.dag_id: bool(row.is_paused) for row in session.execute(there)}


def triggered_by(dag_id: str, run_ids: Iterable[str]) -> dict[str, str]:
    """Return the users who triggered some runs of a DAG, by run; none for a run by nobody, or of which nothing is kept."""
    with create_session() as session:
        of = select(DagRun.run_id, DagRun.triggering_user_name).where(
            DagRun.dag_id == dag_id, DagRun.run_id.in_([*run_ids]), DagRun.triggering_user_name.is_not(None)
        )
        return {row.run_id: str(row.triggering_user_name) for row in session.execute(of)}


def show_values() -> bool:
    """Return whether pages show numbers and keys of states, by [txbatch] pages_show_values; False for a value that is neither."""
    try:
        return bool(conf.getboolean(SECTION, SHOW_VALUES, fallback=True))
    except AirflowConfigException:
        return False


def database() -> tuple[str, str]:
    """Return the URL of the database of the pages, and the name of the URL in errors.

    Raise Unavailable if a connection was there before and is not found now: no other database answers instead.
    """
    for conn_id in CONNECTIONS[:1] if os.environ.get(settings.DATABASE_URL) else CONNECTIONS:
        try:
            found = Connection.get_connection_from_secrets(conn_id)
        except AirflowNotFoundException:
            if conn_id in _seen:
                raise Unavailable(f"the Airflow connection {conn_id!r} was there, and is not found now") from None
            continue
        _seen.add(conn_id)
        return url_of(found), f"the Airflow connection {conn_id!r}"
    return settings.resolve().database_url, settings.DATABASE_URL


def _team(dag_id: str) -> str | None:
    """Return the team of a DAG; None for a known DAG without a team."""
    with create_session() as session:
        known = session.execute(select(DagModel.dag_id).where(DagModel.dag_id == dag_id)).first()
    return DagModel.get_team_name(dag_id) if known else NOBODYS


def _teams() -> bool:
    """Return whether rights of this Airflow are of teams."""
    return bool(conf.getboolean("core", "multi_team", fallback=False))
