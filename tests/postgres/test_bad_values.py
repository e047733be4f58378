"""What PostgreSQL cannot store is told with batch, state and value, and nothing is committed; no retry is suggested."""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from postgres_bench import Bench, words
from sqlalchemy import Engine
from support import LogSpout, word_count

from txbatch import Count, Max, OpaqueState, Topology
from txbatch.core.errors import BadRecord
from txbatch.core.records.fields import KEY_TEXTS, key_bytes_max
from txbatch.core.sources.partition_checks import PARTITION_BYTES_MAX
from txbatch.postgres.apart.warehouses import Warehouses

_RANDOM = random.Random(7)


def incompressible(length: int) -> str:
    return "".join(_RANDOM.choices(string.ascii_letters + string.digits + "-_", k=length))


STATES: dict[str, dict[str, Any]] = {"here": {}, "apart": {"database": "warehouse"}, "alone": {"contributions": False}}


@pytest.mark.parametrize("length", [3_000, 6_000, 9_000, 200_000])
@pytest.mark.parametrize("options", STATES.values(), ids=STATES)
def test_a_key_too_long_for_an_index(
    engine: Engine, databases: Callable[[str], str], length: int, options: dict[str, Any]
) -> None:
    state = OpaqueState("word_count", **options)
    bench = Bench(engine, word_count(LogSpout({"a": 100}), state=state), Warehouses(databases))
    key = incompressible(length)
    partials = words(**{"dog": 1, key: 2, "a" * 9_000: 3})
    told = (
        r"^TX306 \(no retry helps\): word_count 1:1, state 'word_count': a key or a name is too long for an index: index row .*; "
        f"the longest key has {length:,} bytes and begins '{key[:40]}': shorten it"
    )
    with pytest.raises(BadRecord, match=told):
        bench.commit(bench.emitted(partials), partials)
    assert bench.ledger.batch("word_count", 1).status == "emitted"


@pytest.mark.parametrize("contributions", [True, False])
@pytest.mark.parametrize(
    "types", [["string"], ["string", "string", "bigint"], ["date", "string", "decimal(38,10)", "string"]]
)
def test_what_the_emit_lets_through_fits(bench: Bench, types: list[str], contributions: bool) -> None:
    values: dict[str, Any] = {
        "bigint": 1,
        "date": "'2026-01-01'",
        "decimal(38,10)": "1234567890123456789012345678.0123456789",
    }
    texts, most = [type_ for type_ in types if type_ in KEY_TEXTS], key_bytes_max(types)
    lengths = iter([most - (len(texts) - 1), *[1] * (len(texts) - 1)])
    row = [f"'{incompressible(next(lengths))}'" if type_ in texts else str(values[type_]) for type_ in types]
    columns = [f"c{n} {'text' if type_ in texts else type_}" for n, type_ in enumerate(types)]
    names = [f"c{n}" for n in range(len(types))]
    more = (["position bigint", "txid bigint"], ["position", "txid"], ["1", "2"]) if contributions else ([], [], [])
    bench.run(
        f"CREATE TABLE public.x ({', '.join([*columns, *more[0]])}, PRIMARY KEY ({', '.join([*names, *more[1]])}))",
        f"INSERT INTO public.x VALUES ({', '.join([*row, *more[2]])})",
    )


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("date", -719163),
        ("date", 11248738),
        ("date", 2_000_000_000),
        ("timestamp", -62135596800000001),
        ("timestamp", 971890963200000000),
    ],
)
def test_a_time_that_cannot_be_stored(bench: Bench, type_: str, value: int) -> None:
    """Staged by an attempt of a version that let it through."""
    spout = LogSpout({"a": 100})
    spout.fields = f"word string, at {type_}"
    topology = word_count(spout, "times", latest=Max("at"))
    bench = Bench(bench.engine, topology)
    partials = {
        "times": [(("dog",), (datetime(2026, 1, 1, tzinfo=UTC) if type_ == "timestamp" else date(2026, 1, 1),))]
    }
    batch = bench.emitted(partials)
    number, time = (pa.int32(), pa.date32()) if type_ == "date" else (pa.int64(), pa.timestamp("us", "UTC"))
    arrow = pa.record_batch([pa.array(["dog"]), pa.array([value], number).cast(time)], names=["word", "latest"])
    with pytest.raises(BadRecord, match=r"^TX305 \(no retry helps\): times 1:1, state 'times': "):
        bench.ledger.commit(topology, batch, {"times": [arrow]})
    assert bench.commit(batch, partials)


def test_the_longest_name_of_a_partition_fits_the_ledger(engine: Engine) -> None:
    name = incompressible(PARTITION_BYTES_MAX)
    topology = Topology("t" * 63)
    words_of = topology.new_stream("s" * 63, LogSpout({name: 10})).group_by("word")
    words_of.persistent_aggregate(OpaqueState("word_count"), guarantee="at_least_once", count=Count())
    bench = Bench(engine, topology)
    bench.whole(words(dog=1))
    assert bench.rows("SELECT partition FROM report.partitions") == [(name,)]
