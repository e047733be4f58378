"""Where the driver meets the world: `txbatch.run` stands on ports, and here it is given PostgreSQL, a staging area and Spark."""

from __future__ import annotations

from functools import partial

from txbatch.launch.application import Application
from txbatch.launch.job_file import Job
from txbatch.launch.submission import LOCAL_MASTER, SparkSubmit
from txbatch.postgres.engine import connect
from txbatch.postgres.ledger import CLI_LEASE_SECONDS, PostgresLedger
from txbatch.postgres.migrate import check_migrated
from txbatch.postgres.reader import Reader
from txbatch.postgres.run_locks import PostgresRunLocks
from txbatch.postgres.warehouses import Warehouses
from txbatch.run.runner import Runner
from txbatch.run.steps import Steps
from txbatch.settings import Settings
from txbatch.storage.staging import Staging, check_uri


def open_steps(job: Job, settings: Settings, *, lease_seconds: int = CLI_LEASE_SECONDS) -> Steps:
    """Return the steps of a job on the database and staging area of these settings; NotMigrated when it is not ready."""
    check_uri(settings.staging)
    name = f"txbatch {job.topology.name}"
    engine = connect(settings.database_url, application_name=name)
    check_migrated(engine)
    warehouses = Warehouses(settings.warehouse_url, application_name=name)
    ledger = PostgresLedger(engine, lease_seconds=lease_seconds, warehouses=warehouses)
    return Steps(job, ledger, Staging(settings.staging), PostgresRunLocks(engine))


def open_runner(job: Job, settings: Settings, master: str = LOCAL_MASTER) -> Runner:
    """Return a runner of the job's batches, all in one Spark application."""
    steps = open_steps(job, settings)
    launch, local = partial(SparkSubmit, master=master), master.startswith("local")
    return Runner(steps, Application(job, settings.home, launch, local=local))


def reader_beside(steps: Steps) -> Reader:
    """Return a reader of the reports, on the connections of these steps."""
    if not isinstance(steps.ledger, PostgresLedger):
        raise TypeError(f"{type(steps.ledger).__name__} has no reports")
    return Reader(steps.ledger.engine)
