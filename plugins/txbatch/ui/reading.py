"""What pages ask of topologies and batches, each in one snapshot. The statements are in sql/queries/pages.sql."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from txbatch.core.errors import UnknownName
from txbatch.postgres.database.queries import query
from txbatch.postgres.tables.batches import unknown_topology
from txbatch.ui import asked, shown
from txbatch.ui.asked import Window
from txbatch.ui.payloads import (
    Batch,
    Batches,
    Dags,
    Detail,
    Exceptional,
    Intervals,
    One,
    Overview,
    Partitions,
    Proof,
    Run,
    Span,
    Stream,
    Successor,
    Topology,
)
from txbatch.ui.state_payloads import Committed, State

TOPOLOGIES_MAX, EXCEPTIONS_MAX, BATCHES_MAX, OF_RUN_MAX = 500, 2_000, 200, 500
ATTEMPTS_MAX, READS_MAX, RESTATES_MAX, LISTED_MAX = 100, 100, 100, 100
INTERVALS_MAX, PARTITIONS_MAX, TXIDS_MAX = 1_000, 100, 200


def names(connection: Connection) -> list[str]:
    """Return the names of all topologies, in order."""
    return [row["topology"] for row in _rows(connection, "page_names")]


def topologies(connection: Connection, readable: list[str]) -> list[Topology]:
    """Return some topologies by their names."""
    return [shown.topology(row) for row in _rows(connection, "page_topologies", names=readable)]


def one(connection: Connection, name: str, told: dict[str, Any]) -> One:
    """Return a topology with the facts of a header; `told` has Airflow's facts on the DAGs and the user."""
    row = _known(connection, name, "page_topology")
    listed = {"topology": name, "limit": LISTED_MAX}
    failing, waiting = (_rows(connection, statement, **listed) for statement in ("page_failing", "page_waiting"))
    return One(
        topology=shown.topology(row),
        job=row["job"],
        streams=_streams(connection, name, row["streams"] or {}),
        states=states(connection, name),
        failing=[shown.failing(each) for each in failing],
        waiting=[shown.waiting(each) for each in waiting],
        **told,
    )


def known(connection: Connection, name: str) -> Any:
    """Return the zone and the newest txid of a topology. Raise UnknownName if the topology is unknown."""
    return _known(connection, name, "page_known")


def states(connection: Connection, name: str) -> list[State]:
    """Return the states of a topology, without its quarantine."""
    return [shown.state(row) for row in _rows(connection, "page_states", topology=name)]


def overview(connection: Connection, name: str) -> Overview:
    """Return the newest txid, and the txids not simply committed."""
    last = known(connection, name)["newest_txid"]
    found = _rows(connection, "page_exceptions", topology=name, limit=EXCEPTIONS_MAX + 1)
    exceptions = [Exceptional(row["txid"], row["look"]) for row in reversed(found[:EXCEPTIONS_MAX])]
    return Overview(last, exceptions, len(found) > EXCEPTIONS_MAX)


def batches(
    connection: Connection, name: str, before: int | None, limit: int, status: str | None, *, failed: bool
) -> Batches:
    """Return batches, newest first, below a txid. `failed`: only batches with a failed newest attempt.

    Raise UnknownName if the topology is unknown. Only a topology without a found batch is looked up.
    """
    txids = None
    if failed:
        failing = _rows(connection, "page_failing_txids", topology=name, before=before, limit=limit + 1)
        txids = [row["txid"] for row in failing]
    found = _batches(connection, name, limit + 1, before=before, status=status, txids=txids)
    if not found:
        known(connection, name)
    return Batches(found[:limit], found[limit - 1].txid if len(found) > limit else None)


def committed(connection: Connection, name: str, before: datetime) -> Committed:
    """Return the txid that was committed last before a time. Raise UnknownName if the topology is unknown."""
    newest = known(connection, name)["newest_txid"]
    (row,) = _rows(connection, "page_committed", topology=name, newest=newest or 0, before=before)
    return Committed(row["txid"])


