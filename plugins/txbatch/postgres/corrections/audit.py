"""Read the ledger's records of committed batches, and find contradictions (R24). `core.corrections.audit` decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, RowMapping

from txbatch.core.batch.manifest import Manifest, ReadPartition
from txbatch.core.batch.transaction import BatchKind, Interval
from txbatch.core.corrections.audit import (
    Audit,
    Entry,
    PartitionRow,
    Rebuilt,
    Standing,
    Where,
    check_entry,
    check_order,
    check_standings,
)
from txbatch.core.corrections.audit_contributions import Contributed, check_contributed
from txbatch.core.errors import NewerFormat
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.core.topology.topology import Topology
from txbatch.postgres.database.engine import execute
from txbatch.postgres.database.expressions import listed, total_sql
from txbatch.postgres.database.queries import query
from txbatch.postgres.state.folds import Folds
from txbatch.postgres.state.statements import statements_of
from txbatch.postgres.tables import definitions

# As many batches are held at once, with all that their manifests say.
_BATCHES_AT_ONCE = 100


def audit(connection: Connection, topology: Topology) -> Audit:
    """Return the contradictions in the ledger, in one snapshot."""
    ids, entries, told = {"topology": topology.name}, dict[int, Entry](), dict[int, list[str]]()
    found = connection.execution_options(yield_per=_BATCHES_AT_ONCE).execute(query("audited_batches"), ids)
    for row in found.mappings():
        entry, unreadable = _entry(row)
        told[row["txid"]] = [*unreadable, *check_entry(entry)]
        entries[row["txid"]] = replace(entry, partitions={}, metadata={})
    contributed: dict[int, list[str]] = {}
    for txid, text in _contributed(connection, topology, entries):
        contributed.setdefault(txid, []).append(text)
    standings = [each.standing for each in entries.values()]
    others = [*check_order(standings), *_numbers(connection, ids), *_folded(connection, topology)]
    of = {txid: texts for txid, texts in told.items() if texts}
    return Audit(tuple(check_standings(standings)), of, contributed, tuple(others))


def _entry(row: RowMapping) -> tuple[Entry, list[str]]:
    """Return the ledger's entry of a txid, and an error for each unreadable part."""
    manifest, unreadable = None, list[str]()
    try:
        manifest = Manifest.from_json(row["manifest"]) if row["manifest"] is not None else None
    except NewerFormat:
        raise
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        unreadable = [f"txbatch.attempt.manifest is none ({error})"]
    if manifest is not None and row["before_rebuild"]:
        manifest = replace(manifest, states={})
    standing = Standing(row["txid"], row["position"], BatchKind(row["kind"]), row["replaced_by"], row["committed_at"])
    interval = row["interval_start"] and Interval(row["interval_start"], row["interval_end"])
    moments = {"emitted_at": row["finished_at"], "succeeded_at": row["succeeded_at"]}
    counts = {name: row[name] or {} for name in ("keys", "kept", "late")}
    ahead = row["ahead"], row["ahead_to"]
    said = {"records": row["records"], **counts, "ahead": ahead, "rebuilt": _rebuilt(row)}
    partitions = dict(map(_partition, row["partitions"] or ()))
    return Entry(standing, row["metadata"], partitions, interval, manifest=manifest, **said, **moments), unreadable


def _partition(row: Mapping[str, Any]) -> tuple[Where, PartitionRow]:
    read = None if row["records"] is None else ReadPartition(row["records"], row["fingerprint"])
    return (row["stream"], row["partition"]), PartitionRow(row["status"], row["metadata"], read)


def _rebuilt(row: RowMapping) -> Rebuilt | None:
    if row["rebuilt_keys"] is None:
        return None
    streams = row["rebuilt_streams"] and {
        stream: {name: ReadPartition(**part) for name, part in parts.items()}
        for stream, parts in row["rebuilt_streams"].items()
    }
    return Rebuilt(row["rebuilt_keys"], row["rebuilt_kept"], row["rebuilt_records"], streams)


def _contributed(connection: Connection, topology: Topology, entries: Mapping[int, Entry]) -> Iterator[tuple[int, str]]:
    """Yield each contradiction of a txid's contributions, with the txid."""
    known, horizons = definitions.known(connection, topology).states, _horizons(connection, topology)
    for aggregate in topology.aggregates:
        name = aggregate.state.name
        if not aggregate.state.contributions:
            continue
        for found in _of_state(connection, aggregate):
            texts = check_contributed(aggregate, known[name], horizons[name], entries.get(found.txid), found)
            yield from ((found.txid, text) for text in texts)


def _of_state(connection: Connection, aggregate: PersistentAggregate) -> Iterator[Contributed]:
    totals = [total_sql(column) for column in aggregate.partial_columns]
    table = statements_of(aggregate).contribution
    names = [column.name for column in aggregate.partial_columns]
    selected = f"SELECT txid, position, count(*), {listed(totals)} FROM {table} GROUP BY txid, position ORDER BY 1, 2"
    for txid, position, keys, *each in execute(connection, selected).fetchall():
        yield Contributed(txid, position, keys, dict(zip(names, each, strict=True)))


def _numbers(connection: Connection, ids: Mapping[str, Any]) -> Iterator[str]:
    if missing := connection.execute(query("numbers_missing"), ids).scalar_one():
        yield f"txbatch.batch lacks {missing} txids below the newest"
    consumed = (
        "txbatch.consumed: of stream {stream!r}, partition {partition!r}, it is not the range that was committed last"
    )
    for row in connection.execute(query("consumed_otherwise"), ids).mappings():
        yield consumed.format_map(row)
    for row in connection.execute(query("counted_otherwise"), ids).mappings():
        yield "txbatch.counted: {time} is counted there or by committed batches, not by both".format_map(row)
    records = "txbatch.batch.records_to of txid {txid} is {records_to}, the batches that count have {records}"
    for row in connection.execute(query("records_otherwise"), ids).mappings():
        yield records.format_map(row)
    swapped = (
        "txbatch.rebuild.swapped_txid of rebuild {rebuild} is {swapped_txid}, txbatch.rebuilt counts other batches"
    )
    for row in connection.execute(query("rebuilt_otherwise"), ids).mappings():
        yield swapped.format_map(row)


def _folded(connection: Connection, topology: Topology) -> Iterator[str]:
    """Yield an error for each state whose base has a txid that is not folded (R22)."""
    horizons = _horizons(connection, topology)
    for aggregate in topology.aggregates:
        name = aggregate.state.name
        if aggregate.state.contributions:
            newest = execute(connection, f"SELECT max(txid) FROM {Folds.of(aggregate).base}").fetchone()[0] or 0
            if newest > horizons[name]:
                yield f"contribution_base.{name} has txid {newest}, and only what is up to {horizons[name]} is folded"


def _horizons(connection: Connection, topology: Topology) -> dict[str, int]:
    return {row.state: row.horizon for row in connection.execute(query("horizons"), {"topology": topology.name})}
