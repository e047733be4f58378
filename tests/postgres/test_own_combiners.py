"""States with a user's own combiner in PostgreSQL: what of their past can be asked, what is refused, what verify finds."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from contract.test_restate import restate_of
from every_aggregate import Span, Words
from postgres_bench import Bench
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError
from support import LogSpout, code, manifest_of, record_batch

from txbatch import Avg, CombinerAggregator, Keep, OpaqueState, Topology
from txbatch.core.batch.transaction import Assignment, Batch, TransactionAttempt
from txbatch.core.corrections.verify import Again, Outcome
from txbatch.core.errors import NotFoldable, TerminalError
from txbatch.core.protocol import coordinator
from txbatch.direct.emitter import partials_of
from txbatch.postgres.corrections import restate_preview
from txbatch.postgres.corrections.retention import Retention
from txbatch.postgres.corrections.verify import PostgresBooks
from txbatch.postgres.reading.history_reader import HistoryReader
from txbatch.postgres.state import python_merge

Record = tuple[str | None, int | None]


def topology(values: dict[str, CombinerAggregator] | None = None) -> Topology:
    made, log = Topology("own", keep=Keep(txids=1)), LogSpout({"a": 1000})
    log.fields = "word string, price decimal(10,2)"
    values = values or {"far": Span("price"), "words": Words("word"), "mean": Avg("price")}
    made.new_stream("in", log).group_by("word").persistent_aggregate(OpaqueState("own"), **values)
    return made


@pytest.fixture
def bench(engine: Engine) -> Bench:
    bench = Bench(engine, topology())
    bench.whole(partials(bench, ("dog", 1), ("dog", 7), ("cat", 2)), "1")
    bench.whole(partials(bench, ("dog", 9), ("emu", None)), "2")
    return bench


def partials(bench: Bench, *records: Record) -> dict[str, Any]:
    (aggregate,) = bench.topology.aggregates
    prices = [None if price is None else Decimal(price).quantize(Decimal("0.01")) for _, price in records]
    found = zip((word for word, _ in records), prices, strict=True)
    return {"own": partials_of(aggregate, [{"word": word, "price": price} for word, price in found])}


def test_reports_show_what_it_is_finished_to(bench: Bench) -> None:
    assert bench.rows("SELECT word, far, words, mean::int, txid FROM report.own ORDER BY 1") == [
        ("cat", 0, ["cat"], 2, 1),
        ("dog", 8, ["dog"], 6, 2),
        ("emu", None, ["emu"], None, 2),
    ]
    assert bench.rows("SELECT far, txid FROM report.own_changes WHERE word = 'dog' ORDER BY txid") == [(6, 1), (0, 2)]
    assert bench.rows("SELECT prev_far_low, prev_far_high, prev_far FROM state.own WHERE word = 'dog'") == [(1, 7, 6)]


@pytest.mark.rule("R19")
def test_without_its_job_there_is_what_each_batch_contributed(bench: Bench, engine: Engine) -> None:
    reader = HistoryReader(engine)
    why = reader.why("own", ("dog",))
    assert [(each["txid"], each["values"]["far"]) for each in why["versions"]] == [(1, 6), (2, 0)]
    assert why["equal"] is None
    told = "state 'own' merges 'far_low' by Span.combine, which is Python of its job, .*; `txbatch why own KEY`"
    for corrected in (False, True):
        with pytest.raises(TerminalError, match=told):
            reader.as_of("own", 1, corrected=corrected)
    for asked in ("as_of_own(1)", "corrected_own(1)", "changes_own(1, 2)"):
        with pytest.raises(
            DBAPIError, match=r"(?s)by Python of its job, which SQL cannot run.*`txbatch as-of own TXID`"
        ):
            bench.rows(f"SELECT * FROM report.{asked}")
    with pytest.raises(
        NotFoldable, match=r"'far_low' by Span\.combine, a rule of its job's own, by which gc folds with that"
    ):
        list(Retention(engine).fold("own", 1))


@pytest.mark.rule("R17", "R19", "R22")
def test_what_it_was_is_told_with_its_job(bench: Bench, engine: Engine) -> None:
    """Values of all kinds, finished as reports show them: of all keys and of some, and after retention."""
    again, of = partials(bench, ("dog", 5), ("fox", 2)), restate_of(1)
    batch = coordinator.initialize_transaction(bench.ledger, bench.topology, of)
    assert isinstance(batch, Batch)
    assignment = bench.ledger.start_attempt(batch, of, code())
    assert bench.commit(
        bench.ledger.record_manifests([(assignment, manifest_of(bench.topology, assignment, again))])[0], again
    )
    reader = HistoryReader(engine, jobs=lambda topology: bench.topology)
    was = [("cat", 0, ["cat"], 2, 1), ("dog", 6, ["dog"], 4, 1)]
    then = [was[0], ("dog", 8, ["dog"], Decimal("5.666667"), 2), ("emu", None, ["emu"], None, 2)]
    now = [("dog", 4, ["dog"], 7, 3), then[2], ("fox", 0, ["fox"], 2, 3)]
    assert [plain(reader.as_of("own", txid)) for txid in (0, 1, 2, 3)] == [[], was, then, now]
    assert plain(reader.as_of("own", 1, corrected=True)) == [("dog", 0, ["dog"], 5, 3), now[2]]
    assert plain(reader.as_of("own", 2, limit=1)) == then[:1]
    found = reader.as_of("own", 2, [("emu",), ("fox",), ("cat",)])
    assert [(each["word"], each["words"], each["txid"]) for each in found] == [
        ("emu", ["emu"], 2),
        ("fox", None, None),
        ("cat", ["cat"], 1),
    ]
    (last,) = Retention(engine, lambda topology: bench.topology).fold("own", 2)
    assert last.horizon == 0  # the restate waits to be older
    bench.whole(partials(bench, ("gnu", 1)), "4")
    (last,) = Retention(engine, lambda topology: bench.topology).fold("own", 3)
    assert (last.horizon, plain(reader.as_of("own", 3))) == (3, now)
    with pytest.raises(TerminalError, match="retention has folded what it was before txid 3"):
        reader.as_of("own", 2)


def plain(rows: Any) -> list[tuple[Any, ...]]:
    """Rows as tuples, means of as many digits as they are compared by."""
    return [tuple(round(each, 6) if isinstance(each, Decimal) else each for each in row.values()) for row in rows]


@pytest.mark.rule("R24")
def test_verify_combines_contributions(bench: Bench, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """More keys than are in memory at a time, so that a chunk ends within a key."""
    monkeypatch.setattr(python_merge, "ROWS_PER_CHUNK", 2)
    books = PostgresBooks(engine)
    assert [each.outcome for each in books.states(bench.topology)] == [Outcome.EQUAL]
    bench.run("UPDATE state.own SET far_high = 100 WHERE word = 'dog'")
    (found,) = books.states(bench.topology)
    assert (found.keys, found.different, [each.key for each in found.examples]) == (3, 1, [{"word": "dog"}])
    again = read_again(bench, 1, ("dog", 1), ("dog", 7), ("cat", 3))
    (of_batch,) = books.compare(bench.topology, books.recorded("own", 1), again.manifest, again.partials())
    assert (of_batch.different, of_batch.examples[0].key) == (1, {"word": "cat"})


@pytest.mark.rule("R17")
def test_what_a_restate_would_change(bench: Bench, engine: Engine) -> None:
    again = read_again(bench, 1, ("dog", 5), ("fox", 2))
    version = bench.ledger.version("own", 1)
    (effect,) = restate_preview.effects(engine, bench.topology, version, again)
    assert (effect.touched, effect.rows_after, effect.compared.different) == (3, 2, 3)


def test_a_state_changed_meanwhile_is_left_alone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python combined with a row that is another one by the time that it is written."""
    merge = python_merge.merge_staged

    def and_then_another(connection: Any, statements: Any, **options: Any) -> str:
        table = merge(connection, statements, **options)
        connection.exec_driver_sql("UPDATE state.own SET txid = 1 WHERE word = 'dog'")
        return table

    monkeypatch.setattr(python_merge, "merge_staged", and_then_another)
    with pytest.raises(TerminalError, match="1 of 2 rows were written"):
        bench.whole(partials(bench, ("dog", 3), ("cat", 3)), "3")


def read_again(bench: Bench, txid: int, *records: Record) -> Again:
    found, (aggregate,) = partials(bench, *records), bench.topology.aggregates
    metadata = bench.ledger.batch("own", txid).metadata
    assignment = Assignment("own", TransactionAttempt(txid, 9), "token", metadata, code())
    manifest = manifest_of(bench.topology, assignment, found)
    return Again(assignment, manifest, lambda: {"own": [record_batch(aggregate, found["own"])]}, lambda: None)
