"""The Airflow plugin: what came of a run of a topology becomes the run's note. Every process of Airflow loads this file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun

# What `txbatch.orchestration.result` leaves, which is not imported here: it is slow, and only tasks need it.
XCOM_KEY = "txbatch"
MARK = "txbatch: "
LENGTH_MAX = 900


class RunNotes:
    """Writes notes of runs, in the scheduler, as it ends them. A note of somebody else's is left alone."""

    @hookimpl
    def on_dag_run_success(self, dag_run: DagRun) -> None:
        """Note the newest line that one of the run's tasks left."""
        from airflow.models.xcom import XComModel
        from sqlalchemy import select
        from sqlalchemy.orm import object_session

        session = object_session(dag_run)
        if session is None or (dag_run.note and not dag_run.note.startswith(MARK)):
            return
        mine = (XComModel.dag_id == dag_run.dag_id, XComModel.run_id == dag_run.run_id, XComModel.key == XCOM_KEY)
        with session.no_autoflush:
            newest = select(XComModel).where(*mine).order_by(XComModel.timestamp.desc()).limit(1)
            found = session.scalars(newest).first()
        if found is not None:
            dag_run.note = f"{MARK}{XComModel.deserialize_value(found)}"[:LENGTH_MAX]


class TxbatchPlugin(AirflowPlugin):
    """What Airflow finds."""

    name = "txbatch"
    listeners = [RunNotes()]  # noqa: RUF012 - the base class says what it is
