"""The database of a command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from txbatch import settings

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from txbatch.postgres.reading.history_reader import HistoryReader


def start_database() -> settings.Settings:
    """Return the settings, and start the embedded database if no other is set."""
    return settings.ensure_database(settings.resolve())


def ready() -> settings.Settings:
    """Return the settings, with the embedded database started and migrated."""
    where = start_database()
    migrated(where)
    return where


def migrated(where: settings.Settings) -> Engine:
    """Return a migrated database. Migrate the embedded database now; raise NotMigrated for any other unmigrated database."""
    from txbatch.postgres.database.engine import connect
    from txbatch.postgres.database.migrate import check_migrated, migrate

    engine = connect(where.database_url)
    if where.embedded:
        from txbatch.postgres.database.psql import make_reader

        migrate(engine)
        make_reader(engine)
    check_migrated(engine)
    return engine


def connected(where: settings.Settings) -> Engine:
    """Return the database, migrated or not."""
    from txbatch.postgres.database.engine import connect

    return connect(where.database_url)


def chosen_settings() -> settings.Settings:
    """Return the settings of a command; below `txbatch demo` the settings of the demos. The database is started."""
    of_group = click.get_current_context().obj
    return start_database() if of_group is None else of_group(settings.home())


def chosen_engine(where: settings.Settings | None = None) -> Engine:
    """Return a migrated database. Migrate the embedded database if necessary."""
    return migrated(where or chosen_settings())


def history() -> HistoryReader:
    """Return the reader of the past, with the jobs below the current folder. The database is started."""
    from txbatch.launch.job_search import jobs_above
    from txbatch.postgres.reading.history_reader import HistoryReader

    engine = migrated(start_database())
    return HistoryReader(engine, jobs=jobs_above(engine, Path.cwd()))
