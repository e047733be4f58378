"""Restate on PostgreSQL: the keys of both versions are folded again as the twin does it, and what else shows of it (R17)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from postgres_bench import Bench, words
from sqlalchemy import Engine
from support import LogSpout, code, manifest_of, record_batch, run, word_count

from txbatch import Avg, Count, FileSpout, IntervalSpout, Max, Min, OpaqueState, SpoutKind, Topology, TransactionalState
from txbatch.core.batch.manifest import ReadPartition
from txbatch.core.batch.plan import Range
from txbatch.core.batch.transaction import Batch, Interval, Restate
from txbatch.core.protocol import coordinator
from txbatch.core.protocol.ledger import Ledger
from txbatch.memory.ledger import MemoryLedger
from txbatch.postgres.database.engine import execute
from txbatch.postgres.database.transaction import transaction
from txbatch.postgres.ledger import PostgresLedger
from txbatch.postgres.reading.ledger_reader import LedgerReader
from txbatch.postgres.schema import state_tables

pytestmark = pytest.mark.rule("R17")
# Per txid: the position that it counts again, as an index into those before it (None: its own), and what it does to each key.
CHANGE = st.none() | st.tuples(st.integers(-9, 9), st.booleans(), st.booleans()).filter(lambda each: each[1] or each[2])
HISTORY = st.lists(st.tuples(st.none() | st.integers(0, 9), st.tuples(CHANGE, CHANGE)), min_size=2, max_size=7)
few = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def topology_of(shape: str) -> Topology:
    """Counts, extremes and a mean: per word, per word that may be removed, or of all records."""
    topology = Topology("agree")
    opaque = shape != "transactional"
    stream = topology.new_stream(
        "words", LogSpout({"a": 10**6}, kind=SpoutKind.OPAQUE if opaque else SpoutKind.TRANSACTIONAL)
    ).each("1", "n bigint")
    values: dict[str, Any] = {"count": Count(), "least": Min("n"), "most": Max("n"), "mean": Avg("n")}
    if shape == "global":
        stream.persistent_aggregate(OpaqueState("agree"), **values)
        return topology
    state = (OpaqueState if opaque else TransactionalState)("agree")
    removable = {"remove": "true"} if shape == "removable" else {}
    stream.group_by("word").persistent_aggregate(state, **values, **removable)
    return topology


def partials_of(shape: str, changes: Any) -> list[Any]:
    if shape == "global":
        number = sum(each[0] for each in changes if each)
        return [((), (number, number, number, number, number))]
    rows = [(key, each) for key, each in zip("ab", changes, strict=True) if each]
    marks = (lambda each: each[1:]) if shape == "removable" else (lambda each: ())
    return [((key,), (each[0],) * 5 + marks(each)) for key, each in rows]


def commits(ledger: Ledger, topology: Topology, txid: int, again: int | None, partials: list[Any], staged: Any) -> None:
    of = run(f"run {txid}")
    of = of if again is None else replace(of, restate=Restate(again, "it was wrong"))
    batch = coordinator.initialize_transaction(ledger, topology, of)
    assert isinstance(batch, Batch)
    assignment = ledger.start_attempt(batch, of, code())
    emitted = ledger.record_manifests([(assignment, manifest_of(topology, assignment, {"agree": partials}))])[0]
    assert ledger.commit(topology, emitted, {"agree": staged}).applied


def row_of(value: Any) -> Any:
    """Value, txid, and what was before, of a row in memory."""
    prev = getattr(value, "prev", None)
    return [*map(int, value.value), value.txid, *(map(int, prev) if prev else ()), getattr(value, "prev_txid", None)]


@pytest.mark.parametrize("shape", ["opaque", "transactional", "removable", "global"])
@given(history=HISTORY)
@few
def test_both_ledgers_agree(engine: Engine, shape: str, history: list[Any]) -> None:
    topology, memory, postgres = topology_of(shape), MemoryLedger(), PostgresLedger(engine)
    (aggregate,) = topology.aggregates
    for ledger in (memory, postgres):
        ledger.register(topology, "jobs/agree.py")
    ordinary: list[int] = []
    for txid, (number, changes) in enumerate(history, 1):
        again = ordinary[number % len(ordinary)] if number is not None and ordinary else None
        ordinary += [] if again else [txid]
        partials = partials_of(shape, changes)
        commits(memory, topology, txid, again, partials, partials)
        commits(postgres, topology, txid, again, partials, [record_batch(aggregate, partials)])
        expected = {key: row_of(value) for key, value in memory.rows("agree").items()}
        assert stored(postgres, shape) == expected, (txid, again)
    with transaction(engine) as connection:
        state_tables.drop(connection, "agree")


def stored(ledger: PostgresLedger, shape: str) -> dict[Any, list[Any]]:
    values = ["count", "least", "most", "mean_sum", "mean_count"]
    with ledger.engine.connect() as connection:
        found = execute(connection, "SELECT to_jsonb(s) FROM state.agree s").fetchall()
    rows = {}
    for (row,) in found:
        prev = [row[f"prev_{name}"] for name in values] if row.get("prev_txid") else []
        key = () if shape == "global" else (row["word"],)
        rows[key] = [*(row[name] for name in values), row["txid"], *prev, row.get("prev_txid")]
    return rows


def restated(bench: Bench, position: int, partials: Any, **changes: Any) -> Batch:
    asked = replace(run("again"), restate=Restate(position, "it was wrong", "anna", **changes.pop("asked", {})))
    batch = coordinator.initialize_transaction(bench.ledger, bench.topology, asked)
    assert isinstance(batch, Batch)
    assignment = bench.ledger.start_attempt(batch, asked, code())
    bench.ledger.record_manifests([(assignment, manifest_of(bench.topology, assignment, partials, **changes))])
    assert bench.commit(bench.ledger.batch(batch.topology, batch.txid), partials)
    return batch


def test_a_file_that_was_counted_again_is_compared_with_what_counts_now(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("dog\n")
    topology = Topology("word_count")
    topology.new_stream("words", FileSpout(tmp_path)).group_by("line").persistent_aggregate(
        TransactionalState("word_count"), count=Count()
    )
    bench = Bench(engine, topology)
    read = {"words": {"a": manifest_read(1)}}
    bench.emitted(words(dog=1), streams=read)
    assert bench.commit(bench.ledger.batch("word_count", 1), words(dog=1))
    (tmp_path / "a").write_text("dog\ndog\n")
    restated(bench, 1, words(dog=2), streams={"words": {"a": manifest_read(2)}})
    (counted,) = LedgerReader(engine).counted("word_count")
    assert counted.files == {"a": [8, (tmp_path / "a").stat().st_mtime_ns]}
    assert bench.rows("SELECT metadata ->> 'end', txid FROM txbatch.consumed") == [("4", 1)]


def manifest_read(records: int) -> ReadPartition:
    return ReadPartition(records, "1")


def test_what_a_restate_left_out_is_no_open_hole(engine: Engine) -> None:
    topology = Topology("word_count")
    spout = LogSpout({"a": 10, "b": 10}, kind=SpoutKind.OPAQUE)
    topology.new_stream("words", spout).group_by("word").persistent_aggregate(OpaqueState("word_count"), count=Count())
    bench = Bench(engine, topology)
    bench.whole(words(dog=9))
    restated(
        bench,
        1,
        words(dog=4),
        asked={"accept_missing": True},
        streams={"words": {"a": manifest_read(10)}},
        unreadable={"words": {"b": "away"}},
    )
    holes = "SELECT partition, unreadable_since_txid FROM report.completeness ORDER BY 1"
    assert bench.rows(holes) == [("a", None), ("b", None)]
    told = "SELECT partition, status, reason FROM report.partitions WHERE txid = 2 ORDER BY 1"
    assert bench.rows(told) == [("a", "read", None), ("b", "unreadable", "away")]
    seen = "SELECT kind, status, position, replaced_by, requested_by, reason FROM report.batches ORDER BY txid"
    assert bench.rows(seen) == [
        ("ordinary", "committed", 1, 2, None, None),
        ("restate", "committed", 1, None, "anna", "it was wrong"),
    ]
    assert LedgerReader(engine).status()[0]["records"] == 10


def test_a_version_of_many_partitions_is_read_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit of a restate asks, under its locks: of thousands of files, not thousands of times for each file."""
    spout = LogSpout({f"part-{number}": 10 for number in range(500)})
    bench = Bench(engine, word_count(spout))
    bench.whole(words(dog=1))
    asked, to_json = list[Range](), Range.to_json

    def noted(range_: Range) -> dict[str, Any]:
        asked.append(range_)
        return to_json(range_)

    monkeypatch.setattr(Range, "to_json", noted)
    version = bench.ledger.version("word_count", 1)
    assert len(version.read["words"]) == len(version.first_read["words"]) == 500
    assert len(asked) <= 2 * 500


