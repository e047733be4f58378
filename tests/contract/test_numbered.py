"""Windows by count: records have the numbers of the plan, whatever becomes of its attempts, in both ledgers (R29)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import refusals
from contract.test_restate import restate_of
from refusals import refused
from support import LogSpout, code, manifest_of, run

from txbatch import CollectSet, OpaqueState, Topology
from txbatch.core.batch.manifest import ReadPartition
from txbatch.core.batch.plan import BatchPlan
from txbatch.core.batch.transaction import Assignment, Batch, Run, TransactionAttempt
from txbatch.core.errors import BrokenChain
from txbatch.core.protocol import coordinator, planning_ahead
from txbatch.direct.emitter import partials_of
from txbatch.direct.operations import records

pytestmark = pytest.mark.rule("R29")
GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "numbered").glob("*.json"))


class Visits:
    """A topology that collects shops by windows of so many visits, on one of both ledgers."""

    def __init__(
        self, backing: Any, size: int = 3, slide: int | None = None, stream: str = "visits", **options: Any
    ) -> None:
        self.backing, self.batches = backing, dict[str, Batch]()
        self.topology, spout = Topology("visits"), LogSpout({"a": 1_000_000})
        every = slide or size

        def starts(record: Any) -> list[tuple[int]]:
            last = record["number"] - record["number"] % every
            return [(start,) for start in range(last - size + every, last + 1, every)]

        numbers = self.topology.new_stream(stream, spout, **options).numbered()
        windows = numbers.flat_map(lambda r: [(*start, r["word"]) for start in starts(r)], "first bigint, word string")
        self.aggregate = windows.group_by("first").persistent_aggregate(OpaqueState("visits"), words=CollectSet("word"))
        self.stream = stream

    @property
    def ledger(self) -> Any:
        """That of the backing, which a restart replaces."""
        return self.backing.ledger

    def planned(self, of: Run) -> Batch:
        self.ledger.register(self.topology, "jobs/job.py")
        batch = coordinator.initialize_transaction(self.ledger, self.topology, of)
        assert isinstance(batch, Batch), batch
        return batch

    def partials(self, plan: BatchPlan, words: str, position: int) -> Any:
        read = {self.stream: {"a": [{"word": word} for word in words]}}
        return {"visits": partials_of(self.aggregate, records(self.aggregate.stream, read, plan=plan), position)}

    def read(self, words: str) -> dict[str, dict[str, ReadPartition]]:
        return {self.stream: {"a": ReadPartition(len(words), str(sum(map(ord, words))))}}

    def attempts(self, batch: Batch, words: str, name: str) -> Any:
        partials = self.partials(batch.plan, words, batch.position)
        self.backing.emit(self.topology, batch, partials, name, streams=self.read(words))
        return partials

    def commits(self, batch: Batch, words: str, name: str) -> Any:
        committed = self.backing.commit(self.topology, batch, self.attempts(batch, words, name))
        assert committed.applied
        return committed.batch

    def report(self) -> list[list[Any]]:
        rows = self.backing.report(self.topology, "visits")
        return sorted([row["first"], "".join(sorted(row["words"]))] for row in rows)

    def tell(self, step: Any) -> None:
        match step:
            case {"plan": name}:
                self.batches[name] = self.planned(
                    restate_of(step["restates"], name) if "restates" in step else run(name)
                )
            case {"attempt": name, "records": words}:
                self.attempts(self.batches[name], words, name)
            case {"commit": name, "records": words}:
                self.commits(self.batches[name], words, name)
            case {"refused": name, "records": words, "code": code, "names": names}:
                with refused(code, *names):
                    self.commits(self.batches[name], words, name)
            case {"abort": name}:
                self.ledger.abort("visits", self.batches[name].txid, "a test")
            case {"report": expected}:
                assert self.report() == [[first, "".join(sorted(words))] for first, words in expected]
            case {"restart": True}:
                self.backing.reconnect()
            case _:
                raise AssertionError(step)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden(backing: Any, path: Path) -> None:
    """A run's batch is planned, attempted, committed with these records, each a letter; windows as first number and records."""
    case = json.loads(path.read_text(encoding="utf-8"))
    visits = Visits(backing, *case["window"])
    for step in case["steps"]:
        visits.tell(step)


