"""Rows that retention has pruned, and whoever reads the state they were in (R22), in both ledgers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from contract.test_restate import restate_of
from contract.test_rows import Rows
from contract.test_upstream import JOB
from refusals import refused
from support import LogSpout, code, manifest_of, run

from txbatch import Count, LiveState, OpaqueState, StateSpout, Topology
from txbatch.core.batch.transaction import Assignment, Batch, Restate, TransactionAttempt
from txbatch.core.corrections.rebuild import Swapped
from txbatch.core.protocol import coordinator
from txbatch.core.state.keep import Keep
from txbatch.core.upstream import look_ups
from txbatch.core.upstream.upstream import export
from txbatch.direct.emitter import partials_of

pytestmark = pytest.mark.rule("R22")
FIELDS = "batch bigint, word_before string, word_after string"
Told = list[tuple[Any, ...]]


class Exported:
    """The folder of an attempt, as far as it is exported to."""

    def write_export(self, number: int, fields: Any, records: Iterable[tuple[Any, ...]]) -> None:
        self.records: Told = sorted(map(tuple, records), key=str)


class Pruned(Rows):
    """A topology that keeps words until they are folded, and one that reads which come and go."""

    def __init__(self, backing: Any, **options: Any) -> None:
        super().__init__(backing, **{"prune": True, **options})
        self.reader = Topology("reader")
        changed = self.reader.new_stream("changes", StateSpout("kept", FIELDS)).group_by("batch")
        changed.persistent_aggregate(OpaqueState("seen"), n=Count())

    def four(self) -> None:
        for number in range(1, 5):
            self.counts(run(f"{number}"), f"word {number}")

    def folds(self, txid: int) -> int:
        """Fold up to a txid, and return up to which it is folded then."""
        list(self.backing.retention.fold("kept", txid))
        return int(self.backing.retention.horizon("kept"))

    def plans(self, name: str, of: Restate | None = None) -> Batch:
        self.ledger.register(self.reader, JOB)
        batch = coordinator.initialize_transaction(self.ledger, self.reader, replace(run(name), restate=of))
        assert isinstance(batch, Batch), batch
        return batch

    def exports(self, batch: Batch, name: str) -> Told:
        folder = Exported()
        export(self.reader, self.ledger.upstream, self.backing.attempt(batch, name), folder)  # type: ignore[arg-type]
        return folder.records

    def commits(self, batch: Batch, found: Told, name: str) -> Told:
        partials = {"seen": [((number,), (1,)) for number in sorted({each[0] for each in found})]}
        self.backing.emit(self.reader, batch, partials, name)
        assert self.backing.commit(self.reader, batch, partials).applied
        assert self.ledger.success("reader", batch.txid)
        return found

    def reads(self, name: str, of: Restate | None = None) -> Told:
        """A batch of the reader through all steps: what it was given."""
        batch = self.plans(name, of)
        return self.commits(batch, self.exports(batch, name), name)

    def rebuilds(self, words: dict[int, list[str]]) -> None:
        """Count these words of each version, and swap."""
        rebuilds = self.backing.rebuilds
        rebuild, (aggregate,) = (
            rebuilds.begin(self.topology, JOB, code("new"), "a test", "ann"),
            self.topology.aggregates,
        )
        for txid, of in words.items():
            version = self.ledger.batch("kept", txid)
            assignment = Assignment(
                "kept", TransactionAttempt(txid, 0), uuid4().hex, version.metadata, code("new"), version.position
            )
            found = {"kept": partials_of(aggregate, [{"word": word} for word in of], version.position)}
            manifest = manifest_of(self.topology, assignment, found)
            given = self.backing.as_partials(self.topology, found)
            assert rebuilds.count(rebuild, self.topology, assignment, manifest, given)
        assert isinstance(rebuilds.swap(rebuild, self.topology), Swapped)


ALL = [(number, None, f"word {number}") for number in range(1, 5)]
SAME = {number: [f"word {number}"] for number in range(1, 5)}


@pytest.fixture
def kept(backing: Any) -> Pruned:
    """Four batches are committed."""
    kept = Pruned(backing)
    kept.four()
    return kept


def test_what_read_all_rows_is_not_counted_again_once_some_have_gone(kept: Pruned) -> None:
    assert kept.reads("a") == ALL
    kept.counts(run("5"), "word 5")
    assert kept.reads("b") == [(5, None, "word 5")]
    assert kept.folds(4) == 4
    with refused("TX205", "'kept'", "pruned", "txid 4", "stay unchanged"):
        kept.plans("again", Restate(1, "it was wrong"))
    assert kept.reads("once more", Restate(2, "it was wrong")) == [(5, None, "word 5")]


def test_who_begins_once_rows_have_gone_reads_the_others_again_and_again(kept: Pruned) -> None:
    assert kept.folds(2) == 2
    assert kept.reads("a") == ALL[2:]
    assert kept.reads("again", Restate(1, "it was wrong")) == ALL[2:]
    kept.counts(run("5"), "word 5")
    assert kept.reads("b") == [(5, None, "word 5")]


def test_rows_stay_while_an_open_batch_reads_all_of_them(kept: Pruned) -> None:
    assert kept.folds(1) == 1
    batch = kept.plans("a")
    first = kept.exports(batch, "a")
    kept.counts(run("5"), "word 5")
    past = kept.backing.retention.past("kept", Keep(txids=1))
    assert (past.wanted, past.reached) == (4, 1)
    assert "topology 'reader'" in str(past.waits_for)
    assert kept.folds(4) == 1
    assert kept.exports(batch, "a") == first == ALL[1:]
    kept.commits(batch, first, "a")
    assert kept.folds(4) == 4


def test_an_open_batch_of_the_version_before_goes_on(kept: Pruned) -> None:
    """Its plan does not say what had been pruned; nothing is while it is open."""
    assert kept.folds(1) == 1
    batch = kept.plans("a")
    stream = batch.plan.streams["changes"]
    (range_,) = stream.ranges.values()
    assert range_["pruned"] == 1
    older = {name: value for name, value in range_.items() if name != "pruned"}
    upstream = kept.ledger.upstream
    assert sorted(upstream.changes("kept", older, ["batch"])) == [(2,), (3,), (4,)]


@pytest.mark.rule("R23")
def test_a_rebuild_brings_rows_back_which_is_no_change(kept: Pruned) -> None:
    assert kept.reads("a") == ALL
    kept.counts(run("5"), "word 5")
    kept.reads("b")
    assert kept.folds(3) == 3
    kept.rebuilds({**SAME, 4: ["other 4"], 5: ["word 5"]})
    assert [each[0] for each in kept.rows()] == [1, 2, 3, 4, 5]
    kept.counts(run("6"), "word 6")
    assert kept.folds(5) == 0, "the reader has not read what the rebuild changed"
    changed = [(4, None, "other 4"), (4, "word 4", None), (6, None, "word 6")]
    batch = kept.plans("c")
    assert kept.folds(5) == 0, "an open batch reads it"
    found = kept.exports(batch, "c")
    assert found == sorted(changed, key=str)
    kept.commits(batch, found, "c")
    assert kept.folds(5) == 5
    kept.counts(run("7"), "word 7")
    assert kept.reads("d") == [(7, None, "word 7")]
    with refused("TX205", "rows", "txid 6"):
        kept.plans("again", Restate(3, "it was wrong"))


@pytest.mark.rule("R17", "R23")
def test_what_had_gone_and_is_counted_again_after_a_rebuild_is_not_told_wrong(kept: Pruned) -> None:
    """Nobody knows which rows the reader had of it."""
    kept.reads("a")
    kept.counts(run("5"), "word 5")
    kept.reads("b")
    assert kept.folds(2) == 2
    kept.rebuilds({**SAME, 5: ["word 5"]})
    kept.counts(restate_of(2), "mended 2")
    with refused("TX205", "2", "'kept'", "txid 6", "rebuild"):
        kept.plans("c")


@pytest.mark.rule("R23")
def test_rows_that_stay_since_pruning_began_later_are_changed_by_a_rebuild(backing: Any) -> None:
    """What was folded before is in no row that goes."""
    kept = Pruned(backing, prune=False)
    kept.four()
    assert kept.folds(2) == 2
    pruned = Pruned(backing)
    pruned.ledger.change(pruned.topology, "jobs/job.py", "they are many")
    assert pruned.reads("a") == ALL
    pruned.counts(run("5"), "word 5")
    pruned.reads("b")
    assert pruned.folds(3) == 3
    assert [each[0] for each in pruned.rows()] == [1, 2, 4, 5]
    pruned.rebuilds({**SAME, 1: [], 3: ["other 3"], 5: ["word 5"]})
    pruned.counts(run("6"), "word 6")
    assert pruned.reads("c") == [(1, "word 1", None), (6, None, "word 6")]


# ---- look-ups


class Looking:
    """A topology that looks up in the kept words."""

    def __init__(self, kept: Pruned) -> None:
        self.backing, self.ledger, self.topology = kept.backing, kept.ledger, Topology("asks")
        spout = LogSpout({"a": 1000})
        spout.fields = "word string"
        asked = self.topology.new_stream("in", spout).state_query(
            LiveState("kept", "word string, batch bigint"), "word"
        )
        asked.persistent_aggregate(OpaqueState("asks"), n=Count())

    def plans(self, name: str, of: Restate | None = None) -> Batch:
        self.ledger.register(self.topology, JOB)
        batch = coordinator.initialize_transaction(self.ledger, self.topology, replace(run(name), restate=of))
        assert isinstance(batch, Batch), batch
        return batch

    def exports(self, batch: Batch, name: str) -> list[int]:
        folder = Exported()
        look_ups.export(self.topology, self.ledger.upstream, self.backing.attempt(batch, name), folder)  # type: ignore[arg-type]
        return sorted(number for _, number in folder.records)

    def commits(self, batch: Batch, name: str) -> None:
        partials = {"asks": [((), (1,))]}
        self.backing.emit(self.topology, batch, partials, name)
        assert self.backing.commit(self.topology, batch, partials).applied


def test_rows_stay_while_an_open_batch_looks_them_up(kept: Pruned) -> None:
    asks = Looking(kept)
    batch = asks.plans("a")
    assert asks.exports(batch, "a") == [1, 2, 3, 4]
    kept.counts(run("5"), "word 5")
    assert kept.folds(4) == 0
    assert asks.exports(batch, "a") == [1, 2, 3, 4]
    asks.commits(batch, "a")
    assert kept.folds(4) == 4
    with refused("TX205", "'kept'", "pruned", "txid 4", "`txbatch abort`"):
        asks.plans("again", Restate(1, "it was wrong"))
    assert asks.exports(asks.plans("b"), "b") == [5]