def test_why_it_was_asked_for_stays_known_when_it_is_aborted(engine: Engine) -> None:
    bench = Bench(engine)
    bench.whole(words(dog=1))
    asked = replace(run("again"), restate=Restate(1, "a file was wrong"))
    coordinator.initialize_transaction(bench.ledger, bench.topology, asked)
    bench.ledger.abort("word_count", 2, "not now")
    reason = "a file was wrong; aborted: not now"
    assert bench.rows("SELECT reason FROM txbatch.batch WHERE txid = 2") == [(reason,)]


def test_a_restate_folds_what_retention_has_left(engine: Engine) -> None:
    """The base counts before all positions; below the horizon nothing is restated."""
    bench = Bench(engine)
    for number in range(3):
        bench.whole(words(dog=1, cat=number + 1), str(number))
    bench.run(
        "INSERT INTO contribution_base.word_count (word, count, txid) VALUES ('dog', 1, 1), ('cat', 1, 1)",
        "DELETE FROM contribution.word_count WHERE txid = 1",
        "UPDATE txbatch.state SET horizon = 1",
    )
    restated(bench, 2, words(dog=5))
    assert sorted(bench.rows("SELECT word, count, txid FROM state.word_count")) == [("cat", 4, 4), ("dog", 7, 4)]
    with pytest.raises(Exception, match="txid 1 is folded: contributions up to txid 1 are kept as one"):
        restated(bench, 1, words(dog=5))


