"""Users' own combiners in Spark: Python makes partials in each partition of Spark, and combines partials behind the shuffle.

Both steps see batches of Arrow, with any keys inside: a function called for each group takes twenty times as long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from txbatch.arrow import arrow_type
from txbatch.core import garbage
from txbatch.core.aggregates.aggregator import CombinerAggregator
from txbatch.core.aggregates.merge import Partial
from txbatch.core.aggregates.python_combiner import OwnCombiner
from txbatch.core.records.fields import Field
from txbatch.spark.failures import raise_for
from txbatch.spark.frames import ddl

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

# How many records a row stands for: 1 each, and 0 of one that brings partials beside them.
STANDS_FOR = "_txbatch_stands_for"
IS_RECORD = f"({STANDS_FOR} > 0)"
_OWN = "_txbatch_own_"
# So many keys are held by a task at a time; what it has of them goes on, to be combined after the shuffle.
_KEYS_MAX = 500_000
Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Own:
    """A value made by a user's own combiner: `names` are the value's columns, `where` is the column of counting records."""

    number: int
    aggregator: OwnCombiner
    names: Sequence[str]
    where: str | None

    @property
    def column(self) -> str:
        """The column of partials: one partial in a row, later a list of partials."""
        return f"{_OWN}{self.number}"

    @property
    def collected(self) -> str:
        """The Spark SQL to collect the partials of a key."""
        return f"collect_list({self.column})"

    @property
    def type(self) -> str:
        """The type of a partial."""
        return f"struct<{','.join(f'p{n}:{field.type}' for n, field in enumerate(self.aggregator.fields))}>"

    @property
    def made(self) -> list[Field]:
        """The columns of the finished value."""
        outputs = zip(self.names, self.aggregator.outputs, strict=True)
        return [Field(name, output.type) for name, output in outputs]


def own_values(
    aggregates: Mapping[str, CombinerAggregator], where: Mapping[str, str], names: Mapping[str, Sequence[str]]
) -> list[Own]:
    """Return the values made by users' own combiners, given the names of the columns."""
    return [
        Own(number, each, names[value], where.get(value))
        for number, (value, each) in enumerate(aggregates.items())
        if isinstance(each, OwnCombiner)
    ]


def with_partials(
    frame: DataFrame, keys: Sequence[str], owns: Sequence[Own], *, records: bool, removes: str | None = None
) -> DataFrame:
    """Return rows with the partials of each Spark partition by key; with `records`, beside the records.

    `removes` names the column of records that remove a key; removing records are not looked at.
    """
    names, types = list(frame.columns), dict(frame.dtypes)
    kept = names if records else list(keys)
    made = [*(Field(name, types[name]) for name in kept), Field(STANDS_FOR, "bigint")]
    made += [Field(own.column, own.type) for own in owns]
    numbered = [Field(f"c{number}", field.type) for number, field in enumerate(made)]
    task = partial(_Task, names, kept, list(keys), owns, records, removes)
    rows = frame.toDF(*(f"c{number}" for number in range(len(names))))
    return rows.mapInArrow(lambda batches: task().run(batches), ddl(numbered)).toDF(*(field.name for field in made))


def together(grouped: DataFrame, owns: Sequence[Own], *, removable: bool = False) -> DataFrame:
    """Return the rows of keys with the combined partials. If keys are `removable`, a key without partials has null."""
    if not owns:
        return grouped
    names, types = list(grouped.columns), dict(grouped.dtypes)
    lists = [own.column for own in owns]
    made = [Field(name, types[name]) for name in names if name not in lists]
    made += [field for own in owns for field in own.made]
    numbered = [Field(f"c{number}", field.type) for number, field in enumerate(made)]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            columns = dict(zip(names, batch.columns, strict=True))
            arrays = [column for name, column in columns.items() if name not in lists]
            with garbage.without_gc():
                for own in owns:
                    arrays += _whole(own.aggregator, list(_listed(columns[own.column])), removable)
            yield pa.record_batch(arrays, names=[field.name for field in numbered])

    frame = grouped.toDF(*(f"c{number}" for number in range(len(names))))
    return frame.mapInArrow(run, ddl(numbered)).toDF(*(field.name for field in made))


