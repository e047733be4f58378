"""`txbatch psql`: SQL on the reports, read-only."""

from __future__ import annotations

import os

import click

from txbatch import settings
from txbatch.cli.database import chosen_engine, chosen_settings, connected
from txbatch.cli.printing import errors_told
from txbatch.postgres.database.engine import check_server
from txbatch.postgres.database.psql import REPORT
from txbatch.postgres.database.psql import command as psql_command
from txbatch.postgres.database.transaction import transaction


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("given", nargs=-1, type=click.UNPROCESSED, metavar="[PSQL'S ARGUMENTS]...")
def psql(given: tuple[str, ...]) -> None:
    """Open psql on the reports, read-only.

    Arguments are psql's: -f FILE runs a file, -c a statement. On the embedded PostgreSQL, psql uses the role report, with
    rights to read the schema report and no rights to change data. On other servers, psql uses the role in the URL.
    """
    with errors_told():
        line, environment = _psql(chosen_settings(), given)
        os.execve(line[0], line, environment)  # noqa: S606 (no shell is meant)


def _psql(where: settings.Settings, given: tuple[str, ...]) -> tuple[list[str], dict[str, str]]:
    if where.embedded:
        return psql_command(chosen_engine(where), given, role=REPORT)
    engine = connected(where)
    with transaction(engine) as connection:
        check_server(connection)
    return psql_command(engine, given)
