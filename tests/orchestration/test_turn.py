"""When a wait for a turn is over, on a real ledger: the trigger runs in a process of its own, without a running Airflow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from forks import told_with_airflow
from postgres_bench import Bench, words
from slowness import slowness
from sqlalchemy import Engine
from support import LogSpout, code, run, word_count

from txbatch import __version__
from txbatch.orchestration import trigger
from txbatch.orchestration.airflow import AIRFLOW_LEASE_SECONDS
from txbatch.orchestration.trigger import TurnTrigger
from txbatch.postgres.ledger import PostgresLedger

PROGRAM = """
import asyncio, json, sys
from txbatch.orchestration import trigger

trigger.MARGIN_SECONDS = trigger.POLL_SECONDS = 0.1

async def fires(topology, seconds):
    waits = trigger.TurnTrigger(topology, 1, "three", 3).run()
    try:
        return bool(await asyncio.wait_for(anext(waits), seconds))
    except TimeoutError:
        return False

async def main():
    return await asyncio.gather(*(fires(each, float(sys.argv[1])) for each in sys.argv[2:]))

print(json.dumps(dict(zip(sys.argv[2:], asyncio.run(main())))))
"""


class Three:
    """Three batches in flight, each of a run of its own; the third waits."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.name = name
        self.bench = Bench(engine, word_count(LogSpout({"a": 1_000_000}), name, max_pending=3))
        self.batches = [self.bench.emitted(self.counted, each) for each in ("one", "two", "three")]

    @property
    def counted(self) -> dict[str, object]:
        return {self.name: words(man=10)["word_count"]}

    def commit(self, txid: int) -> None:
        assert self.bench.commit(self.batches[txid - 1], self.counted)

    def abandon(self, txid: int) -> None:
        ended = "UPDATE txbatch.batch SET lease_until = clock_timestamp()"
        self.bench.run(f"{ended} WHERE topology = '{self.name}' AND txid = {txid}")


# What became of the two before it: those committed, those abandoned, and whether the third one's wait is over.
CASES: dict[str, tuple[list[int], list[int], bool]] = {
    "both_open": ([], [], False),
    "one_open": ([1], [], False),
    "none_open": ([1, 2], [], True),
    "lowest_abandoned": ([], [1], True),
    "other_abandoned": ([], [2], False),
}


