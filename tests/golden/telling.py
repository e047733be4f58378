"""How a story in protocol/<story>.json is told: its source, then its steps, each carried out as `model.story` does.

| step | what happens |
|---|---|
| {"initialize": "run 1", "day": "2013-01-01", "away": ["b"]} | the run asks for its batch; these partitions cannot be asked |
| {"attempt": 1, "by": "run 1"} | emit_batch begins for txid 1 |
| {"emit": "1:1", "away": [], "other": ["a"], "forgets": ["b"]} | the attempt reads, and offers its manifest |
| {"commit": "1:1", "loses": 1, "dies": true} | a commit task that has loaded this attempt's partials applies them |
| {"success": 1}, {"renew": "1:1"}, {"expire": 1}, {"abort": 1}, {"skip": 1} | as in `model.story` |
| {"whole": "run 1", ...} | all steps of a run's batch, one after the other |
| {"restate": 1, "by": "again", "whole": true, "skipped": true} | a run counts a txid again: it asks, or does all steps |
| {"look": "run 1"}, {"wake": true} | initialize_transaction, stalled before it stores its plan; it goes on |
| {"arrive": {"a": 2}} | records, also those of a partition that was not there before; fewer, where a number is below 0 |
| {"restart": true} | every process begins anew, but for the database's |
| {"forget": true} | the database is lost; attempts of before are named "old 1:1" |
| {"meddle": "a", "txid": 9} | somebody else changes a row |
| {"report": {...}}, {"query": {"a": 1, "zebra": null}} | what people see just then |

A commit that `dies` does so in the last moment: where the state is apart, the warehouse has committed.
Each may say what it `gives`, or that it is refused: the `code` of the error and the values that its text `names` (see
refusals.py); then nothing may have changed. `plan` is the ranges that a batch got. After each step every invariant of
`model.oracle` is checked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from model.ledgers import View
from model.oracle import check
from model.source import STREAM, Log, Size, Weights
from model.story import Story, Work
from refusals import refused
from support import Keyed, ListSpout, run, word_count

from txbatch import NonTransactionalState, OpaqueState, PartitionUnreadable, SpoutKind, Topology, TransactionalState
from txbatch.core.batch.manifest import Manifest, ReadPartition
from txbatch.core.batch.transaction import Assignment, Batch, Interval, Metadata, Restate, Run, TransactionAttempt
from txbatch.core.protocol.coordinator import NothingNew
from txbatch.core.protocol.decisions import Wait
from txbatch.failpoints import FailpointReached

STATES = {"non_transactional": NonTransactionalState, "transactional": TransactionalState, "opaque": OpaqueState}
Step = dict[str, Any]


class List(Weights, ListSpout):
    """A source without partitions; each batch takes what is listed."""


class Files(Log):
    """A source whose partitions are read once, whole; each may be replaced by another one (R17)."""

    def emit_partition_batch_new(
        self, attempt: TransactionAttempt, partition: str, last_metadata: Metadata | None
    ) -> Metadata | None:
        self._look_at(partition)
        return None if last_metadata else {"start": 0, "end": self.lengths[partition]}

    def plan_again(self, partition: str, metadata: Metadata) -> Metadata:
        self._look_at(partition)
        return {"start": 0, "end": self.lengths[partition]}

    def _look_at(self, partition: str) -> None:
        if partition in self.away:
            raise PartitionUnreadable(f"{partition} is away")


class Days(Weights, ListSpout):
    """A source that is read by time, a UTC day at a time; with so many records each."""

    by_interval = True

    def __init__(self, days: Mapping[str, int], kind: SpoutKind) -> None:
        super().__init__(kind=kind)
        self.days = dict(sorted(days.items()))

    def initialize_transaction(
        self, txid: int, prev_metadata: Metadata | None, curr_metadata: Metadata | None
    ) -> Metadata:
        assert curr_metadata is not None
        start, end = (self._before(each[:10]) for each in curr_metadata["interval"])
        return {**curr_metadata, "start": start, "end": end}

    def _before(self, day: str) -> int:
        return sum(records for each, records in self.days.items() if each < day)


def topology_of(case: Mapping[str, Any]) -> Topology:
    """The topology of a story; raises what a wrong definition does."""
    kind, source = SpoutKind(case.get("spout", "opaque")), case["source"]
    spouts = {"partitions": Log, "files": Files, "list": lambda sizes, kind: List(*sizes, kind=kind), "days": Days}
    ((form, content),) = ((form, source[form]) for form in spouts if form in source)
    spout = spouts[form](content, kind=kind)  # type: ignore[operator]
    spout.size, spout.away = source.get("batch", 1), ()
    state = STATES[case.get("state", str(kind))]("story", database="warehouse" if case.get("apart") else None)
    said = case.get("guarantee", "exactly_once")
    return word_count(spout, "story", state=state, max_pending=case.get("max_pending", 1), guarantee=said)


class Told(Story):
    """A story that is told step by step."""

    def __init__(self, case: Mapping[str, Any], view: View, patch: pytest.MonkeyPatch) -> None:
        topology = topology_of(case)
        spout = topology.streams[STREAM].spout
        size = Size(0, 0, 0, spout.kind, topology.max_pending)
        super().__init__(size, view, topology=topology)
        self.patch, self.step = patch, Step()
        self.days: dict[str, str] = {}
        self.again: dict[str, Restate] = {}
        self.old: dict[int, tuple[Work, ...]] = {}
        self.meddled = False

    def tell_all(self, steps: Sequence[Step]) -> None:
        """All steps, one after the other."""
        for step in steps:
            self.tell(step)

    def tell(self, step: Step) -> None:
        """One step, with what must come of it."""
        verb, self.step = next(name for name in step if hasattr(self, f"do_{name}")), step
        act, before = getattr(self, f"do_{verb}"), self.view.seen(self.name)
        if "code" in step:
            with refused(step["code"], *step["names"]):
                act(step[verb])
            assert self.view.seen(self.name) == before, f"{step}: refused, and yet something changed"
        else:
            gives = act(step[verb])
            assert gives == step.get("gives", gives), f"{step}: gives {gives!r}"
        self.check()

    def check(self) -> None:
        """Every invariant; not of a state that somebody else has changed."""
        if not self.meddled:
            check(self.view.seen(self.name), self.read, self.source, self.size.max_pending)

    # ---- steps

    def do_initialize(self, name: str) -> str:
        found = self.ask(name)
        if "plan" in self.step:
            assert planned(found) == self.step["plan"], f"{self.step}: {planned(found)}"
        return told(found)

    def do_restate(self, txid: int) -> str:
        name = self.step.get("by", "again")
        flags = {flag: self.step.get(flag, False) for flag in ("accept_missing", "skipped")}
        self.again[name] = Restate(txid, "it was wrong", **flags)
        return self.do_whole(name) if self.step.get("whole") else self.do_initialize(name)

    def do_look(self, name: str) -> None:
        self.look(name, self.away)

    def do_wake(self, _: bool) -> str:
        return told(self.wake())

    def do_attempt(self, txid: int) -> str:
        self.attempt(self.step.get("by", f"run {txid}"), txid)
        return str(self.works[txid][-1].assignment.attempt)

    def do_emit(self, attempt: str) -> None:
        known = self.works
        if attempt.startswith("old "):
            self.works = self.old
        try:
            self.emit(*numbers(attempt.removeprefix("old ")), self.away)
        finally:
            self.works = known if attempt.startswith("old ") else self.works

    def do_commit(self, attempt: str) -> str:
        with self.patch.context() as patch:
            if self.step.get("dies"):
                self.view.die_in_commit(patch)
            try:
                return "committed" if self.commit(*numbers(attempt)) else "aborted"
            except FailpointReached:
                return "dead"

    def do_success(self, txid: int) -> bool:
        return self.ledger.success(self.name, txid)

    def do_renew(self, attempt: str) -> bool:
        txid, number = numbers(attempt)
        return self.ledger.renew_lease(self.works[txid][number].assignment)

    def do_expire(self, txid: int) -> None:
        self.expire(txid)

    def do_abort(self, txid: int) -> None:
        self.abort(txid)

    def do_skip(self, txid: int) -> str:
        self.skip(txid)
        return told(self.ledger.batch(self.name, len(self.view.seen(self.name).batches)))

    def do_whole(self, name: str) -> str:
        """All the steps of a run, while partitions may be away."""
        txid = self.ask(name).txid
        self.attempt(name, txid)
        number = len(self.works[txid]) - 1
        self.emit(txid, number, self.away)
        assert self.commit(txid, number), f"{self.step}: does not continue"
        assert self.ledger.success(self.name, txid)
        return f"txid {txid}"

    def do_arrive(self, records: Mapping[str, int]) -> None:
        for partition, number in records.items():
            there = self.source.days if isinstance(self.source, Days) else self.source.lengths
            there[partition] = there.get(partition, 0) + number

    def do_restart(self, _: bool) -> None:
        self.view.restart()
        self.ledger = self.view.ledger
        self.ledger.register(self.topology, "jobs/model.py")

    def do_forget(self, _: bool) -> None:
        self.view.forget(self.name)
        self.old, self.works = self.works, {}
        self.do_restart(True)

    def do_meddle(self, key: str) -> None:
        self.view.meddle(self.name, (key,), self.step["txid"])
        self.meddled = True

    def do_report(self, rows: Mapping[str, int]) -> None:
        assert self.view.report(self.name) == rows, self.step

    def do_query(self, rows: Mapping[str, int | None]) -> None:
        assert self.view.query(self.name, list(rows)) == rows, self.step

    # ---- how

    @property
    def away(self) -> list[str]:
        """The partitions that cannot be read just then."""
        return list(self.step.get("away", ()))

    def ask(self, name: str) -> Any:
        """The run's batch, or why there is none."""
        self.days |= {name: self.step["day"]} if "day" in self.step else {}
        return self.initialize(name, self.away)

    def staged(self, work: Work) -> list[Keyed]:
        """As it was, but for the rows that the step loses."""
        return super().staged(work)[self.step.get("loses", 0) :]

    def run(self, name: str) -> Run:
        """The run of that name; by time, it has its day."""
        if name in self.again:
            return replace(run(name), restate=self.again[name])
        if name not in self.days:
            return run(name)
        start = datetime.fromisoformat(self.days[name]).replace(tzinfo=UTC)
        return replace(run(name), interval=Interval(start, start + timedelta(days=1)))

    def manifest(self, assignment: Assignment, away: Collection[str]) -> Manifest:
        """An honest attempt's, but for what the step says."""
        manifest = super().manifest(assignment, away)
        forgets, other = self.step.get("forgets", ()), self.step.get("other", ())
        read = {name: each for name, each in manifest.streams[STREAM].items() if name not in forgets}
        read |= {name: ReadPartition(read[name].records, "-1") for name in other}
        return replace(manifest, streams={STREAM: read})


def numbers(attempt: str) -> tuple[int, int]:
    """The txid, and the place of the attempt among those of the txid."""
    txid, attempt_id = attempt.split(":")
    return int(txid), int(attempt_id) - 1


def planned(batch: Batch) -> dict[str, list[int]]:
    """What a batch is to read."""
    return {name: [each["start"], each["end"]] for name, each in batch.plan.streams[STREAM].ranges.items()}


def told(found: Any) -> str:
    """What a run learns of its batch."""
    if isinstance(found, Wait):
        return f"waits for txid {found.batch.txid}"
    if isinstance(found, NothingNew):
        return "nothing new"
    return f"txid {found.txid} {found.status}" if found else "too late"


def batches(story: Told) -> list[str]:
    """Each batch: how it ended, and by which attempt."""
    return [f"{each.attempt} {each.status}" for each in story.view.seen(story.name).batches]


def holes(story: Told) -> dict[str, list[int]]:
    """By partition the txids that left it out."""
    found: dict[str, list[int]] = {}
    for (txid, partition), read in sorted(story.view.seen(story.name).read.items()):
        if read is None:
            found.setdefault(partition, []).append(txid)
    return found