def test_the_plan_says_from_which_number_on_its_records_are(backing: Any) -> None:
    visits = Visits(backing)
    first = visits.planned(run("1"))
    assert (first.plan.base, first.metadata["format"]) == ({"visits": 0}, 7)
    visits.commits(first, "abcd", "1")
    assert visits.planned(run("2")).plan.base == {"visits": 4}


def test_of_batches_that_are_planned_ahead_the_first_alone_has_its_numbers(backing: Any) -> None:
    """A process may plan several that it brings to their commits itself: the next one is planned anew."""
    visits = Visits(backing)
    visits.ledger.register(visits.topology, "jobs/job.py")
    first, second = planning_ahead.initialize_many(visits.ledger, visits.topology, [run("1"), run("2")])
    visits.commits(first, "ab", "1")
    told = "txid 2 numbers records of stream 'visits' from 0 on, and 2 are committed: it is aborted and planned anew"
    with pytest.raises(BrokenChain, match=told):
        visits.commits(second, "cd", "2")
    visits.ledger.abort("visits", 2, "its numbers are another's")
    visits.commits(visits.planned(run("2")), "cd", "2")
    assert visits.report() == [[0, "abc"], [3, "d"]]


@pytest.mark.rule("R16", "R17")
def test_what_was_given_up_has_no_numbers_and_is_not_counted_after_all(backing: Any) -> None:
    visits = Visits(backing)
    visits.commits(visits.planned(run("1")), "ab", "1")
    skip = visits.ledger.skip("visits", visits.planned(run("2")).txid, "poison")
    after_all = visits.planned(restate_of(skip.txid, "again", skipped=True))
    with refusals.refused("TX603", "txid 3", "0", "'visits'", "2"):
        visits.commits(after_all, "cd", "again")
    visits.ledger.abort("visits", after_all.txid, "its records have no numbers")
    visits.commits(visits.planned(run("4")), "ef", "4")
    assert visits.report() == [[0, "abe"], [3, "f"]]


@pytest.mark.rule("R23")
def test_a_rebuild_has_the_numbers_of_the_plans_and_as_many_records(backing: Any) -> None:
    visits = Visits(backing)
    for name, words in (("1", "ab"), ("2", "cd")):
        visits.commits(visits.planned(run(name)), words, name)
    rebuild = backing.rebuilds.begin(visits.topology, "jobs/job.py", code("new"), "a test")

    def counts(words: str) -> None:
        version = backing.rebuilds.next(rebuild)
        attempt = TransactionAttempt(version.txid, 1)
        assignment = Assignment("visits", attempt, f"token {version.txid}", version.metadata, code("new"))
        partials = visits.partials(assignment.plan, words, version.txid)
        manifest = replace(manifest_of(visits.topology, assignment, partials), streams=visits.read(words))
        given = backing.as_partials(visits.topology, partials)
        assert backing.rebuilds.count(rebuild, visits.topology, assignment, manifest, given)

    with refusals.refused("TX603", "txid 1", "2", "'visits'"):
        counts("x")
    counts("xy")
    counts("zw")
    backing.rebuilds.swap(rebuild, visits.topology)
    assert visits.report() == [[0, "wxy"], [3, "z"]]
    assert visits.planned(run("3")).plan.base == {"visits": 4}


@pytest.mark.rule("R23")
def test_numbers_go_on_where_a_stream_has_another_name(backing: Any) -> None:
    visits = Visits(backing)
    visits.commits(visits.planned(run("1")), "ab", "1")
    renamed = Visits(backing, stream="calls", was="visits")
    backing.ledger.change(renamed.topology, "jobs/job.py", "a test")
    second = renamed.planned(run("2"))
    assert second.plan.base == {"calls": 2}
    renamed.commits(second, "cd", "2")
    assert renamed.report() == [[0, "abc"], [3, "d"]]
