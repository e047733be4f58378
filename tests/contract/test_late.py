"""Late records by each policy, and the windows that close: golden cases in golden/late/ and golden/closed_windows/ (R25, R26).

A case has a `window`, what `window` takes after the time, a policy `late`, and from when on its minutes count, `begin`. A step
is a `batch`, a `restate` of a position, the batch of a day, `interval`, or `late`: another policy, which is refused by a `code`
and `names`, and is then applied by a `rebuild` that reads these. It says which `watermark` a commit leaves, how many were late,
`found`, of which starts it `closes` windows, and which are `handed_on`: start, visits, and the txid that closed it; null:
nothing is new. At the end there are `counts` by start, and rows `aside`: batch, time, and start. Of `streams` that are merged a
batch has some.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from contract.test_closings import Finals
from contract.test_restate import restate_of
from contract.test_watermarks import DAY, Days, Minutes, Visits, at
from refusals import refused
from support import LogSpout, code, manifest_of, run

from txbatch import Count, OpaqueState, SpoutKind, Topology, window
from txbatch.core.batch.manifest import Manifest
from txbatch.core.batch.transaction import Assignment, Batch, Run, TransactionAttempt
from txbatch.core.protocol import coordinator
from txbatch.core.protocol.coordinator import NothingNew
from txbatch.core.records.time_buckets import micros_of
from txbatch.core.windows.watermark import BEGIN
from txbatch.core.windows.window import Window
from txbatch.direct.emitter import counting, described, partials_of
from txbatch.direct.operations import records

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = sorted(path for folder in ("late", "closed_windows") for path in (GOLDEN / folder).glob("*.json"))


class Merged(Visits):
    """The same of streams that are merged: what a batch reads is by stream."""

    def __init__(self, backing: Any, names: Sequence[str], late: str, by: Window) -> None:
        super().__init__(backing, late=late, by=by)
        self.topology, self.spouts = Topology("visits", max_pending=3), {name: LogSpout({}) for name in names}
        for spout in self.spouts.values():
            spout.kind, spout.fields = SpoutKind.OPAQUE, "at timestamp, shop string"
        streams = [self.topology.new_stream(*each) for each in self.spouts.items()]
        both = self.topology.merge(*streams, name="both").with_watermark("at", "10 minutes", late=late)
        self.aggregate = both.group_by(by, "shop").persistent_aggregate(OpaqueState("visits"), visits=Count())

    def planned(self, of: Run, *partitions: str) -> Batch:
        for name, spout in self.spouts.items():
            spout.lengths = {"a": 1_000_000} if name in partitions else {}
        self.ledger.register(self.topology, "jobs/job.py")
        batch = coordinator.initialize_transaction(self.ledger, self.topology, of)
        assert isinstance(batch, Batch), batch
        return batch

    def told(self, assignment: Assignment, minutes: Minutes) -> tuple[Manifest, Any]:
        read = {name: {"a": [{"at": at(each), "shop": "x"} for each in of or ()]} for name, of in minutes.items()}
        (aggregate,), marks = self.topology.aggregates, assignment.plan.watermark
        kept, late = counting(aggregate, list(records(aggregate.stream, read)), marks)
        partials = {"visits": partials_of(aggregate, kept, assignment.position, aggregate.late_before(marks))}
        manifest = manifest_of(self.topology, assignment, partials)
        streams = {name: {"a": described(parts["a"], "at")} for name, parts in read.items()}
        states = {"visits": replace(manifest.states["visits"], kept=len(kept), late=late)}
        return replace(manifest, streams=streams, states=states), partials

    def times(self, txid: int) -> tuple[Any, int | None]:
        marks, late = self.backing.times("visits", txid)
        return marks and {name: (mark - micros_of(DAY)) // 60_000_000 for name, mark in marks.items()}, late["visits"]


class Told:
    """A case as it is told to one of both ledgers."""

    def __init__(self, backing: Any, case: Mapping[str, Any]) -> None:
        self.backing, self.case, self.by = backing, case, window("at", **case["window"])
        begin = datetime.fromisoformat(case.get("begin", DAY.isoformat()))
        self.begin = (begin - DAY).total_seconds() // 60
        self.visits = self.defined(case["late"])
        self.finals, self.handed_on, self.number = Finals(self.visits), list[Any](), 0

    def defined(self, late: str) -> Visits:
        if "streams" in self.case:
            return Merged(self.backing, self.case["streams"], late, self.by)
        made: Any = Days if any("interval" in step for step in self.case["steps"]) else Visits
        return made(self.backing, late=late, by=self.by)  # type: ignore[no-any-return]

    def minutes(self, read: Any) -> dict[str, list[int]]:
        """What is read by partition, or by stream."""
        parts = read if isinstance(read, Mapping) else {"a": read}
        return {name: [int(self.begin) + each for each in of] for name, of in parts.items()}

    def of_case(self, time: datetime | int | None) -> Any:
        """A time in the minutes of the case; None: from ever."""
        if time is None or time == BEGIN:
            return None
        micros = time if isinstance(time, int) else micros_of(time)
        return (micros - micros_of(at(int(self.begin)))) // 60_000_000

    def steps(self) -> None:
        for step in self.case["steps"]:
            if "late" in step:
                self.changes(step)
                continue
            self.number += 1
            mark, late = self.counts(step)
            if isinstance(mark, int):
                mark -= int(self.begin)
            assert (mark, late) == (step["watermark"], step["found"]), step
            if "closes" in step:
                assert self.closes() == step["closes"], step
                self.hands_on(step)

    def counts(self, step: Mapping[str, Any]) -> tuple[Any, int | None]:
        read = self.minutes(step["batch"])
        if "interval" in step and isinstance(self.visits, Days):
            day = step["interval"]
            return self.visits.counts_day(self.visits.plans(day), day, *(each - day * 1440 for each in read["a"]))
        name = str(self.number)
        return self.visits.counts(restate_of(step["restate"], name) if "restate" in step else name, **read)

    def closes(self) -> Any:
        """From which start on the last batch closed windows, and before which."""
        _, closed = self.backing.closings("visits", self.number)
        return [self.of_case(each) for each in closed["visits"][1:]] if closed else None

    def hands_on(self, step: Mapping[str, Any]) -> None:
        name = f"plan {self.number}"
        if step["handed_on"] is None:
            assert isinstance(self.finals.plans(name), NothingNew), step
            return
        assert self.shown(self.finals.reads(name)) == step["handed_on"], step
        self.handed_on += step["handed_on"]

    def shown(self, rows: Sequence[tuple[Any, ...]]) -> list[list[int]]:
        return sorted([self.of_case(start), visits, by] for start, visits, by in rows)

    def changes(self, step: Mapping[str, Any]) -> None:
        """Another policy is refused, and holds after a rebuild of all that was read."""
        self.visits = visits = self.defined(step["late"])
        with refused(step["code"], *step["names"]):
            visits.planned(run("refused"), "a")
        rebuilds = self.backing.rebuilds
        rebuild = rebuilds.begin(visits.topology, "jobs/job.py", code("new"), "a test")
        for read in step["rebuild"]:
            version = rebuilds.next(rebuild)
            attempt = TransactionAttempt(version.txid, 1)
            assignment = Assignment("visits", attempt, f"token {version.txid}", version.metadata, code("new"))
            manifest, partials = visits.told(assignment, self.minutes(read))
            given = self.backing.as_partials(visits.topology, partials)
            assert rebuilds.count(rebuild, visits.topology, assignment, manifest, given)
        rebuilds.swap(rebuild, visits.topology)

    def ends(self) -> None:
        """All that there is at the end; a reader that comes then gets what was handed on, all at once."""
        rows = self.backing.report(self.visits.topology, "visits")
        counts = {str(self.of_case(row["window_start"])): row["visits"] for row in rows}
        assert counts == self.case["counts"]
        if self.case["late"] == "side" or "aside" in self.case:
            rows = self.backing.report(self.visits.topology, "visits_late")
            aside = [[row["batch"], self.of_case(row["at"]), self.of_case(row["window_start"])] for row in rows]
            assert sorted(aside) == self.case["aside"]
        if self.handed_on:
            assert self.shown(Finals(self.visits, "after").reads("all")) == sorted(self.handed_on)


@pytest.mark.rule("R25")
@pytest.mark.rule("R26")
@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_golden(backing: Any, path: Path) -> None:
    told = Told(backing, json.loads(path.read_text(encoding="utf-8")))
    told.steps()
    told.ends()
