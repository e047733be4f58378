"""What is run in memory and by Spark: the lines of docs/topology.md, and the golden cases of operations per batch: data in
tests/golden/operations/.

A case says the `streams` with their `fields` and the records of each of their partitions, the `operations` on the first of
them (name, arguments, options; an aggregate is a list of its class, field and options,
a window one of its field, length and options) and which records come out, or what of the `error` is said: `expect`.
`static` has the fields and rows of static states. A function is a `lambda`, or that as `python` beside the `sql` that says
the same, which Spark runs as well; a case of Spark's own code alone has `spark_only`. Where it says `persist`, the name of a
state, the records that come out are its rows, of the batch at position 7.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from math import copysign
from pathlib import Path
from typing import Any

from support import ListSpout

import txbatch
from txbatch import AppendState, ReducerAggregator, StaticState, Stream, Topology, window
from txbatch.core.records.fields import Field, decimal_scale, parse_fields
from txbatch.core.state.append import ROW_KEYS
from txbatch.core.topology.nodes import Source
from txbatch.core.topology.persistent_aggregate import PersistentAggregate
from txbatch.direct.append import appended
from txbatch.direct.functions import record_of
from txbatch.direct.operations import records

FOLDER = Path(__file__).parent / "golden" / "operations"
PATHS = sorted(FOLDER.glob("*.json"))
# Those that are told in Spark SQL as well, and those that need Spark.
IN_SQL, SPARK_ONLY = ([path for path in PATHS if f'"{word}":' in path.read_text()] for word in ("sql", "spark_only"))
POSITION = 7
DOCUMENT = Path(__file__).parents[1] / "docs" / "topology.md"
STREAMS, _, QUERIES = DOCUMENT.read_text(encoding="utf-8").partition("\n## Queries\n")
# In a row of three cells the second one, where it is code: of streams, and of query streams.
LINES, QUERY_LINES = (re.findall(r"^\|[^|]*\| `([^|]+)` \|[^|]*\|$", text, re.MULTILINE) for text in (STREAMS, QUERIES))
# By stream the records of each partition.
Read = dict[str, dict[str, list[tuple[Any, ...]]]]
Counted = Counter[tuple[Any, ...]]


class Basket(ReducerAggregator):
    """One within a batch: what is in it, in the order of all fields."""

    result = "string"

    def init(self) -> str:
        return ""

    def reduce(self, value: str, record: Mapping[str, Any]) -> str:
        return f"{value}{record['item']} "


OWN = {"Basket": Basket}


@dataclass(frozen=True)
class OperationCase:
    """What a case's file says."""

    stream: Stream
    read: Read
    expect: Counted
    kept: PersistentAggregate | None
    code: str | None = None
    names: Sequence[str] = ()

    @classmethod
    def load(cls, path: Path, language: str = "python") -> OperationCase:
        case = json.loads(path.read_text(encoding="utf-8"))
        topology, read = Topology("golden"), Read()
        for name, source in case["streams"].items():
            fields = parse_fields(source["fields"])
            new_stream(topology, name, source["fields"])
            partitions = source["partitions"].items()
            read[name] = {partition: [typed(fields, record) for record in records] for partition, records in partitions}
        for name, table in case.get("static", {}).items():
            rows = [typed(parse_fields(table["fields"]), row) for row in table["rows"]]
            topology.new_static_state(StaticState(name, rows, table["fields"]))
        stream = after(topology, said(case["operations"], language))
        kept = stream.persist(AppendState(case["persist"])) if "persist" in case else None
        fields = (*ROW_KEYS, *stream.fields) if kept else stream.fields
        assert ", ".join(f"{field.name} {field.type}" for field in fields) == case["expect"]["fields"]
        expect = counted(typed(fields, record) for record in case["expect"].get("records", ()))
        return cls(stream, read, expect, kept, case["expect"].get("code"), case["expect"].get("names", ()))

    def in_memory(self) -> Counted:
        """What comes out without Spark."""
        found = records(self.stream.node, read_of(self.stream, self.read))
        return counted(record.values() for record in (appended(found, self.kept, POSITION) if self.kept else found))


def documented(line: str) -> tuple[Any, Topology]:
    """What a line of the document makes, after the lines that stand before all of them; and their topology."""
    names: dict[str, Any] = {}
    for text in (STREAMS, QUERIES)[: 1 + (line in QUERY_LINES)]:
        before, *_ = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        exec(before, names)
    return eval(line, names), names["topology"]


def given(stream: Stream) -> Read:
    """All records of FixedBatchSpouts."""
    return {root.name: {"": root.spout.records} for root in stream.roots}


def in_memory(stream: Stream, read: Read) -> Counted:
    """The records of a stream without Spark."""
    return counted(record.values() for record in records(stream.node, read_of(stream, read)))


def read_of(stream: Stream, read: Read) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """The records of its sources, as dicts."""
    return {
        root.name: {name: list(_named(root, part)) for name, part in read.get(root.name, {}).items()}
        for root in stream.roots
    }


def _named(root: Source, part: list[tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    return (record_of(each, root.fields) for each in part)


def new_stream(topology: Topology, name: str, fields: str) -> Stream:
    spout = ListSpout()
    spout.fields = fields
    return topology.new_stream(name, spout)


def said(told: Any, language: str) -> Any:
    """Return what a case tells, with its functions in Python or in SQL."""
    match told:
        case {"python": _, "sql": _}:
            return said(told[language], language)
        case dict():
            return {name: said(each, language) for name, each in told.items()}
        case list():
            return [said(each, language) for each in told]
        case str() if told.startswith("lambda "):
            return eval(told)
        case _:
            return told


def after(topology: Topology, operations: Iterable[list[Any]]) -> Stream:
    """Return the first stream after operations; those of the topology take the names of streams."""
    at: Any = next(iter(topology.streams.values()))
    for name, *arguments in operations:
        options = arguments.pop() if arguments and isinstance(arguments[-1], Mapping) else {}
        if name in ("merge", "join"):
            others = [topology.streams[other] for other in arguments]
            at = getattr(topology, name)(at, *others, **options)
        elif name == "group_by":
            at = at.group_by(*(windowed(*each) if isinstance(each, list) else each for each in arguments))
        elif name == "state_query":
            at = at.state_query(topology.static_states[arguments[0]], *arguments[1:], **options)
        else:
            given = {option: aggregator(*of) if isinstance(of, list) else of for option, of in options.items()}
            at = getattr(at, name)(*arguments, **given)
    return at


def windowed(time: str, length: str, options: Mapping[str, Any] | None = None) -> Any:
    return window(time, length, **(options or {}))


def aggregator(name: str, field: Any = None, options: Mapping[str, Any] | None = None) -> Any:
    return (OWN.get(name) or getattr(txbatch, name))(*([field] if field else []), **(options or {}))


def typed(fields: Iterable[Field], record: list[Any]) -> tuple[Any, ...]:
    return tuple(_typed(field, value) for field, value in zip(fields, record, strict=True))


def counted(records: Iterable[Iterable[Any]]) -> Counted:
    """How often each record is there; NaN is the same as NaN, and zero has its sign."""
    return Counter(tuple(map(_told, record)) for record in records)


def _told(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        return value
    if value == 0:
        return "-0" if copysign(1, value) < 0 else "0"
    return value if value == value else "NaN"


def _typed(field: Field, value: Any) -> Any:
    if value is None:
        return None
    if decimal_scale(field.type) is not None:
        return Decimal(value)
    read = {"double": float, "timestamp": datetime.fromisoformat, "date": date.fromisoformat}
    return read.get(field.type, lambda same: same)(value)
