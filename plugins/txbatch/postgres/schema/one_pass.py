"""The past of all keys in one pass over all contributions until then, by a hash of keys (R17, R19).

`core.state.fold` defines the same in Python. The cost of a search for each key grows with the keys changed since; the cost of
the pass grows with all contributions. If many keys changed, the pass is quicker. A single key is still found by index: GROUP
BY keys lets conditions on keys through.
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
    """A notion of counting: versions for which `holds`, unless a restate with a `replaced_by` that is so `when` replaced them."""

    holds: str
    when: str


@dataclass(frozen=True, slots=True)
class OnePass:
    """The folds of all keys of a state at some moments; the moment `last` has all versions of the moments."""

    aggregate: PersistentAggregate
    moments: Sequence[Moment]
    last: Moment

    def folds(self) -> str:
        """Return the query of the folds of all keys.

        The columns are keys k0.., the txid that changed the key last, and for each moment: whether the key exists, s0.., and
        partials p0_0.. With one moment, keys without counting versions are left out.
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
        """Return the fold. One moment: only counting versions are read; several moments: each row is checked for each."""
        made = [self._named("v"), *(f"{sql} AS {name}" for name, sql in self._folded.items()), "max(v.txid) AS txid"]
        return f"SELECT {listed(made)} FROM {self._read} GROUP BY {self._keys('v')}"

    @property
    def _folded(self) -> dict[str, str]:
        """Whether a key exists, and the key's partials, at each moment: aggregates over versions by name."""
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
        """The versions; if keys can be removed, with the last position that removed the key at each moment."""
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
        """Return the condition that a version counts and no later position removed the key; None if all versions do."""
        there = [] if len(self.moments) == 1 else [self._counts(self.moments[number])]
        if self.aggregate.removable:
            there += ["v.counted", f"(l.l{number} IS NULL OR v.position >= l.l{number})"]
        return f"({' AND '.join(there)})" if there else None

    def _counts(self, moment: Moment) -> str:
        """Return the condition that a version counts at a moment. The base counts, even if a restate replaced its txid."""
        return f"({moment.holds} AND (v.position = 0 OR v.txid NOT IN ({self._versions.replaced(moment.when)})))"

    def _named(self, alias: str) -> str:
        return listed(f"{alias}.{key} AS k{n}" for n, key in enumerate(self._versions.keys))

    def _keys(self, alias: str) -> str:
        return listed(f"{alias}.{key}" for key in self._versions.keys)

    @property
    def _versions(self) -> Versions:
        return Versions(self.aggregate)
