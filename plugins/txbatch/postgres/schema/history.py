"""The functions on a state's past: as of a txid, changes between two txids, why a value is as it is.

The functions are SQL alone, over views: they run with the caller's rights, and the planner sees into them. Only keys touched
after a txid are folded again; all other keys stand as they are. If `report.far_back` returns that too many keys were touched,
all keys are folded in one pass. `core.state.fold` defines which versions count. In a body the keys are k0, k1, ... and the
partials p0, p1, ...: no name of a state can conflict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from txbatch.core.aggregates.merger import folded_columns
from txbatch.core.records.fields import free_name
from txbatch.core.state.state import changes_columns
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.postgres.database.expressions import listed, pg_name, pg_text, sql_type
from txbatch.postgres.database.functions import Function
from txbatch.postgres.schema.one_pass import Moment, OnePass
from txbatch.postgres.schema.versions import REPLACED, Versions

# What `why` says of the batch of a version, beside what it read.
_OF_BATCH = {
    "attempt": ("text", "b.txid || ':' || b.attempts"),
    "dag_id": ("text", "b.dag_id"),
    "run_id": ("text", "b.run_id"),
    "run": ("text", "b.run"),
    "interval_start": ("timestamp with time zone", "b.interval_start"),
    "interval_end": ("timestamp with time zone", "b.interval_end"),
    "committed_at": ("timestamp with time zone", "b.committed_at"),
    "reason": ("text", "b.reason"),
    "requested_by": ("text", "b.requested_by"),
}


@dataclass(frozen=True, slots=True)
class StateHistory:
    """The functions on the past of a state with contributions. `types` are the PostgreSQL types of the report's columns."""

    aggregate: PersistentAggregate
    types: Mapping[str, str]

    def functions(self) -> list[Function]:
        """Return all functions. If the job's Python merges values, a folding function raises an error with another way to ask."""
        if self.aggregate.by_python:
            return [*self._by_its_job(), self.why()]
        return [self.as_of(), self.corrected(), self.changes(), self.why()]

    def as_of(self) -> Function:
        """Return the function for the report's rows when a txid was the newest final txid."""
        moment = Moment("v.txid <= $1", "<= $1")
        folded = self._folded(self._touched("$1"), [self._not_replaced("<= $1")], self._changed("<= $1"), moment.holds)
        body = self._body("r.txid <= $1", folded, moment)
        return self._dated("as_of", body, "as in reports when this txid was the newest committed txid")

    def corrected(self) -> Function:
        """Return the function for the total of all positions up to a txid, in the current versions."""
        later, moment = "t.position > $1 AND t.txid > $1", Moment("v.position <= $1", REPLACED)
        same = "".join(f" AND t.{key} = r.{key}" for key in self._keys if self.aggregate.keys)
        untouched = f"NOT EXISTS (SELECT FROM {self._versions} t WHERE {later}{same})"
        touched = f"SELECT {self._of('t')} FROM {self._versions} t WHERE {later}"
        folded = self._folded(touched, [self._not_replaced()], self._changed(), moment.holds)
        body = self._body(untouched, folded, moment)
        return self._dated("corrected", body, "after all up to this txid, as it was restated until today")

    def _body(self, untouched: str, folded: str, moment: Moment) -> str:
        """Return the rows of untouched keys and the folded rows of touched keys; or all rows, in one pass."""
        far, known = self._far("$1"), self._known("$1")
        passed = OnePass(self.aggregate, [moment], moment).folds()
        finished = listed(self._finished())
        return " UNION ALL ".join(
            [
                f"SELECT {self._report('r')} FROM report.{self._name} r WHERE {untouched} AND {known} AND NOT {far}",
                f"SELECT {finished} FROM ({folded}) c WHERE c.s0 AND {known} AND NOT {far}",
                f"SELECT {finished} FROM ({passed}) c WHERE c.s0 AND {known} AND {far}",
            ]
        )

    def changes(self) -> Function:
        """Return the function for the keys changed between two txids, with both values."""
        low, high = "LEAST($1, $2)", "GREATEST($1, $2)"
        counted = [f"(v.txid <= {txid} AND {self._not_replaced(f'<= {txid}')})" for txid in ("$1", "$2")]
        folded = self._folded(self._touched(low, high), counted, self._changed(f"<= {high}"), f"v.txid <= {high}")
        one, other, last = (Moment(f"v.txid <= {txid}", f"<= {txid}") for txid in ("$1", "$2", high))
        passed = OnePass(self.aggregate, [one, other], last).folds()
        before, after = ([f"CASE WHEN c.s{n} THEN {value} END" for value in self._values("c", f"{n}_")] for n in (0, 1))
        change = "CASE WHEN NOT c.s0 THEN 'added' WHEN NOT c.s1 THEN 'removed' ELSE 'changed' END"
        selected = listed([*self._shown("c"), change, *_paired(before, after), "c.txid"])
        differ = f"(c.s0, {listed(before)}) IS DISTINCT FROM (c.s1, {listed(after)})"
        asked, far = f"{differ} AND {self._known('$1')} AND {self._known('$2')}", self._far(low, high)
        body = (
            f"SELECT {selected} FROM ({folded}) c WHERE {asked} AND NOT {far} "
            f"UNION ALL SELECT {selected} FROM ({passed}) c WHERE {asked} AND {far}"
        )
        return self._of_changes(body)

    def _of_changes(self, body: str) -> Function:
        returns = self._changed_columns()
        takes = {free_name(name, returns): "bigint" for name in ("from_txid", "to_txid")}
        said = (
            f"What changed in state {self.aggregate.state.name!r} between two txids: one row per key, with both values"
        )
        return Function(self._called("changes"), takes, returns, body, said)

    def _by_its_job(self) -> list[Function]:
        """Return the folding functions of a state merged by Python: each raises an error with the way to ask by the job."""
        asked = f"WHERE report.by_its_job({pg_text(self.aggregate.state.name)})"
        rows, changed = (
            f"SELECT {listed(f'NULL::{type_}' for type_ in types.values())} {asked}"
            for types in (self.types, self._changed_columns())
        )
        said = "are told with its job alone"
        return [self._dated("as_of", rows, said), self._dated("corrected", rows, said), self._of_changes(changed)]

    def _changed_columns(self) -> dict[str, str]:
        values = list(self.aggregate.aggregates)
        types = [
            *self._key_types.values(),
            "text",
            *(self.types[value] for value in values for _ in range(2)),
            "bigint",
        ]
        return dict(zip(changes_columns(list(self._key_types), values), types, strict=True))

    def versions(self, moment: Moment, keys: str | None = None) -> str:
        """Return the versions at a moment, of the keys in the query `keys`, for Python to fold.

        The columns are keys; partials, null if the version does not stand; `txid`, the last change of the key; and `stands`.
        """
        names = [*self._keys, *(pg_name(column.name) for column in self.aggregate.columns)]
        of_keys = f" AND ({listed(f'v.{key}' for key in self._keys)}) IN ({keys})" if keys else ""
        read = self._read([self._not_replaced(moment.when)], self._changed(moment.when), moment.holds + of_keys)
        stands = self._stands(0)
        values = [f"r.k{n}" for n in range(len(self._keys))]
        values += [f"CASE WHEN {stands} THEN r.p{n} END" for n in range(len(self.aggregate.columns))]
        selected = listed(f"{sql} AS {name}" for sql, name in zip(values, names, strict=True))
        return f"SELECT {selected}, r.changed AS txid, {stands} AS stands FROM ({read}) r"

    def touched(self, low: str, high: str) -> str:
        """Return the keys changed after a txid, up to another txid."""
        return self._touched(low, high)

    def why(self) -> Function:
        """Return the function for every version of every position of a key, and the key's base folded by retention."""
        read = self._read([self._not_replaced()], "v.txid", " AND ".join(self._of_key()))
        values = {name: self.types[name] for name in self.aggregate.aggregates}
        taken = [*self._key_types, *values]
        numbers = {"position": "bigint", "txid": "bigint", free_name("replaced_by", taken): "bigint"}
        about = {free_name(name, taken): column for name, column in self._about_version().items()}
        selected = [
            "NULLIF(r.position, 0)",
            "r.txid",
            "b.replaced_by",
            *self._values("r", ""),
            *(sql for _, sql in about.values()),
        ]
        found = f"b.topology = {self._topology} AND b.txid = r.txid AND r.position > 0"
        batch = f"LATERAL (SELECT * FROM report.batches b WHERE {found} OFFSET 0) b ON true"  # a search per row, no scan of all
        whole = f"report.of_one_generation({pg_text(self.aggregate.state.name)})"
        body = f"SELECT {listed(selected)} FROM ({read}) r LEFT JOIN {batch} WHERE {whole} ORDER BY r.position, r.txid"
        said = (
            f"Where a value of state {self.aggregate.state.name!r} comes from: one row per version of each position, those that "
            "count and those that were restated; without a position: what retention folded"
        )
        returns = numbers | values | {name: type_ for name, (type_, _) in about.items()}
        return Function(self._called("why"), self._key_types, returns, body, said)

    def _of_key(self) -> list[str]:
        """Return the conditions for the versions of a key."""
        return [f"v.{name} = ${n}" for n, name in enumerate(self._keys, 1)] if self.aggregate.keys else ["true"]

    def _about_version(self) -> dict[str, tuple[str, str]]:
        """Return the columns of `why` on a version, beside numbers and values: types and SQL by name."""
        of_several = "CASE WHEN count(s.stream) OVER (PARTITION BY s.source) > 1 THEN '(stream ' || s.stream || ')' END"
        source = f"concat_ws(' ', s.source, {of_several}, s.start_offset || '-' || s.end_offset)"
        of_batch = f"s.topology = {self._topology} AND s.txid = r.txid AND r.position > 0"
        reads = f"ARRAY(SELECT {source} FROM report.batch_reads s WHERE {of_batch} ORDER BY 1)"
        marks = {name: ("boolean", f"r.{name}") for name in ("removed", "counted") if self.aggregate.removable}
        return {"counts": ("boolean", self._stands(0)), **marks, **_OF_BATCH, "reads": ("text[]", reads)}

    def _dated(self, prefix: str, body: str, said: str) -> Function:
        told = f"Keys and values of state {self.aggregate.state.name!r} {said}"
        return Function(self._called(prefix), {"txid": "bigint"}, f"report.{self._name}", body, told)

    def _folded(self, touched: str, counted: Sequence[str], changed: str, where: str) -> str:
        """Return the query of the folds of touched keys, by one search for each key.

        The columns are keys k0.., the last txid, and for each notion of counting: whether the key exists, s0.., and partials
        p0_0.. Untouched keys are never read, whatever number of keys the planner expects.
        """
        made = []
        for number in range(len(counted)):
            stands = self._stands(number)
            made.append(f"bool_or({stands}) AS s{number}")
            columns = self.aggregate.columns
            merges = folded_columns(
                self.aggregate.merges, [f"(CASE WHEN {stands} THEN r.p{n} END)" for n in range(len(columns))]
            )
            for n, (column, merge) in enumerate(zip(columns, merges, strict=True)):
                made.append(f"CAST({merge} AS {sql_type(column.partial.type)}) AS p{number}_{n}")
        keys = listed(f"t.{key} AS k{n}" for n, key in enumerate(self._keys))
        same = " AND ".join(f"v.{key} = k.k{n}" for n, key in enumerate(self._keys))
        read = self._read(counted, changed, f"{same} AND {where}")
        of_key = f"SELECT {listed([*made, 'max(r.changed) AS txid'])} FROM ({read}) r"
        order = listed(
            f"k{n}" for n in range(len(self._keys))
        )  # contributions of a txid stand by key, and so neighbours do
        once = f"SELECT DISTINCT {keys} FROM ({touched}) t ORDER BY {order}"
        return f"SELECT k.*, f.* FROM ({once}) k CROSS JOIN LATERAL ({of_key}) f"

    def _read(self, counted: Sequence[str], changed: str, where: str) -> str:
        """Return the versions found by `where`, with c0..: whether the version counts, by each notion of counting."""
        names = [f"v.{key} AS k{n}" for n, key in enumerate(self._keys)]
        names += [f"v.{pg_name(column.name)} AS p{n}" for n, column in enumerate(self.aggregate.columns)]
        names += [f"{sql} AS c{n}" for n, sql in enumerate(counted)]
        names += ["v.removed", "v.counted"] if self.aggregate.removable else []
        names += ["v.position", "v.txid", f"{changed} AS changed"]
        read = f"SELECT {listed(names)} FROM {self._versions} v WHERE {where}"
        if not self.aggregate.removable:
            return read
        keys = listed(f"w.k{n}" for n in range(len(self._keys)))
        last = [
            f"max(w.position) FILTER (WHERE w.removed AND w.c{n}) OVER (PARTITION BY {keys}) AS l{n}"
            for n in range(len(counted))
        ]
        return f"SELECT w.*, {listed(last)} FROM ({read}) w"

    def _stands(self, number: int) -> str:
        """Return the condition that a version counts and no later position removed the key."""
        if not self.aggregate.removable:
            return f"r.c{number}"
        return f"(r.c{number} AND r.counted AND (r.l{number} IS NULL OR r.position >= r.l{number}))"

    def _not_replaced(self, when: str = REPLACED) -> str:
        # The base's txid says when a key changed last: often that of a restate, which another restate may have replaced.
        return f"(v.position = 0 OR v.txid <> ALL ({self._replaced(when)}))"

    def _changed(self, when: str = REPLACED) -> str:
        """Return the SQL of the txid that changed a key last, by a version read."""
        later = f"(SELECT b.replaced_by FROM report.batches b WHERE b.topology = {self._topology} AND b.txid = v.txid)"
        return f"CASE WHEN v.position > 0 AND v.txid = ANY ({self._replaced(when)}) THEN {later} ELSE v.txid END"

    def _touched(self, low: str, high: str | None = None) -> str:
        """Return the keys of contributions after a txid, or of restates after the txid; up to another txid."""
        until = f" AND t.txid <= {high}" if high else ""
        replaced = f"> {low} AND b.replaced_by <= {high}" if high else f"> {low}"
        later, again = f"t.txid > {low}{until}", f"t.txid = ANY ({self._replaced(replaced)})"
        # No row of the base has a position: it is not read for this.
        return " UNION ALL ".join(
            f"SELECT {self._of('t')} FROM {self._versions} t WHERE t.position > 0 AND {each}" for each in (later, again)
        )

    def _replaced(self, when: str = REPLACED) -> str:
        """Return the SQL of the txids replaced by a restate."""
        return f"ARRAY({Versions(self.aggregate).replaced(when)})"

    def _far(self, low: str, high: str | None = None) -> str:
        """Return the condition that too many keys changed after a txid, up to another txid: one pass over all keys is quicker."""
        return f"report.far_back({listed([pg_text(self.aggregate.state.name), low, *([high] if high else [])])})"

    def _known(self, txid: str) -> str:
        return f"report.known_at({pg_text(self.aggregate.state.name)}, {txid})"

    def _of(self, alias: str) -> str:
        return listed(f"{alias}.{key}" for key in self._keys)

    def _report(self, alias: str) -> str:
        return listed(f"{alias}.{pg_name(name)}" for name in self.types)

    def _finished(self) -> list[str]:
        """Return the report's columns, in the report's order, over folded rows."""
        keys = dict(zip((key.name for key in self.aggregate.keys), self._shown("c"), strict=True))
        values = dict(zip(self.aggregate.aggregates, self._values("c", "0_"), strict=True))
        finished = {**keys, **self.aggregate.window_end(keys), **values, "txid": "c.txid"}
        return [finished[name] for name in self.types]

    def _shown(self, alias: str) -> list[str]:
        return [f"{alias}.k{n}" for n in range(len(self.aggregate.keys))]

    def _values(self, alias: str, prefix: str) -> list[str]:
        """Return the finished values, over partials whose names begin with p and `prefix`."""
        columns = self.aggregate.columns
        return [
            each.finish_sql([f"{alias}.p{prefix}{n}" for n, column in enumerate(columns) if column.value == name])
            for name, each in self.aggregate.aggregates.items()
        ]

    def _called(self, prefix: str) -> str:
        return f"{prefix}_{self.aggregate.state.name}"

    @property
    def _key_types(self) -> dict[str, str]:
        return {key.name: self.types[key.name] for key in self.aggregate.keys}

    @property
    def _keys(self) -> list[str]:
        return Versions(self.aggregate).keys

    @property
    def _name(self) -> str:
        return pg_name(self.aggregate.state.name)

    @property
    def _versions(self) -> str:
        return Versions(self.aggregate).view

    @property
    def _topology(self) -> str:
        return Versions(self.aggregate).topology


def _paired(before: Sequence[str], after: Sequence[str]) -> list[str]:
    return [each for pair in zip(before, after, strict=True) for each in pair]