def of_run(connection: Connection, name: str, run_id: str) -> Run:
    """Return the batches found or planned by a run of the topology's DAG."""
    txids = [row["txid"] for row in _rows(connection, "page_run_txids", topology=name, run_id=run_id, limit=OF_RUN_MAX)]
    if not txids:
        known(connection, name)
    return Run(_batches(connection, name, OF_RUN_MAX, txids=txids))


def detail(connection: Connection, name: str, txid: int) -> Detail:
    """Return a batch with its attempts, reads and restates. Raise UnknownName if the batch is unknown."""
    batch, of = batch_of(connection, name, txid), {"topology": name, "txid": txid}
    attempts = _rows(connection, "page_attempts", **of, limit=ATTEMPTS_MAX + 1)
    reads = _rows(connection, "page_reads", **of, limit=READS_MAX + 1)
    restates = _rows(connection, "page_restates", topology=name, position=batch.position, limit=RESTATES_MAX)
    return Detail(
        batch=batch,
        attempts=[shown.attempt(row) for row in reversed(attempts[:ATTEMPTS_MAX])],
        more_attempts=len(attempts) > ATTEMPTS_MAX,
        reads=[shown.read(row) for row in reads[:READS_MAX]],
        more_reads=len(reads) > READS_MAX,
        restates=[shown.restatement(row) for row in restates],
        proof=_proof(connection, name, batch),
        given_up_by=_given_up_by(connection, name, batch) if batch.status == "aborted" else None,
        gives_up=_other(connection, "page_gives_up", name, batch, txid) if batch.kind == "skip" else None,
        interval_by=_interval_by(connection, name, batch) if batch.status == "aborted" else None,
        triggered_by=None,
    )


def batch_of(connection: Connection, name: str, txid: int) -> Batch:
    """Return one batch. Raise UnknownName if the topology or the batch is unknown."""
    found = _batches(connection, name, 1, txids=[txid])
    if not found:
        known(connection, name)
        raise UnknownName(f"topology {name!r} has no txid {txid}")
    return found[0]


def intervals(connection: Connection, name: str, start: str | None, end: str | None) -> Intervals:
    """Return the newest intervals beginning in a window of time, and the time not counted between.

    Without a window: the last month, or as much as may be asked for if no interval begins in the last month.
    """
    topology = known(connection, name)
    (whole,) = _rows(connection, "page_span", topology=name)
    window = asked.window(start, end, whole["last"])
    of_all = shown.at(whole["first"]), shown.at(whole["last"])
    if window is None:
        return Intervals(Span(None, None, *of_all), topology["zone"], [], [], False)
    found = _newest(connection, "page_intervals", name, window)
    if not found and start is None:
        window = Window(window.end - timedelta(days=asked.DAYS_MAX), window.end)
        found = _newest(connection, "page_intervals", name, window)
    gaps = _newest(connection, "page_gaps", name, window)
    starts = (found, "interval_start"), (gaps, "gap_start")
    more = [rows[INTERVALS_MAX - 1][column] for rows, column in starts if len(rows) > INTERVALS_MAX]
    begin = max([window.start, *more])
    return Intervals(
        Span(shown.at(begin), shown.at(window.end), *of_all),
        topology["zone"],
        [shown.interval(row) for row in reversed(found[:INTERVALS_MAX]) if row["interval_start"] >= begin],
        [shown.gap(row) for row in reversed(gaps[:INTERVALS_MAX]) if row["gap_end"] > begin],
        bool(more),
    )


