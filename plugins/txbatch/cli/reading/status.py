"""`txbatch status`: each topology, with what is committed, in flight, failing or waiting."""

from __future__ import annotations

import click

from txbatch.cli import arguments
from txbatch.cli.database import chosen_engine, chosen_settings
from txbatch.cli.printing import Rows, prints_rows, show_status
from txbatch.formats.changes import changed
from txbatch.places import in_checkout
from txbatch.postgres.apart.warehouses import Warehouses
from txbatch.postgres.reading.ledger_reader import LedgerReader
from txbatch.postgres.tables.batches import unknown_topology
from txbatch.spouts.tables.late_rows import changed_tables

EXAMPLE = "jobs/sentences.py" if in_checkout() else "JOB"


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
    differ = [*changed(reader.counted(topology)), *changed_tables(reader.counted_tables(topology))]
    return [
        {
            **row,
            "half_committed": reader.half_committed(row["topology"]),
            "changed": [each for each in differ if each["topology"] == row["topology"]],
        }
        for row in rows
    ]
