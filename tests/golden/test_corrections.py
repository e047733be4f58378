"""The golden cases of corrections (R16..R19): data in corrections/<case>.json, told to the twin and to PostgreSQL.

A case says what it counts (`values`, `keys`, `type` of the number, `remove`, `state`) and its `steps`; each uses the next txid.
`batch` and `restate` read records: "dog" is a one, "dog 5" a five, "dog -" a null, "-dog" takes the key away; by partition, where
there are several, of which one may be "away". A step that is only planned (`later`) is carried out by `goes`. `shows` is what
reports show then: per key the values and the txid; `as_of` what they showed after a txid, `corrected` what all up to a position
amounts to today. A step with a `code` is refused, by a text that `names` these values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from model.places import Place, Real, Twin
from refusals import refused
from sqlalchemy import Engine
from support import LogSpout, manifest_of, read_all
from support import code as code_of

import txbatch
from txbatch import NonTransactionalState, OpaqueState, SpoutKind, Topology, TransactionalState
from txbatch.core.batch.transaction import Batch, Restate, Run
from txbatch.core.protocol import coordinator
from txbatch.direct.emitter import partials_of
from txbatch.postgres.database.engine import connect

CASES = sorted((Path(__file__).parent / "corrections").glob("*.json"))
STATES: Any = {"opaque": OpaqueState, "transactional": TransactionalState, "non_transactional": NonTransactionalState}
READ_AS = {"bigint": int, "string": str, "date": date.fromisoformat, "decimal(10,2)": Decimal, "double": float}
Step = Mapping[str, Any]


class Case:
    """A topology, and the steps that it goes through."""

    def __init__(self, place: Place, name: str, case: Mapping[str, Any]) -> None:
        self.place, self.ledger, self.name, self.case = place, place.ledger, name, case
        kind = SpoutKind.TRANSACTIONAL if case.get("state") == "transactional" else SpoutKind.OPAQUE
        self.spout = LogSpout(dict.fromkeys(case.get("partitions", ["p"]), 100), 1, kind)
        self.type = case.get("type", "bigint")
        self.spout.fields = f"word string, n {self.type}, gone boolean"
        self.topology = self._topology()
        self.runs, self.txids = dict[int, Run](), 0
        self.ledger.register(self.topology, "jobs/golden.py")

    def _topology(self) -> Topology:
        topology, case = Topology(self.name, max_pending=4), self.case
        keys, values = case.get("keys", ["word"]), case.get("values", {"count": ["Count"]})
        stream = topology.new_stream("in", self.spout)
        (stream.group_by(*keys) if keys else stream).persistent_aggregate(
            STATES[case.get("state", "opaque")](self.name),
            guarantee="at_least_once" if case.get("state") == "non_transactional" else "exactly_once",
            remove=(lambda record: record["gone"]) if case.get("remove") else None,
            **{name: getattr(txbatch, made)(*of) for name, (made, *of) in values.items()},
        )
        return topology

    def tell(self, step: Step) -> None:
        """One step, with what must come of it."""
        if "code" in step:
            before = self.place.report(self.topology)
            with refused(step["code"], *step["names"]):
                self.act(step)
            assert self.place.report(self.topology) == before
        else:
            self.act(step)
        if "shows" in step:
            assert shown(self.place.report(self.topology)) == step["shows"], step

    def act(self, step: Step) -> None:
        match step:
            case {"goes": txid}:
                self.goes(txid, step["reads"])
            case {"abort": txid}:
                self.ledger.abort(self.name, txid, "not wanted")
            case {"skip": txid}:
                self.txids = self.ledger.skip(self.name, txid, "given up").txid
            case _:
                txid = self.planned(step)
                if not step.get("later"):
                    self.goes(txid, step.get("reads", step.get("batch")))

    def planned(self, step: Step) -> int:
        """The next txid, which is this step's."""
        again = None
        if "restate" in step:
            missing, skipped = step.get("accept_missing", False), step.get("skipped", False)
            again = Restate(step["restate"], "it was wrong", "anna", accept_missing=missing, skipped=skipped)
        run = Run(f"run {self.txids + 1}", restate=again)
        batch = coordinator.initialize_transaction(self.ledger, self.topology, run)
        assert isinstance(batch, Batch)
        self.txids += 1
        self.runs[self.txids] = run
        assert batch.txid == self.txids
        if "plans" in step:
            ranges = batch.plan.streams["in"].ranges
            assert {name: [each["start"], each["end"]] for name, each in ranges.items()} == step["plans"], step
        return batch.txid

    def goes(self, txid: int, reads: Any) -> None:
        """Emit, commit and success."""
        by_partition = reads if isinstance(reads, Mapping) else {"p": reads}
        away = {name: "it is away" for name, part in by_partition.items() if part == "away"}
        records = [
            self.record(each) for name, part in sorted(by_partition.items()) if name not in away for each in part
        ]
        partials = {self.name: partials_of(self.topology.aggregates[0], records)}
        assignment = self.ledger.start_attempt(self.ledger.batch(self.name, txid), self.runs[txid], code_of())
        planned = read_all(assignment)["in"]
        assert planned.keys() == by_partition.keys(), f"txid {txid} reads {[*planned]}"
        read = {"in": {name: each for name, each in planned.items() if name not in away}}
        manifest = manifest_of(
            self.topology, assignment, partials, streams=read, unreadable={"in": away} if away else {}
        )
        emitted = self.ledger.record_manifests([(assignment, manifest)])[0]
        assert self.ledger.commit(self.topology, emitted, self.place.as_partials(self.topology, partials)).applied
        assert self.ledger.success(self.name, txid)

    def record(self, told: str) -> dict[str, Any]:
        word, _, n = told.lstrip("-").partition(" ")
        value = None if n == "-" else READ_AS[self.type](n or "1")
        return {"word": word, "n": value, "gone": told.startswith("-")}


def shown(report: Mapping[str, Any]) -> dict[str, list[Any]]:
    """As a case has it."""
    plain = {key: [*map(_plain, values), txid] for key, (values, txid) in report.items()}
    return dict(sorted(plain.items()))


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value


@pytest.fixture(scope="module")
def database(new_database: Callable[[str], str]) -> Iterator[Engine]:
    """One for all cases, of which each has a topology of its own."""
    engine = connect(new_database("migrated"))
    yield engine
    engine.dispose()


@pytest.mark.rule("R16", "R17", "R18", "R19")
@pytest.mark.parametrize("ledger", ["memory", "postgres"])
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_correction(path: Path, ledger: str, request: pytest.FixtureRequest) -> None:
    place: Place = Twin() if ledger == "memory" else Real(request.getfixturevalue("database"))
    told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    case = Case(place, path.stem, told)
    steps: Sequence[Step] = told["steps"]
    for step in steps:
        case.tell(step)
    for txid, rows in told.get("as_of", {}).items():
        assert shown(place.as_of(case.topology, int(txid))) == rows, f"as of {txid}"
    for txid, rows in told.get("corrected", {}).items():
        assert shown(place.corrected(case.topology, int(txid))) == rows, f"corrected, up to {txid}"


def test_there_are_as_many_as_promised() -> None:
    assert len(CASES) >= 60
