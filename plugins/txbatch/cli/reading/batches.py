"""`txbatch batches`: the batches of a topology, or their attempts."""

from __future__ import annotations

import click

from txbatch.cli import arguments
from txbatch.cli.database import chosen_engine
from txbatch.cli.printing import Rows, prints_rows, show_reasons
from txbatch.postgres.reading.ledger_reader import LedgerReader

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
