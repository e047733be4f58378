"""Connects `txbatch.run` with the world: provides PostgreSQL, a staging area and Spark for the ports of `txbatch.run`."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from uuid import uuid4

from txbatch.core.batch.transaction import Batch
from txbatch.core.errors import TxbatchError
from txbatch.core.protocol.ports import Submit
from txbatch.core.protocol.restate import how_to_restate
from txbatch.core.topology.topology import Topology
from txbatch.core.upstream.look_ups import export
from txbatch.launch.application import Application
from txbatch.launch.emit_again import EmitAgain
from txbatch.launch.job_file import Job
from txbatch.launch.job_search import jobs_above
from txbatch.launch.submission import LOCAL_MASTER, SparkSubmit
from txbatch.postgres.apart.warehouses import Warehouses
from txbatch.postgres.corrections.rebuild import PostgresRebuilds
from txbatch.postgres.corrections.retention import Retention
from txbatch.postgres.corrections.verify import PostgresBooks
from txbatch.postgres.corrections.window_retention import PostgresWindows
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.migrate import check_migrated
from txbatch.postgres.database.run_locks import PostgresRunLocks
from txbatch.postgres.ledger import CLI_LEASE_SECONDS, PostgresLedger
from txbatch.postgres.reading.ledger_reader import LedgerReader
from txbatch.run.rebuild import Rebuilder
from txbatch.run.retention import Collector
from txbatch.run.runner import Runner
from txbatch.run.steps import Steps
from txbatch.run.verify import Verifier
from txbatch.settings import Settings, ensure_database
from txbatch.spouts.differing import differing_files, differing_from_plan
from txbatch.storage.leftovers import StagingLeftovers
from txbatch.storage.staging import Staging, check_uri

log = logging.getLogger(__name__)


def open_steps(
    job: Job, settings: Settings, *, lease_seconds: int = CLI_LEASE_SECONDS, zone: str | None = None
) -> Steps:
    """Return the steps of a job on the settings' database and staging area. Raise NotMigrated if the database is not ready.

    `zone` is the time zone in which a schedule cuts intervals, if there is a schedule.
    """
    check_uri(settings.staging)
    name = f"txbatch {job.topology.name}"
    engine = connect(settings.database_url, application_name=name)
    check_migrated(engine)
    warehouses = Warehouses(settings.warehouse_url, application_name=name)
    jobs = jobs_above(engine, job.path.parent)
    ledger = PostgresLedger(engine, lease_seconds=lease_seconds, warehouses=warehouses, jobs=jobs)
    return Steps(job, ledger, Staging(settings.staging), PostgresRunLocks(engine), zone=zone)


def open_runner(job: Job, settings: Settings, master: str = LOCAL_MASTER, *, zone: str | None = None) -> Runner:
    """Return a runner of the job's batches, all in one Spark application."""
    steps = open_steps(job, settings, zone=zone)
    return Runner(steps, open_application(job, settings, master), differing_from_plan)


def open_application(job: Job, settings: Settings, master: str = LOCAL_MASTER) -> Application:
    """Return a Spark application of the job. The application starts at the first request to emit."""
    launch, local = partial(SparkSubmit, master=master), master.startswith("local")
    return Application(job, settings.home, launch, local=local)


def open_verifier(steps: Steps, application: Application) -> Verifier:
    """Return a verifier of the job's batches. The verifier reads in the application, and ends the application."""
    if not isinstance(steps.ledger, PostgresLedger):
        raise TypeError(f"{type(steps.ledger).__name__} has no states that can be compared")
    books = PostgresBooks(steps.ledger.engine, steps.ledger.warehouses)
    return Verifier(steps.job, steps.ledger, books, open_emitter(steps, application), differing_files)


def open_emitter(steps: Steps, application: Application) -> EmitAgain:
    """Return an emitter of batches beside the ledger. The emitter works in the application, and ends the application."""
    if not isinstance(steps.staging, Staging):
        raise TypeError(f"{type(steps.staging).__name__} has no folder beside those of attempts")
    root = steps.staging.verified(steps.job.topology.name, uuid4().hex)
    return EmitAgain(application, root, steps.job, _export(steps))


def open_rebuilder(steps: Steps, application: Application) -> Rebuilder:
    """Return a rebuilder. The rebuilder counts all batches of the job again in the application, and ends the application."""
    job = steps.job
    if not (isinstance(steps.ledger, PostgresLedger) and isinstance(steps.staging, Staging)):
        raise TypeError(f"{type(steps.ledger).__name__} has no generations of states")
    emitter = EmitAgain(application, steps.staging.rebuilt(job.topology.name), job, _export(steps))
    return Rebuilder(steps, PostgresRebuilds(steps.ledger.engine), emitter)


def _export(steps: Steps) -> Submit:
    """Return a function that writes the job's streams from states into a folder."""
    topology, upstream = steps.job.topology, steps.ledger.upstream
    return lambda folder, assignment: export(topology, upstream, assignment, folder)


def reader_beside(steps: Steps) -> LedgerReader:
    """Return a reader of the reports, on the connections of the steps."""
    if not isinstance(steps.ledger, PostgresLedger):
        raise TypeError(f"{type(steps.ledger).__name__} has no reports")
    return LedgerReader(steps.ledger.engine)


def already_committed(steps: Steps, batch: Batch) -> str:
    """Describe the changes in a committed batch's source, and how to count the batch again. Unknown changes are left out."""
    if not isinstance(steps.ledger, PostgresLedger):
        raise TypeError(f"{type(steps.ledger).__name__} does not say what was read")
    topology, books = steps.job.topology, PostgresBooks(steps.ledger.engine, steps.ledger.warehouses)
    try:
        changed = differing_files(topology, books.recorded(topology.name, batch.txid))
    except TxbatchError as error:
        log.warning("%s: what changed since txid %s cannot be told: %s", topology.name, batch.txid, error)
        changed = []
    return how_to_restate(topology, batch, changed)


def differs_from_plan(topology: Topology, batch: Batch) -> str:
    """Describe the files differing from a restate's plan (R3: the plan stays), and how to count the batch again; "" if none."""
    changed = differing_from_plan(topology, batch)
    return how_to_restate(topology, batch, changed) if changed else ""


def open_collector(settings: Settings, folder: Path) -> Collector:
    """Return a collector to fold the past of a database's topologies; the embedded database is started.

    Jobs with merges of their own are searched in the folder, and in the folders above.
    """
    check_uri(settings.staging)
    engine = connect(ensure_database(settings).database_url, application_name="txbatch gc")
    check_migrated(engine)
    return Collector(
        Retention(engine, jobs_above(engine, folder)),
        StagingLeftovers(Staging(settings.staging), PostgresRunLocks(engine)),
        PostgresWindows(engine),
    )