def test_a_wait_is_over_once_all_before_it_are_final_or_the_lowest_is_abandoned(
    engine: Engine, postgres_url: str, tmp_path: Path
) -> None:
    for name, (committed, abandoned, _) in CASES.items():
        three = Three(engine, name)
        for txid in committed:
            three.commit(txid)
        for txid in abandoned:
            three.abandon(txid)
    given = {"TXBATCH_DATABASE_URL": postgres_url, "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "0"}
    over = told_with_airflow(PROGRAM, str(3 * slowness()), *CASES, folder=tmp_path, **given)
    assert over == {name: over for name, (*_, over) in CASES.items()}


def test_who_waits_for_a_run_that_is_gone_waits_a_quarter_of_an_hour_at_most(engine: Engine) -> None:
    """R6: docs/run/buttons.md promises so of a deleted run. The wait itself renews no lease but that of its own batch."""
    bench = Bench(engine, word_count(LogSpout({"a": 1_000_000}), "left"))
    bench.ledger = PostgresLedger(engine, lease_seconds=AIRFLOW_LEASE_SECONDS)
    assignment = bench.ledger.start_attempt(bench.planned("gone"), run("gone"), code())
    assert bench.ledger.renew_lease(assignment), "the last sign of life"
    waits, over = TurnTrigger("left", 1, "heir"), list[bool]()
    for minutes in (0, 14, 1):
        bench.run(f"UPDATE txbatch.batch SET lease_until = lease_until - interval '{minutes} min'")
        over.append(waits._over(bench.ledger))
    assert over == [False, False, True]
    heir = bench.planned("heir")
    assert (heir.txid, heir.metadata, heir.lease_run) == (1, assignment.metadata, "heir")


STORED = """
import asyncio, json, sys
from importlib import import_module
from txbatch.orchestration import trigger

trigger.MARGIN_SECONDS = trigger.POLL_SECONDS = 0.1

async def event(path, arguments):
    module, _, name = path.rpartition(".")
    resumed = getattr(import_module(module), name)(**arguments)
    assert resumed.serialize() == (path, arguments)
    return (await anext(resumed.run())).payload

print(json.dumps([asyncio.run(event(*each)) for each in json.loads(sys.argv[1])]))
"""
# What txbatch 0.1.0 left in Airflow's own database for deferred tasks. Never change these: such tasks may wait still.
OF_EARLIER_VERSION: list[tuple[str, dict[str, Any]]] = [
    ("TurnTrigger", {"topology": "stored", "txid": 1, "run": "four", "own": None, "seconds": 60.0}),
    ("TurnTrigger", {"topology": "stored", "txid": 1, "run": "three", "own": 3, "seconds": 60.0}),
    ("EmissionTrigger", {"topology": "stored", "txid": 3, "run": "three", "own": 3, "seconds": 60.0}),
    ("AskAgainTrigger", {"seconds": 0.1}),
]


def test_a_task_that_an_earlier_version_deferred_comes_back(engine: Engine, postgres_url: str, tmp_path: Path) -> None:
    """Airflow has stored the place of the trigger and its arguments: they are part of what an upgrade keeps."""
    three = Three(engine, "stored")
    three.commit(1)
    three.commit(2)
    stored = json.dumps([(f"txbatch.orchestration.trigger.{name}", of) for name, of in OF_EARLIER_VERSION])
    given = {"TXBATCH_DATABASE_URL": postgres_url, "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "0"}
    told: list[dict[str, Any]] = [{"txid": 1}, {"txid": 1}, {"txid": 3}, {}]
    events = told_with_airflow(STORED, stored, folder=tmp_path, **given)
    assert events == [{**each, "txbatch": __version__} for each in told]


MOMENT = """
import asyncio, json, time
from datetime import UTC, datetime, timedelta
from txbatch.orchestration import trigger

trigger.MARGIN_SECONDS = 0.0

async def waited(seconds):
    began, moment = time.monotonic(), datetime.now(UTC) + timedelta(seconds=seconds)
    path, given = trigger.MomentTrigger(moment.isoformat(), 3600.0).serialize()
    again = trigger.MomentTrigger(**given)
    return path, (await anext(again.run())).payload, time.monotonic() - began

print(json.dumps([asyncio.run(waited(0.5)), asyncio.run(waited(-60.0))]))
"""


def test_a_wait_for_a_moment_is_no_longer_if_the_triggerer_starts_anew(tmp_path: Path) -> None:
    given = {"AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "0"}
    (path, event, took), (*_, late) = told_with_airflow(MOMENT, folder=tmp_path, **given)
    assert (path, event) == ("txbatch.orchestration.trigger.MomentTrigger", {"txbatch": __version__})
    assert took > 0.4
    assert late < 0.4 * slowness() + 10


OUTAGE = """
import asyncio, json, sys
from txbatch.orchestration import trigger

trigger.MARGIN_SECONDS = trigger.POLL_SECONDS = 0.1

async def event(*given):
    return (await anext(trigger.LedgerTrigger(*given).run())).payload

print(json.dumps([asyncio.run(event(60.0, "outage", "two")), asyncio.run(event(60.0))]))
"""


def test_once_the_ledger_answers_the_batches_of_the_run_are_looked_after_again(
    engine: Engine, postgres_url: str, tmp_path: Path
) -> None:
    """R6: the outage was longer than the leases. Until now the first task that came back took the batches of all others."""
    bench = Bench(engine, word_count(LogSpout({"a": 1_000_000}), "outage", max_pending=5))
    for name in ("one", "two", "two+1", "two+x", "two+2"):
        bench.emitted({"outage": words(man=10)["word_count"]}, name)
    bench.ledger.abort("outage", 5, "over")
    bench.run("UPDATE txbatch.batch SET lease_until = clock_timestamp()")
    given = {"TXBATCH_DATABASE_URL": postgres_url, "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "0"}
    assert told_with_airflow(OUTAGE, folder=tmp_path, **given) == [{"answers": True, "txbatch": __version__}] * 2
    live = [bench.ledger.batch("outage", txid).lease_live for txid in range(1, 6)]
    assert live == [False, True, True, False, False], "its own open batches, and those of the runs that it has begun"


def test_the_first_wait_follows_airflows_own_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL", raising=False)
    assert trigger.first_seconds() == 8.0
    monkeypatch.setenv("AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL", "30")
    assert trigger.first_seconds() == 33.0
