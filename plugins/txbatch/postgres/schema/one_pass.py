"""The past of all keys in one pass over what was contributed until then, by a hash of keys (R17, R19). `core.state.fold`
says the same.

A search for each key costs by the keys that changed since, the pass by all contributions: where much changed, it is quicker.
A key that is asked for is still found by index: what groups by keys lets a condition on them through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from txbatch.core.aggregates.merger import hashed
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.postgres.database.expressions import listed, pg_name, sql_type
from txbatch.postgres.schema.versions import Versions


@dataclass(frozen=True, slots=True)
class Moment:
    """A notion of what counts: versions for which `holds`, unless a restate replaced them, whose `replaced_by` is so `when`."""

    holds: str
    when: str


@dataclass(frozen=True, slots=True)
class OnePass:
    """The folds of all keys of a state at some moments, of which the `last` has all versions of the others."""

    aggregate: PersistentAggregate
    moments: Sequence[Moment]
    last: Moment

    def folds(self) -> str:
        """Return keys k0.., whether they are there, s0.., their partials p0_0.., per moment, and the txid that changed them last.

        At one moment, keys of which nothing counts are left out.
        """
        versions, keys = self._versions, range(len(self._versions.keys))
        later = f"SELECT b.txid, b.replaced_by FROM report.batches b WHERE b.topology = {versions.topology}"
        taken = (
            f"SELECT {self._named('v')}, max(b.replaced_by) AS txid FROM {versions.view} v "
            f"JOIN ({later} AND b.replaced_by {self.last.when}) b ON b.txid = v.txid "
            f"WHERE v.position > 0 AND {self.last.holds} GROUP BY {self._keys('v')}"
        )
        columns = [f"f.k{n}" for n in keys] + [f"f.{name}" for name in self._folded]
        same = " AND ".join(f"d.k{n} = f.k{n}" for n in keys)
        dated = f"SELECT {listed(columns)}, GREATEST(f.txid, d.txid) AS txid"
        return f"{dated} FROM ({self._fold()}) f LEFT JOIN ({taken}) d ON {same}"

    def _fold(self) -> str:
        """Of one moment, only what counts is read; of several, what counts at each is chosen row by row."""
        made = [self._named("v"), *(f"{sql} AS {name}" for name, sql in self._folded.items()), "max(v.txid) AS txid"]
        return f"SELECT {listed(made)} FROM {self._read} GROUP BY {self._keys('v')}"

    @property
    def _folded(self) -> dict[str, str]:
        """Whether a key is there, and its partials, at each moment: aggregates over versions by name."""
        columns, found = self.aggregate.columns, {}
        types = [column.partial.type for column in columns]
        for number in range(len(self.moments)):
            stands, values = self._stands(number), [f"v.{pg_name(column.name)}" for column in columns]
            if stands is not None:
                values = [f"(CASE WHEN {stands} THEN {value} END)" for value in values]
            found[f"s{number}"] = "true" if stands is None else f"bool_or({stands})"
            for n, merge in enumerate(hashed(self.aggregate.merges, values, types)):
                found[f"p{number}_{n}"] = f"CAST({merge} AS {sql_type(types[n])})"
        return found

    @property
    def _read(self) -> str:
        """The versions; where keys can be removed, with the last position that did it at each moment."""
        view, where = self._versions.view, self._where
        if not self.aggregate.removable:
            return f"{view} v WHERE {where}"
        last = [f"max(v.position) FILTER (WHERE {self._counts(each)}) AS l{n}" for n, each in enumerate(self.moments)]
        removed = f"SELECT {listed([self._named('v'), *last])} FROM {view} v WHERE v.removed AND {where}"
        same = " AND ".join(f"l.k{n} = v.{key}" for n, key in enumerate(self._versions.keys))
        return f"{view} v LEFT JOIN ({removed} GROUP BY {self._keys('v')}) l ON {same} WHERE {where}"

    @property
    def _where(self) -> str:
        return self._counts(self.last) if len(self.moments) == 1 else self.last.holds

    def _stands(self, number: int) -> str | None:
        """Whether a version that is read counts, and no later position removed the key; None: all do."""
        there = [] if len(self.moments) == 1 else [self._counts(self.moments[number])]
        if self.aggregate.removable:
            there += ["v.counted", f"(l.l{number} IS NULL OR v.position >= l.l{number})"]
        return f"({' AND '.join(there)})" if there else None

    def _counts(self, moment: Moment) -> str:
        """Whether a version counts at a moment. What was folded does, also where its txid, a restate's, was replaced."""
        return f"({moment.holds} AND (v.position = 0 OR v.txid NOT IN ({self._versions.replaced(moment.when)})))"

    def _named(self, alias: str) -> str:
        return listed(f"{alias}.{key} AS k{n}" for n, key in enumerate(self._versions.keys))

    def _keys(self, alias: str) -> str:
        return listed(f"{alias}.{key}" for key in self._versions.keys)

    @property
    def _versions(self) -> Versions:
        return Versions(self.aggregate)
