"""TopNBy: several fields of the records of a key in which another field is greatest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from txbatch.core.aggregates.aggregator import CombinerAggregator, PartialColumn
from txbatch.core.aggregates.collect_set import checked_size
from txbatch.core.aggregates.merge import Partial, Top
from txbatch.core.errors import BadRecord, InvalidArgument, NameTaken
from txbatch.core.records.fields import Field
from txbatch.core.records.ordered_texts import BETWEEN, BETWEEN_SQL, decode, ordered_text, ordered_text_sql
from txbatch.core.records.sql import pg_text, spark_name, spark_text
from txbatch.core.records.where import Condition

# Of 1,000 such rows a key has 64 MB.
ROW_BYTES_MAX = 64 << 10


class TopNBy(CombinerAggregator):
    """Fields of the n records in which the field `by` is greatest, greatest first; null without records.

    `by` may be among the fields. Records with an equal `by` are ordered by their other fields, in the order in which the
    fields are named, greatest first, null below all. Equal records are all kept. Records with a null in `by` are left out.
    Reports show an array of objects, in JSON.
    """

    def __init__(
        self,
        n: int,
        fields: str | Sequence[str] = (),
        by: str = "",
        *,
        where: Condition | None = None,
        was: str | None = None,
        since: str | None = None,
    ) -> None:
        super().__init__(None, where=where, was=was, since=since)
        self.fields, self.by = _checked_fields(fields, by), by
        self.n = checked_size(f"TopNBy of {', '.join(self.fields)}: n", n)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the fields that the aggregator reads, in the order in which fields decide."""
        return (self.by, *(name for name in self.fields if name != self.by))

    @property
    def details(self) -> str:
        return f" of {', '.join(self.fields)}, the {self.n} greatest by {self.by}"

    def columns_of(self, field: Callable[[str], Field]) -> tuple[PartialColumn, ...]:
        texts = f", {BETWEEN_SQL}, ".join(ordered_text_sql(field(name)) for name in self.inputs)
        too_long = f"raise_error(concat({spark_text(self._told)}, octet_length(r), {spark_text(_TOO_LONG)}))"
        short = f"r -> if(octet_length(r) > {ROW_BYTES_MAX}, {too_long}, r)"
        row = f"element_at(transform(array(concat({texts})), {short}), 1)"
        shape = "if(size({}) > 0, sort_array({}, false), null)"
        greatest, known = f"max_by({row}, {row}, {self.n})", f"{spark_name(self.by)} is not null"
        return (PartialColumn("", "array<string>", Top(self.n), greatest, known, shape),)

    def init_of(self, record: Mapping[str, Any]) -> Partial:
        if record[self.by] is None:
            return (None,)
        row = BETWEEN.join(ordered_text(record[name]) for name in self.inputs)
        size = len(row.encode("utf-8", "surrogatepass"))
        if size > ROW_BYTES_MAX:
            raise BadRecord(f"{self._told}{size}{_TOO_LONG}")
        return ([row],)

    def finish(self, partial: Partial) -> Any:
        (rows,) = partial
        return None if rows is None else [self._shown(row) for row in rows]

    def finish_sql(self, columns: Sequence[str]) -> str:
        (rows,) = columns
        names = ", ".join(pg_text(name) if name in self.fields else "NULL" for name in self.inputs)
        return f"report.top_rows({rows}, ARRAY[{names}]::text[])"

    def _shown(self, row: str) -> dict[str, Any]:
        """Return a row by its fields, in the order of jsonb: the shorter name first."""
        found = {name: decode(text) for name, text in zip(self.inputs, row.split(BETWEEN), strict=True)}
        return {name: found[name] for name in sorted(self.fields, key=lambda name: (len(name.encode()), name.encode()))}

    @property
    def _told(self) -> str:
        return f"the fields {', '.join(map(repr, self.inputs))} of a record have "


_TOO_LONG = (
    f" bytes together, more than the {ROW_BYTES_MAX} that TopNBy keeps of a record; name other fields, or cut the long field in "
    "the job, for example left(note, 500)"
)


def _checked_fields(fields: object, by: object) -> tuple[str, ...]:
    names = (fields,) if isinstance(fields, str) else tuple(fields) if isinstance(fields, Sequence) else ()
    if not names or not all(isinstance(name, str) for name in names):
        raise InvalidArgument(
            f"TopNBy of {fields!r}: give the names of the fields to keep, such as TopNBy(5, ('id', 'price'), by='price'); "
            "of one field alone TopN keeps the greatest values"
        )
    if not isinstance(by, str) or not by:
        raise InvalidArgument(
            f"TopNBy of {', '.join(names)}: by is {by!r}; give the name of the field that is greatest"
        )
    if len(set(names)) < len(names):
        raise NameTaken(f"TopNBy of {', '.join(names)}: a field is named twice; name each once")
    return names
