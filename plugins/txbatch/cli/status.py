"""`txbatch status`, `batches`, `query` and `psql`: committed batches, and counted values."""

from __future__ import annotations

import os

import click

from txbatch import settings
from txbatch.cli import arguments
from txbatch.cli.database import chosen_engine, chosen_settings, connected
from txbatch.cli.printing import Rows, errors_told, prints_rows, show_reasons, show_status
from txbatch.formats.changes import changed
from txbatch.places import in_checkout
from txbatch.postgres.apart.warehouses import Warehouses
from txbatch.postgres.database.engine import check_server, transaction
from txbatch.postgres.database.psql import REPORT
from txbatch.postgres.database.psql import command as psql_command
from txbatch.postgres.reading.ledger_reader import LedgerReader
from txbatch.postgres.tables.batches import unknown_topology

EXAMPLE = "jobs/sentences.py" if in_checkout() else "JOB"
# The columns of a batch or of an attempt.
BATCH_COLUMNS = (
    *(
        "txid",
        "attempt",
        "status",
        "restates",
        "replaced_by",
        "attempts",
        "interval_start",
        "interval_end",
        "records",
        "kept",
        "keys",
        "late",
        "watermark",
        "closed_to",
        "ahead",
        "ahead_to",
    ),
    *("run", "started_at", "committed_at", "took"),
)
DROPPED = (
    "keys",
    "kept",
    "took",
    "started_at",
    "attempts",
    "interval_end",
    "committed_at",
    "late",
    "watermark",
    "closed_to",
    "ahead_to",
)
prints_batches = prints_rows(*BATCH_COLUMNS, nothing="nothing yet", show=show_reasons, drop=DROPPED, cut=("run",))


@click.command()
@click.argument("topology", required=False, type=arguments.TEXT)
@prints_rows(
    *(
        "topology",
        "committed_txid",
        "committed_at",
        "records",
        "in_flight",
        "oldest_in_flight",
        "gaps",
        "aborted",
        "states",
    ),
    nothing=f"no topology has run yet; `txbatch run {EXAMPLE}` runs one",
    show=show_status,
    drop=("aborted", "oldest_in_flight", "gaps", "records"),
    cut=("topology", "states"),
)
def status(topology: str | None) -> Rows:
    """Show each topology: committed, in flight, failing and waiting batches.

    Below the table are failures, waiting runs, and states in other databases ahead of the ledger.
    """
    where = chosen_settings()
    reader = LedgerReader(chosen_engine(where), Warehouses(where.warehouse_url))
    rows = reader.status(topology)
    if topology is not None and not rows:
        raise unknown_topology(topology)
    differ = list(changed(reader.counted(topology)))
    return [
        {
            **row,
            "half_committed": reader.half_committed(row["topology"]),
            "changed": [each for each in differ if each["topology"] == row["topology"]],
        }
        for row in rows
    ]


@click.command()
@click.argument("topology", type=arguments.TEXT)
@click.option(
    "--limit", default=20, show_default=True, type=arguments.LIMIT, help="Show at most this many, newest first."
)
@click.option("--attempts", is_flag=True, help="Show attempts instead of batches, with the reasons of failures.")
@prints_batches
def batches(topology: str, limit: int, attempts: bool) -> Rows:
    """List the batches of TOPOLOGY, newest first."""
    reader = LedgerReader(chosen_engine())
    if not attempts:
        rows = reader.batches(topology, limit)
        return [{**row, "restates": row["position"] if row["kind"] == "restate" else None} for row in rows]
    return [{**row, "took": row["duration"]} for row in reader.attempts(topology, limit)]


@click.command(context_settings={"ignore_unknown_options": True})  # -1 is a key
@click.argument("state", type=arguments.TEXT)
@click.argument("keys", nargs=-1, type=arguments.KEY)
@prints_rows(nothing="")
def query(state: str, keys: tuple[str, ...]) -> Rows:
    """Look up the values of KEYS in STATE, including missing keys.

    Write a key with several columns in CSV: `txbatch query flights AA,JFK B6,LGA`. A global value has no key: name the
    STATE alone.
    """
    where = chosen_settings()
    reader = LedgerReader(chosen_engine(where), Warehouses(where.warehouse_url))
    return reader.query(state, arguments.keys(keys, reader.key_columns(state)))


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