def test_a_day_that_was_counted_again_is_compared_with_the_files_of_its_version(engine: Engine, tmp_path: Path) -> None:
    """The plan that it replaced says nothing of files any more; the newest day stays the newest, whatever was restated."""
    file = tmp_path / "sales.csv"
    file.write_text("at,n\n2013-01-01T05:00:00Z,1\n")
    topology = Topology("word_count")
    spout = IntervalSpout(tmp_path, "at timestamp, n bigint", time="at")
    topology.new_stream("words", spout).group_by("n").persistent_aggregate(
        TransactionalState("word_count"), count=Count()
    )
    bench, days = Bench(engine, topology), [datetime(2013, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
    for start, end in pairwise(days):
        of = replace(run(str(start)), interval=Interval(start, end))
        batch = coordinator.initialize_transaction(bench.ledger, topology, of)
        assert isinstance(batch, Batch)
        assignment = bench.ledger.start_attempt(batch, of, code())
        bench.ledger.record_manifests([(assignment, manifest_of(topology, assignment, {"word_count": []}))])
        assert bench.commit(bench.ledger.batch("word_count", batch.txid), {"word_count": []})
    file.write_text("at,n\n2013-01-01T05:00:00Z,1\n2013-01-01T06:00:00Z,1\n")
    again = restated(bench, 1, {"word_count": []})
    assert list(again.plan.streams["words"].plan["interval"]) == [day.isoformat() for day in days[:2]]
    counted = LedgerReader(engine).counted("word_count")
    assert [(each.txid, each.files["sales.csv"][0]) for each in counted] == [(2, 28), (3, 51)]
    gaps = "SELECT count(*) FROM report.gaps"
    assert bench.rows(gaps) == [(0,)]
