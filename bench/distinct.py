"""What a commit costs that merges the hashes of distinct counts in PostgreSQL, against one that adds a count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from bench import batches
from bench.database import Server, server
from bench.measure import Figure, Stopwatch, interleaved
from bench.results import Results
from txbatch.core.aggregates.aggregator import Count
from txbatch.core.aggregates.approx_distinct import ApproxCountDistinct
from txbatch.core.state.state import OpaqueState
from txbatch.core.topology.topology import Topology

KEYS, MORE = 2_000, 30
# A hash of a key's n-th value, in SQL.
_HASH = "('x' || left(md5(i || ':' || n), 15))::bit(60)::bigint"


class ValuesSpout(batches.NumberedSpout):
    """The same with a value."""

    fields = "key string, value string"


@dataclass(frozen=True)
class Case:
    """A batch of all keys of a state, which brings 30 values of each; the state has so many hashes of each key, None: a count."""

    running: Server
    database: str
    hashes: int | None

    @property
    def topology(self) -> Topology:
        """The topology, whose state has no contributions."""
        made = Topology("bench")
        grouped = made.new_stream("keys", ValuesSpout()).group_by("key")
        value: Any = Count() if self.hashes is None else ApproxCountDistinct("value")
        grouped.persistent_aggregate(OpaqueState("counts", contributions=False), value=value)
        return made

    def fill(self) -> None:
        """Make the database that copies are made of."""
        columns: dict[str, object] = {"value": MORE}
        if self.hashes is not None:
            hashes = f"SELECT array_agg({_HASH} ORDER BY {_HASH}) FROM generate_series(1, {self.hashes}) n"
            columns = {"value_hashes": f"({hashes})"}
        rows = batches.keyed(columns, KEYS)
        batches.fill_by(self.running, self.database, self.topology, self._partials(0), rows)

    def commit(self, watch: Stopwatch) -> None:
        """All that the commit task does."""
        batches.timed_commit(self.running, self.database, self.topology, self._partials(KEYS), watch)

    def _partials(self, keys: int) -> pa.Table:
        names = pa.array([batches.KEY % number for number in range(keys)], pa.string())
        if self.hashes is None:
            return pa.table({"key": names, "value": pa.array([MORE] * keys, pa.int64())})
        of = ApproxCountDistinct("value")
        found = [sorted(of.init(f"{key} {n}")[0][0] for n in range(MORE)) for key in range(keys)]
        return pa.table({"key": names, "value_hashes": pa.array(found, pa.list_(pa.int64()))})


def measure(section: str, results: Results) -> None:
    """The same keys with a count, with few hashes, and with all the hashes that are kept."""
    with server() as running:
        cases = {
            "a count": Case(running, "counted", None),
            "100 hashes": Case(running, "few_hashes", 100),
            "2,048 hashes": Case(running, "many_hashes", 2_048),
        }
        for case in cases.values():
            case.fill()
        contestants = {name: case.commit for name, case in cases.items()}
        figures = [
            Figure(f"commit of {KEYS:,} keys, {name} each / a count", name, "a count") for name in list(cases)[1:]
        ]
        results.add(section, interleaved(contestants), figures, keys=KEYS, values=MORE)


SECTIONS = {"distinct counts, commit": measure}
