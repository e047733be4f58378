"""Pages of a state whose definition was changed: each number under its own name, whatever the order of the columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support import LogSpout
from ui.conftest import Site
from ui.seeded import Seeding

from txbatch import OpaqueState, SpoutKind, Sum, Topology
from txbatch.core.batch.transaction import Run
from txbatch.postgres.database.engine import connect
from txbatch.postgres.ledger import PostgresLedger

JOB = "jobs/sums.py"


def sums(**values: Any) -> Topology:
    """Sums by word."""
    topology, spout = Topology("sums"), LogSpout({"a": 100}, kind=SpoutKind.OPAQUE)
    spout.fields = "word string, x int, y int, z int"
    topology.new_stream("in", spout).group_by("word").persistent_aggregate(OpaqueState("sums"), **values)
    return topology


def test_numbers_stand_under_their_names_after_a_value_was_put_first(
    site_of: Callable[[str], Site], new_database: Callable[[str], str]
) -> None:
    url = new_database("migrated")
    engine = connect(url)
    ledger = PostgresLedger(engine)
    before = sums(a=Sum("x"), b=Sum("y"))
    ledger.register(before, JOB)
    Seeding(ledger, before).committed(Run("cli:1"), {"sums": [(("the",), (1, 10))]})
    after = sums(c=Sum("z", since="now"), a=Sum("x"), b=Sum("y"))
    ledger.change(after, JOB, "z is asked for")
    ledger.register(after, JOB)
    Seeding(ledger, after).committed(Run("cli:2"), {"sums": [(("the",), (100, 2, 20))]})
    engine.dispose()
    site, state = site_of(url), "/api/topologies/sums/states/sums"

    def named(told: Any, values: Any) -> dict[str, str | None]:
        return dict(zip([column["name"] for column in told], values, strict=True))

    why = site.told(f"{state}/why?key=the")
    assert named(why["columns"], why["value"]) == {"a": "3", "b": "30", "c": "100"}
    assert named(why["columns"], why["versions"][1]["values"]) == {"a": "2", "b": "20", "c": "100"}
    assert why["equal"] is True
    for path in (f"{state}/changes?from=1&to=2", "/api/topologies/sums/batches/2/changes"):
        changes = site.told(path)
        (row,) = changes["rows"]
        assert named(changes["values"], row["before"]) == {"a": "1", "b": "10", "c": None}
        assert named(changes["values"], row["after"]) == {"a": "3", "b": "30", "c": "100"}
    then = site.told(f"{state}/as-of?key=the&txid=2")
    assert named(then["columns"], then["row"]) == {"a": "3", "b": "30", "c": "100"}
