"""The database that a command works on."""

from __future__ import annotations

import click
from sqlalchemy import Engine

from txbatch import settings
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.migrate import check_migrated, migrate
from txbatch.postgres.database.psql import make_reader


def start_database() -> settings.Settings:
    """Return the settings, with the database started where it is the embedded one."""
    return settings.ensure_database(settings.resolve())


def ready() -> settings.Settings:
    """Return the settings; the embedded database is started, and migrated by whoever comes first."""
    where = start_database()
    migrated(where)
    return where


def migrated(where: settings.Settings) -> Engine:
    """Return a migrated database; the embedded one is migrated by this. NotMigrated for another that is not."""
    engine = connect(where.database_url)
    if where.embedded:
        migrate(engine)
        make_reader(engine)
    check_migrated(engine)
    return engine


def connected(where: settings.Settings) -> Engine:
    """Return the database as it is, migrated or not."""
    return connect(where.database_url)


def chosen_settings() -> settings.Settings:
    """Return the settings of a command, or the demos' own for one below `txbatch demo`; the database is started."""
    of_group = click.get_current_context().obj
    return start_database() if of_group is None else of_group(settings.home())


def chosen_engine(where: settings.Settings | None = None) -> Engine:
    """A migrated database; the embedded one is migrated by whoever comes first."""
    return migrated(where or chosen_settings())
