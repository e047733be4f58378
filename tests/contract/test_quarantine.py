"""Quarantine: a batch's failed records, once, by position (R1, R5, R17), in both ledgers."""

from __future__ import annotations

from typing import Any

import pytest
from contract.test_restate import restate_of
from support import LogSpout, run

from txbatch import Count, Keep, OpaqueState, Topology
from txbatch.core.batch.transaction import Batch, Run
from txbatch.core.protocol import coordinator
from txbatch.direct.emitter import partials_of
from txbatch.direct.operations import records


class Words:
    """A topology that counts words by number, and quarantines those that are none, on one of both ledgers."""

    def __init__(self, backing: Any) -> None:
        self.backing, self.ledger, self.mended = backing, backing.ledger, False
        self.topology = Topology("words", quarantine=9)
        numbers = self.topology.new_stream("words", LogSpout({"a": 100})).each(self.number, "n bigint")
        numbers.group_by("n").persistent_aggregate(OpaqueState("numbers"), count=Count())

    def number(self, record: Any) -> int:
        return len(record["word"]) if self.mended else int(record["word"])

    def planned(self, of: Run) -> Batch:
        self.ledger.register(self.topology, "jobs/job.py")
        batch = coordinator.initialize_transaction(self.ledger, self.topology, of)
        assert isinstance(batch, Batch)
        return batch

    def emits(self, batch: Batch, of: Run, *words: str) -> dict[str, Any]:
        read = {"words": {"a": [{"word": word} for word in words]}}
        partials = {
            each.state.name: partials_of(each, records(each.stream, read), batch.position)
            for each in self.topology.aggregates
        }
        self.backing.emit(self.topology, batch, partials, of.name)
        return partials

    def counts(self, of: Run, *words: str) -> None:
        batch = self.planned(of)
        assert self.backing.commit(self.topology, batch, self.emits(batch, of, *words)).applied
        assert self.ledger.success("words", batch.txid)

    def failed(self) -> list[tuple[Any, ...]]:
        """Batch, partition, operation, record, copy and txid of each row in quarantine."""
        return sorted(self.backing.kept("words_quarantine", columns=("partition", "operation", "data")))


@pytest.mark.rule("R5", "R17")
def test_failed_records_are_kept_once_and_a_restate_by_the_mended_job_takes_them_out(backing: Any) -> None:
    words = Words(backing)
    batch = words.planned(run("1"))
    words.emits(batch, run("1"), "dog", "cat")  # of an attempt that does not count
    words.counts(run("1"), "1", "dog", "dog")
    words.counts(run("2"), "emu", "2")
    each = ("a", "1. each number")
    dogs = [(1, *each, '{"word": "dog"}', copy, 1) for copy in (1, 2)]
    assert words.failed() == [*dogs, (2, *each, '{"word": "emu"}', 1, 2)]
    words.mended = True
    words.counts(restate_of(1), "1", "dog", "dog")
    assert words.failed() == [(2, *each, '{"word": "emu"}', 1, 2)]


@pytest.mark.rule("R22")
def test_failed_records_of_what_retention_folds_go(backing: Any) -> None:
    words = Words(backing)
    words.counts(run("1"), "1", "dog")
    words.counts(run("2"), "emu", "1")
    words.counts(run("3"), "3", "cat")
    words.counts(restate_of(1), "1", "dog", "dog")
    words.counts(run("5"), "1")
    seen = backing.retention.outlook(backing.retention.past("words", Keep(txids=1)))
    done = list(backing.retention.fold("words", 4))
    assert (seen.quarantined, [(each.horizon, each.quarantined) for each in done]) == (4, [(4, 4)])
    assert words.failed() == []
