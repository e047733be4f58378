"""Fields as a dataclass, or as a StructType of pyspark."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Optional

import pytest
from pyspark.sql import types

from txbatch import Count, FixedBatchSpout, OpaqueState, Topology
from txbatch.core.errors import DefinitionError
from txbatch.core.records.declared import fields_ddl, values_of
from txbatch.core.records.fields import Field, parse_fields


@dataclass(frozen=True)
class Sale:
    shop: str
    price: Annotated[Decimal, "decimal(10,2)"]
    number: Annotated[int, "int"] | None
    day: date
    at: Optional[datetime]  # noqa: UP045
    weight: float | None = None
    paid: bool = False
    stamp: bytes = b""
    total: int = 0
    note: Annotated[str, 3] = ""


DDL = (
    "`shop` string, `price` decimal(10,2), `number` int, `day` date, `at` timestamp, `weight` double, `paid` boolean, "
    "`stamp` binary, `total` bigint, `note` string"
)


def test_a_dataclass() -> None:
    assert fields_ddl(Sale) == DDL


def test_a_struct_type() -> None:
    struct = types.StructType().add("unit price", "decimal(10,2)", nullable=False).add("at", types.TimestampType())
    assert parse_fields(struct) == (Field("unit price", "decimal(10,2)"), Field("at", "timestamp"))
    with pytest.raises(DefinitionError, match="array<string> is a nested type"):
        parse_fields(types.StructType().add("names", types.ArrayType(types.StringType())))


def test_a_dataclass_in_a_topology() -> None:
    @dataclass
    class Word:
        word: str

    stream = Topology("t").new_stream("s", FixedBatchSpout(Word, 1, Word("a"), "b", ("c",)))
    assert stream.fields == (Field("word", "string"),)
    assert [*stream.spout.batch({"start": 0, "end": 3})] == [("a",), ("b",), ("c",)]  # type: ignore[attr-defined]
    made = stream.map(lambda record: Word(record["word"]), Word).each(lambda record: 1, "n int")
    assert [field.name for field in made.fields] == ["word", "n"]
    assert made.group_by("word").persistent_aggregate(OpaqueState("x"), n=Count()).keys == stream.fields


class Colour:
    pass


@dataclass
class Priced:
    price: Decimal


@dataclass
class Painted:
    colour: Colour | None


@dataclass
class Either:
    value: int | str


@dataclass
class Elsewhere:
    value: Nowhere  # type: ignore[name-defined]  # noqa: F821


@dataclass
class Oddly:
    value: Annotated[int, "integer64"]  # type: ignore[valid-type]


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        (
            Priced,
            "dataclass Priced: field 'price' is Decimal, which does not say its type in Spark; write Annotated.Decimal, ",
        ),
        (Painted, "field 'colour' is Colour, .*; write Annotated.Colour, \"string\""),
        (Either, "field 'value' is int | str"),
        (Elsewhere, "field 'value' has a type that is not there: name 'Nowhere' is not defined"),
        (Oddly, "type 'integer64' is not one of"),
        (
            int,
            "fields <class 'int'> are no text; write 'name type, name type', such as .*, or give a dataclass or a StructType",
        ),
        (None, "fields None are no text"),
    ],
)
def test_what_cannot_be_a_field(declared: Any, says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        parse_fields(declared)


def test_a_dataclass_is_taken_by_its_names() -> None:
    @dataclass
    class Pair:
        b: int
        a: int

    assert values_of(Pair(b=2, a=1), ["a", "b"]) == (1, 2)
    with pytest.raises(DefinitionError, match="a Pair has the fields b, a; expected are a, c"):
        values_of(Pair(1, 2), ["a", "c"])
