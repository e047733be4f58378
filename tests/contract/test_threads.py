"""Many runs at once, each with its own batches: nothing is lost, whatever the order (R1, R6)."""

from __future__ import annotations

from threading import Barrier
from typing import Any

import pytest
from postgres_bench import Calls
from support import LogSpout, manifest_of, run, word_count

from txbatch.core.errors import BrokenChain, LeaseHeld, NotItsTurn, StaleAttempt, TerminalError
from txbatch.core.protocol.coordinator import NothingNew, initialize_transaction
from txbatch.core.protocol.decisions import Wait

RECORDS, RUNS = 240, 4


@pytest.mark.rule("R1", "R6")
def test_runs_that_race_for_everything_count_every_record_once(backing: Any) -> None:
    """Each run takes batch after batch, adopts what it finds, and commits as soon as it may."""
    topology = word_count(LogSpout({"a": RECORDS, "b": RECORDS}, size=30), max_pending=3)
    backing.ledger.register(topology, "jobs/job.py")
    together, calls = Barrier(RUNS), Calls()

    def work(name: str) -> None:
        together.wait(30)
        number = 0
        while True:
            mine = run(f"{name} {number}")
            batch = initialize_transaction(backing.ledger, topology, mine)
            if isinstance(batch, NothingNew):
                return
            if isinstance(batch, Wait):
                batch, mine = batch.batch, run(str(batch.batch.lease_run))
            else:
                number += 1
            finish(batch, mine)

    def finish(batch: Any, mine: Any) -> None:
        records = sum(range_["end"] - range_["start"] for range_ in batch.plan.streams["words"].ranges.values())
        partials = {"word_count": [(("all",), (records,))]}
        try:
            assignment = backing.ledger.start_attempt(batch, mine, "code")
            emitted = backing.ledger.record_manifests([(assignment, manifest_of(topology, assignment, partials))])[0]
            while True:
                try:
                    backing.ledger.commit(topology, emitted, backing.as_partials(topology, partials))
                    return
                except NotItsTurn:
                    first = backing.ledger.turn_of("word_count", batch.txid)
                    if first is not None:
                        open_batch = backing.ledger.batch("word_count", first)
                        finish(open_batch, run(str(open_batch.lease_run)))
        except BrokenChain as error:
            backing.ledger.abort("word_count", batch.txid, str(error))
        except (StaleAttempt, LeaseHeld, TerminalError):
            return  # another run was quicker

    for number in range(RUNS):
        calls.start(str(number), lambda n=number: work(str(n)))
    assert set(calls.join().values()) == {None}
    ((count, _),) = backing.state("word_count").values()
    assert count == 2 * RECORDS
