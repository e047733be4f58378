"""AppendState: the records of each batch, once, by position (R1, R17), in both ledgers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from contract.test_restate import restate_of
from refusals import refused
from support import LogSpout, run

from txbatch import AppendState, Topology
from txbatch.core.batch.transaction import Batch, Run
from txbatch.core.protocol import coordinator
from txbatch.direct.emitter import partials_of


class Rows:
    """A topology that keeps words, on one of both ledgers."""

    def __init__(self, backing: Any, **options: Any) -> None:
        self.backing, self.ledger = backing, backing.ledger
        self.topology = Topology("kept")
        self.topology.new_stream("words", LogSpout({"a": 100})).persist(AppendState("kept", **options))

    def planned(self, of: Run) -> Batch:
        self.ledger.register(self.topology, "jobs/job.py")
        batch = coordinator.initialize_transaction(self.ledger, self.topology, of)
        assert isinstance(batch, Batch)
        return batch

    def emits(self, batch: Batch, of: Run, words: Sequence[str | None]) -> dict[str, Any]:
        (aggregate,) = self.topology.aggregates
        (field,) = aggregate.rows_of
        partials = {"kept": partials_of(aggregate, [{field.name: word} for word in words], batch.position)}
        self.backing.emit(self.topology, batch, partials, of.name)
        return partials

    def counts(self, of: Run, *words: str | None) -> Batch:
        batch = self.planned(of)
        committed = self.backing.commit(self.topology, batch, self.emits(batch, of, words))
        assert committed.applied
        assert self.ledger.success("kept", batch.txid)
        return committed.batch

    def rows(self, **options: Any) -> list[tuple[Any, ...]]:
        """Batch, word, copy and txid of each row."""
        return sorted(self.backing.kept("kept", **options), key=lambda row: (row[0], row[1] or "", row[2]))


@pytest.mark.rule("R5")
def test_an_attempt_that_does_not_count_leaves_no_row(backing: Any) -> None:
    rows = Rows(backing)
    of = run("1")
    batch = rows.planned(of)
    rows.emits(batch, of, ["dog", "cat"])
    rows.counts(of, "dog", "dog", None)
    rows.counts(run("2"), "dog")
    assert rows.rows() == [(1, None, 1, 1), (1, "dog", 1, 1), (1, "dog", 2, 1), (2, "dog", 1, 2)]
    again = backing.ledger.batch("kept", 1)
    assert not backing.commit(rows.topology, again, {"kept": []}).applied


@pytest.mark.rule("R17")
def test_a_restate_replaces_rows_and_leaves_those_of_others(backing: Any) -> None:
    rows = Rows(backing)
    rows.counts(run("1"), "dog", "dog", "cat")
    rows.counts(run("2"), "dog")
    rows.counts(restate_of(1), "dog", "emu")
    assert rows.rows() == [(1, "dog", 1, 3), (1, "emu", 1, 3), (2, "dog", 1, 2)]
    rows.counts(restate_of(1, "second"))
    assert rows.rows() == [(2, "dog", 1, 2)]


@pytest.mark.rule("R22")
def test_retention_prunes_the_rows_of_what_it_folds_and_no_others(backing: Any) -> None:
    rows = Rows(backing, prune=True)
    rows.counts(run("1"), "dog", "dog")
    rows.counts(run("2"), "cat")
    rows.counts(restate_of(1), "dog", "emu")
    rows.counts(run("4"), "dog")
    rows.counts(run("5"), "dog")
    retention = backing.retention
    assert [(each.horizon, each.rows) for each in retention.fold("kept", 2)] == [(0, 0)], "txid 3 counts position 1"
    assert [(each.horizon, each.rows) for each in retention.fold("kept", 3)] == [(3, 5)]
    assert rows.rows() == [(4, "dog", 1, 4), (5, "dog", 1, 5)]
    rows.counts(restate_of(4), "fox")
    assert rows.rows() == [(4, "fox", 1, 6), (5, "dog", 1, 5)]
    assert list(retention.fold("kept", 3)) == []


@pytest.mark.rule("R22")
def test_rows_that_are_not_pruned_stay(backing: Any) -> None:
    rows = Rows(backing)
    rows.counts(run("1"), "dog", "dog")
    rows.counts(run("2"), "dog")
    before = rows.rows()
    assert [each.rows for each in backing.retention.fold("kept", 1)] == [2]
    assert rows.rows() == before


@pytest.mark.rule("R22", "R23")
def test_pruning_begins_and_ends_in_place(backing: Any) -> None:
    kept = Rows(backing)
    for number in range(1, 4):
        kept.counts(run(f"{number}"), "dog")
    pruned = Rows(backing, prune=True)
    with refused("TX601", "'kept'", "rows", "in place"):
        pruned.planned(run("4"))
    pruned.ledger.change(pruned.topology, "jobs/job.py", "they are many")
    pruned.counts(run("4"), "dog")
    assert [each.rows for each in backing.retention.fold("kept", 3)] == [3]
    assert pruned.rows() == [(4, "dog", 1, 4)]
    assert [each.what for each in kept.ledger.redefinitions(kept.topology)] == [
        "rows of state 'kept' stay now when retention folds them"
    ]


@pytest.mark.parametrize("options", [{"contributions": False}, {"database": "warehouse"}])
def test_what_keeps_no_contributions_cannot_be_pruned(options: dict[str, Any]) -> None:
    with refused("TX707", "'kept'"):
        AppendState("kept", prune=True, **options)


@pytest.mark.rule("R21")
def test_rows_apart(backing: Any) -> None:
    rows = Rows(backing, database="warehouse")
    rows.counts(run("1"), "dog", "dog")
    rows.counts(run("2"), "dog")
    assert rows.rows(apart=True) == [(1, "dog", 1, 1), (1, "dog", 2, 1), (2, "dog", 1, 2)]
