"""The connection is cut before and after the statements of a restate's life: reports show what was or what is, never between.

SOAK_STRIDE=1 takes each statement, as `make soak` does; else every 33rd, every eleventh in `make test-all`, others in each case.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from random import Random

import psycopg2
import pytest
from model.places import Real
from sizes import some_of
from soak.dying import Life, Process
from sqlalchemy import Engine
from support import Keyed, LogSpout, code, manifest_of, record_batch, run, word_count

from txbatch import Max, Topology
from txbatch.core.batch.transaction import Batch, BatchStatus, Restate, Run
from txbatch.core.errors import TxbatchError
from txbatch.core.protocol import coordinator
from txbatch.core.protocol.ledger import Ledger
from txbatch.postgres.database.engine import connect

STRIDE = some_of(33, 11, "SOAK_STRIDE")
AGAIN = Run("cli:again", restate=Restate(1, "it was wrong"))
WAS = {"a": ((7,), 3), "b": ((5,), 3), "d": ((9,), 3)}
IS = {"a": ((7,), 4), "c": ((2,), 4), "d": ((9,), 3)}


@pytest.fixture(scope="module")
def engine(ledger_url: str) -> Iterator[Engine]:
    engine = connect(ledger_url)
    yield engine
    engine.dispose()


def counts(ledger: Ledger, topology: Topology, of: Run, **values: int) -> Batch:
    """All the steps of a run, or those that are left of them."""
    batch = coordinator.initialize_transaction(ledger, topology, of)
    assert isinstance(batch, Batch)
    if batch.status is not BatchStatus.COMMITTED:
        (aggregate,) = topology.aggregates
        partials: list[Keyed] = [((word,), (value,)) for word, value in values.items()]
        assignment = ledger.start_attempt(batch, of, code())
        manifest = manifest_of(topology, assignment, {topology.name: partials})
        emitted = ledger.record_manifests([(assignment, manifest)])[0]
        ledger.commit(topology, emitted, {topology.name: [record_batch(aggregate, partials)]}, of)
    ledger.success(topology.name, batch.txid)
    return ledger.batch(topology.name, batch.txid)


def cut(topology: Topology, life: Life, url: str) -> None:
    """Restate txid 1 in a process that may die at a statement."""
    process = Process(url, lambda _: url, life)
    try:
        counts(process.ledger, topology, AGAIN, a=4, c=2)
    except (TxbatchError, psycopg2.Error):
        assert life.over, "it failed, and nothing was cut"
    finally:
        process.end()


@pytest.mark.rule("R10", "R17", "R19")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_restate_is_cut_at_a_statement(after: bool, engine: Engine, ledger_url: str) -> None:
    """Of a txid that was restated before; the maximum of a key is in another position, of one it goes with the old version."""
    place, case = Real(engine), "after" if after else "before"
    first = 1 + Random(case).randrange(STRIDE)
    for at in count(first, STRIDE):
        spout = LogSpout({"p": 100})
        spout.fields = "word string, n bigint"
        topology = word_count(spout, f"cut_{case}_{at}", n=Max("n"))
        place.ledger.register(topology, "jobs/cut.py")
        counts(place.ledger, topology, run("1"), a=9, d=1)
        counts(place.ledger, topology, run("2"), a=7, d=9)
        counts(place.ledger, topology, Run("3", restate=Restate(1, "it was wrong")), a=3, b=5)
        life = Life(at, after=after)
        cut(topology, life, ledger_url)
        said = f"cut {case} statement {at}: {life.last}"
        assert place.report(topology) in (WAS, IS), said
        assert counts(place.ledger, topology, AGAIN, a=4, c=2).position == 1, said
        assert place.report(topology) == IS, said
        assert [place.ledger.batch(topology.name, txid).replaced_by for txid in (1, 2, 3, 4)] == [3, None, 4, None], (
            said
        )
        assert place.as_of(topology, 3) == WAS, said
        following = coordinator.initialize_transaction(place.ledger, topology, run("5"))
        assert isinstance(following, Batch)
        assert (following.txid, following.prev_txid) == (5, 2), said
        assert following.plan.streams["words"].ranges == {"p": {"start": 20, "end": 30}}, said
        if not life.over:
            assert at > first, "nothing was cut"
            return
