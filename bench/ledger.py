"""What a batch costs the ledger: initialize, fence and empty commit, from txid 10 to txid 10,000 on a real PostgreSQL.

Each txid is planned, emitted and committed for real, on an embedded PostgreSQL of its own as it is installed (fsync on).
Beside its figures the section leaves bench/results/ledger/curve.json, the medians of each thousand txids, and curve.svg.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.measure import Figure, Stopwatch
from bench.results import FOLDER, Results, machine
from txbatch import Count, PartitionedSpout, Topology, TransactionalState
from txbatch.core.batch.manifest import Manifest, ReadPartition, StagedState
from txbatch.core.batch.transaction import Assignment, Batch, Metadata, Run, TransactionAttempt
from txbatch.core.protocol import coordinator
from txbatch.core.stored_json import digest
from txbatch.embedded import postgres
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.migrate import migrate
from txbatch.postgres.ledger import PostgresLedger

RESULTS = FOLDER / "ledger"
PARTITIONS, FIRST, BUCKET = 4, 10, 1_000
MOST_MS = 50.0
STEPS = ("initialize", "fence", "commit")
CODE = digest("bench")


class Ticks(PartitionedSpout):
    """Partitions that always have one more."""

    fields = "word string"

    @property
    def identity(self) -> Metadata:
        return {"spout": "Ticks"}

    def partitions(self) -> Sequence[str]:
        return [str(number) for number in range(PARTITIONS)]

    def emit_partition_batch_new(
        self, attempt: TransactionAttempt, partition: str, last_metadata: Metadata | None
    ) -> Metadata:
        start = last_metadata["end"] if last_metadata else 0
        return {"start": start, "end": start + 1}

    def emit_partition_batch(self, *_: Any) -> Any:
        raise AssertionError("planned only")


def one_batch(ledger: PostgresLedger, topology: Topology, run: Run) -> dict[str, float]:
    """A batch through all its steps; milliseconds of those that are measured. Success and the manifest are not."""
    spent: dict[str, float] = {}

    def timed(step: str, call: Callable[..., Any], *arguments: Any) -> Any:
        began = time.perf_counter()
        try:
            return call(*arguments)
        finally:
            spent[step] = spent.get(step, 0.0) + 1000 * (time.perf_counter() - began)

    timed("initialize", ledger.register, topology, "bench/ledger.py")
    batch = timed("initialize", coordinator.initialize_transaction, ledger, topology, run)
    assert isinstance(batch, Batch)
    assignment = timed("fence", ledger.start_attempt, batch, run, CODE)
    emitted = ledger.record_manifests([(assignment, manifest_of(assignment))])[0]
    assert timed("commit", ledger.commit, topology, emitted, {"ticks": []}).applied
    assert ledger.success(topology.name, batch.txid)
    return spent


def manifest_of(assignment: Assignment) -> Manifest:
    """Of an attempt that found nothing to count."""
    read = {name: ReadPartition(1, "1") for name in assignment.metadata["streams"]["ticks"]["partitions"]}
    identity = (assignment.topology, assignment.attempt, assignment.token, assignment.code, assignment.digest)
    return Manifest(*identity, streams={"ticks": read}, states={"ticks": StagedState((), 0, {"count": None})})


def measure(url: str, txids: int) -> list[dict[str, float]]:
    """Of each txid, in order, what its steps took."""
    engine = connect(url, application_name="txbatch bench")
    migrate(engine)
    topology = Topology("ticks")
    topology.new_stream("ticks", Ticks()).group_by("word").persistent_aggregate(
        TransactionalState("ticks"), count=Count()
    )
    ledger = PostgresLedger(engine)
    return [one_batch(ledger, topology, Run(f"bench:{number}")) for number in range(1, txids + 1)]


def buckets(measured: Sequence[dict[str, float]]) -> list[dict[str, float]]:
    """The medians of each thousand."""
    found = []
    for first in range(0, len(measured), BUCKET):
        rows = measured[max(first, FIRST - 1) : first + BUCKET]
        medians = {step: round(median(row[step] for row in rows), 2) for step in STEPS}
        together = round(median(sum(row.values()) for row in rows), 2)
        found.append(
            {
                "from_txid": max(first + 1, FIRST),
                "to_txid": min(first + BUCKET, len(measured)),
                **medians,
                "together": together,
            }
        )
    return found


def draw(curve: Sequence[dict[str, float]], target: Path) -> None:
    """The curve, as SVG."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4))
    for step in (*STEPS, "together"):
        axes.plot([each["to_txid"] for each in curve], [each[step] for each in curve], marker="o", label=step)
    axes.axhline(MOST_MS, color="grey", linestyle="--", linewidth=1)
    axes.set(xlabel="txid", ylabel="ms (median of a thousand)", ylim=(0, MOST_MS * 1.1))
    axes.set_title("What a batch costs the ledger")
    axes.legend(ncols=2)
    figure.savefig(target, metadata={"Date": None})


def growth(section: str, results: Results, txids: int = 10_000) -> None:
    """The last thousand txids against the first, and the curve between them."""
    with tempfile.TemporaryDirectory(prefix="txbatch-bench.") as home:
        try:
            measured = measure(postgres.start(Path(home)), txids)
        finally:
            postgres.stop(Path(home))
    curve = buckets(measured)
    for each in curve:
        print("    " + " ".join(f"{name} {value:>8}" for name, value in each.items()), flush=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    said = {"txids": txids, "load": round(os.getloadavg()[0], 1), "machine": machine(), "medians_ms": curve}
    (RESULTS / "curve.json").write_text(json.dumps(said, indent=1) + "\n")
    draw(curve, RESULTS / "curve.svg")
    ends = {"first thousand": curve[0], "last thousand": curve[-1]}
    results.add(section, {name: [Stopwatch(each["together"] / 1000)] for name, each in ends.items()}, FIGURES)


FIGURES = [
    Figure("initialize + fence + empty commit at txid 10,000, ms", "last thousand", None, MOST_MS, 15),
    Figure("the same at txid 10,000 / at txid 1,000", "last thousand", "first thousand", 1.5, 1.1),
]
SECTIONS = {"growth with txids": growth}
