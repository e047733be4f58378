"""Planning a thousand batches ahead: of ten small files each, and of an hour each of one CSV file.

Once all at once, and of the files as `txbatch run --until-idle` plans them: train by train, with a look at the folder for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path

from bench import batches
from bench.database import Server, server
from bench.measure import Figure, Stopwatch, interleaved
from bench.results import Results
from bench.small_files import BATCHES, FILES, write
from txbatch.core.aggregates.aggregator import Count
from txbatch.core.batch.transaction import Interval, Run
from txbatch.core.protocol import bulk, planning_ahead
from txbatch.core.sources.spout import Spout
from txbatch.core.state.state import OpaqueState
from txbatch.core.topology.topology import Topology
from txbatch.postgres.database.engine import connect
from txbatch.postgres.database.migrate import migrate
from txbatch.postgres.ledger import PostgresLedger
from txbatch.spouts.file import FileSpout
from txbatch.spouts.interval import IntervalSpout

TRAINS = list(islice(bulk.lengths(), BATCHES // bulk.BATCHES_FIRST))  # more than are needed
START, HOUR = datetime(2026, 1, 1, tzinfo=UTC), timedelta(hours=1)


def measure(section: str, results: Results) -> None:
    """Each from a new ledger, in this process, which has a connection."""
    with server() as running:
        running.run("CREATE DATABASE migrated")
        engine = connect(running.url_of("migrated"))
        migrate(engine)
        engine.dispose()
        files = _by_file(write(running.home / "files"))
        hours = _by_hour(running.home)
        named = [Run(f"bench+{number}") for number in range(BATCHES)]
        timed = [_of_hour(run, START + number * HOUR) for number, run in enumerate(named)]
        contestants = {
            "files": partial(_planned, running, files, named, [BATCHES]),
            "files, in trains": partial(_planned, running, files, named, TRAINS),
            "hours": partial(_planned, running, hours, timed, [BATCHES]),
        }
        results.add(section, interleaved(contestants), FIGURES, batches=BATCHES, files=FILES)


def _planned(
    running: Server, topology: Topology, runs: Sequence[Run], lengths: Sequence[int], watch: Stopwatch
) -> None:
    with running.copy_of("migrated") as database:
        engine = connect(running.url_of(database))
        ledger = PostgresLedger(engine)
        ledger.register(topology, batches.JOB)
        with watch.timed():
            txids = list[int]()
            for length in lengths:
                left = runs[len(txids) : len(txids) + length]
                txids += [batch.txid for batch in planning_ahead.initialize_many(ledger, topology, left, txids, length)]
                if len(txids) == len(runs):
                    break
        engine.dispose()
    assert txids == list(range(1, len(runs) + 1)), len(txids)


def _by_file(root: Path) -> Topology:
    return _counted(FileSpout(root, files_per_batch=FILES // BATCHES), "line")


def _by_hour(home: Path) -> Topology:
    file = home / "visits.csv"
    file.write_text("".join(f"{(START + number * HOUR).isoformat()},shop\n" for number in range(BATCHES)))
    return _counted(IntervalSpout(file, "at timestamp, shop string", time="at", format="csv"), "shop")


def _counted(spout: Spout, key: str) -> Topology:
    topology = Topology("planned")
    topology.new_stream("records", spout).group_by(key).persistent_aggregate(OpaqueState("counts"), count=Count())
    return topology


def _of_hour(run: Run, start: datetime) -> Run:
    return Run(run.name, interval=Interval(start, start + HOUR))


FIGURES = [
    Figure(f"planning {BATCHES:,} batches at once, of 10 of {FILES:,} files, s", "files", None, 2, 1, unit=1),
    Figure("the same train by train, s", "files, in trains", None, 2, 1, unit=1),
    Figure(f"planning {BATCHES:,} batches at once, by the hour, s", "hours", None, 2, 1, unit=1),
]
SECTIONS = {"planning 1,000 batches": measure}