class _Task:
    """A Spark task's partition: for each value, the partials by key."""

    def __init__(
        self,
        names: Sequence[str],
        kept: Sequence[str],
        keys: Sequence[str],
        owns: Sequence[Own],
        records: bool,
        removes: str | None,
    ) -> None:
        self.names, self.kept, self.keys, self.owns, self.records, self.removes = (
            names,
            kept,
            keys,
            owns,
            records,
            removes,
        )
        self.counts: Counter[Key] = Counter()
        self.found: list[dict[Key, Partial]] = [{} for _ in owns]
        self.types: dict[str, pa.DataType] = {}

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the records, if asked for, and the partials."""
        with garbage.without_gc():
            yield from self._run(batches)

    def _run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.types = dict(zip(self.names, batch.schema.types, strict=True))
            columns = dict(zip(self.names, batch.columns, strict=True))
            keys = _rows(columns, self.keys, batch.num_rows)
            for own, found in zip(self.owns, self.found, strict=True):
                self._add(own, found, keys, columns)
            if self.records:
                yield self._batch(
                    [columns[name] for name in self.kept], [1] * len(keys), [[None] * len(keys)] * len(self.owns)
                )
            else:
                self.counts.update(keys)
            if max(len(self.counts), *(len(found) for found in self.found)) >= _KEYS_MAX:
                yield self._partials()
        if self.types:
            yield self._partials()

    def _add(self, own: Own, found: dict[Key, Partial], keys: Sequence[Key], columns: Mapping[str, Any]) -> None:
        given, nothing = own.aggregator.given, own.aggregator.nothing
        alone = given.input if type(given).init_of is CombinerAggregator.init_of else None
        inputs = [alone] if alone else list(given.inputs)
        init: Callable[[Any], Partial | None] = given.init if alone else given.init_of
        values = [dict(zip(inputs, row, strict=True)) for row in _rows(columns, inputs, len(keys))]
        if alone:
            values = columns[alone].to_pylist()
        if own.where or self.removes:
            keys, values = self._counting(own, keys, values, columns)
        combine, value = given.combine, None
        try:
            for key, value in zip(keys, values, strict=True):
                made = init(value)
                if made is None or made == nothing:
                    continue
                before = found.get(key)
                found[key] = made if before is None else combine(before, made)
        except Exception as error:
            record = {alone: value} if alone else value or {}
            raise_for(error, record, own.aggregator.of, show=own.aggregator.show)

    def _counting(
        self, own: Own, keys: Sequence[Key], values: Sequence[Any], columns: Mapping[str, Any]
    ) -> tuple[list[Key], list[Any]]:
        """Return the keys and values of the records that count for a value."""
        every = [True] * len(keys)
        where = columns[own.where].to_pylist() if own.where else every
        removes = columns[self.removes].to_pylist() if self.removes else [False] * len(keys)
        counting = [holds and not gone for holds, gone in zip(where, removes, strict=True)]
        both = zip(keys, values, counting, strict=True)
        chosen = [(key, value) for key, value, counts in both if counts]
        return [key for key, _ in chosen], [value for _, value in chosen]

    def _partials(self) -> pa.RecordBatch:
        """Return the partials found so far, a row for each key, and begin again."""
        import pyarrow as pa

        keys = (
            list(self.counts) if not self.records else list(dict.fromkeys(key for each in self.found for key in each))
        )
        of_key = {name: [key[n] for key in keys] for n, name in enumerate(self.keys)}
        columns = [
            pa.array(of_key[name], self.types[name]) if name in of_key else pa.nulls(len(keys), self.types[name])
            for name in self.kept
        ]
        partials = [[found.get(key) for key in keys] for found in self.found]
        made = self._batch(columns, [self.counts[key] for key in keys], partials)
        self.counts, self.found = Counter(), [{} for _ in self.owns]
        return made

    def _batch(self, columns: Sequence[Any], counts: Sequence[int], partials: Sequence[Any]) -> pa.RecordBatch:
        import pyarrow as pa

        structs = [_structs(own.aggregator, each) for own, each in zip(self.owns, partials, strict=True)]
        arrays = [*columns, pa.array(counts, pa.int64()), *structs]
        return pa.record_batch(arrays, names=[f"c{number}" for number in range(len(arrays))])


def _rows(columns: Mapping[str, Any], names: Sequence[str], number: int) -> list[Key]:
    return list(zip(*(columns[name].to_pylist() for name in names), strict=True)) if names else [()] * number


def _structs(aggregator: OwnCombiner, partials: Sequence[Partial | None]) -> pa.StructArray:
    """Return partials of a value in Arrow. Raise BadRecord if a partial misfits the declared types."""
    import pyarrow as pa

    rows = [aggregator.nothing if each is None else each for each in partials]
    if not aggregator.all_checked(rows):
        rows = [aggregator.checked("combine", each) for each in rows]
    missing = pa.array([each is None for each in partials], pa.bool_())
    names = [f"p{number}" for number in range(len(aggregator.fields))]
    arrays = _arrays(list(zip(*rows, strict=True)), aggregator.fields)
    return pa.StructArray.from_arrays(arrays, names=names, mask=missing)


def _arrays(columns: Sequence[Sequence[Any]], fields: Sequence[Field]) -> list[pa.Array]:
    import pyarrow as pa

    given = columns or [()] * len(fields)
    return [pa.array(column, arrow_type(field.type)) for column, field in zip(given, fields, strict=True)]


def _listed(column: Any) -> Iterator[list[Partial] | None]:
    """Yield the partials of each row."""
    structs = column.flatten()
    partials = list(zip(*(structs.field(n).to_pylist() for n in range(structs.type.num_fields)), strict=True))
    at = 0
    for size in column.value_lengths().to_pylist():
        yield None if size is None else partials[at : at + size]
        at += size or 0


def _whole(aggregator: OwnCombiner, lists: Sequence[list[Partial] | None], removable: bool) -> list[pa.Array]:
    """Return the columns of the combined partials of each key."""
    empty = aggregator.given.zero()
    whole = [each[0] if each else aggregator.nothing if each is None and removable else empty for each in lists]
    others = {number: each[1:] for number, each in enumerate(lists) if each and len(each) > 1}
    while others:
        made = aggregator.all_combined([whole[number] for number in others], [each[0] for each in others.values()])
        for number, combined in zip(others, made, strict=True):
            whole[number] = combined
        others = {number: each[1:] for number, each in others.items() if len(each) > 1}
    return _arrays(aggregator.all_rows(whole), aggregator.outputs)
