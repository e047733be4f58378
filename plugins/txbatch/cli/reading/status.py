"""`txbatch status`: each topology, with what is committed, in flight, failing or waiting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from txbatch.cli import arguments
from txbatch.cli.database import chosen_engine, chosen_settings
from txbatch.cli.printing import Rows, prints_rows, show_status
from txbatch.core.text import one_line
from txbatch.places import in_checkout
from txbatch.postgres.reading.ledger_reader import LedgerReader

if TYPE_CHECKING:
    from txbatch.core.batch.planned_files import PlannedFiles
    from txbatch.core.protocol.lookback import LatePosition
    from txbatch.formats.changes import Looks

# The maximum number of late positions told, for each topology.
LATE_SHOWN = 5
EXAMPLE = "jobs/sentences.py" if in_checkout() else "JOB"


def _late(topology: str, late: LatePosition, plans: Sequence[PlannedFiles], looks: Looks) -> dict[str, Any]:
    from txbatch.formats.changes import differs_since

    late = replace(late, why_not=late.why_not or differs_since(plans, late, looks))
    told = {"position": late.position, "records": late.records, "files": dict(late.files), "found_by": late.found_by}
    return {**told, "told": late.told(topology)}


def _late_of(topology: str, reader: LedgerReader, plans: Sequence[PlannedFiles]) -> list[dict[str, Any]]:
    from txbatch.formats.changes import Looks, planned

    own, looks = [each for each in plans if each.topology == topology], Looks(by=planned)
    return [_late(topology, each, own, looks) for each in reader.late(topology)]


def _show(rows: list[dict[str, Any]]) -> None:
    """Print the rows by `show_status`, then the late records of each topology."""
    show_status(rows)
    for row in rows:
        for late in row["late"][:LATE_SHOWN]:
            click.echo(one_line(f"{row['topology']}: {late['told']}"))
        if (more := len(row["late"]) - LATE_SHOWN) > 0:
            click.echo(f"{row['topology']}: {more:,} more batches have late records; --json names all")


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
    show=_show,
    drop=("aborted", "oldest_in_flight", "gaps", "records"),
    cut=("topology", "states"),
)
def status(topology: str | None) -> Rows:
    """Show each topology: committed, in flight, failing and waiting batches.

    Below the table are failures, waiting runs, and states in other databases ahead of the ledger.
    """
    where = chosen_settings()
    reader = LedgerReader(chosen_engine(where))
    rows = reader.status(topology)
    if topology is not None and not rows:
        from txbatch.postgres.tables.batches import unknown_topology

        raise unknown_topology(topology)
    late, apart = reader.further(topology)
    if apart:
        from txbatch.postgres.apart.warehouses import Warehouses

        reader = LedgerReader(reader.engine, Warehouses(where.warehouse_url))
    plans = reader.counted(topology)
    differ = _differences(reader, topology, plans)
    return [
        {
            **row,
            "late": _late_of(name, reader, plans) if name in late else [],
            "half_committed": reader.half_committed(name) if name in apart else [],
            "changed": [each for each in differ if each["topology"] == name],
        }
        for row in rows
        for name in [row["topology"]]
    ]


def _differences(reader: LedgerReader, topology: str | None, files: Sequence[PlannedFiles]) -> list[dict[str, Any]]:
    """Return what differs of files and tables. Import the code to look at sources only if something was counted."""
    found: list[dict[str, Any]] = []
    if files:
        from txbatch.formats.changes import changed

        found.extend(changed(files))
    if tables := reader.counted_tables(topology):
        from txbatch.spouts.tables.late_rows import changed_tables

        found.extend(changed_tables(tables))
    return found
