"""The checks of `txbatch doctor`: whether everything is installed and ready."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sqlalchemy import Engine

from txbatch import settings
from txbatch.cli.project.dag_files import check_files
from txbatch.cli.project.sources import check_sources
from txbatch.core.errors import NotMigrated, TransientError
from txbatch.core.protocol.ledger import Offsets
from txbatch.core.topology.topology import Topology
from txbatch.embedded.java import java_home
from txbatch.embedded.postgres import EmbeddedPostgresError
from txbatch.fit import check_fit, check_python, describe_postgres, installed
from txbatch.launch.job_file import Job, check_emission
from txbatch.places import install
from txbatch.postgres.apart.warehouses import Warehouses
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.grants import check_rights
from txbatch.postgres.database.migrate import check_migrated, has_ledger, migrations
from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.reading.ledger_reader import LedgerReader
from txbatch.postgres.tables import batches, definitions
from txbatch.storage.staging import Staging

NEW = "new: the first run makes the ledger"


def check_all() -> list[dict[str, Any]]:
    """Return one row per check: its name, whether ok, and the detail or the error.

    If the settings are invalid, return their error once, and skip all checks that need settings.
    """
    found = _checked("settings", lambda: str(settings.resolve().home))
    if not found["ok"]:
        return [found, _checked("spark", lambda: check_fit("spark")), _checked("airflow", _airflow)]
    checks: dict[str, Callable[[], str]] = {
        "database": lambda: _server(_ledger(settings.resolve())),
        "migrations": lambda: _migrated(settings.resolve()),
        "rights": lambda: _rights(settings.resolve()),
        "warehouses": lambda: _apart(settings.resolve()),
        "python": check_python,
        "spark": lambda: check_fit("spark"),
        "airflow": _airflow,
        "java": lambda: str(java_home(settings.home())),
        "staging": lambda: _writable(settings.resolve().staging),
        "sources": lambda: check_sources(settings.project_root(), _counted),
        "dags": lambda: check_files(settings.project_root(), _runs),
    }
    return [_checked(what, check) for what, check in checks.items()]


def _ledger(where: settings.Settings) -> Engine:
    return connect(settings.ensure_database(where).database_url)


def _server(engine: Engine) -> str:
    server = LedgerReader(engine).server()
    right = "may" if server["may_create"] else "may NOT"
    who = f"user {server['user']} {right} create schemas"
    return f"{describe_postgres(server['version'])}, database {server['database']}, {who}"


def _migrated(where: settings.Settings) -> str:
    engine = _ledger(where)
    if _new(where, engine):
        return NEW
    check_migrated(engine)
    return f"all {len(migrations())} applied"


def _rights(where: settings.Settings) -> str:
    engine = _ledger(where)
    if _new(where, engine):
        return NEW
    held = check_rights(engine)
    check_migrated(engine)  # rights on missing tables are checked first
    return held


def _apart(where: settings.Settings) -> str:
    engine = _ledger(where)
    if _new(where, engine):
        return NEW
    with transaction(engine) as connection:
        return Warehouses(where.warehouse_url).check(connection)


def _new(where: settings.Settings, engine: Engine) -> bool:
    """True if an embedded database has no ledger yet: the first run creates the ledger. Other databases are migrated by hand."""
    return where.embedded and not has_ledger(engine)


def _airflow() -> str:
    return (
        check_fit("airflow")
        if installed("apache-airflow")
        else f"not installed, only DAGs need it: {install('airflow')}"
    )


def _writable(staging: str) -> str:
    others = Staging(staging).check()
    return "; ".join(
        [staging, *(f"{other}: may change staged files before a commit reads the files" for other in others)]
    )


def _runs(job: Job) -> None:
    """Check that neither Spark nor the ledger, if available, would reject a run of the job."""
    check_emission(job)
    with (
        suppress(TransientError, NotMigrated, EmbeddedPostgresError),
        transaction(_ledger(settings.resolve())) as connection,
    ):
        definitions.check(connection, job.topology)


def _counted(topology: Topology) -> Offsets:
    """Return the last ranges of a topology, by stream and partition; nothing without a ledger."""
    with (
        suppress(TransientError, NotMigrated, EmbeddedPostgresError),
        transaction(_ledger(settings.resolve())) as connection,
    ):
        return batches.offsets(connection, "consumed", topology=topology.name)
    return {}


def _checked(what: str, check: Callable[[], str]) -> dict[str, Any]:
    try:
        return {"check": what, "ok": True, "detail": check()}
    except Exception as error:
        return {"check": what, "ok": False, "detail": str(error).strip().partition("\n")[0]}