def partitions(
    connection: Connection, name: str, txids: tuple[int, int], after: tuple[str, str], search: str
) -> Partitions:
    """Return partitions by name, after a name, and the ranges read by the batches of some txids."""
    known(connection, name)
    stream, partition = after
    page = {"stream": stream, "after": partition, "search": search, "limit": PARTITIONS_MAX + 1}
    found = _rows(connection, "page_partitions", topology=name, **page)
    rows = [shown.partition(row) for row in found[:PARTITIONS_MAX]]
    first, last = txids
    of = {"streams": [row.stream for row in rows], "partitions": [row.partition for row in rows]}
    most = PARTITIONS_MAX * TXIDS_MAX
    cells = _rows(connection, "page_cells", topology=name, first=first, last=last, limit=most, **of)
    goes_on = f"{rows[-1].stream}/{rows[-1].partition}" if len(found) > PARTITIONS_MAX else None
    return Partitions(first, last, rows, [shown.cell(row) for row in cells], goes_on)


def dags_of(name: str, there: dict[str, bool]) -> Dags:
    """Return the DAGs of acts on a topology, among the DAGs of Airflow."""
    verify, rebuild, gc = (each if each in there else None for each in acts_of(name)[1:4])
    return Dags(verify, rebuild, gc or ("txbatch.gc" if "txbatch.gc" in there else None))


def acts_of(name: str) -> list[str]:
    """Return the ids of the DAGs of a topology, the topology's own DAG first."""
    return [name, f"{name}.verify", f"{name}.rebuild", f"{name}.gc", "txbatch.gc"]


def _known(connection: Connection, name: str, statement: str) -> Any:
    found = _rows(connection, statement, topology=name)
    if not found:
        raise unknown_topology(name)
    return found[0]


def _streams(connection: Connection, name: str, fields: dict[str, dict[str, str]]) -> list[Stream]:
    found = _rows(connection, "page_partitioned", topology=name, streams=[*fields])
    partitioned = [row["s"] for row in found]
    return [shown.stream(stream, of, partitioned) for stream, of in fields.items()]


def _proof(connection: Connection, name: str, batch: Batch) -> Proof:
    (row,) = _rows(connection, "page_proof", topology=name, txid=batch.txid)
    counted = batch.status == "committed" and batch.records is not None
    of_partitions = shown.text(row["records"]) if counted else None
    equal = batch.records == of_partitions if counted and of_partitions is not None and not row["rebuilt"] else None
    read = batch.records if counted else None
    return Proof(batch.attempts, row["attempt"], read, of_partitions, equal, row["rebuilt"])


def _given_up_by(connection: Connection, name: str, batch: Batch) -> int | None:
    """Return the txid that counts the records of an aborted batch as read; None if the records were free."""
    found = _other(connection, "page_given_up_by", name, batch, batch.txid)
    # The run may have planned its records anew, and then given these up for the same reason.
    own = found is not None and _other(connection, "page_gives_up", name, batch, found) == batch.txid
    return found if own else None


def _interval_by(connection: Connection, name: str, batch: Batch) -> Successor | None:
    """Return the batch that has all of the interval of an aborted batch now; None without one. A restate held none."""
    if batch.kind == "restate" or batch.start is None:
        return None
    found = _rows(connection, "page_interval_by", topology=name, start=batch.start, end=batch.end)
    return next((Successor(**row) for row in found), None)


def _other(connection: Connection, statement: str, name: str, batch: Batch, txid: int) -> int | None:
    told = {"reason": batch.reason, "run": batch.run, "start": batch.start}
    return next((row["txid"] for row in _rows(connection, statement, topology=name, txid=txid, **told)), None)


def _batches(connection: Connection, name: str, limit: int, **asked_for: Any) -> list[Batch]:
    given = {"before": None, "status": None, "txids": None, **asked_for}
    return [shown.batch(row) for row in _rows(connection, "page_batches", topology=name, limit=limit, **given)]


def _newest(connection: Connection, statement: str, name: str, window: Window) -> list[Any]:
    of = {"topology": name, "start": window.start, "end": window.end}
    return _rows(connection, statement, **of, limit=INTERVALS_MAX + 1)


def _rows(connection: Connection, statement: str, **given: Any) -> list[Any]:
    return list(connection.execute(query(statement), given).mappings())
