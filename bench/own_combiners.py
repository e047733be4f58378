"""What a user's own combiner costs, in the commit and in Spark, against aggregates that keep the same numbers by SQL."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from bench import batches, extras
from bench.database import Server, server
from bench.measure import Figure, Stopwatch, interleaved
from bench.plan import told
from bench.results import Results
from bench.tally import Tally
from bench.words import Words
from txbatch.core.aggregates.aggregator import Count, Max, Sum
from txbatch.core.state.state import OpaqueState
from txbatch.core.topology.topology import Topology
from txbatch.launch.submission import LOCAL_MASTER

ROWS, KEYS = 100_000, 1_000_000
VALUES: Mapping[str, Mapping[str, Any]] = {
    "by_sql": {"number": Count(), "total": Sum("n"), "greatest": Max("n")},
    "by_python": {"tally": Tally("n")},
}
# The stored columns of each, for a key that was there three times.
COLUMNS = {
    "by_sql": {"number": 3, "total": 30, "greatest": 20},
    "by_python": {"tally_number": 3, "tally_total": 30, "tally_greatest": 20, "tally": 30},
}


class NumbersSpout(batches.NumberedSpout):
    """The same with a number."""

    fields = "key string, n bigint"


@dataclass(frozen=True)
class Case:
    """A batch of keys, all of them in the state already."""

    running: Server
    kind: str

    @property
    def topology(self) -> Topology:
        """The topology, whose state has no contributions."""
        made = Topology("bench")
        grouped = made.new_stream("keys", NumbersSpout()).group_by("key")
        grouped.persistent_aggregate(OpaqueState("counts", contributions=False), **VALUES[self.kind])
        return made

    @property
    def partials(self) -> pa.Table:
        """The batch, in no order."""
        keys = batches.table(batches.key_numbers(ROWS, KEYS, 1.0)).column("key")
        return self._with_values(keys)

    def fill(self) -> None:
        """Make the database that copies are made of."""
        nothing, rows = self._with_values(pa.array([], pa.string())), batches.keyed(COLUMNS[self.kind], KEYS)
        batches.fill_by(self.running, self.kind, self.topology, nothing, rows)

    def commit(self, watch: Stopwatch) -> None:
        """All that the commit task does."""
        batches.timed_commit(self.running, self.kind, self.topology, self.partials, watch)

    def _with_values(self, keys: pa.Array) -> pa.Table:
        columns = {name: pa.array([value] * len(keys), pa.int64()) for name, value in COLUMNS[self.kind].items()}
        return pa.table({"key": keys, **columns})


def measure_commit(section: str, results: Results) -> None:
    """Both into the same million keys."""
    with server() as running:
        cases = {kind: Case(running, kind) for kind in VALUES}
        for case in cases.values():
            case.fill()
        contestants = {f"commit {kind}": case.commit for kind, case in cases.items()}
        results.add(section, interleaved(contestants), [_ratio("commit of 100 k keys", "commit")], rows=ROWS, keys=KEYS)


def measure_spark(section: str, results: Results) -> None:
    """A million records, a hundred thousand keys, in one warm session."""
    what = Words.submission()
    conf = [part for name, value in what.conf.items() for part in ("--conf", f"{name}={value}")]
    with tempfile.TemporaryDirectory(prefix="txbatch-bench.") as home:
        program = [str(extras.PROGRAMS / "own_combiners.py"), f"{home}/records"]
        command = [extras.spark_submit(), "--master", LOCAL_MASTER, *conf, "--py-files", what.py_files, *program]
        results.add(section, told(command, what.environment), [_ratio("partials of 1 M records", "partials")])


def _ratio(what: str, name: str) -> Figure:
    return Figure(f"{what}, own combiner / aggregates by SQL", f"{name} by_python", f"{name} by_sql", 2.0, 1.5)


SECTIONS = {"own combiner, commit": measure_commit, "own combiner, Spark": measure_spark}
