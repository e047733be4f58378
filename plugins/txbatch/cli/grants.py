"""`txbatch grants`: print the SQL that grants rights in the database, or run the SQL."""

from __future__ import annotations

import click

from txbatch import settings
from txbatch.cli import arguments, database
from txbatch.cli.printing import errors_told
from txbatch.postgres.apart.warehouses import Warehouses
from txbatch.postgres.database import grants as granted
from txbatch.postgres.database.engine import connect


@click.command()
@click.argument("owner", type=arguments.TEXT)
@click.argument("writer", type=arguments.TEXT)
@click.argument("reader", type=arguments.TEXT)
@click.option("--create", is_flag=True, help="Create the roles. An administrator runs this before `txbatch migrate`.")
@click.option("--quarantine", is_flag=True, help="READER may also read records in quarantine.")
@click.option(
    "--warehouse", type=arguments.TEXT, metavar="NAME", help="Grant rights in this database with states apart."
)
@click.option("--apply", is_flag=True, help="Run the SQL, instead of printing the SQL for psql.")
def grants(
    owner: str, writer: str, reader: str, create: bool, quarantine: bool, warehouse: str | None, apply: bool
) -> None:
    """Print the SQL that allows OWNER to migrate, WRITER to plan and commit, and READER to read reports.

    \b
    1. An administrator, in the ledger's database:  txbatch grants OWNER WRITER READER --create | psql ...
    2. OWNER:                                       txbatch migrate
    3. OWNER:                                       txbatch grants OWNER WRITER READER --apply

    You can run each step again at any time. OWNER and WRITER may be one role. For another READER, call the command again.
    """
    with errors_told():
        if quarantine and (create or warehouse is not None):
            raise click.UsageError("--quarantine is of a ledger's reports: leave out --create and --warehouse")
        roles = granted.Roles(owner, writer, reader)
        if apply:
            _apply(roles, create, quarantine, warehouse)
        elif create:
            click.echo(granted.whole(granted.roles_sql(roles)), nl=False)
        elif warehouse is not None:
            click.echo(granted.whole(granted.warehouse_sql(roles)), nl=False)
        else:
            click.echo(granted.whole(granted.ledger_sql(roles, quarantine=quarantine)), nl=False)


def _apply(roles: granted.Roles, create: bool, quarantine: bool, warehouse: str | None) -> None:
    where = settings.resolve() if warehouse is not None else database.start_database()
    engine = connect(where.database_url) if warehouse is None else Warehouses(where.warehouse_url).engine(warehouse)
    if create:
        for warning in granted.create(engine, roles):
            click.echo(warning, err=True)
    elif warehouse is not None:
        granted.apply_warehouse(engine, roles)
    else:
        granted.apply(engine, roles, quarantine=quarantine)
    click.echo(f"granted in database {engine.url.database}", err=True)
