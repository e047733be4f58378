"""`txbatch source`: prepare tables to be read, check what a table lacks, and list the sources known here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import click

from txbatch import settings
from txbatch.cli import arguments
from txbatch.cli.printing import Rows, errors_told, prints_rows, show_checks
from txbatch.core.errors import InvalidOption, SourceUnfit, TxbatchError
from txbatch.spouts.tables import prepare as prepared
from txbatch.spouts.tables import server
from txbatch.spouts.tables.connection import Session, reading, run_all
from txbatch.spouts.tables.description import Table, check_role, describe, leaves, sql_name

_changing = click.option(
    "--changing", is_flag=True, help="Rows of the table change, and OpaquePostgresSpout reads the table."
)


@click.group()
def source() -> None:
    """Databases that spouts read: their tables, and what the tables lack.

    The URL of the source `shop` is in TXBATCH_SOURCE_SHOP. Use a role that can only read.
    """


@source.command()
@click.argument("source", type=arguments.TEXT)
@click.argument("table", type=arguments.TEXT)
@_changing
@click.option("--apply", is_flag=True, help="Run the SQL, instead of printing the SQL for psql.")
def prepare(source: str, table: str, changing: bool, apply: bool) -> None:
    """Print the SQL by which TABLE of SOURCE can be read without loss: a column, an index and triggers.

    \b
    The owner of the table runs the SQL:  txbatch source prepare shop shop.sale | psql ...
    Or by a source with the owner's URL:  txbatch source prepare shop_owner shop.sale --apply

    Only what is missing is printed. You can run the command again at any time.
    """
    with errors_told():
        with _opened(source, table) as session:
            described = describe(session, table, changing=changing)
        if described.faults and not described.lacks:
            raise SourceUnfit(f"{table} (source {source!r}): {'; '.join(described.faults)}")
        statements = prepared.statements(described)
        if apply:
            run_all(source, settings.source_url(source), statements, table)
        else:
            click.echo("".join(f"{statement};\n" for statement in statements), nl=False)
        done = "nothing is missing" if not statements else f"prepared {table}" if apply else ""
        if done:
            click.echo(done, err=True)


@source.command()
@click.argument("source", type=arguments.TEXT)
@click.argument("table", type=arguments.TEXT)
@_changing
@prints_rows(nothing="", show=show_checks)
def check(source: str, table: str, changing: bool) -> Rows:
    """Check whether TABLE of SOURCE can be read without loss. Exit code 1 if not."""
    with _opened(source, table) as session:
        return list(_checks(session, describe(session, table, changing=changing)))


@source.command(name="list")
@prints_rows(
    "source", "role", "database", "server", "answer", nothing="no source is known here: set TXBATCH_SOURCE_<NAME>"
)
def list_sources() -> Rows:
    """List the sources of this environment, and whether each answers. No part of a URL is printed."""
    names = sorted(name for name in os.environ if name.startswith(settings.SOURCE))
    return [_listed(name.removeprefix(settings.SOURCE).lower()) for name in names]


def _opened(source: str, table: str) -> Any:
    if not all(table.partition(".")):
        raise InvalidOption(f"{table!r} is no table; write schema and table, such as shop.sale")
    return reading(source, settings.source_url(source), table)


def _checks(session: Session, table: Table) -> Iterator[dict[str, Any]]:
    yield _check("server", lambda: _server(session))
    yield _check("role", lambda: _role(session))
    for fault in table.faults:
        yield {"check": "table", "ok": False, "detail": fault}
    if not table.faults:
        yield _check("table", lambda: _told(session, table))


def _check(name: str, ask: Any) -> dict[str, Any]:
    try:
        return {"check": name, "ok": True, "detail": ask()}
    except TxbatchError as error:
        return {"check": name, "ok": False, "detail": error.text}


def _server(session: Session) -> str:
    now = server.look(session)
    return f"system {now.system}, timeline {now.timeline}, transaction {now.xmax}"


def _role(session: Session) -> str:
    check_role(session)
    (role,) = session.row("SELECT current_user::text")
    return f"{role} can write in no ledger"


def _told(session: Session, table: Table) -> str:
    parts = len(leaves(session, table))
    before = ""
    if table.before is not None:
        query = f"SELECT EXISTS (SELECT FROM {sql_name(table.name)} WHERE xact = '{table.before}'::xid8)"  # noqa: S608
        some = session.row(query)[0]
        how = f"by {', '.join(name for name, _ in table.key)}" if table.key else "as one transaction"
        before = f", rows from before are read {how}" if some else ""
    return f"{table.name} is ready{f', {parts} partitions' if table.partitioned else ''}{before}"


def _listed(name: str) -> dict[str, Any]:
    row: dict[str, Any] = {"source": name, "role": None, "database": None, "server": None}
    try:
        with reading(name, settings.source_url(name)) as session:
            row["role"], row["database"], row["server"] = session.row(
                "SELECT current_user::text, current_database()::text, 'PostgreSQL ' || current_setting('server_version')"
            )
            return {**row, "answer": "yes", "ok": True}
    except TxbatchError as error:
        return {**row, "answer": error.text, "ok": False}
