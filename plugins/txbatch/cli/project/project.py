"""The commands for a project and its stack: `txbatch init`, `up`, `down`, `migrate` and `doctor`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from txbatch.cli import arguments
from txbatch.cli.database import chosen_settings, connected
from txbatch.cli.printing import Rows, errors_told, prints_rows, show_checks
from txbatch.cli.project.doctor import check_all
from txbatch.cli.project.starter import make_project
from txbatch.core.errors import PackageMissing
from txbatch.fit import check_fit
from txbatch.places import install
from txbatch.postgres.database.migrate import migrate as migrate_database
from txbatch.postgres.database.psql import make_reader


def _show_next(rows: list[dict[str, Any]]) -> None:
    """Print below the table the commands that come next."""
    folder = shlex.quote(str(click.get_current_context().params["folder"]))
    click.echo(f"""
Next
  cd {folder}
  make demo    # counts three days of sales, and prints the report
  make up      # starts Airflow with the DAG of this project""")


@click.command()
@click.argument("folder", type=arguments.TEXT)
@prints_rows("file", nothing="", show=_show_next)
def init(folder: str) -> Rows:
    """Make a project of your own in FOLDER: a working job, its DAG, its test and example data.

    FOLDER must be empty or missing. Then run `make demo` and `make test` in FOLDER.
    """
    return [{"file": str(Path(folder, file))} for file in make_project(Path(folder))]


@click.command()
def up() -> None:
    """Start Airflow with the project's DAGs on this machine alone, until Ctrl-C or `txbatch down`.

    A project is the nearest folder, from this folder upwards, with dags/ and jobs/.
    """
    with _packages_told():
        check_fit("airflow")
        from txbatch.local import up as local
    sys.exit(local.main())


@click.command()
def down() -> None:
    """Stop the Airflow and the PostgreSQL of this home, started by any program."""
    with _packages_told():
        from txbatch.local import down as local
    sys.exit(local.main())


@contextmanager
def _packages_told() -> Iterator[None]:
    """Context manager. Like `errors_told`; if a package of the local stack is missing, also print how to install the package."""
    with errors_told():
        try:
            yield
        except ModuleNotFoundError as error:
            raise PackageMissing(f"{error.name} is not installed beside txbatch; {install('embedded')}") from error


@click.command()
@prints_rows("number", "migration", nothing="up to date")
def migrate() -> Rows:
    """Migrate the database's ledger to this version."""
    where = chosen_settings()
    engine = connected(where)
    applied = migrate_database(engine)
    if where.embedded:
        make_reader(engine)
    return [{"number": each.number, "migration": each.name} for each in applied]


@click.command()
@prints_rows(nothing="", show=show_checks)
def doctor() -> Rows:
    """Check that everything is installed, ready, and loads.

    Database, migrations, rights, states apart, Spark, Airflow, Java, staging area, DAG and job files. Exit code 1 if a
    check fails.
    """
    return check_all()
